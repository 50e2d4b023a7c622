"""A sum that is cut encloses the loops over its results, and gives the same results."""

from __future__ import annotations

import random
import textwrap
from dataclasses import replace

import pytest

from kernelet.base.dtype import dtypes
from kernelet.base.target import Target
from kernelet.graph.ops import Op
from kernelet.graph.spec import LOOPS, verify
from kernelet.graph.uop import UOp
from kernelet.lower import blocking
from kernelet.lower.nest import write_nest
from kernelet.lower.transforms import BlockSum, Parallel, Plan, Split
from tests.lower.pseudocode import (
    expand,
    kernel,
    memory,
    product,
    reduce,
    written,
)
from tests.properties.graph_runs import Problem, check
from tests.properties.random_contractions import Contraction
from tests.properties.random_plans import random_plan


def lines(graph: UOp, plan: Plan) -> str:
    found = write_nest(graph, plan)
    verify(found, LOOPS, "write loops")
    return written(found)


def same(found: str, wanted: str) -> bool:
    assert found == textwrap.dedent(wanted).strip("\n")
    return True


def is_plain(graph: UOp, blocked: BlockSum, plan: Plan | None = None) -> bool:
    plan = plan or Plan()
    return lines(graph, replace(plan, blocked=blocked)) == lines(graph, plan)


SQUARE = kernel(product(memory(1, 6, 8), memory(2, 8, 8)))


def test_partial_sums_wait_between_the_parts_of_a_sum() -> None:
    assert same(
        lines(SQUARE, Plan(blocked=BlockSum(0, 4))),
        """
        for r5 in 6:
          for r6 in 8:
            s2[(r5 * 8) + r6] = 0.0
        for r3 in 2 reduce:
          for r7 in 6:
            for r8 in 8:
              s1[0] = s2[(r7 * 8) + r8]
              for r4 in 4 reduce:
                s1[0] = (s1[0] + (p1[((r3 * 4) + r4) + (r7 * 8)] * p2[((r3 * 4) + r4) + (r8 * 8)]))
              s2[(r7 * 8) + r8] = s1[0]
        for r9 in 6:
          for r10 in 8:
            p0[(r9 * 8) + r10] = s2[(r9 * 8) + r10]
        """,
    )


def test_parts_of_one_step_have_no_loop_inside() -> None:
    text = lines(SQUARE, Plan(root=(Parallel(),), blocked=BlockSum(1, 1)))
    assert same(
        text,
        """
        for r0 in 6 thread:
          for r4 in 8:
            s2[r4] = 0.0
          for r3 in 8 reduce:
            for r5 in 8:
              s1[0] = s2[r5]
              s1[0] = (s1[0] + (p1[(r0 * 8) + r3] * p2[r3 + (r5 * 8)]))
              s2[r5] = s1[0]
          for r6 in 8:
            p0[(r0 * 8) + r6] = s2[r6]
        """,
    )


def test_what_follows_a_sum_is_done_once_at_its_end() -> None:
    text = lines(kernel(reduce(memory(1, 6, 8), Op.MAX, 1) + 1.0), Plan(blocked=BlockSum(0, 4)))
    assert text.startswith("for r4 in 6:\n  s2[r4] = -inf\n")
    assert text.endswith("for r6 in 6:\n  p0[r6] = (s2[r6] + 1.0)")


def test_a_tile_of_sums_waits_as_a_tile() -> None:
    tile = Plan(root=(Split(0, 2, "unroll"), Split(1, 4, "vector")), blocked=BlockSum(1, 4))
    text = lines(SQUARE, tile)
    assert text.count("s2[((r6 * 4) + r7) + (r12 * 8)]") == 2  # out of its part and back again
    assert "p0[(((r0 * 16) + (r2 * 8)) + r3) + (r13 * 4)] = s2[((r2 * 4) + r3) + (r13 * 8)]" in text


