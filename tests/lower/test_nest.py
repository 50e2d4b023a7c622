"""A kernel and a plan give loops, read as text."""

from __future__ import annotations

import math
import textwrap

from kernelet.base.dtype import dtypes
from kernelet.graph.ops import Op
from kernelet.graph.spec import LOOPS, verify
from kernelet.graph.uop import UOp
from kernelet.lower.nest import form_of_part, write_nest
from kernelet.lower.transforms import GroupLanes, Held, Plan, Reorder, Split
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
    written,
)


def loops(graph: UOp, plan: Plan | None = None) -> str:
    found = write_nest(graph, plan or Plan())
    verify(found, LOOPS, "write loops")
    return written(found)


def same(found: str, wanted: str) -> bool:
    """Whether two programs are equal; shows them one below the other where not."""
    assert found == textwrap.dedent(wanted).strip("\n")
    return True


def test_a_value_has_one_loop_for_each_axis() -> None:
    assert same(
        loops(kernel(memory(1, 4, 5) + permute(memory(2, 5, 4), 1, 0))),
        """
        for r0 in 4:
          for r1 in 5:
            p0[(r0 * 5) + r1] = (p1[(r0 * 5) + r1] + p2[r0 + (r1 * 4)])
        """,
    )


def test_a_sum_takes_its_long_steps_outside() -> None:
    """Taps, then channels as the formula has them: the channels are far from each other."""
    inner = reduce(
        memory(1, 3, 5, 4) * expand(reshape(memory(2, 3, 4), 3, 1, 4), 3, 5, 4), Op.ADD, 0
    )
    total = reduce(reshape(inner, 5, 4), Op.ADD, 1)
    assert same(
        loops(kernel(reshape(total, 5))),
        """
        for r0 in 5:
          s1[0] = 0.0
          for r2 in 3 reduce:
            for r1 in 4 reduce:
              s1[0] = (s1[0] + (p1[((r0 * 4) + r1) + (r2 * 20)] * p2[r1 + (r2 * 4)]))
          p0[r0] = s1[0]
        """,
    )


def test_a_sum_keeps_its_order_around_what_one_of_its_loops_computes() -> None:
    """The sum reads far elements in its inner loop, but the greatest values belong to the outer."""
    greatest = reduce(memory(2, 2, 4, 3), Op.MAX, 2)
    product = permute(memory(1, 2, 5, 4), 0, 2, 1) * expand(greatest, 2, 4, 5)
    assert same(
        loops(kernel(reduce(reshape(reduce(product, Op.ADD, 2), 2, 4), Op.ADD, 1))),
        """
        for r0 in 2:
          s2[0] = 0.0
          for r1 in 4 reduce:
            s1[0] = -inf
            for r3 in 3 reduce:
              s1[0] = (s1[0] max p2[((r0 * 12) + (r1 * 3)) + r3])
            for r2 in 5 reduce:
              s2[0] = (s2[0] + (p1[((r0 * 20) + r1) + (r2 * 4)] * s1[0]))
          p0[r0] = s2[0]
        """,
    )


def test_a_sum_beside_others_keeps_its_order() -> None:
    """Alone the channels would be outside, see above; another reduction reads the result here."""
    inner = reduce(
        memory(1, 3, 5, 4) * expand(reshape(memory(2, 3, 4), 3, 1, 4), 3, 5, 4), Op.ADD, 0
    )
    total = reduce(reshape(inner, 5, 4), Op.ADD, 1)
    text = loops(kernel(reduce(reshape(total, 5), Op.MAX, 0)))
    opened = [line.split()[1:4] for line in text.splitlines() if line.endswith("reduce:")]
    assert [size for _, _, size in opened] == ["5", "4", "3"]


