"""Plans for kernels that run along their results."""

from __future__ import annotations

import pytest

from kernelet.base.target import Target
from kernelet.graph.uop import UOp
from kernelet.lower.analysis import Analysis
from kernelet.lower.heuristics import plan_kernel
from kernelet.lower.nest import NestWriter
from kernelet.lower.running import Running, running_axis
from kernelet.lower.transforms import Backwards, Parallel, Plan, Reorder, Split
from tests.lower.pseudocode import kernel, memory, permute, softmax
from tests.lower.test_scan import scan

WIDE = Target("CPU", vector_bytes=32, threads=2)


def across(length: int, rows: int) -> UOp:
    """Running sums of the columns of a matrix, stored as it is."""
    graph = scan(length, rows=rows)
    value = graph.src[0].src[1]
    return kernel(permute(value, 1, 0))


def planned(graph: UOp) -> Plan:
    plan = plan_kernel(graph, WIDE)
    writer = NestWriter(graph, plan)
    writer.build()
    assert len(writer.carried) == 1, "the sums start again for each result"
    return plan


@pytest.mark.parametrize("backwards", [False, True])
def test_the_loop_that_a_scan_runs_along_is_found(backwards: bool) -> None:
    analysis = Analysis(scan(5, backwards=backwards), Plan())
    assert running_axis(analysis) == Running(1, backwards, True)
    assert running_axis(Analysis(kernel(softmax(memory(1, 4, 5))), Plan())) is None


@pytest.mark.parametrize("backwards", [False, True])
def test_lanes_lie_along_a_scan_of_neighbours(backwards: bool) -> None:
    plan = planned(scan(512, rows=512, backwards=backwards))
    down = (Backwards(1),) if backwards else ()
    assert plan.root == (Split(1, 8, "vector"), *down, Parallel())


def test_rows_of_odd_length_run_side_by_side() -> None:
    assert planned(scan(509, rows=512)).root == (Split(0, 4, "unroll"), Parallel())


def test_scans_beside_each_other_run_in_blocks() -> None:
    plan = planned(across(512, 2048))
    assert plan.root == (Reorder((1, 0)), Split(1, 512), Split(1, 8, "vector"), Parallel())


def test_one_row_has_no_threads() -> None:
    assert planned(scan(4096, rows=1)).root == (Split(0, 8, "vector"),)