@pytest.mark.parametrize("size", [3, 5, 8, 16])
def test_parts_are_equal_and_more_than_one(size: int) -> None:
    assert is_plain(SQUARE, BlockSum(0, size))


@pytest.mark.parametrize("depth", [2, 3, 7])
def test_without_loops_over_results_there_is_nothing_to_enclose(depth: int) -> None:
    assert is_plain(SQUARE, BlockSum(depth, 4))


def test_loops_of_threads_stay_outermost() -> None:
    assert is_plain(SQUARE, BlockSum(0, 4), Plan(root=(Parallel(),)))


def test_symbolic_sizes_are_left_alone() -> None:
    n = UOp.variable("n", 1, 9)
    assert is_plain(kernel(reduce(memory(1, n, 8), Op.ADD, 1)), BlockSum(0, 2))
    assert is_plain(kernel(reduce(memory(1, 8, n), Op.ADD, 1)), BlockSum(0, 2))


def test_sums_that_are_read_after_all_loops_have_room_already() -> None:
    x, y = memory(1, 4, 8), memory(2, 12, 8, dtype=dtypes.float64)
    columns = expand(reduce(x, Op.ADD, 0), 4, 8)
    other = expand(reduce(y, Op.MAX, 0).cast(dtypes.float32), 4, 8)
    assert is_plain(kernel(x * columns + other), BlockSum(0, 2))


def test_parts_that_are_too_large_stay_in_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking, "LARGEST_PARTS", 6 * 8 * 4)
    assert not is_plain(SQUARE, BlockSum(0, 4))
    monkeypatch.setattr(blocking, "LARGEST_PARTS", 6 * 8 * 4 - 1)
    assert is_plain(SQUARE, BlockSum(0, 4))


@pytest.mark.parametrize("seed", range(10))
def test_sums_in_parts_keep_the_value(seed: int) -> None:
    for number in range(10):
        choose = random.Random(1000 + 100 * seed + number)

        def plan(graph: UOp, target: Target, choose: random.Random = choose) -> Plan:
            found = random_plan(choose, graph, target)
            grouped = () if found.held else found.grouped
            blocked = BlockSum(
                choose.randrange(3), choose.choice((1, 2, 3, 4)), choose.choice((0, 0, 1, 2))
            )
            return replace(found, grouped=grouped, blocked=blocked)

        check(Contraction(1000 + 100 * seed + number).ask(), choose=plan)


def test_a_part_that_is_not_put_back_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = blocking._Parts._copied

    def forgotten(self: blocking._Parts, statement: UOp, *, to_parts: bool) -> UOp:
        return made(self, statement, to_parts=False)

    monkeypatch.setattr(blocking._Parts, "_copied", forgotten)
    problem = Problem([])
    rows = problem.leaf(dtypes.float32, [float(n) for n in range(48)])
    problem.asked.append(reduce(UOp(Op.RESHAPE, rows.dtype, (rows,), (6, 8)), Op.ADD, 1))
    with pytest.raises(AssertionError, match="element 0"):
        check(problem, choose=lambda graph, target: Plan(blocked=BlockSum(0, 4)))


def test_whole_loops_of_a_sum_go_outside_before_one_is_cut() -> None:
    graph = kernel(reduce(memory(1, 6, 3, 8), Op.ADD, 1, 2))
    text = lines(graph, Plan(blocked=BlockSum(0, 4, whole=1)))
    assert same(
        "\n".join(text.split("\n")[2:-2]),
        """
        for r1 in 3 reduce:
          for r3 in 2 reduce:
            for r6 in 6:
              s1[0] = s2[r6]
              for r4 in 4 reduce:
                s1[0] = (s1[0] + p1[(((r1 * 8) + (r3 * 4)) + r4) + (r6 * 24)])
              s2[r6] = s1[0]
        """,
    )
    assert " in 8 reduce" in lines(graph, Plan(blocked=BlockSum(0, 8, whole=1)))
    assert is_plain(graph, BlockSum(0, 4, whole=2))
