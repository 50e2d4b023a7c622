"""Plans: lanes where memory is contiguous, tiles where values are reused, threads where it pays."""

from __future__ import annotations

import pytest

from kernelet.base.dtype import dtypes
from kernelet.base.target import Target
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.lower import heuristics
from kernelet.lower.analysis import Analysis
from kernelet.lower.heuristics import plan_kernel, with_merged_axes
from kernelet.lower.stage import root_nest
from kernelet.lower.transforms import Nest, Parallel, Plan, Split
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
    softmax,
)

WIDE = Target("CPU", vector_bytes=32, threads=2)
SCALAR = Target("PYTHON")


def planned(value: UOp, target: Target = WIDE) -> tuple[Plan, Nest]:
    graph = value if value.op is Op.SINK else kernel(value)
    plan = plan_kernel(graph, target)
    return plan, root_nest(graph, plan)


def lanes(nest: Nest) -> list[tuple[int, int]]:
    """The axis and the size of each loop with lanes."""
    return [(loop.axis, int(loop.size)) for loop in nest if loop.kind == "vector"]  # type: ignore[arg-type]


# ---- merging ----


def merged(value: UOp) -> tuple[tuple[int, ...], ...]:
    return with_merged_axes(Analysis(kernel(value), Plan())).groups


def test_axes_that_every_address_runs_through_are_one() -> None:
    assert merged(memory(1, 4, 5, 6) + memory(2, 4, 5, 6)) == ((0, 1, 2),)


def test_conditions_on_values_keep_no_axes_apart_however_deep_they_are() -> None:
    value = memory(1, 4, 5) + memory(2, 4, 5)
    for _ in range(2000):
        value = value * value
    assert merged((value < 0).where(value, value.cast(dtypes.int32).cast(dtypes.float32))) == (
        (0, 1),
    )


def test_a_transposed_operand_keeps_axes_apart() -> None:
    assert merged(memory(1, 4, 5) + permute(memory(2, 5, 4), 1, 0)) == ((0,), (1,))


def test_a_repeated_row_keeps_axes_apart() -> None:
    assert merged(memory(1, 4, 5) + expand(memory(2, 1, 5), 4, 5)) == ((0,), (1,))


def test_padding_keeps_axes_apart() -> None:
    assert merged(pad(memory(1, 4, 5), (0, 0), (1, 1))) == ((0,), (1,))


def test_axes_of_reductions_stay_apart() -> None:
    assert merged(softmax(memory(1, 4, 5))) == ((0,), (1,))
    # The second axis is read in another order than the first.
    assert merged(reduce(permute(memory(1, 5, 4, 3), 1, 0, 2), Op.ADD, 2)) == ((0,), (1, 2))


def test_axes_that_a_sum_keeps_are_one_where_it_runs_through_them_so() -> None:
    assert merged(reduce(memory(1, 4, 5, 6, 3), Op.MAX, 3)) == ((0, 1, 2, 3),)


# ---- lanes ----


def test_contiguous_elements_are_lanes() -> None:
    plan, nest = planned(memory(1, 40, 50) * 2.0)
    assert lanes(nest) == [(0, 8)]
    assert plan.merged == ((0, 1),)


def test_wider_elements_have_fewer_lanes() -> None:
    _, nest = planned(memory(1, 64, dtype=dtypes.float64) * 2.0)
    assert lanes(nest) == [(0, 4)]


def test_lanes_follow_what_most_operands_have_in_order() -> None:
    columns = permute(memory(1, 64, 48), 1, 0)
    _, nest = planned(columns + permute(memory(2, 64, 48), 1, 0) * permute(memory(3, 64, 48), 1, 0))
    assert [axis for axis, _ in lanes(nest)] == [0]


def test_columns_are_summed_side_by_side() -> None:
    plan, nest = planned(reduce(memory(1, 100, 64), Op.ADD, 0))
    assert [size for _, size in lanes(nest)] == [8]
    assert plan.grouped == ()


def test_a_row_is_summed_in_lanes() -> None:
    plan, nest = planned(reduce(memory(1, 100, 64), Op.ADD, 1))
    assert lanes(nest) == []
    ((stage, group),) = plan.grouped
    assert (stage, group.axis) == (1, 1)
    assert group.lanes >= 4


def test_a_long_sum_of_gathered_elements_does_not_wait_for_itself() -> None:
    def product(length: int) -> UOp:
        one, other = memory(1, length, 3, 3), memory(2, length, 3, 3)
        return reduce(permute(one, 1, 2, 0) * permute(other, 2, 1, 0), Op.ADD, 2)

    plan, nest = planned(product(640))
    assert lanes(nest) == []
    ((_, group),) = plan.grouped
    assert group.lanes * group.unroll >= 4
    assert planned(product(16))[0].grouped == ()


