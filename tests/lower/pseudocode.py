"""Trees of loops as text that reads like a program, and small kernels to lower."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernelet.base.dtype import DType, dtypes
from kernelet.graph.infer import Dim
from kernelet.graph.ops import Op
from kernelet.graph.show import show_expression
from kernelet.graph.uop import ParamArg, RangeArg, ReduceArg, UOp

F32 = dtypes.float32
VOID = dtypes.void
_SYMBOLS = {
    Op.ADD: "+",
    Op.SUB: "-",
    Op.MUL: "*",
    Op.CMPLT: "<",
    Op.CMPNE: "!=",
    Op.AND: "&",
    Op.MAX: "max",
    Op.OR: "|",
    Op.IDIV: "//",
    Op.MOD: "%",
}


def written(block: UOp) -> str:
    """A BLOCK as lines; p0 is the argument of slot 0, s1 the scratch of stage 1, g1 registers."""
    return "\n".join(line for statement in block.src for line in _lines(statement, ""))


def _lines(statement: UOp, indent: str) -> list[str]:
    if statement.op is Op.LOOP:
        variable, *body = statement.src
        size = show_expression(variable.src[0])
        kind = "" if variable.arg.kind == "loop" else f" {variable.arg.kind}"
        head = f"{indent}for r{variable.arg.number} in {size}{kind}:"
        return [head, *(line for part in body for line in _lines(part, indent + "  "))]
    if statement.op is Op.BLOCK:
        parts = [line for part in statement.src for line in _lines(part, indent + "  ")]
        return [f"{indent}at once:", *parts]
    address, value, *gates = statement.src
    gate = f" if {value_text(gates[0])}" if gates else ""
    return [f"{indent}{_place(address, value.dtype.lanes)} = {value_text(value)}{gate}"]


def _place(address: UOp, lanes: int) -> str:
    memory, offset = address.src
    name = f"p{memory.arg.slot}" if memory.op is Op.PARAM else f"s{memory.arg.number}"
    if memory.op is Op.SCRATCH and memory.arg.register:
        return f"g{memory.arg.number}[{show_expression(offset)}]"
    start = show_expression(offset)
    return f"{name}[{start}]" if lanes == 1 else f"{name}[{start}:+{lanes}]"


def value_text(node: UOp) -> str:
    """One expression; a vector of equal lanes is its lane with the number of lanes."""
    if node.dtype is dtypes.index:
        return show_expression(node)
    if node.op is Op.CONST:
        return str(node.arg) if node.dtype.lanes == 1 else f"{node.arg}x{node.dtype.lanes}"
    if node.op is Op.LOAD:
        gate = f" if {value_text(node.src[1])}" if len(node.src) == 2 else ""
        return _place(node.src[0], node.dtype.lanes) + gate
    parts = [value_text(source) for source in node.src]
    if node.op is Op.VECTORIZE:
        same = len(set(node.src)) == 1
        return f"{parts[0]}x{len(parts)}" if same else f"({', '.join(parts)})"
    if node.op is Op.EXTRACT:
        return f"{parts[0]}.{node.arg}"
    if node.op in _SYMBOLS:
        return f"({parts[0]} {_SYMBOLS[node.op]} {parts[1]})"
    name = node.op.name.lower() if node.op is not Op.CAST else str(node.dtype.name)
    return f"{name}({', '.join(parts)})"


# ---- kernels ----


def memory(slot: int, *shape: Dim, dtype: DType = F32) -> UOp:
    """A memory argument seen in a shape."""
    size = math.prod(dim if isinstance(dim, int) else int(dim.bounds.max) for dim in shape)
    node = UOp(Op.PARAM, dtype, (), ParamArg(slot, size, "CPU"))
    return node if shape == (size,) else UOp(Op.RESHAPE, dtype, (node,), shape)


def kernel(value: UOp) -> UOp:
    """The kernel that stores a value to argument 0."""
    target = memory(0, *value.shape, dtype=value.dtype)
    return UOp.sink(UOp(Op.STORE, VOID, (target, value)))


def reduce(x: UOp, op: Op, *axes: int) -> UOp:
    return UOp(Op.REDUCE, x.dtype, (x,), ReduceArg(op, axes))


def reshape(x: UOp, *shape: Dim) -> UOp:
    return UOp(Op.RESHAPE, x.dtype, (x,), shape)


def expand(x: UOp, *shape: Dim) -> UOp:
    return UOp(Op.EXPAND, x.dtype, (x,), shape)


def permute(x: UOp, *order: int) -> UOp:
    return UOp(Op.PERMUTE, x.dtype, (x,), order)


def pad(x: UOp, *pairs: tuple[Dim, Dim]) -> UOp:
    return UOp(Op.PAD, x.dtype, (x,), pairs)


def shrink(x: UOp, *pairs: tuple[Dim, Dim]) -> UOp:
    return UOp(Op.SHRINK, x.dtype, (x,), pairs)


def flip(x: UOp, *axes: int) -> UOp:
    return UOp(Op.FLIP, x.dtype, (x,), axes)


def product(x: UOp, y: UOp) -> UOp:
    """x @ y.T of two matrices, with the summed axis kept."""
    (rows, inner), (columns, _) = x.shape, y.shape
    left = expand(reshape(x, rows, 1, inner), rows, columns, inner)
    right = expand(reshape(y, 1, columns, inner), rows, columns, inner)
    return reduce(left * right, Op.ADD, 2)


def softmax(x: UOp) -> UOp:
    """The softmax, to base 2, of the rows of a matrix."""
    power = (x - expand(reduce(x, Op.MAX, 1), *x.shape)).alu(Op.EXP2)
    return power * expand(reduce(power, Op.ADD, 1), *x.shape).alu(Op.RECIPROCAL)


# ---- loops by hand ----


def loop(number: int, size: int, kind: str = "loop") -> UOp:
    """A loop variable."""
    return UOp(Op.RANGE, dtypes.index, (UOp.const(size, dtypes.index),), RangeArg(number, kind))


def around(variable: UOp, *statements: UOp) -> UOp:
    """A loop over statements."""
    return UOp(Op.LOOP, VOID, (variable, *statements))


def block(*statements: UOp) -> UOp:
    return UOp(Op.BLOCK, VOID, statements)


def at(place: UOp, offset: UOp | int) -> UOp:
    """An address."""
    index = UOp.const(offset, dtypes.index) if isinstance(offset, int) else offset
    return UOp(Op.INDEX, dtypes.index, (place, index))


def load(place: UOp, offset: UOp | int, lanes: int = 1, gates: Sequence[UOp] = ()) -> UOp:
    return UOp(Op.LOAD, place.dtype.vec(lanes), (at(place, offset), *gates))


def store(place: UOp, offset: UOp | int, value: UOp) -> UOp:
    return UOp(Op.STORE, VOID, (at(place, offset), value))
