"""Stages: which values have loops of their own, at which loop they stand, which box they hold."""

from __future__ import annotations

from kernelet.graph.infer import Dim
from kernelet.graph.ops import Op
from kernelet.graph.reuse import absorbed_sums
from kernelet.graph.show import show_expression
from kernelet.graph.uop import UOp
from kernelet.lower.nest import NestWriter
from kernelet.lower.stage import (
    Stage,
    output_shape,
    root_nest,
    stored_candidates,
    target_address,
)
from kernelet.lower.transforms import Loop, Plan, Reorder, Split
from tests.lower.pseudocode import (
    VOID,
    expand,
    flip,
    kernel,
    loop,
    memory,
    pad,
    permute,
    product,
    reduce,
    reshape,
    shrink,
    softmax,
)


def stages(graph: UOp, plan: Plan | None = None) -> list[Stage]:
    """The stages of a kernel, producers first."""
    writer = NestWriter(graph, plan or Plan())
    writer.build()
    return sorted(writer.stages.values(), key=lambda stage: stage.number)


def depths(graph: UOp, plan: Plan | None = None) -> list[tuple[int, tuple[int, ...]]]:
    """How deep each stage stands, and the sizes of its box."""
    return [(len(stage.place), stage.sizes) for stage in stages(graph, plan)]


# ---- the outputs ----


def test_one_loop_for_each_axis_longer_than_one() -> None:
    assert root_nest(kernel(memory(1, 4, 1, 5)), Plan()) == (Loop(0, 4), Loop(2, 5))


def test_merged_axes_are_one_loop() -> None:
    plan = Plan(merged=((0, 1), (2,)))
    assert root_nest(kernel(memory(1, 4, 5, 6)), plan) == (Loop(0, 20), Loop(1, 6))


def test_transforms_come_after_merging() -> None:
    plan = Plan(merged=((0, 1),), root=(Split(0, 8, "vector"),))
    assert root_nest(kernel(memory(1, 4, 6)), plan) == (Loop(0, 3, 8), Loop(0, 8, kind="vector"))


def test_a_variable_axis_is_a_loop_of_that_size() -> None:
    size = UOp.variable("n", 1, 8)
    value = shrink(memory(1, 8, 3), (0, size), (0, 3))
    target = shrink(memory(0, 8, 3), (0, size), (0, 3))
    nest = root_nest(UOp.sink(UOp(Op.STORE, VOID, (target, value))), Plan())
    sizes: list[Dim] = [part.size for part in nest]
    assert sizes == [size, 3]


def test_the_shape_of_a_kernel_is_that_of_its_values() -> None:
    assert output_shape(kernel(memory(1, 4, 5))) == (4, 5)


def test_a_store_goes_where_its_view_points() -> None:
    view = flip(shrink(permute(memory(0, 4, 6), 1, 0), (2, 6), (0, 3)), 1)
    address = target_address(view, (loop(0, 4), loop(1, 3)))
    assert show_expression(address.src[1]) == "(r0 + (r1 * -6)) + 14"


# ---- which values are stages ----


def test_reductions_are_numbered_producers_first() -> None:
    graph = kernel(softmax(memory(1, 4, 5)))
    assert [stage.node.arg.op for stage in stages(graph)] == [Op.MAX, Op.ADD]


def test_a_sum_of_sums_is_one_stage() -> None:
    inner = reduce(memory(1, 4, 6), Op.ADD, 1)
    outer = reduce(reshape(pad(inner, (1, 1), (0, 0)), 6), Op.ADD, 0)
    assert absorbed_sums(kernel(outer)) == {inner: outer}
    assert len(stages(kernel(outer))) == 1


def test_dear_values_above_reductions_may_be_kept() -> None:
    graph = kernel(softmax(memory(1, 4, 5).alu(Op.SIN)))
    assert [node.op for node in stored_candidates(graph)] == [Op.EXP2, Op.RECIPROCAL]


# ---- places and boxes ----


def test_a_row_sum_stands_at_its_row() -> None:
    assert depths(kernel(softmax(memory(1, 4, 5)))) == [(1, (1, 1)), (1, (1, 1))]


def test_a_sum_over_everything_stands_before_all_loops() -> None:
    x = memory(1, 4, 5)
    assert depths(kernel(x * expand(reduce(x, Op.ADD, 0, 1), 4, 5))) == [(0, (1, 1))]


