"""The search over plans: every change is legal, and the same times give the same order."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kernelet.base.target import Target
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.lower.heuristics import plan_kernel
from kernelet.lower.nest import write_nest
from kernelet.lower.search import CHANGES, Facts, neighbours, search
from kernelet.lower.stage import root_nest
from kernelet.lower.transforms import (
    BlockSum,
    GroupLanes,
    Held,
    Parallel,
    Plan,
    Reorder,
    Split,
    StageLoad,
)
from tests.lower.pseudocode import kernel, memory, product, reduce, softmax
from tests.lower.test_scan import scan

WIDE = Target("CPU", vector_bytes=32, threads=2)
MATMUL = kernel(product(memory(1, 64, 48), memory(2, 96, 48)))
ROWS = kernel(reduce(memory(1, 100, 64), Op.ADD, 1))
SOFTMAX = kernel(softmax(memory(1, 64, 100)))
PLAIN = kernel(memory(1, 40, 50) * 2.0)
SCAN = scan(512, rows=512)
ALL = {"matmul": MATMUL, "rows": ROWS, "softmax": SOFTMAX, "plain": PLAIN, "scan": SCAN}


def around(graph: UOp, **changes: object) -> list[Plan]:
    return neighbours(replace(plan_kernel(graph, WIDE), **changes), graph, WIDE)  # type: ignore[arg-type]


def by_text(plans: Sequence[Plan]) -> list[float]:
    """Times that are a function of the plan, with many ties."""
    return [1e-6 * (1 + sum(map(ord, repr(plan))) % 7) for plan in plans]


# ---- neighbours ----


@pytest.mark.parametrize("name", ALL)
def test_neighbours_are_other_plans_that_have_loops(name: str) -> None:
    graph = ALL[name]
    start = plan_kernel(graph, WIDE)
    found = neighbours(start, graph, WIDE)
    assert found
    assert start not in found
    assert len(set(found)) == len(found)
    for plan in found:
        assert write_nest(graph, plan).op is Op.BLOCK


def test_tiles_grow_and_shrink() -> None:
    start = Plan(root=(Split(0, 4, "unroll"), Split(1, 8, "vector")))
    rows = {
        plan.root[0].factor
        for plan in neighbours(start, MATMUL, WIDE)
        if len(plan.root) == 2 and isinstance(plan.root[0], Split)
    }
    assert {2, 3, 5, 8} <= rows


def test_several_vectors_stay_whole() -> None:
    start = Plan(root=(Split(1, 16, "unroll"), Split(1, 8, "vector")))
    for plan in neighbours(start, MATMUL, WIDE):
        factors = [t.factor for t in plan.root if isinstance(t, Split) and t.axis == 1]
        assert len(factors) < 2 or factors[0] % factors[1] == 0


def test_the_lanes_move_to_another_axis() -> None:
    start = Plan(root=(Split(0, 4, "unroll"), Split(1, 8, "vector")))
    swapped = Plan(root=(Split(1, 4, "unroll"), Split(0, 8, "vector")))
    assert swapped in neighbours(start, MATMUL, WIDE)
    assert start in neighbours(swapped, MATMUL, WIDE)


def test_threads_come_and_go() -> None:
    start = Plan(root=(Parallel(),))
    assert Plan() in neighbours(start, MATMUL, WIDE)
    assert start in neighbours(Plan(), MATMUL, WIDE)


def test_another_loop_comes_first() -> None:
    found = neighbours(Plan(root=(Parallel(),)), MATMUL, WIDE)
    assert Plan(root=(Reorder((1, 0)), Parallel())) in found


def test_orders_are_not_piled_up() -> None:
    found = neighbours(Plan(root=(Reorder((1, 0)),)), MATMUL, WIDE)
    assert Plan() in found
    assert all(sum(isinstance(t, Reorder) for t in plan.root) < 2 for plan in found)


def test_partial_sums_come_grow_and_go() -> None:
    start = Plan(grouped=((1, GroupLanes(1, 2, 8)),))
    found = {plan.grouped for plan in neighbours(start, ROWS, WIDE)}
    assert () in found
    assert ((1, GroupLanes(1, 4, 8)),) in found
    assert any(plan.grouped for plan in neighbours(Plan(), ROWS, WIDE))


def test_values_are_stored_or_not() -> None:
    plans = neighbours(Plan(), SOFTMAX, WIDE)
    stored = next(plan for plan in plans if plan.stored)
    assert Plan() in neighbours(stored, SOFTMAX, WIDE)


def test_blocks_of_a_sum_grow_shrink_and_go() -> None:
    start = Plan(blocked=BlockSum(1, 16), staged=(StageLoad(2, 1),))
    found = {plan.blocked for plan in neighbours(start, MATMUL, WIDE)}
    assert found == {start.blocked, None, BlockSum(1, 8), BlockSum(1, 32)}


def test_operands_are_staged_elsewhere_or_not() -> None:
    start = Plan(staged=(StageLoad(2, 1),))
    found = {plan.staged for plan in neighbours(start, MATMUL, WIDE)}
    assert {(), (StageLoad(2, 0),), (StageLoad(2, 2),)} <= found
    assert any(len(staged) == 2 for staged in found)


def test_held_values_change_their_box_or_go() -> None:
    start = Plan(held=(Held(3, 4),))
    found = {plan.held for plan in neighbours(start, SOFTMAX, WIDE)}
    assert {(), (Held(3, 2),), (Held(3, 8),)} <= found


def test_in_place_tiles_do_not_overlap() -> None:
    target = memory(0, 40)
    graph = UOp.sink(UOp(Op.STORE, kernel(target).src[0].dtype, (target, target * 2.0)))
    seen, wave = set(), {Plan()}
    for _ in range(3):
        wave = {other for plan in wave for other in neighbours(plan, graph, WIDE)} - seen
        seen |= wave
    assert seen
    for plan in seen:
        assert all(loop.limit is None for loop in root_nest(graph, plan))


def test_copies_stay_few() -> None:
    start = Plan(root=(Split(0, 8, "unroll"), Split(1, 64, "unroll"), Split(1, 8, "vector")))
    for plan in neighbours(start, MATMUL, WIDE):
        nest = root_nest(MATMUL, plan)
        assert math.prod(int(n.size) for n in nest if n.kind == "unroll") <= 64  # type: ignore[arg-type]


def test_each_change_is_of_use() -> None:
    counts = dict.fromkeys(CHANGES, 0)
    for graph in ALL.values():
        held = Plan(blocked=BlockSum(1, 16), held=(Held(3, 4),))
        for plan in (Plan(), plan_kernel(graph, WIDE), held):
            for change in CHANGES:
                counts[change] += len(around_by(change, plan, graph))
    assert all(counts.values())


def around_by(change: Callable[..., object], plan: Plan, graph: UOp) -> list[Plan]:
    return list(change(plan, Facts(plan, graph, WIDE)))  # type: ignore[call-overload]


# ---- the search ----


def test_the_fastest_plan_wins() -> None:
    goal = Plan(root=(Split(0, 4, "unroll"), Split(1, 8, "vector"), Parallel()))

    def distance(plans: Sequence[Plan]) -> list[float]:
        return [1.0 + len(set(plan.root) ^ set(goal.root)) for plan in plans]

    found = search(MATMUL, WIDE, Plan(), 2, distance)
    assert found[0] == (1.0, goal)


def test_plans_that_fail_do_not_win() -> None:
    def alone(plans: Sequence[Plan]) -> list[float]:
        return [1.0 if plan == Plan() else math.inf for plan in plans]

    assert search(MATMUL, WIDE, Plan(), 2, alone) == [(1.0, Plan())]


def test_where_the_start_cannot_be_timed_nothing_is_found() -> None:
    assert search(MATMUL, WIDE, Plan(), 2, lambda plans: [math.inf] * len(plans)) == []


def test_what_is_not_clearly_faster_has_not_won() -> None:
    def flat(plans: Sequence[Plan]) -> list[float]:
        return [1.0 if plan == Plan() else 0.99 for plan in plans]

    assert search(MATMUL, WIDE, Plan(), 1, flat)[0] == (1.0, Plan())


def test_no_plan_is_timed_in_two_rounds() -> None:
    asked: list[Plan] = []

    def stopwatch(plans: Sequence[Plan]) -> list[float]:
        asked.extend(plans)
        return by_text(plans)

    found = search(MATMUL, WIDE, Plan(), 2, stopwatch)
    finalists = len(asked) - len(set(asked))
    assert len(set(asked)) == len(found)
    assert finalists <= 5


def test_the_same_times_give_the_same_order_in_every_process() -> None:
    code = (
        "from tests.lower.test_search import MATMUL, WIDE, by_text, search, Plan\n"
        "print(search(MATMUL, WIDE, Plan(), 2, by_text))"
    )
    root = str(Path(__file__).parents[2])
    shown = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": root, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(shown) == 1
    assert len(shown.pop()) > 100
