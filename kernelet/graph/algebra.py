"""What is true of arithmetic at every stage: equations, and rules that have a condition.

In:  any graph of elementwise nodes, over tensors or inside kernels.
Out: the same values, bit by bit, from fewer and simpler nodes.

Integers wrap, so constants in sums and products of them are joined. In floats nothing is regrouped;
x + 0.0 stays, for -0.0 + 0.0 is 0.0 (x + -0.0 is x); x * 0.0 stays, for NaN and infinity. Sums of
variables keep their grouping, or a part with other uses would be computed twice; indices have a
normal form of their own in `division.py`.
"""

from __future__ import annotations

import math

from kernelet.base.dtype import EXACT_BITS, DType, dtypes
from kernelet.graph.fold import CONSTANT_OPS, constant_like, constant_value, fold, is_power_of_two
from kernelet.graph.ops import COMMUTATIVE, ELEMENTWISE, Op
from kernelet.graph.pattern import (
    ANY_DTYPE,
    EVERY,
    INTEGERS,
    NUMBERS,
    UPat,
    constants,
    equation,
    rule,
    variables,
)
from kernelet.graph.rewrite import RuleSet, graph_rewrite
from kernelet.graph.uop import UOp

BOOLEAN = (dtypes.bool,)
BITS = (dtypes.bool, *INTEGERS)
SIGNED = (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.index, *dtypes.floats)
INFINITE = tuple(dtype for dtype in dtypes.floats if dtype.min == -math.inf)

x, y, z = variables("x", "y", "z")
p, q = variables("p", "q", dtype=dtypes.bool)
c, d = constants("c", "d")

ZERO = UOp.const(0, ANY_DTYPE)
FALSE, TRUE = UOp.const(False, dtypes.bool), UOp.const(True, dtypes.bool)

NUMBER_IDENTITIES = RuleSet(
    "number identities",
    equation(x * 1, x, dtypes=NUMBERS),
    equation(x + -0.0, x, dtypes=dtypes.floats),
    equation(x.maximum(-math.inf), x, dtypes=INFINITE),
    equation(-(-x), x, dtypes=NUMBERS),
    equation(x * -1, -x, dtypes=SIGNED),
    equation(-x * -y, x * y, dtypes=NUMBERS),
    equation(-x * c, x * -c, dtypes=NUMBERS),
    equation(-(x * c), x * -c, dtypes=NUMBERS),
    equation(x.maximum(x), x, dtypes=EVERY),
    equation(x < x, FALSE, dtypes=EVERY),
    equation(p.cast(ANY_DTYPE).not_equal(0), p, dtypes=NUMBERS),
)

