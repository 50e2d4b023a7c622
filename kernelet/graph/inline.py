"""Write a value at one index as a scalar expression, down to loads and reads of other stages.

In:  a tensor-level node and an index expression for each of its axes.
Out: one scalar expression; reductions met on the way are handed to the caller.

Movement ops turn into index arithmetic, padding into gates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelet.base.dtype import dtypes
from kernelet.base.errors import InternalError
from kernelet.graph import division
from kernelet.graph.movement import Place, movement_index
from kernelet.graph.ops import ELEMENTWISE, MOVEMENT, Op
from kernelet.graph.show import show
from kernelet.graph.uop import UOp

ReadStage = Callable[[Place], UOp | Place | None]


class Inliner:
    """Scalar expressions for one loop nest; equal places give equal expressions.

    `read_stage` gives the expression for a value that has storage or loops of its own, another
    place with the same value, or None for a value to be written inline.
    """

    def __init__(self, read_stage: ReadStage) -> None:
        self.read_stage = read_stage
        self.known: dict[Place, UOp] = {}

    def expression(self, node: UOp, index: Sequence[UOp], gate: UOp = division.TRUE) -> UOp:
        """The scalar value of `node` at `index`; on a stack of its own, for graphs may be deep."""
        root = Place(node, tuple(index), gate)
        stack = [root]
        waiting: dict[Place, list[Place]] = {}
        while stack:
            place = stack[-1]
            if place in self.known:
                stack.pop()
                continue
            needed = waiting.get(place) or self._needed(place)
            if isinstance(needed, UOp):
                self.known[place] = needed
                stack.pop()
                continue
            missing = [part for part in needed if part not in self.known]
            if missing:
                stack.extend(reversed(missing))
                if place.node.op is not Op.GATHER:  # whose place is known after its index
                    waiting[place] = needed
                continue
            self.known[place] = _combine(place, [self.known[part] for part in needed], needed)
            stack.pop()
        return self.known[root]

    def _needed(self, place: Place) -> UOp | list[Place]:
        node, index, gate = place
        found = self.read_stage(place)
        if isinstance(found, Place):
            return [found]
        if found is not None:
            return found
        op = node.op
        if op in ELEMENTWISE:
            return [Place(source, index, gate) for source in node.src]
        if op in MOVEMENT:
            moved, inside = movement_index(node, index)
            if inside is division.FALSE:
                return UOp.const(0, node.dtype)
            return [Place(node.src[0], moved, division.and_gates(gate, inside))]
        if op is Op.GATHER:
            return self._gathered(place)
        if op is Op.CONST:
            return UOp.const(node.arg, node.dtype)
        if op is Op.VARIABLE:
            return node
        if op is Op.ARANGE:
            return index[0].cast(node.dtype)
        if op is Op.PARAM:
            return load(node, index[0], gate)
        raise InternalError(f"lower: {op.name} cannot be part of a kernel:\n{show(node)}")

    def _gathered(self, place: Place) -> list[Place]:
        """The element that a computed index names; its place is known once the index is."""
        node, index, gate = place
        values, picks = node.src
        pick = Place(picks, index, gate)
        if pick not in self.known:
            return [pick]
        position = self.known[pick].cast(dtypes.index)
        if picks.dtype.itemsize == dtypes.index.itemsize:
            # The gate takes the negative of it, which the least integer does not have.
            position = division.maximum_index(position, division.index_const(-1))
        moved = (*index[: node.arg], position, *index[node.arg + 1 :])
        inside = division.bounds_gate(position, values.shape[node.arg])
        return [Place(values, moved, division.and_gates(gate, inside))]


def _combine(place: Place, sources: list[UOp], needed: list[Place]) -> UOp:
    node = place.node
    if node.op in ELEMENTWISE:
        return UOp(node.op, node.dtype, tuple(sources))
    (value,), inside = sources, needed[0].gate
    # A gated load is 0 where its gate fails, so padding right above a load needs nothing more.
    if inside is place.gate or (value.op is Op.LOAD and len(value.src) == 2):
        return value
    known = division.gate_parts(place.gate)
    added = [part for part in division.gate_parts(inside) if part not in known]
    return division.and_gates(*added).where(value, 0)


def load(memory: UOp, offset: UOp, gate: UOp) -> UOp:
    """Read one element, gated unless the offset is proved to lie inside.

    Where the gate holds, every index on the way down was inside its axis, so the offset is inside.
    """
    address = UOp(Op.INDEX, dtypes.index, (memory, offset))
    inside = division.bounds_gate(offset, memory.arg.size)
    if inside is division.TRUE:
        return UOp(Op.LOAD, memory.dtype, (address,))
    gate = inside if gate is division.TRUE else gate
    if gate is division.FALSE:
        return UOp.const(0, memory.dtype)
    return UOp(Op.LOAD, memory.dtype, (address, gate))
