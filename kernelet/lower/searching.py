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
from kernelet.lower.transforms import Loops, Plan

LEAST_WORK = 1 << 14
TILE_VECTORS = 4


def plan_scatter(analysis: Analysis, target: Target) -> Plan | None:
    """Lanes and threads along what is added; None where no search is."""
    if len(analysis.writer.stages) != 1 or analysis.work < LEAST_WORK or analysis.in_place:
        return None
    loops = [*analysis.main_site().loops, *analysis.ranges]
    if any(variable.src[0].op is not Op.CONST for variable in loops):
        return None
    result = next((v for v in analysis.ranges if _is_search(analysis, v)), None)
    return None if result is None else _plan(analysis, target, result)


def _plan(analysis: Analysis, target: Target, result: UOp) -> Plan:
    loops, width = Loops(analysis.nest), target.lanes(analysis.itemsize)
    others = [v for v in analysis.ranges if v is not result]
    if others and width > 1:
        # Elements of a tile that overlaps another would be added twice.
        size = size_of(others[-1])
        counts = [n for n in range(TILE_VECTORS, 0, -1) if size % (n * width) == 0]
        if counts:
            loops.tile(analysis.axis_of(others[-1]), width, counts[0])
    search = loops.plain(analysis.axis_of(result))
    outer = [n for n in loops.plain() if n not in search]
    outer.sort(key=lambda n: -loops.nest[n].steps)
    loops.put_first(*outer, *search)
    loops.share_out(range(len(outer)), target.threads)
    return replace(analysis.plan, root=loops.transforms, lanes=width, scatter=len(outer))


def _is_search(analysis: Analysis, result: UOp) -> bool:
    """Whether results along a loop are told apart by a number that the kernel reads."""
    compared = (n for n in analysis.writer.written_values() if n.op is Op.CMPNE)
    if not any(s.op is Op.CAST and s.src[0] is result for node in compared for s in node.src):
        return False
    turned = Loops(analysis.nest)
    turned.put_first(*(n for n, v in enumerate(analysis.ranges) if v is not result))
    block = Analysis(analysis.kernel, replace(analysis.plan, root=turned.transforms)).writer.block
    return scatter_sum(block, len(analysis.ranges) - 1) is not block
