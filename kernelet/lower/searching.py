"""Choose the loops of a sum whose elements name the result that they belong to.

In:  the analysis of one kernel and the Target.
Out: a Plan, or None where nothing is searched.
"""

from __future__ import annotations

from dataclasses import replace

from kernelet.base.target import Target
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.lower.analysis import Analysis, size_of
from kernelet.lower.scatter import scatter_sum
from kernelet.lower.transforms import Parallel, Plan, Reorder, Split, Transform, apply_transforms

LEAST_WORK = 1 << 14
TILE_VECTORS = 4


def plan_scatter(analysis: Analysis, target: Target) -> Plan | None:
    """Lanes and threads along what is added; None where no search is."""
    if len(analysis.writer.stages) != 1 or analysis.work < LEAST_WORK or analysis.in_place:
        return None
    main = max((site for site in analysis.sites if site.stage), key=lambda site: site.weight)
    loops = [*main.loops, *analysis.ranges]
    if any(variable.src[0].op is not Op.CONST for variable in loops):
        return None
    result = next((v for v in analysis.ranges if _is_search(analysis, v)), None)
    if result is None:
        return None
    others = [v for v in analysis.ranges if v is not result]
    splits: list[Split] = []
    width = target.lanes(analysis.itemsize)
    if others and size_of(others[-1]) >= width > 1:
        axis = analysis.nest[analysis.ranges.index(others[-1])].axis
        count = min(TILE_VECTORS, size_of(others[-1]) // width)
        # Elements of a tile that overlaps another would be added twice.
        while size_of(others[-1]) % (count * width) and count > 1:
            count -= 1
        if size_of(others[-1]) % (count * width) == 0:
            splits = [Split(axis, count * width, "unroll"), Split(axis, width, "vector")]
    splits = [split for split in splits if split.factor > 1]
    nest = apply_transforms(analysis.nest, splits)
    axis = analysis.nest[analysis.ranges.index(result)].axis
    outer = [n for n, loop in enumerate(nest) if loop.kind == "loop" and loop.axis != axis]
    outer.sort(key=lambda n: -(nest[n].size if isinstance(nest[n].size, int) else 0))
    (search,) = (n for n, loop in enumerate(nest) if loop.axis == axis)
    tile = [n for n, loop in enumerate(nest) if loop.kind != "loop"]
    root: list[Transform] = [*splits, Reorder((*outer, search, *tile))]
    if outer and target.threads > 1:
        root.append(Parallel())
    return replace(analysis.plan, root=tuple(root), lanes=width, scatter=len(outer))


def _is_search(analysis: Analysis, result: UOp) -> bool:
    """Whether results along a loop are told apart by a number that the kernel reads."""
    compared = (n for n in analysis.writer.written_values() if n.op is Op.CMPNE)
    if not any(s.op is Op.CAST and s.src[0] is result for node in compared for s in node.src):
        return False
    position = analysis.ranges.index(result)
    order = (*(n for n in range(len(analysis.ranges)) if n != position), position)
    turned = Analysis(analysis.kernel, replace(analysis.plan, root=(Reorder(order),)))
    return scatter_sum(turned.writer.block, len(order) - 1) is not turned.writer.block
