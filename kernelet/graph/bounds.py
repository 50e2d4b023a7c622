"""The least and the greatest value that a node can have."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from kernelet.base.dtype import Scalar
from kernelet.graph.ops import OP_TABLE, Op

if TYPE_CHECKING:
    from kernelet.graph.uop import UOp


class Bounds(NamedTuple):
    """Both ends are included."""

    min: Scalar
    max: Scalar


_UNCHANGED = frozenset(
    {Op.RESHAPE, Op.PERMUTE, Op.EXPAND, Op.SHRINK, Op.FLIP, Op.CONTIGUOUS, Op.DETACH, Op.COPY}
)


def bounds_of(node: UOp) -> Bounds:
    """Bounds from those of the sources; those of the dtype where nothing better is known."""
    op = node.op
    whole = Bounds(node.dtype.min, node.dtype.max) if node.dtype.kind != "void" else Bounds(0, 0)
    if op is Op.CONST:
        return whole if node.arg != node.arg else Bounds(node.arg, node.arg)
    if op is Op.VARIABLE:
        return Bounds(node.arg.min, node.arg.max)
    if op is Op.ARANGE:
        (size,) = node.arg
        last = size if isinstance(size, int) else int(size.bounds.max)
        return Bounds(0, max(last - 1, 0))
    if op is Op.RANGE:
        return Bounds(0, max(int(node.src[0].bounds.max) - 1, 0))
    if op in _UNCHANGED or op is Op.BIND:
        return node.src[0].bounds
    if node.dtype.is_float or op not in OP_TABLE:
        return whole
    found = _arithmetic(node)
    # A value that may leave its dtype wraps, so nothing is known of it.
    if found is None or found.min < whole.min or found.max > whole.max:
        return whole
    return found


def _arithmetic(node: UOp) -> Bounds | None:
    op = node.op
    if any(source.dtype.is_float for source in node.src):
        return None
    parts = [source.bounds for source in node.src]
    if op is Op.WHERE:
        return Bounds(min(parts[1].min, parts[2].min), max(parts[1].max, parts[2].max))
    if op in (Op.CAST, Op.TRUNC):
        return parts[0]
    if op is Op.NEG:
        return Bounds(-parts[0].max, -parts[0].min)
    if len(parts) == 2:
        return _binary(op, *parts)
    return None


def _binary(op: Op, left: Bounds, right: Bounds) -> Bounds | None:
    if op is Op.ADD:
        return Bounds(left.min + right.min, left.max + right.max)
    if op is Op.SUB:
        return Bounds(left.min - right.max, left.max - right.min)
    if op is Op.MAX:
        return Bounds(max(left.min, right.min), max(left.max, right.max))
    if op is Op.MUL:
        return _corners(op, left, right)
    if op is Op.CMPLT:
        return Bounds(left.max < right.min, left.min < right.max)
    if op is Op.CMPNE:
        apart = left.max < right.min or right.max < left.min
        same = left.min == left.max == right.min == right.max
        return Bounds(apart, not same)
    if op in (Op.IDIV, Op.TRUNCDIV) and right.min > 0:
        return _corners(op, left, right)
    if op in (Op.MOD, Op.TRUNCMOD) and right.min > 0:
        return _modulo(op, left, right)
    if op is Op.AND and isinstance(left.min, bool):
        return Bounds(left.min and right.min, left.max and right.max)
    if op is Op.AND and left.min >= 0 and right.min >= 0:
        return Bounds(0, min(left.max, right.max))
    if op is Op.OR and isinstance(left.min, bool):
        return Bounds(left.min or right.min, left.max or right.max)
    if op is Op.SHR and right.min >= 0 and not math.isinf(left.max):
        return _corners(op, left, right)
    return None


def _corners(op: Op, left: Bounds, right: Bounds) -> Bounds:
    meaning = OP_TABLE[op].meaning
    values = [meaning(x, y) for x in left for y in right]
    return Bounds(min(values), max(values))


def _modulo(op: Op, left: Bounds, right: Bounds) -> Bounds | None:
    if op is Op.TRUNCMOD and left.min < 0:
        return None
    size = right.max
    if right.min == right.max and left.min // size == left.max // size:
        return Bounds(left.min % size, left.max % size)
    return Bounds(0, min(size - 1, left.max) if left.min >= 0 else size - 1)
