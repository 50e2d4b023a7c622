"""Copies of what inner loops read: where they stand, how far they reach, when there is none."""

from __future__ import annotations

import random
import textwrap
from dataclasses import replace

import pytest

from kernelet import pipeline
from kernelet.base.config import Context
from kernelet.base.dtype import dtypes
from kernelet.base.errors import InternalError
from kernelet.base.target import Target
from kernelet.graph.division import TRUE, add_index, index_const
from kernelet.graph.ops import Op
from kernelet.graph.spec import LOOPS, verify
from kernelet.graph.uop import UOp
from kernelet.graph.walk import substitute
from kernelet.lower import padding, panels
from kernelet.lower.loops import statements_of
from kernelet.lower.nest import write_nest
from kernelet.lower.panels import stage_loads
from kernelet.lower.transforms import Parallel, Plan, Reorder, Split, StageLoad
from tests.lower.pseudocode import (
    VOID,
    around,
    block,
    expand,
    kernel,
    load,
    loop,
    memory,
    pad,
    permute,
    product,
    reduce,
    reshape,
    shrink,
    store,
    written,
)
from tests.properties.graph_runs import VECTORS, Problem, check
from tests.properties.random_contractions import Contraction, random_copies

F32 = dtypes.float32
TILE = (Split(0, 2, "unroll"), Split(1, 4, "vector"))


def lines(graph: UOp, plan: Plan) -> str:
    found = write_nest(graph, plan)
    verify(found, LOOPS, "write loops")
    return written(found)


def same(found: str, wanted: str) -> bool:
    assert found == textwrap.dedent(wanted).strip("\n")
    return True


def windows(x: UOp, taps: int) -> UOp:
    """(rows, width) -> (taps, rows - taps + 1, width)"""
    rows, width = x.shape
    flat = reshape(expand(reshape(x, 1, rows, width), taps, rows, width), taps * rows, width)
    apart = reshape(pad(flat, (0, taps), (0, 0)), taps, rows + 1, width)
    return shrink(apart, (0, taps), (0, rows - taps + 1), (0, width))


def filtered(x: UOp, w: UOp) -> UOp:
    """Windows of rows times weights: (outputs, rows, width)"""
    outputs, taps = w.shape
    seen = permute(windows(x, taps), 1, 2, 0)
    shape = (outputs, *seen.shape)
    left = expand(reshape(seen, 1, *seen.shape), *shape)
    right = expand(reshape(w, outputs, 1, 1, taps), *shape)
    return reduce(left * right, Op.ADD, 3)


# ---- what is written ----


def test_a_panel_has_the_lanes_side_by_side() -> None:
    plan = Plan(root=(*TILE, Reorder((1, 0, 2, 3))), lanes=4, staged=(StageLoad(2, 1),))
    assert same(
        lines(kernel(product(memory(1, 6, 4), memory(2, 8, 4))), plan),
        """
        for r0 in 2:
          for r9 in 4:
            for r11 in 4 vector:
              s2[r9 + (r11 * 4)] = p2[((r0 * 16) + (r9 * 4)) + r11]
          for r1 in 3:
            for r6 in 2 unroll:
              for r7 in 4 vector:
                s1[(r6 * 4) + r7] = 0.0
            for r8 in 4 reduce:
              for r6 in 2 unroll:
                for r7 in 4 vector:
                  s1[(r6 * 4) + r7] = (s1[(r6 * 4) + r7] + (p1[((r1 * 8) + (r6 * 4)) + r8] * s2[r7 + (r8 * 4)]))
            for r2 in 2 unroll:
              for r3 in 4 vector:
                p0[(((r0 * 4) + (r1 * 16)) + (r2 * 8)) + r3] = s1[(r2 * 4) + r3]
        """,
    )


def test_a_tile_that_overlaps_the_one_before_has_a_panel_that_does_too() -> None:
    plan = Plan(root=(*TILE, Reorder((1, 0, 2, 3))), lanes=4, staged=(StageLoad(2, 1),))
    text = lines(kernel(product(memory(1, 6, 4), memory(2, 9, 4))), plan)
    fill = "s2[r9 + (r11 * 4)] = p2[((r9 * 4) + r11) + (max(-5, r0 * -4) * -4)]"
    assert text.count(fill) == 1


def test_loops_that_count_together_share_a_halo_without_masks() -> None:
    x = pad(memory(1, 16, 1), (1, 1), (0, 0))
    root = (Split(1, 8, "unroll"), Reorder((1, 0, 2)))
    assert same(
        lines(
            kernel(filtered(x, memory(2, 3, 3))),
            Plan(root=root, lanes=4, staged=(StageLoad(1, 1),)),
        ),
        """
        for r0 in 2:
          for r7 in 3:
            for r8 in 4 vector:
              s2[r8 + (max(-6, r7 * -4) * -1)] = p1[(((r0 * 8) + r8) + (max(-6, r7 * -4) * -1)) + -1] if ((((r0 * -8) + (r8 * -1)) + max(-6, r7 * -4) < 0) & (((r0 * 8) + r8) + (max(-6, r7 * -4) * -1) < 17))
          for r1 in 3:
            for r4 in 8 unroll:
              s1[r4] = 0.0
            for r5 in 3 reduce:
              for r4 in 8 unroll:
                s1[r4] = (s1[r4] + (s2[r4 + r5] * p2[(r1 * 3) + r5]))
            for r2 in 8 unroll:
              p0[((r0 * 8) + (r1 * 16)) + r2] = s1[r2]
        """,
    )


