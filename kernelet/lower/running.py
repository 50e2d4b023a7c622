"""Choose the loops of a kernel that runs along an axis of its results.

In:  the analysis of a kernel with running reductions, and the Target.
Out: the transforms of its outputs' loops, the running one inside those that are independent.

Lanes go where the results are neighbours in memory: along the scan, whose lanes then add up among
themselves, or across it, a block of scans side by side. Where neither is, several rows run at
once, for each addition waits for the one before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelet.base.target import Target
from kernelet.graph.division import terms_of
from kernelet.graph.ops import Op
from kernelet.graph.placement import is_computed
from kernelet.graph.scan import scan_of
from kernelet.graph.uop import UOp
from kernelet.lower.analysis import Analysis, size_of, stride_of
from kernelet.lower.stage import root_nest
from kernelet.lower.transforms import (
    Follow,
    Parallel,
    Reorder,
    Split,
    Transform,
    apply_transforms,
)

BLOCK = 512  # scans side by side: enough of each row for memory, few enough for the first cache
ROWS = 4  # rows at once: an addition waits for the one before
LEAST_LANES = 8


@dataclass(frozen=True, slots=True)
class Running:
    """The axis of the outputs' loops along which scans run, and how."""

    axis: int
    backwards: bool
    has_lanes: bool  # whether lanes along the scan give the values that one by one would


def running_axis(analysis: Analysis) -> Running | None:
    """Along which loop all scans of a kernel run; None where there are none, or no such loop."""
    found: set[tuple[UOp, bool]] = set()
    has_lanes = True
    for node, stage in analysis.writer.stages.items():
        scan = scan_of(node)
        if scan is None:
            continue
        # A product of a part may overflow where the product of all before it is 0.
        has_lanes = has_lanes and not (node.arg.op is Op.MUL and node.dtype.is_float)
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
    axis = analysis.nest[analysis.ranges.index(variable)].axis
    return Running(axis, backwards, has_lanes)


def running_transforms(
    analysis: Analysis, running: Running, target: Target, *, shared: bool
) -> tuple[Transform, ...]:
    """Lanes, blocks and rows; one of the independent loops is shared out where `shared`."""
    axes = [loop.axis for loop in analysis.nest]
    sizes = dict(zip(axes, map(size_of, analysis.ranges), strict=True))
    known = {axis: v.src[0].op is Op.CONST for axis, v in zip(axes, analysis.ranges, strict=True)}
    variables = dict(zip(axes, analysis.ranges, strict=True))
    others = [axis for axis in axes if axis != running.axis and known[axis]]
    widest = target.lanes(analysis.itemsize)
    along = math.gcd(sizes[running.axis], widest) if known[running.axis] else 1
    across = [axis for axis in others if _is_contiguous(analysis, variables[axis], 1)]
    follow = Follow(running.axis, 1, running.backwards)
    found: list[Transform] = [follow]
    step = -1 if running.backwards else 1
    if _is_contiguous(analysis, variables[running.axis], step):
        if running.has_lanes and along >= LEAST_LANES:
            return _shared([Follow(running.axis, along, running.backwards)], analysis, shared)
    elif across:
        (axis, *_) = across
        lanes = _fit(sizes[axis], widest)
        block = min(BLOCK, -(-sizes[axis] // (target.threads * lanes)) * lanes)
        if lanes > 1 and not (analysis.in_place and sizes[axis] % block):
            found += [Split(axis, min(block, sizes[axis])), Split(axis, lanes, "vector")]
            return _shared(found, analysis, shared)
    rows = max(others, key=lambda axis: sizes[axis], default=None)
    if rows is not None and sizes[rows] >= ROWS and not (analysis.in_place and sizes[rows] % ROWS):
        found.append(Split(rows, ROWS, "unroll"))
    return _shared(found, analysis, shared)


def _fit(size: int, widest: int) -> int:
    return min(widest, 1 << (size.bit_length() - 1)) if size >= 4 else 1


def _is_contiguous(analysis: Analysis, variable: UOp, step: int) -> bool:
    """Whether neighbours along a loop are neighbours in the memory that is written."""
    targets = [site.target.src[1] for site in analysis.sites if site.stage == 0]
    return all(stride_of(target, variable) == step for target in targets)


def _shared(
    transforms: Sequence[Transform], analysis: Analysis, shared: bool
) -> tuple[Transform, ...]:
    """The transforms, with the best independent loop shared out to threads."""
    base = root_nest(analysis.kernel, replace(analysis.plan, root=()))
    nest = apply_transforms(base, transforms)
    follow = next(t for t in transforms if isinstance(t, Follow))
    end = next((n for n, loop in enumerate(nest) if loop.axis == follow.axis), len(nest))
    free = [n for n in range(end) if nest[n].kind == "loop" and isinstance(nest[n].size, int)]
    if not shared or not free:
        return tuple(transforms)
    first = max(free, key=lambda n: (min(nest[n].size, 64), -n))
    if nest[first].size == 1:
        return tuple(transforms)
    order = (first, *(n for n in range(len(nest)) if n != first))
    moved = () if first == 0 else (Reorder(order),)
    return (*transforms, *moved, Parallel())
