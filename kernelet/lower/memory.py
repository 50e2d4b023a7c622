"""Scratch whose addresses are all constant becomes registers.

In:  a BLOCK after its tiles are written out.
Out: the same program; such scratch has one element for each vector that is read or written.
"""

from __future__ import annotations

from kernelet.base.dtype import dtypes
from kernelet.graph.division import index_const
from kernelet.graph.ops import Op
from kernelet.graph.uop import ScratchArg, UOp
from kernelet.graph.walk import rebuild


def scratch_to_registers(block: UOp) -> UOp:
    """acc[32 : 48] += x  ->  acc2 += x"""
    accesses: dict[UOp, list[UOp]] = {}
    for node in block.toposort():
        if node.op in (Op.LOAD, Op.STORE) and node.src[0].src[0].op is Op.SCRATCH:
            accesses.setdefault(node.src[0].src[0], []).append(node)
    widths = {memory: width for memory, found in accesses.items() if (width := _width(found))}

    def change(node: UOp, made: UOp) -> UOp:
        if node.op not in (Op.LOAD, Op.STORE) or node.src[0].src[0] not in widths:
            return made
        return _in_register(made, widths[node.src[0].src[0]])

    return rebuild(block, change) if widths else block


def _lanes(node: UOp) -> int:
    return node.dtype.lanes if node.op is Op.LOAD else node.src[1].dtype.lanes


def _width(accesses: list[UOp]) -> int:
    """The lanes of one register; 0 when the scratch must stay in memory."""
    width = max(map(_lanes, accesses))
    for node in accesses:
        lanes, where, is_store = _lanes(node), node.src[0].src[1], node.op is Op.STORE
        if where.op is not Op.CONST or len(node.src) > (2 if is_store else 1):
            return 0
        if lanes != width and (is_store or lanes != 1):
            return 0
        if lanes == width and where.arg % width and is_store:
            return 0
    return width


def _in_register(node: UOp, width: int) -> UOp:
    memory, offset = node.src[0].src
    dtype, arg = memory.dtype.vec(width), memory.arg
    register = UOp(Op.SCRATCH, dtype, (), ScratchArg(arg.number, -(-arg.size // width), True))
    # Lanes may be those of one register, or the end of one and the start of the next.
    lanes = [divmod(offset.arg + n, width) for n in range(_lanes(node))]
    addresses = {
        number: UOp(Op.INDEX, dtypes.index, (register, index_const(number))) for number, _ in lanes
    }
    if node.op is Op.STORE:
        return node.replace(src=(addresses[lanes[0][0]], node.src[1]))
    values = {number: UOp(Op.LOAD, dtype, (each,)) for number, each in addresses.items()}
    if len(values) == 1 and len(lanes) == width:
        return values[lanes[0][0]]
    parts = [UOp(Op.EXTRACT, dtype.scalar, (values[number],), lane) for number, lane in lanes]
    return parts[0] if len(parts) == 1 else UOp(Op.VECTORIZE, dtype, tuple(parts))
