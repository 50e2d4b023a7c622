"""Sums of products get a register tile and panels; what they copy can be copied, and fits."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from kernelet.base.config import Context
from kernelet.base.dtype import DType, dtypes
from kernelet.base.target import Target
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.lower import contraction, heuristics, panels
from kernelet.lower.analysis import Analysis
from kernelet.lower.contraction import plan_contraction
from kernelet.lower.nest import write_nest
from kernelet.lower.stage import root_nest
from kernelet.lower.transforms import Parallel, Plan, Split
from tests.lower.pseudocode import (
    VOID,
    expand,
    flip,
    kernel,
    memory,
    pad,
    permute,
    product,
    reduce,
    reshape,
    shrink,
)
from tests.properties.graph_runs import VECTORS, check
from tests.properties.random_contractions import Contraction

WIDE = Target("CPU", vector_bytes=64, threads=2, cache_bytes=(48 << 10, 1 << 20))
MANY = replace(WIDE, vector_registers=32)


def planned(graph: UOp, target: Target = WIDE) -> Plan | None:
    return plan_contraction(Analysis(graph, Plan()), target)


def tiles(plan: Plan | None) -> dict[tuple[int, str], int]:
    """The factor of each split, by axis and kind."""
    assert plan is not None
    return {(t.axis, t.kind): t.factor for t in plan.root if isinstance(t, Split)}


def matmul(
    rows: int, inner: int, columns: int, dtype: DType = dtypes.float32, turned: bool = False
) -> UOp:
    """x @ y; y is stored by columns where it is turned."""
    x = memory(1, rows, inner, dtype=dtype)
    y = memory(2, columns, inner, dtype=dtype)
    return product(x, y if turned else permute(memory(2, inner, columns, dtype=dtype), 1, 0))


def windows(x: UOp, axis: int, taps: int, step: int = 1) -> UOp:
    """One axis becomes (taps, places)."""
    size, shape = x.shape[axis], x.shape
    before, after = shape[:axis], shape[axis + 1 :]
    whole = tuple((0, dim) for dim in before), tuple((0, dim) for dim in after)
    still = tuple((0, 0) for _ in before), tuple((0, 0) for _ in after)
    copies = expand(reshape(x, *before, 1, size, *after), *before, taps, size, *after)
    flat = pad(reshape(copies, *before, taps * size, *after), *still[0], (0, taps), *still[1])
    apart = reshape(flat, *before, taps, size + 1, *after)
    count = (size - taps) // step + 1
    room = count * step
    longer = pad(apart, *still[0], (0, 0), (0, step), *still[1])
    first = shrink(longer, *whole[0], (0, taps), (0, room), *whole[1])
    rows = reshape(first, *before, taps, count, step, *after)
    kept = shrink(rows, *whole[0], (0, taps), (0, count), (0, 1), *whole[1])
    return reshape(kept, *before, taps, count, *after)


def convolution(n: int, c: int, size: int, o: int, taps: int, step: int = 1, edge: int = 0) -> UOp:
    """(n, c, y, x) and (o, c, ky, kx) -> (n, o, y, x)"""
    x = pad(memory(1, n, c, size, size), (0, 0), (0, 0), (edge, edge), (edge, edge))
    seen = windows(windows(x, 2, taps, step), 4, taps, step)  # n, c, ky, y, kx, x
    count = seen.shape[3]
    shape = (n, o, count, count, c, taps, taps)
    left = reshape(permute(seen, 0, 3, 5, 1, 2, 4), n, 1, count, count, c, taps, taps)
    right = reshape(memory(2, o, c, taps, taps), 1, o, 1, 1, c, taps, taps)
    total = reduce(expand(left, *shape) * expand(right, *shape), Op.ADD, 4, 5, 6)
    return reshape(total, n, o, count, count)


def scratch_bytes(graph: UOp, plan: Plan) -> int:
    nodes = write_nest(graph, plan).toposort()
    return sum(n.arg.size * n.dtype.itemsize for n in nodes if n.op is Op.SCRATCH)


# ---- matrix products ----


def test_a_product_has_lanes_along_the_columns_and_rows_beside_each_other() -> None:
    plan = planned(kernel(matmul(512, 512, 512)))
    assert tiles(plan)[1, "vector"] == 16
    assert tiles(plan)[1, "unroll"] == 32
    assert 4 <= tiles(plan)[0, "unroll"] <= 8
    assert plan is not None
    assert Parallel() in plan.root


@pytest.mark.parametrize(
    ("dtype", "lanes"), [(dtypes.float64, 8), (dtypes.float32, 16), (dtypes.float16, 16)]
)
def test_lanes_fill_a_register(dtype: DType, lanes: int) -> None:
    assert tiles(planned(kernel(matmul(128, 128, 128, dtype))))[1, "vector"] == lanes


def test_scattered_lanes_get_a_panel() -> None:
    plan = planned(kernel(matmul(512, 40, 512, turned=True)))
    assert plan is not None
    slots = [one.slot for one in plan.staged]
    assert slots == [2]


def test_an_operand_that_lies_right_and_stays_cached_is_read_where_it_is() -> None:
    plan = planned(kernel(matmul(64, 64, 64)))
    assert plan is not None
    assert plan.staged == ()


def test_sizes_that_no_tile_divides_are_tiled_too() -> None:
    plan = planned(kernel(matmul(1021, 1021, 1021)))
    assert tiles(plan)[1, "unroll"] == 32


@pytest.mark.parametrize(
    "graph",
    [
        matmul(16, 16, 16),
        reduce(memory(1, 512, 1024), Op.ADD, 1),
        reduce(expand(memory(1, 256, 1, 256), 256, 64, 256), Op.MAX, 2),
        reduce(memory(1, 64, 64, 64) * memory(2, 64, 64, 64), Op.ADD, 2),
    ],
    ids=["small", "one operand", "maximum", "nothing is shared"],
)
def test_other_kernels_are_no_contractions(graph: UOp) -> None:
    assert planned(kernel(graph)) is None


def test_a_kernel_in_place_is_no_contraction() -> None:
    x = memory(0, 512, 512)
    value = reshape(matmul(512, 512, 512), 512, 512) + x
    assert planned(UOp.sink(UOp(Op.STORE, VOID, (x, value)))) is None


def test_a_target_without_lanes_has_no_panels() -> None:
    assert planned(kernel(matmul(512, 512, 512)), replace(WIDE, vector_bytes=4)) is None


# ---- convolutions ----

SHAPES = [
    (2, 8, 56, 16, 3, 1, 1),
    (2, 16, 14, 16, 3, 1, 1),
    (2, 8, 28, 16, 3, 2, 1),
    (1, 3, 112, 16, 7, 2, 3),
    (1, 2, 300, 8, 5, 1, 2),
    (8, 16, 7, 16, 3, 1, 1),
    (1, 8, 33, 12, 3, 3, 0),
    (1, 4, 1024, 8, 3, 1, 1),
    (2, 32, 28, 64, 1, 1, 0),
]
# Whose lanes are channels: neighbouring pixels share numbers, and no lane is idle.
LANES_OF_CHANNELS = [
    (8, 64, 56, 64, 3, 1, 1),
    (8, 64, 56, 128, 3, 2, 1),
    (8, 128, 14, 128, 3, 1, 1),
]


@pytest.mark.parametrize("shape", LANES_OF_CHANNELS)
def test_channels_are_lanes_where_rows_are_no_multiple_of_a_vector(shape: tuple[int, ...]) -> None:
    graph = kernel(convolution(*shape))
    plan = planned(graph, MANY)
    assert tiles(plan)[1, "unroll"] == 64
    assert plan is not None
    # The batch is outside of the copy with zeros around, which then is of one image.
    weights, halo = plan.staged
    nest = root_nest(graph, plan)
    assert [part.axis for part in nest[: halo.depth]][-1] == 0
    assert weights.depth < halo.depth


def test_channels_whose_stores_drive_each_other_out_of_the_cache_are_no_lanes() -> None:
    plan = planned(kernel(convolution(32, 64, 32, 64, 3, 1, 1)), MANY)
    assert (1, "vector") not in tiles(plan)


def test_a_tile_has_more_rows_where_registers_allow() -> None:
    many = planned(kernel(matmul(1024, 1024, 1024)), MANY)
    few = planned(kernel(matmul(1024, 1024, 1024)), WIDE)
    assert (tiles(many)[0, "unroll"], tiles(many)[1, "unroll"]) == (6, 64)
    assert (tiles(few)[0, "unroll"], tiles(few)[1, "unroll"]) == (6, 32)


def test_tiles_whose_copies_entangle_give_way_to_others() -> None:
    # A gradient of stride 2: 64 lanes would be two rows of 32, each of which skips every other row.
    shape = (8, 64, 32, 32, 128, 3, 3)
    x = reshape(memory(1, 8, 128, 16, 16), 8, 128, 16, 1, 16, 1)
    spread = reshape(pad(x, *((0, 0),) * 3, (0, 1), (0, 0), (0, 1)), 8, 128, 32, 32)
    seen = windows(windows(pad(spread, *((0, 0),) * 2, *((1, 1),) * 2), 2, 3), 4, 3)
    left = expand(reshape(permute(seen, 0, 3, 5, 1, 2, 4), 8, 1, 32, 32, 128, 3, 3), *shape)
    right = expand(reshape(memory(2, 64, 128, 3, 3), 1, 64, 1, 1, 128, 3, 3), *shape)
    graph = kernel(reduce(left * right, Op.ADD, 4, 5, 6))
    plan = planned(graph)
    assert plan is not None
    nodes = write_nest(graph, plan).toposort()
    assert sum(node.op is Op.SCRATCH for node in nodes) >= len(plan.staged)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_copy_of_a_plan_is_made(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    copied = panels.stage_load

    def counted(*args: object) -> UOp:
        made.append(copied(*args))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(panels, "stage_load", counted)
    graph = kernel(convolution(*shape))
    plan = planned(graph)
    assert plan is not None
    made.clear()  # of the choices that were tried
    write_nest(graph, plan)
    assert len(made) == len(plan.staged)


@pytest.mark.parametrize("shape", [*SHAPES, (64, 64, 112, 64, 3, 1, 1), (1, 3, 2000, 3, 11, 1, 5)])
def test_panels_and_partial_sums_are_no_larger_than_the_caches(shape: tuple[int, ...]) -> None:
    graph = kernel(convolution(*shape))
    plan = planned(graph)
    assert plan is not None
    assert scratch_bytes(graph, plan) < 6 << 20


def test_padding_is_read_once_into_a_halo_then_into_the_panel() -> None:
    plan = planned(kernel(convolution(2, 8, 56, 16, 3, 1, 1)))
    assert plan is not None
    first, second = plan.staged
    assert first == second
    assert first.slot == 1


def weight_gradient(n: int, c: int, size: int, o: int, taps: int) -> UOp:
    """(n, c, y, x) and (n, o, y, x) -> (o, c, ky, kx)"""
    edge = taps // 2
    x = pad(memory(1, n, c, size, size), (0, 0), (0, 0), (edge, edge), (edge, edge))
    seen = permute(windows(windows(x, 2, taps), 4, taps), 1, 2, 4, 0, 3, 5)  # c, ky, kx, n, y, x
    shape = (o, c, taps, taps, n, size, size)
    left = expand(reshape(seen, 1, *shape[1:]), *shape)
    right = permute(memory(2, n, o, size, size), 1, 0, 2, 3)
    total = reduce(
        left * expand(reshape(right, o, 1, 1, 1, n, size, size), *shape), Op.ADD, 4, 5, 6
    )
    return reshape(total, o, c, taps, taps)


def test_all_taps_of_a_window_read_one_copy() -> None:
    graph = kernel(weight_gradient(4, 32, 16, 32, 3))
    plan = planned(graph)
    assert plan is not None
    halo, panel = plan.staged
    assert halo == panel
    assert halo.slot == 1
    nest = root_nest(graph, plan)
    assert all(part.axis not in (2, 3) for part in nest[: panel.depth - (plan.blocked is not None)])
    # 18 rows of 18 are read: with a copy for each tap there would be 9 times 16 of 16.
    assert scratch_bytes(graph, plan) < 9 * 4 * 16 * 16 * 16 * 4


@pytest.mark.parametrize(
    ("inner", "columns", "copied"), [(2048, 1 << 15, 1), (2048, 512, 1), (16, 1 << 15, 0)]
)
def test_an_operand_whose_sum_takes_long_steps_is_copied_once_unless_it_stays_cached(
    inner: int, columns: int, copied: int
) -> None:
    rows, many = memory(1, inner, 256), memory(2, inner, columns)
    plan = planned(kernel(product(permute(rows, 1, 0), permute(many, 1, 0))))
    assert plan is not None
    assert [one.slot for one in plan.staged if not one.depth] == [1] * copied


def test_long_sums_are_cut_so_that_a_panel_stays_cached() -> None:
    graph = kernel(convolution(2, 2048, 14, 32, 3, 1, 1))
    plan = planned(graph)
    assert plan is not None
    assert plan.blocked is not None
    assert 2048 % plan.blocked.size == 0
    # Else it would have all 2048 * 9 products of 32 results.
    assert scratch_bytes(graph, plan) < 2048 * 9 * 32 * 4


def test_flipped_weights_are_read_where_they_are() -> None:
    seen = windows(
        windows(pad(memory(1, 2, 8, 28, 28), *((0, 0),) * 2, *((1, 1),) * 2), 2, 3), 4, 3
    )
    shape = (2, 16, 28, 28, 8, 3, 3)
    left = expand(reshape(permute(seen, 0, 3, 5, 1, 2, 4), 2, 1, 28, 28, 8, 3, 3), *shape)
    weights = flip(permute(memory(2, 8, 16, 3, 3), 1, 0, 2, 3), 2, 3)
    right = expand(reshape(weights, 1, 16, 1, 1, 8, 3, 3), *shape)
    plan = planned(kernel(reduce(left * right, Op.ADD, 4, 5, 6)))
    assert plan is not None
    assert {one.slot for one in plan.staged} == {1}


def test_a_sum_whose_first_loop_steps_too_far_is_cut_inside_of_it() -> None:
    steps = 1 << 17
    shape = (64, 64, 2, steps)
    left = reshape(permute(memory(1, 2, 64, steps), 1, 0, 2), 64, 1, 2, steps)
    right = reshape(permute(memory(2, 2, steps, 64), 2, 0, 1), 1, 64, 2, steps)
    graph = kernel(reduce(expand(left, *shape) * expand(right, *shape), Op.ADD, 2, 3))
    plan = planned(graph)
    assert plan is not None
    assert plan.blocked is not None
    assert plan.blocked.whole == 1
    assert 1 << 16 < scratch_bytes(graph, plan) < 6 << 20


# ---- the value stays ----


@pytest.mark.parametrize("seed", range(16))
def test_contractions_of_any_kind_give_their_value(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contraction, "LEAST_WORK", 1)
    found = []
    choose = heuristics.plan_contraction

    def noted(analysis: Analysis, target: Target) -> Plan | None:
        found.append(choose(analysis, target))
        return found[-1]

    monkeypatch.setattr(heuristics, "plan_contraction", noted)
    for number in range(12):
        # Caches so small that panels are cut and sums are blocked.
        target = replace(
            VECTORS, cache_bytes=(64, 64 << 2 * (number % 4)), vector_bytes=16 << number % 3
        )
        with Context(VERIFY=1):
            check(Contraction(5000 + 100 * seed + number).ask(), target=target)
    assert any(found)


def test_work_of_a_plan_is_no_more_than_a_rounded_tile() -> None:
    plan = planned(kernel(matmul(100, 300, 100)))
    for (axis, kind), factor in tiles(plan).items():
        if kind == "unroll":
            assert math.ceil(100 / factor) * factor < 100 * 1.3, (axis, factor)
