"""Plans for sums whose elements name their result."""

from __future__ import annotations

from kernelet.base.target import Target
from kernelet.graph.uop import UOp
from kernelet.lower.analysis import Analysis
from kernelet.lower.searching import plan_scatter
from kernelet.lower.transforms import Parallel, Plan, Reorder, Split
from tests.lower.pseudocode import kernel, memory, product
from tests.lower.test_scatter import search

WIDE = Target("CPU", vector_bytes=32, threads=2)


def planned(graph: UOp) -> Plan | None:
    return plan_scatter(Analysis(graph, Plan()), WIDE)


def test_threads_and_lanes_lie_along_what_is_added() -> None:
    plan = planned(kernel(search(64, 50, 64)))
    assert plan is not None
    tile = (Split(1, 32, "unroll"), Split(1, 8, "vector"))
    assert plan.root == (*tile, Reorder((1, 0, 2, 3)), Parallel())
    assert plan.scatter == 1


def test_a_tile_never_overlaps_another() -> None:
    plan = planned(kernel(search(64, 50, 24)))
    assert plan is not None
    assert plan.root[0] == Split(1, 24, "unroll")
    plan = planned(kernel(search(64, 50, 20)))
    assert plan is not None
    assert not any(isinstance(step, Split) for step in plan.root)


def test_other_sums_are_planned_elsewhere() -> None:
    assert planned(kernel(product(memory(1, 64, 64), memory(2, 64, 64)))) is None
    assert planned(kernel(search(4, 5, 4))) is None, "too little work"
