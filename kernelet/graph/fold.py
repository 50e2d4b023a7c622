"""Arithmetic on constants, at compile time.

In:  constant nodes and Python numbers.
Out: the number, or the node, that the device would have computed.
"""

from __future__ import annotations

import math

from kernelet.base.dtype import DType, Scalar, round_to
from kernelet.graph.ops import OP_TABLE, Op
from kernelet.graph.uop import UOp

_KEEPS_A_CONSTANT = frozenset({Op.RESHAPE, Op.EXPAND, Op.PERMUTE, Op.SHRINK, Op.FLIP})
CONSTANT_OPS = _KEEPS_A_CONSTANT | {Op.CONST}


def constant_value(node: UOp) -> Scalar | None:
    """The one number that every element of `node` is, if it is a constant seen through views."""
    while node.op in _KEEPS_A_CONSTANT:
        node = node.src[0]
    if node.op is not Op.CONST:
        return None
    value: Scalar = node.arg
    return value


def constant_like(node: UOp, dtype: DType, value: Scalar) -> UOp:
    """A constant of `dtype` with the shape of `node`."""
    constant = UOp.const(value, dtype)
    return constant.broadcast_to(node.shape) if node.shape else constant


def fold(op: Op, dtype: DType, *values: Scalar) -> Scalar:
    """The result of an elementwise op (not BITCAST) on numbers, as `dtype` holds it."""
    return round_to(dtype, OP_TABLE[op].meaning(*values))


def is_power_of_two(value: Scalar) -> bool:
    """Whether 1 / `value` is exact: 2**n, -2**n, zero, or not finite.

    >>> is_power_of_two(0.25), is_power_of_two(41)
    (True, False)
    """
    return not value or not math.isfinite(value) or abs(math.frexp(value)[0]) == 0.5
