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

from kernelet.base.dtype import dtypes, round_float
from kernelet.base.target import Target
from kernelet.graph.ops import ELEMENTWISE, Op
from kernelet.graph.uop import UOp

# Results of these are one of the arguments, perhaps with another sign or without its fraction.
_EXACT = frozenset({Op.MAX, Op.WHERE, Op.NEG, Op.TRUNC, Op.VECTORIZE, Op.EXTRACT})
_COMPUTED = (ELEMENTWISE | _EXACT) - {Op.CAST, Op.BITCAST}
# exp(x) is exp2(x * log2(e)), cos(x) is sin(x + pi / 2).
_ARGUMENTS: dict[Op, tuple[Op, float]] = {
    Op.EXP2: (Op.MUL, math.log2(math.e)),
    Op.SIN: (Op.ADD, math.pi / 2),
}


def widen_narrow_floats(root: UOp, target: Target) -> UOp:
    """The graph with no arithmetic in the dtypes that the target can only store.

    half x + half y  ->  half(float(x) + float(y))
    """
    order = root.toposort()
    if target.storage_only.isdisjoint(node.dtype.name for node in order):
        return root
    widening = _Widening(target.storage_only)
    for node in order:
        widening.visit(node)
    return widening.made[root]


class _Widening:
    """What has become of each node, and for those of a narrow dtype a float32 of the same value."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.made: dict[UOp, UOp] = {}
        self.wide: dict[UOp, UOp] = {}

    def visit(self, node: UOp) -> None:
        """Write one node, after its sources."""
        op, dtype = node.op, node.dtype
        is_narrow = dtype.name in self.names
        float32 = dtypes.float32.vec(dtype.lanes)
        in_scratch = op in (Op.LOAD, Op.STORE) and node.src[0].src[0].op is Op.SCRATCH
        known = self.wide if op in _COMPUTED or in_scratch else self.made
        sources = tuple([known.get(each, self.made[each]) for each in node.src])
        if op is Op.SCRATCH and is_narrow:
            self.made[node] = node.replace(dtype=float32)
        elif op is Op.CAST and dtype is float32:
            self.made[node] = self.wide.get(node.src[0], node.replace(src=sources))
        elif is_narrow and (op in _COMPUTED or in_scratch or op is Op.CONST):
            value = node.replace(dtype=float32, src=sources)
            if op is Op.CONST:
                value = UOp.const(round_float(dtype.scalar, node.arg), float32)
            elif op in _ARGUMENTS:
                value = value.replace(src=(self._argument(node),))
            self.made[node] = value.cast(dtype)
            is_exact = op in _EXACT or in_scratch or op is Op.CONST
            self.wide[node] = value if is_exact else self.made[node].cast(float32)
        else:
            self.made[node] = node.replace(src=sources)
            if is_narrow:
                self.wide[node] = self.made[node].cast(float32)

    def _argument(self, node: UOp) -> UOp:
        """exp2(half(float(x) * log2(e)))  ->  exp2(float(x) * log2(e)), likewise sin(x + pi / 2)

        These are exp and cos, which round their result and no argument.
        """
        (source,) = node.src
        op, value = _ARGUMENTS[node.op]
        rounded = self.made[source]
        if rounded.op is Op.CAST and rounded.src[0].op is op:
            left, right = rounded.src[0].src
            number, other = (left, right) if left.op is Op.CONST else (right, left)
            if number.op is Op.CONST and abs(number.arg) == round_float(source.dtype.scalar, value):
                return other.alu(op, number.const_like(math.copysign(value, number.arg)))
        return self.wide[source]
