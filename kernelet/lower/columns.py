"""Choose the loops of sums along columns: of a matrix, or of its product with a vector.

In:  the analysis of one kernel and the Target.
Out: a Plan, or None where another nest is better.

Neighbouring results lie side by side and the elements of one sum far apart. A tile of results that
runs down the whole matrix would touch a new page in every step; instead long pieces of a few rows
are read one after the other, and the sums wait in the nearest cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from kernelet.base.target import Target
from kernelet.graph.ops import Op
from kernelet.graph.placement import ranges_in
from kernelet.graph.uop import UOp
from kernelet.lower.analysis import Analysis, Site, joined_axes, run_as_one, size_of
from kernelet.lower.loops import stride_of
from kernelet.lower.stage import DEAR
from kernelet.lower.transforms import BlockSum, Held, Loops, Plan, Split

LEAST_WORK = 1 << 16
TILE_VECTORS = 4
MOST_DEAR = 1 << 13  # values kept for all pieces
MOST_ROWS = 16  # rows whose pieces are added up in registers
PIECE_BYTES = 1 << 13  # of sums that wait


def plan_columns(analysis: Analysis, target: Target) -> Plan | None:
    """Pieces of rows for a kernel with reductions of far elements, all over the same rows."""
    if not _only_sums(analysis) or analysis.work < LEAST_WORK:
        return None
    if analysis.in_place or not analysis.ranges:
        return None
    tile = target.lanes(analysis.itemsize) * TILE_VECTORS
    if len(analysis.writer.stages) == 1 and size_of(analysis.ranges[-1]) % tile == 0:
        # Rows that go on in the next one are long ones, and vectors stay whole.
        can_join = partial(run_as_one, analysis.main_site())
        analysis = analysis.merged(joined_axes(analysis, can_join))
    mains = [analysis.main_site(stage.number) for stage in analysis.writer.stages.values()]
    if size_of(analysis.ranges[-1]) < 2 * tile or not all(_runs_down(analysis, m) for m in mains):
        return None
    rows = {size_of(main.summed[0]) for main in mains}
    return _plan(analysis, target, tile, rows.pop()) if len(rows) == 1 else None


def _only_sums(analysis: Analysis) -> bool:
    """Whether each result has one reduction, which no other one needs."""
    writer = analysis.writer
    if len(writer.stages) != len(analysis.kernel.src):
        return False
    return all(
        node.op is Op.REDUCE
        and not writer.absorbed.get(node)
        and not any(v.arg.kind == "reduce" for access in stage.accesses for v in access.chain)
        for node, stage in writer.stages.items()
    )


def _runs_down(analysis: Analysis, main: Site) -> bool:
    """Whether neighbouring results read neighbours, nothing is shared, and sums take long steps."""
    if not main.summed or any(variable.src[0].op is not Op.CONST for variable in main.loops):
        return False
    *outer, lane = analysis.ranges
    offsets = [load.src[0].src[1] for load in main.loads if len(load.src) == 1]
    moving = [offset for offset in offsets if lane in ranges_in(offset)]
    if len(offsets) < len(main.loads) or not moving:
        return False
    return all(
        stride_of(offset, lane) == 1
        and all(stride_of(offset, variable) != 1 for variable in main.summed)
        and all(variable in ranges_in(offset) for variable in outer)
        for offset in moving
    )


def _plan(analysis: Analysis, target: Target, tile: int, rows: int) -> Plan:
    """Threads take pieces; within one, a few rows after the other."""
    *outer, last = analysis.nest
    loops, lanes = Loops(analysis.nest), tile // TILE_VECTORS
    most = PIECE_BYTES // analysis.itemsize
    pieces = max(-(-last.steps // most), 1 if outer else target.threads)
    piece = -(-last.steps // (pieces * tile)) * tile
    depth = len(outer)
    if piece < last.steps:
        loops.split(last.axis, piece)
        depth += 1
    loops.tile(last.axis, lanes, TILE_VECTORS)
    loops.share_out(range(depth), target.threads)
    steps = max(n for n in range(1, min(rows, MOST_ROWS) + 1) if rows % n == 0)
    return replace(
        analysis.plan,
        root=loops.transforms,
        lanes=lanes,
        held=tuple(_dear_vectors(analysis.writer.kernel, lanes)),
        blocked=BlockSum(depth, steps) if steps < rows else None,
    )


def _dear_vectors(kernel: UOp, width: int) -> Iterator[Held]:
    """Dear values along one axis alone are computed once, not again for each piece.

    for n: for k: acc[n] += exp(x[k]) * w[k, n]  ->  for k: e[k] = exp(x[k]); for n: ...
    """
    order = list(kernel.toposort())
    inside: set[UOp] = set()
    for position in reversed(range(len(order))):
        node = order[position]
        long = [(axis, dim) for axis, dim in enumerate(node.shape) if dim != 1]
        if node.op not in DEAR or node in inside or len(long) != 1:
            continue
        axis, size = long[0]
        if isinstance(size, int) and width <= size <= MOST_DEAR:
            inside.update(node.toposort())
            yield Held(position, 1, (Split(axis, width, "vector"),))
