"""Compute in float32 with the dtypes that the Target can only load and store.

In:  the statements of a kernel over scalar or vector expressions.
Out: the same, with narrow floats (those of `Target.storage_only`) in LOAD, STORE, CAST and BITCAST
     alone; scratch never holds them.

Each result is rounded to its dtype, as if it had been stored: a value is the same in one kernel
or in many. Sums that shall be more precise are asked for in float32 by whoever writes them. An
`index` needs nothing: renderers write it as an int64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from kernelet.base.dtype import DType, dtypes, round_float
from kernelet.base.target import Target
from kernelet.graph.ops import ELEMENTWISE, Op
from kernelet.graph.pattern import UPat, rule
from kernelet.graph.rewrite import RuleSet, graph_rewrite
from kernelet.graph.uop import UOp

# Results of these are one of the arguments, perhaps with another sign or without its fraction.
_EXACT = frozenset({Op.MAX, Op.WHERE, Op.NEG, Op.TRUNC, Op.VECTORIZE, Op.EXTRACT})
_COMPUTED = tuple(ELEMENTWISE - {Op.CAST, Op.BITCAST, Op.EXP2, Op.SIN})
_LANES = (Op.VECTORIZE, Op.EXTRACT)
# exp(x) is exp2(x * log2(e)), cos(x) is sin(x + pi / 2).
_ARGUMENTS: dict[Op, tuple[Op, float]] = {
    Op.EXP2: (Op.MUL, math.log2(math.e)),
    Op.SIN: (Op.ADD, math.pi / 2),
}


@dataclass(frozen=True, slots=True)
class Narrow:
    """The names of the dtypes that are only stored, and the float32 nodes that they would hold."""

    names: frozenset[str]
    exact: set[tuple[UOp, str]] = field(default_factory=set)

    def __contains__(self, dtype: DType) -> bool:
        return dtype.name in self.names

    def narrowed(self, wide: UOp, dtype: DType, exact: bool) -> UOp:
        """`wide` rounded to `dtype`; `exact` says that the rounding changes nothing."""
        if exact:
            self.exact.add((wide, dtype.name))
        return wide.cast(dtype)

    def unrounded(self, node: UOp) -> UOp | None:
        """The float32 node that `node` is the rounding of, where that changes nothing."""
        if node.op is not Op.CAST or (node.src[0], node.dtype.name) not in self.exact:
            return None
        return node.src[0]


@rule(UPat(Op.CONST, name="number"))
def narrow_number_is_wide_number(number: UOp, ctx: Narrow) -> UOp | None:
    """half 1.5 -> half(float 1.5)"""
    if number.dtype not in ctx:
        return None
    value = round_float(number.dtype.scalar, number.arg)
    return ctx.narrowed(UOp.const(value, widened(number.dtype)), number.dtype, exact=True)


@rule(UPat(Op.CAST, dtypes.float32, (UPat(Op.CAST, name="narrow"),)))
def exact_rounding_is_nothing(narrow: UOp, ctx: Narrow) -> UOp | None:
    """float(half(x)) -> x, where x is a half already"""
    return ctx.unrounded(narrow)


@rule(UPat((*_COMPUTED, *_LANES), name="node"))
def narrow_arithmetic_is_wide(node: UOp, ctx: Narrow) -> UOp | None:
    """half x + half y -> half(float(x) + float(y))"""
    if not any(source.dtype in ctx for source in node.src):
        return None
    return wide_operation(node, [widen(source, ctx) for source in node.src], ctx)


@rule(UPat((Op.EXP2, Op.SIN), src=(UPat(name="x"),), name="node"))
def narrow_function_has_wide_argument(node: UOp, x: UOp, ctx: Narrow) -> UOp | None:
    """exp2(half(float(x) * log2(e))) -> half(exp2(float(x) * log2(e))), likewise sin(x + pi / 2)

    These are exp and cos, which round their result and no argument.
    """
    if x.dtype not in ctx:
        return None
    op, value = _ARGUMENTS[node.op]
    argument = widen(x, ctx)
    if x.op is Op.CAST and x.src[0].op is op:
        left, right = x.src[0].src
        number, other = (left, right) if left.op is Op.CONST else (right, left)
        if number.op is Op.CONST and abs(number.arg) == round_float(x.dtype.scalar, value):
            precise = number.const_like(math.copysign(value, number.arg))
            argument = other.alu(op, precise)
    return wide_operation(node, [argument], ctx)


@rule(UPat(Op.SCRATCH, name="memory"))
def narrow_scratch_is_wide(memory: UOp, ctx: Narrow) -> UOp | None:
    """half scratch[n] -> float scratch[n]"""
    return memory.replace(dtype=widened(memory.dtype)) if memory.dtype in ctx else None


@rule(UPat(Op.LOAD, name="load"))
def load_from_wide_scratch_is_wide(load: UOp, ctx: Narrow) -> UOp | None:
    """load half from scratch -> half(load float from scratch)"""
    if load.dtype not in ctx or load.src[0].src[0].op is not Op.SCRATCH:
        return None
    return ctx.narrowed(load.replace(dtype=widened(load.dtype)), load.dtype, exact=True)


@rule(UPat(Op.STORE, name="store"))
def store_to_wide_scratch_is_wide(store: UOp, ctx: Narrow) -> UOp | None:
    """scratch[i] = half x -> scratch[i] = float(x)"""
    address, value, *gate = store.src
    if value.dtype not in ctx or address.src[0].op is not Op.SCRATCH:
        return None
    return store.replace(src=(address, widen(value, ctx), *gate))


NARROW_FLOATS = RuleSet(
    "compute narrow floats in float32",
    narrow_number_is_wide_number,
    exact_rounding_is_nothing,
    narrow_arithmetic_is_wide,
    narrow_function_has_wide_argument,
    narrow_scratch_is_wide,
    load_from_wide_scratch_is_wide,
    store_to_wide_scratch_is_wide,
)


def widen_narrow_floats(root: UOp, target: Target) -> UOp:
    """The graph with no arithmetic in the dtypes that the target can only store."""
    if not target.storage_only:
        return root
    return graph_rewrite(root, NARROW_FLOATS, Narrow(target.storage_only))


def wide_operation(node: UOp, sources: list[UOp], ctx: Narrow) -> UOp:
    """`node` on float32 sources, rounded to its own dtype."""
    if node.dtype not in ctx:
        return node.replace(src=tuple(sources))
    wide = node.replace(dtype=widened(node.dtype), src=tuple(sources))
    return ctx.narrowed(wide, node.dtype, exact=node.op in _EXACT)


def widen(node: UOp, ctx: Narrow) -> UOp:
    """`node` in float32, if it has a dtype that is only stored."""
    if node.dtype not in ctx:
        return node
    known = ctx.unrounded(node)
    return node.cast(widened(node.dtype)) if known is None else known


def widened(dtype: DType) -> DType:
    """float32 with as many lanes."""
    return dtypes.float32.vec(dtype.lanes)