def test_the_vectors_of_a_row_stand_together() -> None:
    """A row's number is read once, then all its vectors use it, whichever axis has the lanes."""
    graph = kernel(product(memory(1, 32, 8), memory(2, 4, 8)))
    tile = (Split(1, 4, "unroll"), Split(0, 16, "unroll"), Split(0, 8, "vector"))
    text = loops(graph, Plan(root=tile, lanes=8))
    kinds = [line.split()[-1].strip("():") for line in text.splitlines() if "unroll" in line]
    assert kinds
    sizes = [
        int(line.split(" in ")[1].split()[0]) for line in text.splitlines() if "unroll" in line
    ]
    assert sizes == [4, 2] * (len(sizes) // 2)


def test_axes_of_one_have_no_loop() -> None:
    assert loops(kernel(memory(1, 1, 3, 1))) == "for r0 in 3:\n  p0[r0] = p1[r0]"
    assert loops(kernel(memory(1, 1))) == "p0[0] = p1[0]"


def test_each_reduction_stands_at_the_innermost_loop_that_it_depends_on() -> None:
    assert same(
        loops(kernel(softmax(memory(1, 4, 5)))),
        """
        for r0 in 4:
          s1[0] = -inf
          for r3 in 5 reduce:
            s1[0] = (s1[0] max p1[(r0 * 5) + r3])
          s2[0] = 0.0
          for r2 in 5 reduce:
            s2[0] = (s2[0] + exp2((p1[(r0 * 5) + r2] + neg(s1[0]))))
          for r1 in 5:
            p0[(r0 * 5) + r1] = (exp2((p1[(r0 * 5) + r1] + neg(s1[0]))) * reciprocal(s2[0]))
        """,
    )


def test_a_value_kept_in_scratch_is_computed_once() -> None:
    text = loops(kernel(softmax(memory(1, 4, 8))), Plan(stored=(0,), lanes=4))
    assert text.count("exp2") == 1
    assert "for r4 in 4 vector:\n      s3[(r3 * 4) + r4] = exp2(" in text


def test_a_reduction_that_all_rows_need_stands_before_them() -> None:
    x = memory(1, 4, 5)
    assert same(
        loops(kernel(x * expand(reduce(x, Op.ADD, 0), 4, 5))),
        """
        for r2 in 5:
          s1[r2] = 0.0
          for r3 in 4 reduce:
            s1[r2] = (s1[r2] + p1[r2 + (r3 * 5)])
        for r0 in 4:
          for r1 in 5:
            p0[(r0 * 5) + r1] = (p1[(r0 * 5) + r1] * s1[r1])
        """,
    )


def test_the_order_of_loops_moves_reductions() -> None:
    x = memory(1, 4, 5)
    assert same(
        loops(kernel(x * expand(reduce(x, Op.ADD, 0), 4, 5)), Plan(root=(Reorder((1, 0)),))),
        """
        for r0 in 5:
          s1[0] = 0.0
          for r2 in 4 reduce:
            s1[0] = (s1[0] + p1[r0 + (r2 * 5)])
          for r1 in 4:
            p0[r0 + (r1 * 5)] = (p1[r0 + (r1 * 5)] * s1[0])
        """,
    )


def test_a_tile_of_results_has_a_tile_of_sums() -> None:
    tile = Plan(root=(Split(0, 2, "unroll"), Split(1, 4, "vector")))
    assert same(
        loops(kernel(product(memory(1, 6, 7), memory(2, 8, 7))), tile),
        """
        for r0 in 3:
          for r1 in 2:
            for r6 in 2 unroll:
              for r7 in 4 vector:
                s1[(r6 * 4) + r7] = 0.0
            for r8 in 7 reduce:
              for r6 in 2 unroll:
                for r7 in 4 vector:
                  s1[(r6 * 4) + r7] = (s1[(r6 * 4) + r7] + (p1[((r0 * 14) + (r6 * 7)) + r8] * p2[((r1 * 28) + (r7 * 7)) + r8]))
            for r2 in 2 unroll:
              for r3 in 4 vector:
                p0[(((r0 * 16) + (r1 * 4)) + (r2 * 8)) + r3] = s1[(r2 * 4) + r3]
        """,
    )


def test_partial_sums_take_whole_vectors_then_the_rest_then_join() -> None:
    plan = Plan(grouped=((1, GroupLanes(1, 2, 4)),))
    assert same(
        loops(kernel(reduce(memory(1, 3, 21), Op.ADD, 1)), plan),
        """
        for r0 in 3:
          s1[0] = 0.0
          for r2 in 2 unroll:
            for r3 in 4 vector:
              s3[(r2 * 4) + r3] = 0.0
          for r1 in 2 reduce:
            for r2 in 2 unroll:
              for r3 in 4 vector:
                s3[(r2 * 4) + r3] = (s3[(r2 * 4) + r3] + p1[(((r0 * 21) + (r1 * 8)) + (r2 * 4)) + r3])
          for r5 in 5 reduce:
            s1[0] = (s1[0] + p1[((r0 * 21) + r5) + 16])
          for r3 in 4 vector:
            s3[r3] = (s3[r3] + s3[r3 + 4])
          s1[0] = (s1[0] + ((s3[0] + s3[2]) + (s3[1] + s3[3])))
          p0[r0] = s1[0]
        """,
    )


def test_partial_sums_need_no_lanes() -> None:
    text = loops(kernel(reduce(memory(1, 9), Op.MAX, 0)), Plan(grouped=((1, GroupLanes(0, 3, 1)),)))
    assert "vector" not in text
    assert text.splitlines()[-2:] == ["s1[0] = (s1[0] max s3[0])", "p0[0] = s1[0]"]


def test_partial_sums_of_one_vector_need_no_loop() -> None:
    text = loops(kernel(reduce(memory(1, 4), Op.ADD, 0)), Plan(grouped=((1, GroupLanes(0, 1, 4)),)))
    assert "reduce" not in text


def test_a_sum_right_below_a_sum_has_its_loops() -> None:
    inner = reshape(reduce(memory(1, 4, 3), Op.ADD, 1), 4)
    assert same(
        loops(kernel(reduce(inner, Op.ADD, 0))),
        """
        s1[0] = 0.0
        for r0 in 4 reduce:
          for r1 in 3 reduce:
            s1[0] = (s1[0] + p1[(r0 * 3) + r1])
        p0[0] = s1[0]
        """,
    )


def test_a_sum_below_a_maximum_stays_apart() -> None:
    inner = reshape(reduce(memory(1, 4, 3), Op.ADD, 1), 4)
    assert loops(kernel(reduce(inner, Op.MAX, 0))).count("s1[0] = 0.0") == 1


def test_a_tile_of_neighbours_needs_a_box_with_both_ends() -> None:
    top = reshape(reduce(memory(1, 8, 3), Op.MAX, 1), 8)
    both = shrink(top, (0, 6)) + shrink(top, (2, 8))
    assert same(
        loops(kernel(both), Plan(root=(Split(0, 3, "unroll"),))),
        """
        for r0 in 2:
          for r3 in 5:
            s1[r3] = -inf
            for r4 in 3 reduce:
              s1[r3] = (s1[r3] max p1[((r0 * 9) + (r3 * 3)) + r4])
          for r1 in 3 unroll:
            p0[(r0 * 3) + r1] = (s1[r1] + s1[r1 + 2])
        """,
    )


def test_padding_is_a_gate_and_never_read() -> None:
    assert same(
        loops(kernel(pad(flip(memory(1, 5), 0), (1, 2)))),
        """
        for r0 in 8:
          p0[r0] = p1[(r0 * -1) + 5] if ((r0 * -1 < 0) & (r0 < 6))
        """,
    )


def test_padding_above_arithmetic_chooses_zero() -> None:
    text = loops(kernel(pad(memory(1, 5).alu(Op.EXP2), (1, 0))))
    assert "where((r0 * -1 < 0), exp2(p1[r0 + -1] if (r0 * -1 < 0)), 0.0)" in text


def test_a_variable_size_is_a_loop_of_that_size() -> None:
    size = UOp.variable("n", 1, 9)
    assert same(
        loops(kernel(reduce(shrink(memory(1, 9, 4), (0, size), (0, 4)), Op.ADD, 0))),
        """
        for r0 in 4:
          s1[0] = 0.0
          for r1 in n reduce:
            s1[0] = (s1[0] + p1[r0 + (r1 * 4)])
          p0[r0] = s1[0]
        """,
    )


def test_nothing_is_a_loop_without_turns() -> None:
    assert "for r0 in 0:" in loops(kernel(memory(1, 0, 3) * 2.0))
    assert "for r1 in 0 reduce:" in loops(kernel(reduce(memory(1, 3, 0), Op.ADD, 1)))


def test_several_results_are_written_at_once() -> None:
    x, y = memory(1, 6), memory(2, 6)
    swap = UOp.sink(UOp(Op.STORE, VOID, (x, y)), UOp(Op.STORE, VOID, (y, x)))
    assert loops(swap) == "for r0 in 6:\n  at once:\n    p1[r0] = p2[r0]\n    p2[r0] = p1[r0]"


# ---- loops that end early ----


def triangle(kept: UOp, other: float) -> UOp:
    """where(row < column, other, kept) of a square."""
    size = int(kept.shape[0])
    line = UOp(Op.ARANGE, dtypes.int32, (), (size,))
    rows = expand(reshape(line, size, 1), size, size)
    columns = expand(reshape(line, 1, size), size, size)
    return rows.alu(Op.CMPLT, columns).where(kept.const_like(other), kept)


def test_a_sum_ends_where_all_that_follows_is_masked() -> None:
    graph = kernel(product(triangle(memory(1, 9, 9), 0.0), memory(2, 4, 9)))
    assert "in 9 reduce" in written(write_nest(graph, Plan()))
    assert "in r0 + 1 reduce" in written(write_nest(graph, Plan(trimmed=True)))


def test_a_tile_ends_with_its_last_row() -> None:
    graph = kernel(product(triangle(memory(1, 8, 8), 0.0), memory(2, 4, 8)))
    plan = Plan(root=(Split(0, 4, "unroll"),), trimmed=True)
    assert "in (r0 * 4) + 4 reduce" in written(write_nest(graph, plan))


def test_a_mask_that_adds_something_ends_no_loop() -> None:
    graph = kernel(product(triangle(memory(1, 9, 9), 1.0), memory(2, 4, 9)))
    assert "in 9 reduce" in written(write_nest(graph, Plan(trimmed=True)))


def test_of_a_kept_row_as_much_is_computed_as_is_read() -> None:
    graph = kernel(product(softmax(triangle(memory(1, 9, 9), -math.inf)), memory(2, 4, 9)))
    powers = [n.op for n in graph.toposort()].index(Op.EXP2)
    text = written(write_nest(graph, Plan(held=(Held(powers),), trimmed=True)))
    assert text.count("in r0 + 1 reduce") == 3
    assert "in r0 + 1:" in text


# ---- parts ----


def test_parts_follow_each_other_with_loops_of_their_own() -> None:
    x, y = memory(0, 8), memory(1, 3)
    parts = [kernel_of(x, x + 1.0), kernel_of(y, y * 2.0), kernel_of(y, y + shrink(x, (0, 3)))]
    assert written(write_nest(UOp.sink(*parts), Plan(parts=(Plan(),) * 3))) == (
        "for r0 in 8:\n"
        "  p0[r0] = (p0[r0] + 1.0)\n"
        "for r1 in 3:\n"
        "  p1[r1] = (p1[r1] * 2.0)\n"
        "for r2 in 3:\n"
        "  p1[r2] = (p1[r2] + p0[r2])"
    )


def test_parts_have_scratch_of_their_own() -> None:
    x, y = memory(0, 4, 8), memory(1, 2, 3)
    parts = [
        kernel_of(memory(2, 4), reshape(reduce(x, Op.ADD, 1), 4)),
        kernel_of(memory(3, 2), reshape(reduce(y, Op.ADD, 1), 2)),
    ]
    block = write_nest(UOp.sink(*parts), Plan(parts=(Plan(), Plan())))
    scratch = [node for node in block.toposort() if node.op is Op.SCRATCH]
    assert len({node.arg.number for node in scratch}) == 2


def test_a_loop_that_ends_early_belongs_to_its_own_part() -> None:
    x, y = triangle(memory(1, 9, 9), 0.0), memory(2, 9, 9)
    parts = [
        kernel_of(reshape(memory(slot, 9), 9, 1), reduce(part, Op.ADD, 1))
        for slot, part in ((3, x), (4, triangle(x + y, 0.0)), (5, triangle(x * y, 0.0)))
    ]
    plan = Plan(trimmed=True)
    text = loops(UOp.sink(*parts), Plan(parts=(plan,) * 3))
    for number in (0, 2, 4):
        assert f"for r{number} in 9:" in text
        assert f"for r{number + 1} in r{number} + 1 reduce:" in text


def test_parts_that_do_the_same_with_other_memory_have_one_form() -> None:
    first = kernel_of(memory(0, 8), memory(0, 8) + memory(1, 8))
    second = kernel_of(memory(5, 8), memory(5, 8) + memory(2, 8))
    form, memories = form_of_part(second)
    assert form is form_of_part(first)[0]
    assert sorted(node.arg.slot for node in memories.values()) == [2, 5]


def test_equal_parts_may_have_different_plans() -> None:
    x, y = memory(0, 8), memory(1, 8)
    parts = UOp.sink(kernel_of(x, x + 1.0), kernel_of(y, y + 1.0))
    plans = (Plan(), Plan(root=(Split(0, 4, "vector"),)))
    text = written(write_nest(parts, Plan(parts=plans)))
    assert [line for line in text.splitlines() if line.startswith("for")] == [
        "for r0 in 8:",
        "for r1 in 2:",
    ]


def kernel_of(target: UOp, value: UOp) -> UOp:
    return UOp.sink(UOp(Op.STORE, VOID, (target, value)))