@pytest.mark.parametrize(
    ("x", "fill"),
    [
        (permute(memory(1, 8, 6), 1, 0), "p1[((r6 * 6) + (r7 * 2)) + r8]"),
        (memory(1, 6, 8), "p1[(((r6 * 16) + (r7 * 8)) + (r9 * 4)) + r10]"),
    ],
    ids=["columns", "rows"],
)
def test_a_copy_lies_in_the_order_in_which_the_loops_read(x: UOp, fill: str) -> None:
    """Tile after tile, step of the sum after step, the rows of a tile side by side."""
    plan = Plan(root=(Split(0, 2, "unroll"),), lanes=4, staged=(StageLoad(1, 0),))
    text = lines(kernel(product(x, memory(2, 5, 8))), plan)
    assert text.count(f" = {fill}") == 1
    assert "(s2[((r0 * 16) + r4) + (r5 * 2)] * p2[" in text


def test_without_lanes_a_copy_has_plain_loops() -> None:
    text = lines(kernel(product(memory(1, 6, 7), memory(2, 8, 7))), Plan(staged=(StageLoad(2, 0),)))
    assert text.startswith("for r3 in 56:\n  s2[r3] = p2[r3]\n")


def test_an_axis_that_is_divided_is_filled_by_two_loops() -> None:
    x = pad(memory(1, 5, 6), (1, 1), (0, 0))
    merged = Plan(merged=((0,), (1, 2), (3,)), root=(Split(1, 4, "vector"),), lanes=4)
    text = lines(kernel(filtered(x, memory(2, 4, 3))), replace(merged, staged=(StageLoad(1, 0),)))
    fill, _, rest = text.partition("for r0")
    assert "//" not in fill
    assert "%" not in fill
    assert "p1" not in rest
    assert " if " not in rest


def test_a_panel_is_filled_from_its_halo() -> None:
    graph = kernel(filtered(pad(memory(1, 5, 6), (1, 1), (0, 0)), memory(2, 4, 3)))
    merged = Plan(merged=((0,), (1, 2), (3,)), root=(Split(1, 4, "vector"),), lanes=4)
    text = lines(graph, replace(merged, staged=(StageLoad(1, 0), StageLoad(1, 0))))
    halo, panel, use = (
        [line for line in text.split("\n") if f"{name}[" in line] for name in ("p1", "s2", "s1")
    )
    assert len(halo) == 1
    assert " if " in halo[0]
    assert "s3[" in halo[0]
    assert "s3[" in panel[0]
    assert " if " not in panel[0]
    assert any("s2[" in line for line in use)


def test_a_long_pitch_is_an_odd_number_of_vectors() -> None:
    assert panels._pitches((3, 4, 128), 16) == [576, 144, 1]
    assert panels._pitches((3, 4, 30), 16) == [120, 30, 1]
    assert panels._pitches((7,), 16) == [1]


# ---- when there is no copy ----


def plain(graph: UOp, plan: Plan, *staged: StageLoad) -> bool:
    return written(write_nest(graph, replace(plan, staged=staged))) == written(
        write_nest(graph, plan)
    )


def test_memory_that_is_written_is_not_copied() -> None:
    x = memory(0, 6, 8)
    graph = UOp.sink(UOp(Op.STORE, VOID, (x, product(memory(1, 6, 7), memory(2, 8, 7)) + x)))
    for depth in range(3):
        assert plain(graph, Plan(lanes=4), StageLoad(0, depth))


def test_an_argument_that_is_not_read_has_no_copy() -> None:
    graph = kernel(product(memory(1, 6, 7), memory(2, 8, 7)))
    assert plain(graph, Plan(lanes=4), StageLoad(7, 1), StageLoad(0, 0))


def test_an_address_that_is_computed_is_not_copied() -> None:
    wanted = expand(reshape(memory(3, 4, dtype=dtypes.int32), 1, 4, 1), 1, 4, 7)
    table = expand(reshape(memory(1, 6, 7), 6, 1, 7), 6, 4, 7)
    rows = UOp(Op.GATHER, F32, (table, wanted), 0)
    rows = reshape(rows, 4, 7)
    graph = kernel(product(rows, memory(2, 8, 7)))
    for depth in range(3):
        assert plain(graph, Plan(lanes=4), StageLoad(1, depth))


