"""The least and the greatest value that a node can have."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from kernelet.base.dtype import DType, Scalar
from kernelet.graph.ops import MOVEMENT, OP_TABLE, Op

if TYPE_CHECKING:
    from kernelet.graph.uop import UOp


class Bounds(NamedTuple):
    """Both ends are included."""

    min: Scalar
    max: Scalar


_UNCHANGED = (MOVEMENT - {Op.PAD}) | {Op.CONTIGUOUS, Op.DETACH, Op.COPY, Op.BIND, Op.EXTRACT}
# Each argument moves the result in one direction only, whatever the other one is.
_MONOTONE = frozenset({Op.SUB, Op.MAX, Op.MUL, Op.CMPLT})


@cache
def _whole(dtype: DType) -> Bounds:
    return Bounds(0, 0) if dtype.kind == "void" else Bounds(dtype.min, dtype.max)


def bounds_of(node: UOp) -> Bounds:
    """Bounds from those of the sources; those of the dtype where nothing better is known.

    A float may be NaN as well, which no bounds say.
    """
    op = node.op
    whole = _whole(node.dtype)
    if op in OP_TABLE:
        found = None if node.dtype.is_float else _arithmetic(node)
        # A value that may leave its dtype wraps, so nothing is known of it.
        if found is None or found.min < whole.min or found.max > whole.max:
            return whole
        return Bounds(bool(found.min), bool(found.max)) if node.dtype.is_bool else found
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
    if op in _UNCHANGED:
        return node.src[0].bounds
    if op is Op.VECTORIZE and node.src:
        return _either([source.bounds for source in node.src])
    return whole


def _arithmetic(node: UOp) -> Bounds | None:
    op = node.op
    parts = []
    for source in node.src:
        if source.dtype.is_float:
            return None
        low, high = source.bounds
        parts.append(Bounds(int(low), int(high)))
    if op is Op.WHERE:
        condition, *choices = parts
        # A condition that is known leaves one of them.
        return _either(choices[1 - int(condition.max) : 2 - int(condition.min)])
    if op in (Op.CAST, Op.TRUNC):
        return parts[0]
    if op is Op.NEG:
        return Bounds(-parts[0].max, -parts[0].min)
    if len(parts) == 2:
        return _binary(op, *parts)
    return None


def _either(parts: Sequence[Bounds]) -> Bounds:
    return Bounds(min(part.min for part in parts), max(part.max for part in parts))


def _binary(op: Op, left: Bounds, right: Bounds) -> Bounds | None:
    if op is Op.ADD:
        return Bounds(left.min + right.min, left.max + right.max)
    is_known = left.min == left.max and right.min == right.max
    divides = op in (Op.IDIV, Op.TRUNCDIV) and right.min > 0
    shifts = right.min >= 0 and (op is Op.SHR or (op is Op.SHL and right.max < 64))
    if op in _MONOTONE or is_known or divides or shifts:
        return _corners(op, left, right)
    if op is Op.CMPNE:
        return Bounds(left.max < right.min or right.max < left.min, True)
    if op in (Op.MOD, Op.TRUNCMOD) and right.min > 0:
        return _remainder(op, left, right)
    return _bits(op, left, right) if right.min >= 0 else None


def _remainder(op: Op, left: Bounds, right: Bounds) -> Bounds:
    size = right.max
    if op is Op.TRUNCMOD and left.min < 0:
        return Bounds(max(1 - size, left.min), max(min(size - 1, left.max), 0))
    if right.min == size and left.min // size == left.max // size:
        return Bounds(left.min % size, left.max % size)
    return Bounds(0, min(size - 1, left.max) if left.min >= 0 else size - 1)


def _bits(op: Op, left: Bounds, right: Bounds) -> Bounds | None:
    if op is Op.AND:
        return Bounds(0, right.max if left.min < 0 else min(left.max, right.max))
    if left.min < 0 or op not in (Op.OR, Op.XOR):
        return None
    ones = (1 << max(int(left.max).bit_length(), int(right.max).bit_length())) - 1
    return Bounds(max(left.min, right.min) if op is Op.OR else 0, ones)


def _corners(op: Op, left: Bounds, right: Bounds) -> Bounds:
    meaning = OP_TABLE[op].meaning
    values = [meaning(x, y) for x in left for y in right]
    return Bounds(min(values), max(values))
