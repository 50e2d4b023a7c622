"""Running reductions in a loop over their results: the accumulator goes on instead of starting again.

In:  a stage whose REDUCE is a `Scan`, settled inside a loop along its results.
Out: what is done once before that loop, and what each iteration adds.

for i in n: (acc = 0; for j in n: acc += where(j <= i, x[j], 0); y[i] = acc)
->  acc = 0; for i in n: (acc += x[i]; y[i] = acc)

With lanes along the results each one adds to the result of the same lane, `lanes` before it, the
elements since then. They add up in a few steps: those of two are x[l] + x[l - 1], those of four
two[l] + two[l - 2] and so on, where what is left of the first lane was kept from the last tile.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelet.base.dtype import dtypes
from kernelet.graph.division import (
    TRUE,
    ZERO,
    add_index,
    and_gates,
    bounds_gate,
    index_const,
    index_of,
    substitute_index,
    subtract_index,
)
from kernelet.graph.ops import Op
from kernelet.graph.placement import Chain, ranges_in
from kernelet.graph.scan import Scan, identity_value, scan_of
from kernelet.graph.uop import ScratchArg, UOp
from kernelet.lower.stage import Stage, Staging
from kernelet.lower.statements import Statements, combine, store, wrap
from kernelet.lower.transforms import coordinate_of


@dataclass(frozen=True, slots=True)
class Carry:
    """A running reduction that `loop` carries on; `lane` is the loop over the lanes, if any."""

    staging: Staging
    stage: Stage
    scan: Scan
    loop: UOp
    lane: UOp | None

    def start(self) -> Statements:
        """What is done before the loop: no element is in yet."""
        stage, identity = self.stage, identity_value(self.stage.node)
        # Of one step, only where the results are kept does not move with the loop.
        kept = [stage.address(stage.coordinates)]
        kept += [self._part(level, before=True) for level in range(self._levels)]
        tile = (*stage.own, *stage.tile)
        return [part for place in kept for part in wrap(tile, [store(place, identity)])]

    def step(self) -> Statements:
        """One iteration: the new elements join the results."""
        stage, op, dtype = self.stage, self.stage.node.arg.op, self.stage.node.dtype
        tile = stage.tile
        value = self._new_elements((*stage.place, *stage.own, *tile))
        found = wrap(tile, [store(self._part(0), value)]) if self._levels else []
        for level in range(self._levels):
            value = UOp(Op.LOAD, dtype, (self._part(level),))
            neighbour = UOp(Op.LOAD, dtype, (self._part(level, distance=1 << level),))
            joined = store(self._part(level + 1), value.alu(op, neighbour))
            found += wrap(tile, [joined, store(self._part(level, before=True), value)])
        if self._levels:
            value = UOp(Op.LOAD, dtype, (self._part(self._levels),))
        return found + wrap(tile, [combine(op, stage.address(stage.coordinates), dtype, value)])

    def _new_elements(self, around: Chain) -> UOp:
        """The elements that the results of one iteration add to those before."""
        stage, scan = self.stage, self.scan
        coordinates = stage.coordinates
        position = scan.position(coordinates[scan.axis])
        inside = bounds_gate(position, scan.value.shape[scan.over])
        index = list(coordinates)
        index[scan.over] = position
        gate = and_gates(stage.gate, inside)
        value = self.staging.expression(scan.value, tuple(index), around, None, gate)
        return value if inside is TRUE else inside.where(value, identity_value(stage.node))

    @property
    def _levels(self) -> int:
        return self.stage.sizes[self.scan.axis].bit_length() - 1

    def _part(self, level: int, *, before: bool = False, distance: int = 0) -> UOp:
        """Sums of 2**level elements: those of a lane, in the tile before, or some lanes back.

        Two tiles lie side by side, so that a lane to the left of the first is in the one before.
        """
        lanes = self.stage.sizes[self.scan.axis]
        number = 2 * self.staging.last_number + self.stage.number
        start = 2 * lanes * level
        if self.scan.backwards:
            start += lanes * before + distance
        else:
            start += lanes * (not before) - distance
        arg = ScratchArg(number, 2 * lanes * (self._levels + 1))
        memory = UOp(Op.SCRATCH, self.stage.node.dtype, (), arg)
        assert self.lane is not None
        return UOp(Op.INDEX, dtypes.index, (memory, add_index(self.lane, index_const(start))))


def carry_of(staging: Staging, stage: Stage) -> Carry | None:
    """How the loop around a settled stage carries its reduction on; None where it does not.

    The loop must run through the results in the order of the scan, one tile after the other from
    the first one on, and everything else about the box must stay where it is.
    """
    scan = scan_of(stage.node)
    if scan is None or not stage.place:
        return None
    loop = stage.place[-1]
    moving = [axis for axis, lo in enumerate(stage.lo) if loop in ranges_in(lo)]
    if loop.arg.kind != "loop" or moving != [scan.axis]:
        return None
    if not _follows(staging, stage, scan, loop):
        return None
    if stage.sizes[scan.axis] == 1:
        return Carry(staging, stage, scan, loop, None)
    if len(stage.nest) != 1 or stage.nest[0].kind != "vector" or not may_have_lanes(stage.node):
        return None
    return Carry(staging, stage, scan, loop, stage.ranges[0])


def may_have_lanes(node: UOp) -> bool:
    """Whether lanes along a scan give the values that one by one would.

    A product of a part may overflow where the product of all before it is 0.
    """
    return node.arg.op is not Op.MUL or not node.dtype.is_float


def _follows(staging: Staging, stage: Stage, scan: Scan, variable: UOp) -> bool:
    """Whether the iterations of a loop hold tile after tile of the results."""
    loop, lo, size = staging.loop_of[variable], stage.lo[scan.axis], stage.sizes[scan.axis]
    at = coordinate_of((loop,), (variable,), loop.axis)
    up = variable not in ranges_in(subtract_index(lo, at))
    if not up and variable in ranges_in(add_index(lo, at)):
        return False
    if loop.stride != size or loop.limit is not None or ranges_in(lo) != {variable}:
        return False
    goes_up = up == (loop.mirror is None)
    begin = substitute_index(lo, {variable: ZERO})
    # The results that come first in order.
    last = add_index(index_of(stage.node.shape[scan.axis]), index_const(-size))
    return goes_up != scan.backwards and begin is (last if scan.backwards else ZERO)
