"""Where a value is one known number, whatever else it is made of.

In:  a node and an index expression for each of its axes.
Out: conditions on the index, and the value under each.

where(q < k, -inf, s[q, k]) is -inf for q < k, exp2 of it is 0, and so is exp2 of it times v[k]: a
sum over k may end at q. What is masked counts for nothing, even times infinity.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kernelet.base.dtype import Scalar, dtypes
from kernelet.graph import division
from kernelet.graph.fold import constant_value, fold
from kernelet.graph.movement import Index, movement_index
from kernelet.graph.ops import ELEMENTWISE, MOVEMENT, Op
from kernelet.graph.uop import UOp


class Known(NamedTuple):
    """Under a condition on the index a value is this number."""

    gate: UOp
    value: Scalar


def may_mask(graph: UOp) -> bool:
    """Whether some value is chosen by where it is."""
    ops = {node.op for node in graph.toposort()}
    return Op.ARANGE in ops and Op.WHERE in ops


class Masks:
    """What is known about the values of one graph, each place looked at once."""

    def __init__(self) -> None:
        self.known: dict[tuple[UOp, Index], list[Known]] = {}

    def parts(self, node: UOp, index: Index) -> list[Known]:
        """The conditions under which `node` is a known number at `index`."""
        place = (node, index)
        if place not in self.known:
            self.known[place] = []
            self.known[place] = [
                part for part in self._parts(node, index) if part.gate is not division.FALSE
            ]
        return self.known[place]

    def _parts(self, node: UOp, index: Index) -> Iterable[Known]:
        if node.op is Op.CONST:
            return [Known(division.TRUE, node.arg)]
        if node.op in MOVEMENT:
            moved, inside = movement_index(node, index)
            # Under padding a value is 0 besides, which no loop needs to know.
            return self.parts(node.src[0], moved) if inside is division.TRUE else []
        if node.op in (Op.CONTIGUOUS, Op.DETACH):
            return self.parts(node.src[0], index)
        if node.op is Op.WHERE:
            return self._choice(node, index)
        if node.op in ELEMENTWISE - {Op.BITCAST} and not node.dtype.is_bool:
            return self._computed(node, index)
        return []

    def _choice(self, node: UOp, index: Index) -> Iterator[Known]:
        condition, if_true, if_false = node.src
        for wanted, source in ((True, if_true), (False, if_false)):
            for value in _always(self.parts(source, index)):
                yield from (Known(g, value) for g in implying(condition, index, wanted))

    def _computed(self, node: UOp, index: Index) -> Iterator[Known]:
        sources = [self.parts(source, index) for source in node.src]
        for number, parts in enumerate(sources):
            for gate, value in parts:
                others = [
                    value if n == number else next(_always(other), None)
                    for n, other in enumerate(sources)
                ]
                if None not in others:
                    numbers = [other for other in others if other is not None]
                    yield Known(gate, fold(node.op, node.dtype, *numbers))
                elif _absorbs(node.op, value):
                    yield Known(gate, value)


def _always(parts: Iterable[Known]) -> Iterator[Scalar]:
    return (part.value for part in parts if part.gate is division.TRUE)


def _absorbs(op: Op, value: Scalar) -> bool:
    """Whether any number that is combined with `value` gives `value` again."""
    if op is Op.MUL:
        return value == 0
    if op is Op.MAX:
        return value == math.inf
    return op is Op.ADD and abs(value) == math.inf


def implying(condition: UOp, index: Index, wanted: bool) -> list[UOp]:
    """Comparisons of indices, under each of which a condition is as wanted."""
    if condition.op in MOVEMENT:
        moved, inside = movement_index(condition, index)
        return implying(condition.src[0], moved, wanted) if inside is division.TRUE else []
    if condition.op is Op.CMPLT:
        left, right = (index_value(source, index) for source in condition.src)
        if left is None or right is None:
            return []
        pair = (left, right) if wanted else (right, division.add_index(left, _ONE))
        return [division.less_index(*pair)]
    if condition.op is Op.CMPNE:
        operand, other = condition.src
        truth = constant_value(other)
        if operand.dtype.is_bool and truth is not None:
            return implying(operand, index, wanted is not bool(truth))
    if condition.op in (Op.AND, Op.OR) and wanted is (condition.op is Op.OR):
        return [gate for source in condition.src for gate in implying(source, index, wanted)]
    return []


def deciding(condition: UOp, index: Index, wanted: bool) -> UOp | None:
    """The comparison of indices that holds just where a condition is as wanted."""
    gates, others = (implying(condition, index, truth) for truth in (wanted, not wanted))
    # Of several comparisons each is enough, and none is needed.
    return gates[0] if len(gates) == len(others) == 1 else None


def index_value(node: UOp, index: Index) -> UOp | None:
    """A whole number that is computed from the index alone, as an index; None for any other."""
    below = node.toposort()
    is_counted = len(below) <= _MOST_NODES and all(part.op in _COUNTED for part in below)
    return _counted(node, index, {}) if is_counted else None


def _counted(node: UOp, index: Index, known: dict[tuple[UOp, Index], UOp | None]) -> UOp | None:
    if (node, index) in known or not node.dtype.is_integer:
        return known.get((node, index))
    value: UOp | None = None
    if node.op in MOVEMENT:
        moved, inside = movement_index(node, index)
        value = _counted(node.src[0], moved, known) if inside is division.TRUE else None
    elif node.op is Op.ARANGE:
        value = index[0]
    elif not node.src:
        value = division.normalize_index(node)
    else:
        found = [_counted(source, index, known) for source in node.src]
        sources = [source for source in found if source is not None]
        if len(sources) == len(found):
            value = division.rebuild(node.replace(dtype=dtypes.index), tuple(sources))
    low, high = value.bounds if value is not None else (-math.inf, math.inf)
    if low < node.dtype.min or high > node.dtype.max:
        value = None  # a number that may leave its dtype wraps
    known[node, index] = value
    return value


_ONE = division.index_const(1)
_MOST_NODES = 64
_COUNTED = MOVEMENT | {Op.ARANGE, Op.CONST, Op.VARIABLE, Op.CAST, Op.NEG, Op.ADD, Op.MUL}
