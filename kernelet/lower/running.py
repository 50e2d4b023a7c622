"""Choose the loops of a kernel that runs along an axis of its results.

In:  the analysis of a kernel with running reductions, and the Target.
Out: the transforms of its outputs' loops, the running one inside those that are independent.

Lanes go where the results are neighbours in memory: along the scan, whose lanes then add up among
themselves, or across it, a block of scans side by side. Where neither is, several rows run at
once, for each addition waits for the one before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from kernelet.base.target import Target
from kernelet.graph.division import terms_of
from kernelet.graph.placement import is_computed
from kernelet.graph.scan import scan_of
from kernelet.graph.uop import UOp
from kernelet.lower.analysis import Analysis
from kernelet.lower.loops import stride_of
from kernelet.lower.scan import may_have_lanes
from kernelet.lower.stage import root_nest
from kernelet.lower.transforms import Backwards, Loops, Transform, lanes_for

BLOCK = 512  # scans side by side: enough of each row for memory, few enough for the first cache
ROWS = 4  # rows at once: an addition waits for the one before
LEAST_LANES = 8


@dataclass(frozen=True, slots=True)
class Running:
    """The axis of the outputs' loops along which scans run, and how."""

    axis: int
    backwards: bool
    has_lanes: bool

    def follow(self, loops: Loops, lanes: int = 1) -> None:
        """Run along the axis inside all other loops, `lanes` at a time."""
        loops.put_first(*(n for n in loops.plain() if loops.nest[n].axis != self.axis))
        loops.split(self.axis, lanes, "vector")
        if self.backwards:
            loops.apply(Backwards(self.axis))


def running_axis(analysis: Analysis) -> Running | None:
    """Along which loop all scans of a kernel run; None where there are none, or no such loop."""
    found: set[tuple[UOp, bool]] = set()
    scans = {node: scan for node in analysis.writer.stages if (scan := scan_of(node))}
    for node, scan in scans.items():
        stage = analysis.writer.stages[node]
        for access in stage.accesses:
            index = access.index[scan.axis]
            _, coefficients = terms_of(index)
            if len(coefficients) != 1 or is_computed(index):
                return None
            ((variable, factor),) = coefficients.items()
            found.add((variable, scan.backwards != (factor < 0)))
    if len(found) != 1:
        return None
    ((variable, backwards),) = found
    if variable not in analysis.ranges:
        return None
    return Running(analysis.axis_of(variable), backwards, all(map(may_have_lanes, scans)))


def running_transforms(
    analysis: Analysis, running: Running, target: Target, threads: int
) -> tuple[Transform, ...]:
    """Lanes, blocks and rows; then one of the independent loops is shared out."""
    loops = Loops(root_nest(analysis.kernel, replace(analysis.plan, root=())))
    _add_lanes(loops, analysis, running, target)
    axes = [loop.axis for loop in loops.nest]
    outer = loops.plain()[: axes.index(running.axis)]
    loops.share_out([n for n in outer if loops.nest[n].steps], threads)
    return loops.transforms


def _add_lanes(loops: Loops, analysis: Analysis, running: Running, target: Target) -> None:
    widest = target.lanes(analysis.itemsize)
    (along,) = (loop for loop in loops.nest if loop.axis == running.axis)
    others = [loop for loop in loops.nest if loop is not along and loop.steps]
    is_near = _is_contiguous(analysis, along.axis, -1 if running.backwards else 1)
    lanes = math.gcd(along.steps, widest) if along.steps else 1
    if is_near and running.has_lanes and lanes >= LEAST_LANES:
        running.follow(loops, lanes)
        return
    running.follow(loops)
    across = [loop for loop in others if not is_near and _is_contiguous(analysis, loop.axis, 1)]
    if across and across[0].steps >= 4:
        axis, size = across[0].axis, across[0].steps
        lanes = lanes_for(size, widest)
        block = min(BLOCK, -(-size // (target.threads * lanes)) * lanes)
        if lanes > 1 and not (analysis.in_place and size % block):
            loops.split(axis, min(block, size))
            loops.tile(axis, lanes)
            return
    rows = max(others, key=lambda loop: loop.steps, default=along)
    if rows is not along and rows.steps >= ROWS and not (analysis.in_place and rows.steps % ROWS):
        loops.split(rows.axis, ROWS, "unroll")


def _is_contiguous(analysis: Analysis, axis: int, step: int) -> bool:
    """Whether neighbours along an axis are neighbours in the memory that is written."""
    variable = next(v for v in analysis.ranges if analysis.axis_of(v) == axis)
    targets = [site.target.src[1] for site in analysis.sites if site.stage == 0]
    return all(stride_of(target, variable) == step for target in targets)