def test_symbolic_sizes_have_no_copy() -> None:
    n = UOp.variable("n", 1, 9)
    left, right = memory(1, 6, n), memory(2, 8, n)
    shape = (6, 8, n)
    total = reduce(
        expand(reshape(left, 6, 1, n), *shape) * expand(reshape(right, 1, 8, n), *shape), Op.ADD, 2
    )
    for depth in range(3):
        assert plain(kernel(total), Plan(lanes=4), StageLoad(2, depth))


def test_a_copy_that_is_too_large_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = kernel(product(memory(1, 6, 7), memory(2, 8, 7)))
    monkeypatch.setattr(panels, "LARGEST_COPY", 56 * 4 - 1)
    assert plain(graph, Plan(lanes=4), StageLoad(2, 0))
    monkeypatch.setattr(panels, "LARGEST_COPY", 56 * 4)
    assert not plain(graph, Plan(lanes=4), StageLoad(2, 0))


def test_a_condition_that_is_no_comparison_of_indices_leaves_the_load_alone() -> None:
    i, place = loop(0, 8), memory(1, 8)
    gate = UOp(Op.CMPNE, dtypes.bool, (i, index_const(3)))
    program = block(around(i, store(memory(0, 8), i, load(place, i, gates=(gate,)))))
    assert stage_loads(program, (StageLoad(1, 0),), 4) is program


# ---- the value stays ----


@pytest.mark.parametrize("seed", range(16))
def test_copies_anywhere_keep_the_value(seed: int) -> None:
    for number in range(10):
        choose = random.Random(100 * seed + number)

        def plan(graph: UOp, target: Target, choose: random.Random = choose) -> Plan:
            return random_copies(choose, graph, target)

        with Context(VERIFY=1):
            check(Contraction(100 * seed + number).ask(), choose=plan)


def test_each_thread_has_a_copy_of_its_own() -> None:
    plan = Plan(root=(Parallel(),), lanes=4, staged=(StageLoad(2, 1),))
    found = write_nest(kernel(product(memory(1, 6, 7), memory(2, 8, 7))), plan)
    for statement, chain in statements_of(found):
        scratch = statement.src[0].src[0].op is Op.SCRATCH
        assert not scratch or chain[0].arg.kind == "thread"


# ---- wrong copies are noticed ----


def padded_product() -> Problem:
    """A sum over windows with zeros around."""
    problem = Problem([])
    x = problem.leaf(F32, [n % 7 - 3.0 for n in range(40)])
    w = problem.leaf(F32, [n % 5 - 2.0 for n in range(9)])
    rows = pad(reshape(x, 8, 5), (1, 1), (0, 0))
    problem.asked.append(filtered(rows, reshape(w, 3, 3)))
    return problem


def staged(_: UOp, __: Target) -> Plan:
    return Plan(lanes=4, staged=(StageLoad(1, 1),))


def test_a_halo_that_is_one_short_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    check(padded_product(), choose=staged)
    made = panels._Copy._joined

    def shorter(self: panels._Copy, group: dict[UOp, int]) -> list[panels.Axis]:
        return [replace(axis, size=max(axis.size - 1, 1)) for axis in made(self, group)]

    monkeypatch.setattr(panels._Copy, "_joined", shorter)
    with Context(VERIFY=1), pytest.raises(InternalError, match="are in memory of"):
        check(padded_product(), choose=staged)


def test_a_missing_gate_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panels._Copy, "_gate_over", lambda self, change: TRUE)
    with Context(VERIFY=1), pytest.raises(InternalError, match="are in memory of"):
        check(padded_product(), choose=staged)


def test_a_copy_from_elsewhere_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = panels._Copy._fill

    def moved(self: panels._Copy) -> UOp:
        fill = made(self)
        source = next(node for node in fill.toposort() if node.op is Op.LOAD)
        zero = UOp(Op.MUL, F32, (source, UOp.const(2.0, F32)))
        return substitute(fill, {source: zero})

    monkeypatch.setattr(panels._Copy, "_fill", moved)
    with pytest.raises(AssertionError, match="element"):
        check(padded_product(), choose=staged)


def test_a_loop_that_begins_late_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = padding._live_part

    def late(gate: UOp, variable: UOp, outer: frozenset[UOp]) -> tuple[UOp, UOp]:
        first, end = right(gate, variable, outer)
        return add_index(first, index_const(1)), end

    monkeypatch.setattr(padding, "_live_part", late)
    with pytest.raises(AssertionError, match="element"):
        check(padded_product(), choose=staged)


def test_padding_around_the_copy_is_read_with_a_condition() -> None:
    lowered = pipeline.lower(
        padded_product().schedule().kernels[0], VECTORS, staged(UOp.sink(), VECTORS)
    )
    gated = [node for node in lowered.program if node.op is Op.LOAD and len(node.src) == 2]
    assert gated
    assert all(node.src[0].src[0].op is Op.PARAM for node in gated)