INTEGER_IDENTITIES = RuleSet(
    "integer identities",
    equation(x + 0, x, dtypes=BITS),
    equation(x + -x, ZERO, dtypes=INTEGERS),
    equation((x + c) + d, x + (c + d), dtypes=INTEGERS),
    equation((x + c).not_equal(d), x.not_equal(d + -c), dtypes=INTEGERS),
    equation((-x).not_equal(c), x.not_equal(-c), dtypes=INTEGERS),
    equation(x.not_equal(x), FALSE, dtypes=BITS),
    equation(x // 1, x, dtypes=INTEGERS),
    equation(x % x, ZERO, dtypes=INTEGERS),
)

BIT_IDENTITIES = RuleSet(
    "bit identities",
    equation(x & x, x, dtypes=BITS),
    equation(x | x, x, dtypes=BITS),
    equation(x ^ x, ZERO, dtypes=BITS),
    equation(x | 0, x, dtypes=BITS),
    equation(x ^ 0, x, dtypes=BITS),
    equation((x & c) & d, x & (c & d), dtypes=BITS),
)

LOGIC = RuleSet(
    "logic",
    equation(x & True, x, dtypes=BOOLEAN),
    equation(x + True, TRUE, dtypes=BOOLEAN),
    equation(x.maximum(False), x, dtypes=BOOLEAN),
    equation(x.not_equal(False), x, dtypes=BOOLEAN),
    equation(x.logical_not().logical_not(), x, dtypes=BOOLEAN),
    equation(x.logical_not().not_equal(y), x.not_equal(y).logical_not(), dtypes=BOOLEAN),
)

CHOICES = RuleSet(
    "choices",
    equation(p.where(x, x), x, dtypes=EVERY),
    equation(TRUE.where(x, y), x, dtypes=EVERY),
    equation(FALSE.where(x, y), y, dtypes=EVERY),
    equation(p.logical_not().where(x, y), p.where(y, x), dtypes=EVERY),
    equation(p.where(p.where(x, y), z), p.where(x, z), dtypes=EVERY),
    equation(p.where(x, p.where(y, z)), p.where(x, z), dtypes=EVERY),
    equation(p.where(q.where(x, y), y), (p & q).where(x, y), dtypes=EVERY),
    equation(p.where(x, q.where(x, y)), (p | q).where(x, y), dtypes=EVERY),
    equation(p.where(x, False), p & x, dtypes=BOOLEAN),
)


# ---- constants ----

_ANY_CONSTANT = UPat(tuple(sorted(CONSTANT_OPS)))


@rule(UPat(tuple(sorted(ELEMENTWISE - {Op.BITCAST})), src=_ANY_CONSTANT, name="node"))
def constants_are_computed(node: UOp) -> UOp | None:
    """2 + 3 -> 5, but 1 / 41 stays: x * (1 / 41) becomes x / 41, which is rounded once"""
    values = [constant_value(source) for source in node.src]
    known = [value for value in values if value is not None]
    if len(known) < len(values) or (node.op is Op.RECIPROCAL and not is_power_of_two(known[0])):
        return None
    return constant_like(node, node.dtype, fold(node.op, node.dtype, *known))


@rule(UPat(tuple(sorted(COMMUTATIVE)), src=(_ANY_CONSTANT, UPat()), name="node"))
def constants_go_right(node: UOp) -> UOp | None:
    """2 + x -> x + 2"""
    left, right = node.src
    value = constant_value(left)
    if value is None or constant_value(right) is not None:
        return None
    if node.op is Op.MAX and value == 0 and node.dtype.is_float:
        return None  # which zero max(0.0, -0.0) is depends on the order
    return node.replace(src=(right, left))


@rule(UPat(Op.VECTORIZE, src=UPat(Op.CONST), name="node"))
def equal_constants_are_a_vector_constant(node: UOp) -> UOp | None:
    """vectorize(2, 2) -> the vector constant 2"""
    first = node.src[0]
    return first.replace(dtype=node.dtype) if set(node.src) == {first} else None


CONSTANTS = RuleSet(
    "constants",
    constants_are_computed,
    constants_go_right,
    equal_constants_are_a_vector_constant,
)


# ---- casts ----


def holds_every(wide: DType, narrow: DType) -> bool:
    """Whether each value of `narrow` is a value of `wide` too."""
    if wide.scalar is narrow.scalar or narrow.is_bool:
        return True
    if narrow.is_float:
        return wide.is_float and wide.itemsize > narrow.itemsize
    if wide.is_float:
        return narrow.itemsize * 8 - (not narrow.is_unsigned) <= EXACT_BITS[wide.name]
    return bool(wide.min <= narrow.min and narrow.max <= wide.max)


@rule(UPat(Op.CAST, src=(UPat(Op.CAST, src=(UPat.var("value"),), name="inner"),), name="node"))
def a_cast_that_loses_nothing_is_skipped(node: UOp, inner: UOp, value: UOp) -> UOp | None:
    """cast(cast(x, wide), dtype) -> cast(x, dtype)"""
    old, middle, final = value.dtype, inner.dtype, node.dtype
    whole = old.is_integer and middle.is_integer and final.is_integer
    # Floats are cut off at the ends of an integer type, integers wrap.
    wraps = old.is_integer and middle.is_float and final.is_integer and not holds_every(final, old)
    # Integers wrap: what the first cast drops, a narrower second one drops as well.
    lossless = holds_every(middle, old) and not wraps
    if lossless or (whole and final.itemsize <= middle.itemsize):
        return value.cast(final)
    return None


CASTS = RuleSet("casts", a_cast_that_loses_nothing_is_skipped)


# ---- bounds ----


@rule(UPat(tuple(sorted(ELEMENTWISE - {Op.BITCAST})), BITS, name="node"))
def one_possible_value_is_a_constant(node: UOp) -> UOp | None:
    """i < 8 -> True, where i is a loop over 0..7"""
    low, high = node.bounds
    return constant_like(node, node.dtype, low) if low == high else None


@rule(UPat(Op.MAX, BITS, (UPat.var("left"), UPat.var("right"))))
def the_greater_range_is_the_maximum(left: UOp, right: UOp) -> UOp | None:
    """max(i, 9) -> 9, where i is a loop over 0..7"""
    if left.bounds.min >= right.bounds.max:
        return left
    return right if right.bounds.min >= left.bounds.max else None


BOUNDS = RuleSet(
    "bounds",
    one_possible_value_is_a_constant,
    the_greater_range_is_the_maximum,
)

_GROUPS = (NUMBER_IDENTITIES, INTEGER_IDENTITIES, BIT_IDENTITIES, LOGIC, CHOICES, CASTS, BOUNDS)
ALGEBRA = sum(_GROUPS, CONSTANTS)


def simplify(root: UOp) -> UOp:
    """The graph with every rule of the algebra applied."""
    return graph_rewrite(root, ALGEBRA, name="algebra")
