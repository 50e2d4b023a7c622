"""Scratch whose addresses are all constant becomes registers.

In:  a BLOCK after its tiles are written out.
Out: the same program; such scratch has one element for each vector that is read or written.
"""

from __future__ import annotations

from kernelet.base.dtype import dtypes
from kernelet.graph.division import index_const
from kernelet.graph.ops import Op
from kernelet.graph.uop import ScratchArg, UOp


def scratch_to_registers(block: UOp) -> UOp:
    """acc[32 : 48] += x  ->  acc2 += x"""
    order = block.toposort()
    accesses: dict[UOp, list[tuple[UOp, int | None]]] = {}
    for node in order:
        if node.op not in (Op.LOAD, Op.STORE):
            continue
        memory, offset = node.src[0].src
        if memory.op is Op.SCRATCH:
            where = offset.arg if offset.op is Op.CONST else None
            accesses.setdefault(memory, []).append((node, where))
    widths = {memory: width for memory, found in accesses.items() if (width := _width(found))}
    if not widths:
        return block
    done: dict[UOp, UOp] = {}
    for node in order:
        sources = tuple(done[source] for source in node.src)
        if node.op in (Op.LOAD, Op.STORE) and node.src[0].src[0] in widths:
            done[node] = _in_register(node, sources, widths[node.src[0].src[0]])
        else:
            done[node] = node if sources == node.src else node.replace(src=sources)
    return done[block]


def _lanes(node: UOp) -> int:
    return node.dtype.lanes if node.op is Op.LOAD else node.src[1].dtype.lanes


def _width(accesses: list[tuple[UOp, int | None]]) -> int:
    """The lanes of one register; 0 when the scratch must stay in memory."""
    width = max(_lanes(node) for node, _ in accesses)
    for node, where in accesses:
        lanes = _lanes(node)
        if where is None or len(node.src) > (1 if node.op is Op.LOAD else 2):
            return 0
        if lanes != width and (node.op is Op.STORE or lanes != 1):
            return 0
        if lanes == width and where % width and node.op is Op.STORE:
            return 0
    return width


def _in_register(node: UOp, sources: tuple[UOp, ...], width: int) -> UOp:
    memory, offset = node.src[0].src
    arg = memory.arg
    dtype = memory.dtype.vec(width)
    size = -(-arg.size // width)
    register = UOp(Op.SCRATCH, dtype, (), ScratchArg(arg.number, size, True))
    number, lane = divmod(offset.arg, width)
    first, second = (
        UOp(Op.INDEX, dtypes.index, (register, index_const(n))) for n in (number, number + 1)
    )
    if node.op is Op.STORE:
        return node.replace(src=(first, sources[1]))
    value = UOp(Op.LOAD, dtype, (first,))
    if _lanes(node) < width:
        return UOp(Op.EXTRACT, node.dtype, (value,), lane)
    if not lane:
        return value
    # The end of one register and the start of the next.
    values = [value] * (width - lane) + [UOp(Op.LOAD, dtype, (second,))] * lane
    parts = [
        UOp(Op.EXTRACT, dtype.scalar, (part,), (lane + n) % width) for n, part in enumerate(values)
    ]
    return UOp(Op.VECTORIZE, dtype, tuple(parts))
