"""Recognize running reductions: each result combines what the one before combines, and one more.

In:  a REDUCE.
Out: its `Scan`, proved from the condition and the bounds; None where it is another reduction.

sum_j where(j <= i, x[j], 0)  is  where i = 0: x[0], else: the result at i - 1, + x[i]
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelet.base.dtype import DType, Scalar
from kernelet.graph.division import ZERO, add_index, index_const, index_of, scale_index, terms_of
from kernelet.graph.fold import constant_value
from kernelet.graph.infer import Shape, kept
from kernelet.graph.masks import deciding
from kernelet.graph.movement import Index, places_below
from kernelet.graph.ops import OP_TABLE, Op
from kernelet.graph.placement import loops_over, ranges_in
from kernelet.graph.uop import UOp

_MOST_NODES = 64
_MOST_PLACES = 1000


@dataclass(frozen=True, slots=True)
class Scan:
    """Result i along `axis` combines elements of `value` along the reduced axis `over`.

    It has those that the result before it has, and the element at `first + step * i`, if there is
    one. Results go up, or down from the last one where `backwards`.
    """

    axis: int
    over: int
    value: UOp
    first: int
    step: int
    backwards: bool

    def position(self, result: UOp) -> UOp:
        """Which element the result at an index adds to those of the one before."""
        return add_index(index_const(self.first), scale_index(result, self.step))


def identity_of(op: Op, dtype: DType) -> Scalar:
    """The value that changes nothing when combined by `op`."""
    if op is Op.MAX:
        return dtype.min
    identity = OP_TABLE[op].identity
    assert identity is not None, f"{op.name} has no identity"
    return identity


def identity_value(node: UOp) -> UOp:
    """What a reduction starts from."""
    return UOp.const(identity_of(node.arg.op, node.dtype), node.dtype)


@kept
def scan_of(node: UOp) -> Scan | None:
    """How a reduction runs along an axis of its results."""
    if node.op is not Op.REDUCE or node.src[0].op is not Op.WHERE or len(node.arg.axes) != 1:
        return None
    choice, (over,) = node.src[0], node.arg.axes
    condition, value, other = choice.src
    identity = identity_of(node.arg.op, node.dtype)
    negated = constant_value(value) == identity
    if negated:
        value, other = other, value
    if constant_value(other) != identity or choice.shape[over] == 1:
        return None
    if len(condition.toposort()) > _MOST_NODES:
        return None
    index = loops_over(choice.shape)
    gate = deciding(condition, index, not negated)
    if gate is None or gate.op is not Op.CMPLT:
        return None
    _, coefficients = terms_of(gate.src[0])
    axes = {atom: axis for axis, atom in enumerate(index) if atom in coefficients}
    others = [axis for axis in axes.values() if axis != over]
    if len(axes) != 2 or len(coefficients) != 2 or len(others) != 1:
        return None
    (axis,) = others
    near, far = -coefficients[index[over]], -coefficients[index[axis]]
    if abs(near) != 1 or abs(far) != 1 or _moves_with(value, index, index[axis]):
        return None
    # near * r + far * i + limit > 0: up to a first or last r, which moves with i by one.
    limit = gate.src[1].arg
    found = Scan(axis, over, value, -near * (limit - 1), -near * far, far < 0)
    return found if _starts_with_one(found, choice.shape, near) else None


def _starts_with_one(scan: Scan, shape: Shape, near: int) -> bool:
    """Whether the result from which all others follow has at most one element."""
    last = add_index(index_of(shape[scan.axis]), index_const(-1))
    at = scan.position(last if scan.backwards else ZERO)
    if near < 0:
        return at.bounds.max <= 0
    end = add_index(index_of(shape[scan.over]), index_const(-1))
    return add_index(at, scale_index(end, -1)).bounds.min >= 0


def _moves_with(value: UOp, index: Index, variable: UOp) -> bool:
    """Whether a value may differ from result to result."""
    places = places_below(value, index, _MOST_PLACES)
    return places is None or any(
        variable in ranges_in(part) for place in places for part in (*place.index, place.gate)
    )