def test_column_sums_are_all_kept_unless_columns_are_outside() -> None:
    x = memory(1, 4, 5)
    graph = kernel(x * expand(reduce(x, Op.ADD, 0), 4, 5))
    assert depths(graph) == [(0, (1, 5))]
    assert depths(graph, Plan(root=(Reorder((1, 0)),))) == [(1, (1, 1))]


def test_a_register_tile_is_a_box_of_sums_in_the_same_loops() -> None:
    plan = Plan(root=(Split(0, 2, "unroll"), Split(1, 4, "vector")))
    (stage,) = stages(kernel(product(memory(1, 6, 7), memory(2, 8, 7))), plan)
    assert (len(stage.place), stage.sizes) == (2, (2, 4, 1))
    assert [part.kind for part in stage.nest] == ["unroll", "vector"]


def test_the_last_tile_has_a_box_that_starts_earlier() -> None:
    top = reshape(reduce(memory(1, 10, 3), Op.MAX, 1), 10)
    (stage,) = stages(kernel(top * 2.0), Plan(root=(Split(0, 4, "vector"),)))
    assert show_expression(stage.lo[0]) == "max(-6, r0 * -4) * -1"
    assert stage.sizes == (4, 1)


def test_the_box_of_two_neighbours_has_both() -> None:
    top = reshape(reduce(memory(1, 8, 3), Op.MAX, 1), 8)
    assert depths(kernel(shrink(top, (0, 7)) + shrink(top, (1, 8)))) == [(1, (2, 1))]


def test_readings_that_no_loop_holds_in_a_box_need_all_of_the_value() -> None:
    top = reshape(reduce(memory(1, 8, 3), Op.MAX, 1), 8)
    assert depths(kernel(top + flip(top, 0))) == [(0, (8, 1))]


def test_a_box_at_the_top_never_leaves_its_value() -> None:
    top = reshape(reduce(memory(1, 8, 3), Op.MAX, 1), 8)
    both = pad(top, (5, 5)) + flip(pad(top, (5, 5)), 0)
    assert depths(kernel(both)) == [(0, (8, 1))]


def test_the_lanes_of_a_diagonal_are_lanes_of_one_axis_only() -> None:
    top = reshape(reduce(memory(1, 4, 4, 3), Op.MAX, 2), 16)
    padded = reshape(pad(top, (0, 4)), 4, 5)
    diagonal = reshape(shrink(padded, (0, 4), (0, 1)), 4)
    (stage,) = stages(kernel(diagonal), Plan(root=(Split(0, 4, "vector"),)))
    assert [part.kind for part in stage.nest].count("vector") <= 1


def test_a_kept_row_is_filled_by_vectors() -> None:
    graph = kernel(softmax(memory(1, 4, 18)))
    kept = stages(graph, Plan(stored=(0,), lanes=8))[-1]
    assert kept.node.op is Op.EXP2
    assert kept.nest == (Loop(1, 3, 8, limit=10), Loop(1, 8, kind="vector"))


def test_a_kept_number_is_no_vector() -> None:
    total = reduce(memory(1, 6), Op.ADD, 0).alu(Op.EXP2)
    value = reshape(reduce(memory(2, 6) * expand(total, 6), Op.ADD, 0), 1)
    kept = stages(kernel(value), Plan(stored=(0,), lanes=4))
    assert all(stage.sizes == (1,) and stage.nest == () for stage in kept)
    scalar = reshape(reduce(memory(1, 6), Op.ADD, 0), *()).alu(Op.EXP2)
    wide = expand(reshape(scalar, 1), 6) * memory(2, 6)
    assert stages(kernel(wide), Plan(stored=(0,), lanes=4))[-1].sizes == ()


def test_the_loop_of_a_padded_axis_does_not_leave_the_box() -> None:
    size = UOp.variable("n", 1, 8)
    rows = reduce(shrink(memory(1, 8, 3), (0, size), (0, 3)), Op.MAX, 1)
    padded = reshape(pad(rows, (0, 1), (0, 0)), 1, size + 1)
    target = shrink(memory(0, 3, 9), (0, 3), (0, size + 1))
    value = expand(padded, 3, size + 1)
    (stage,) = stages(UOp.sink(UOp(Op.STORE, VOID, (target, value))))
    (around,) = [part for part in stage.ranges if part.arg.kind == "loop"]
    assert around.src[0].bounds.max <= stage.sizes[0] == 8