def test_a_sum_of_every_other_element_has_lanes_at_once() -> None:
    columns = permute(memory(1, 3, 16, 2), 0, 2, 1)
    ((_, group),) = planned(reduce(columns * columns, Op.ADD, 2))[0].grouped
    assert group.lanes >= 4


def test_short_rows_and_columns_have_no_lanes() -> None:
    plan, nest = planned(reduce(memory(1, 3, 3), Op.ADD, 1))
    assert (plan.grouped, lanes(nest)) == ((), [])


def test_a_device_without_vectors_has_no_lanes() -> None:
    for value in (
        memory(1, 64) * 2.0,
        reduce(memory(1, 9, 64), Op.ADD, 1),
        softmax(memory(1, 9, 64)),
    ):
        plan, nest = planned(value, SCALAR)
        assert lanes(nest) == []
        assert plan.grouped == ()


# ---- tiles ----


def test_a_product_has_a_tile_of_rows_and_lanes() -> None:
    right = permute(memory(2, 64, 64), 1, 0)
    plan, nest = planned(product(memory(1, 64, 64), right))
    kinds = {(loop.axis, loop.kind) for loop in nest}
    assert (0, "unroll") in kinds
    assert (1, "vector") in kinds
    assert nest[-1].kind == "vector"


def test_a_tile_of_a_size_that_does_not_divide_overlaps() -> None:
    right = permute(memory(2, 64, 61), 1, 0)
    _, nest = planned(product(memory(1, 61, 64), right))
    assert any(loop.limit is not None for loop in nest)


def test_a_value_written_in_place_is_never_written_twice() -> None:
    x = memory(0, 61)
    graph = UOp.sink(UOp(Op.STORE, VOID, (x, x * 2.0)))
    _, nest = planned(graph)
    assert all(loop.limit is None for loop in nest)
    even = memory(0, 64)
    _, nest = planned(UOp.sink(UOp(Op.STORE, VOID, (even, even * 2.0))))
    assert lanes(nest) == [(0, 8)]


def test_a_variable_axis_stays_whole() -> None:
    size = UOp.variable("n", 1, 64)
    view = shrink(memory(1, 64), (0, size))
    graph = UOp.sink(UOp(Op.STORE, VOID, (shrink(memory(0, 64), (0, size)), view * 2.0)))
    plan, nest = planned(graph)
    assert not any(isinstance(step, Split) for step in plan.root)
    assert len(nest) == 1


# ---- order, scratch, threads ----


def test_loops_that_reductions_need_are_outside() -> None:
    x = memory(1, 40, 50)
    _, nest = planned(x * expand(reduce(x, Op.MAX, 0), 40, 50))
    assert nest[0].axis == 1


def test_dear_values_read_twice_are_kept() -> None:
    assert len(planned(softmax(memory(1, 64, 64)))[0].stored) == 1
    assert planned(softmax(memory(1, 4, 1 << 20)))[0].stored == ()


@pytest.mark.parametrize("work", [1, 1 << 40])
def test_threads_share_what_is_worth_waking_them(
    work: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heuristics, "THREAD_WORK", work)
    plan, nest = planned(memory(1, 40, 50) + expand(memory(2, 1, 50), 40, 50))
    assert (Parallel() in plan.root) == (work == 1)
    assert (nest[0].kind == "thread") == (work == 1)


def test_one_thread_shares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heuristics, "THREAD_WORK", 1)
    assert Parallel() not in planned(memory(1, 4000) * 2.0, Target("CPU", 32))[0].root


def test_threads_share_a_loop_that_reductions_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heuristics, "THREAD_WORK", 1)
    _, nest = planned(softmax(memory(1, 40, 50)))
    assert (nest[0].axis, nest[0].kind) == (0, "thread")


# ---- odd kernels ----


@pytest.mark.parametrize(
    "value",
    [
        reshape(memory(1, 1), *()),
        memory(1, 0, 3) * 2.0,
        reduce(memory(1, 3, 0), Op.ADD, 1),
        reduce(memory(1, 0, 3), Op.MAX, 0),
        flip(memory(1, 1, 1), 0),
    ],
)
def test_one_element_or_none_has_a_plan(value: UOp) -> None:
    plan, _ = planned(value)
    assert isinstance(str(plan), str)


def test_lanes_that_are_far_apart_pay_where_many_rows_share_them() -> None:
    left, right = memory(1, 128, 4), memory(2, 64, 4)
    assert lanes(planned(reshape(product(left, right), 128, 64))[1]) == [(1, 8)]


def test_a_small_product_has_a_panel_but_wakes_no_thread() -> None:
    small = reshape(product(memory(1, 128, 4), memory(2, 64, 4)), 128, 64)
    plan, _ = planned(small)
    assert plan.staged
    assert Parallel() not in plan.root
    large = reshape(product(memory(1, 128, 64), memory(2, 64, 64)), 128, 64)
    assert Parallel() in planned(large)[0].root
