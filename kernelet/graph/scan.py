"""Recognize running reductions: each result combines what the one before combines, and one more.

In:  a REDUCE.
Out: its `Scan`, proved from the condition and the bounds; None where it is another reduction.

sum_j where(j <= i, x[j], 0)  is  where i = 0: x[0], else: the result at i - 1, + x[i]
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelet.base.dtype import DType, Scalar, dtypes
from kernelet.graph.division import ZERO, add_index, index_const, index_of, scale_index, terms_of
from kernelet.graph.fold import constant_value
from kernelet.graph.infer import Shape
from kernelet.graph.inline import Inliner, Place
from kernelet.graph.movement import movement_index
from kernelet.graph.ops import ELEMENTWISE, MOVEMENT, OP_TABLE, Op
from kernelet.graph.placement import Index, ranges_in
from kernelet.graph.uop import RangeArg, UOp

_CONDITION = MOVEMENT | {Op.ARANGE, Op.CONST, Op.ADD, Op.MUL, Op.NEG, Op.CAST, Op.CMPLT, Op.CMPNE}
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


def scan_of(node: UOp) -> Scan | None:
    """How a reduction runs along an axis of its results."""
    if node.op is not Op.REDUCE or node.src[0].op is not Op.WHERE or len(node.arg.axes) != 1:
        return None
    cache = node.cache
    if "scan" not in cache:
        cache["scan"] = _find(node)
    found: Scan | None = cache["scan"]
    return found


def _find(node: UOp) -> Scan | None:
    choice, (over,) = node.src[0], node.arg.axes
    condition, value, other = choice.src
    identity = identity_of(node.arg.op, node.dtype)
    negated = constant_value(value) == identity
    if negated:
        value, other = other, value
    if constant_value(other) != identity or choice.shape[over] == 1:
        return None
    nodes = condition.toposort()
    if len(nodes) > _MOST_NODES or any(n.op not in _CONDITION for n in nodes):
        return None
    index = _ranges(choice.shape)
    margin = _margin(Inliner(lambda place: None).expression(condition, index), negated)
    if margin is None:
        return None
    constant, coefficients = terms_of(margin)
    axes = {atom: axis for axis, atom in enumerate(index) if atom in coefficients}
    others = [axis for axis in axes.values() if axis != over]
    if len(axes) != 2 or len(coefficients) != 2 or len(others) != 1:
        return None
    (axis,) = others
    near, far = coefficients[index[over]], coefficients[index[axis]]
    if abs(near) != 1 or abs(far) != 1 or _moves_with(value, index, index[axis]):
        return None
    # near * r + far * i + constant >= 1: up to a first or last r, which moves with i by one.
    found = Scan(axis, over, value, -near * (constant - 1), -near * far, far < 0)
    return found if _starts_with_one(found, choice.shape, near) else None


def _ranges(shape: Shape) -> Index:
    return tuple(
        ZERO if dim == 1 else UOp(Op.RANGE, dtypes.index, (index_of(dim),), RangeArg(axis, "loop"))
        for axis, dim in enumerate(shape)
    )


def _margin(condition: UOp, negated: bool) -> UOp | None:
    """An index that is at least 1 where the condition holds and at most 0 where not."""
    while condition.op is Op.CMPNE and condition.src[1].op is Op.CONST and condition.src[1].arg:
        condition, negated = condition.src[0], not negated
    if condition.op is not Op.CMPLT or not condition.src[0].dtype.is_integer:
        return None
    low, high = (_as_index(source) for source in condition.src)
    if low is None or high is None:
        return None
    margin = add_index(high, scale_index(low, -1))
    return add_index(index_const(1), scale_index(margin, -1)) if negated else margin


def _as_index(node: UOp) -> UOp | None:
    """An integer expression as an index; None where it is another or may wrap."""
    if node.dtype is dtypes.index:
        return node
    if node.op is Op.CONST:
        return index_const(int(node.arg))
    parts = [_as_index(source) for source in node.src]
    whole = [part for part in parts if part is not None]
    if len(whole) < len(parts) or not node.dtype.is_integer:
        return None
    if node.op is Op.CAST:
        found = whole[0]
    elif node.op is Op.NEG:
        found = scale_index(whole[0], -1)
    elif node.op is Op.ADD:
        found = add_index(*whole)
    elif node.op is Op.MUL and whole[1].op is Op.CONST:
        found = scale_index(whole[0], whole[1].arg)
    else:
        return None
    low, high = found.bounds
    return found if node.dtype.min <= low and high <= node.dtype.max else None


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
    stack = [Place(value, index, index[0])]
    seen: set[Place] = set()
    while stack:
        place = stack.pop()
        if place in seen:
            continue
        seen.add(place)
        node, at, _ = place
        if len(seen) > _MOST_PLACES:
            return True
        if node.op in ELEMENTWISE:
            stack += [Place(source, at, place.gate) for source in node.src]
        elif node.op in MOVEMENT:
            moved, inside = movement_index(node, at)
            if variable in ranges_in(inside):
                return True
            stack.append(Place(node.src[0], moved, place.gate))
        elif any(variable in ranges_in(part) for part in at):
            return True
    return False
