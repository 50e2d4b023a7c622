"""At which loop a value can be computed, and which box of it is then needed.

In:  the indices at which a value is read, with the loops around each read.
Out: the place, as the loops around it, and the box: its first coordinate and its sizes.

Go down the loops that all readers share while the value depends on each; the last legal one is
the place. So no work is repeated and the box is smallest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from kernelet.base.dtype import dtypes
from kernelet.graph import division
from kernelet.graph.infer import Dim, Shape, kept, max_dim
from kernelet.graph.movement import Index, movement_index
from kernelet.graph.ops import MOVEMENT, Op
from kernelet.graph.uop import RangeArg, UOp

Chain = tuple[UOp, ...]
TILE_KINDS = frozenset({"unroll", "vector"})


@dataclass(frozen=True, slots=True)
class Reading:
    """One read of a value: the index, and all loops around it from the outermost."""

    index: Index
    chain: Chain


class Box(NamedTuple):
    """Which part of a value one iteration of its place needs."""

    place: Chain
    lo: Index
    sizes: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.sizes)


def loop_over(size: Dim, number: int, kind: str = "loop") -> UOp:
    """A loop variable that counts to `size`."""
    return UOp(Op.RANGE, dtypes.index, (division.index_of(size),), RangeArg(number, kind))


def loops_over(shape: Shape, numbers: Iterable[int] = range(64)) -> Index:
    """A loop variable for each axis, 0 for axes of one element; numbered from 0 by default."""
    pairs = zip(shape, numbers, strict=False)
    return tuple(division.ZERO if dim == 1 else loop_over(dim, number) for dim, number in pairs)


def source_index(node: UOp, source: UOp, index: Index, numbers: Iterable[int]) -> Index:
    """Where a source of a node is read for the element at `index`, whatever the gates.

    A loop of its own runs along each axis that is reduced, or of which the run tells what is picked.
    """
    if node.op in MOVEMENT:
        return movement_index(node, index)[0]
    is_picked = node.op is Op.GATHER and source is node.src[0]
    if node.op is not Op.REDUCE and not is_picked:
        return index
    axes = (node.arg,) if is_picked else node.arg.axes
    opened = iter(loops_over(tuple(source.shape[axis] for axis in axes), numbers))
    return tuple(next(opened) if axis in axes else at for axis, at in enumerate(index))


@kept
def ranges_in(index: UOp) -> frozenset[UOp]:
    """The loop variables that an index expression depends on."""
    if index.op is Op.RANGE:
        return frozenset({index})
    return frozenset().union(*[ranges_in(source) for source in index.src])


@kept
def is_computed(index: UOp) -> bool:
    """Whether an index comes out of memory, so that only the run tells where it points."""
    return index.op is Op.LOAD or any(map(is_computed, index.src))


def common_prefix(chains: Sequence[Chain]) -> Chain:
    """The loops that all chains begin with."""
    rows = zip(*chains, strict=False)
    return tuple([row[0] for row in takewhile(lambda row: len({*row}) == 1, rows)])


def split_index(index: UOp, outer: frozenset[UOp]) -> tuple[UOp, UOp] | None:
    """The parts of an index that depend on outer loops and on inner ones; None if entangled."""
    constant, coefficients = division.terms_of(index)
    outside: dict[UOp, int] = {}
    inside: dict[UOp, int] = {}
    for atom, factor in coefficients.items():
        variables = ranges_in(atom)
        if variables <= outer:
            outside[atom] = factor
        elif variables.isdisjoint(outer):
            inside[atom] = factor
        else:
            return None
    return division.sum_of(0, outside), division.sum_of(constant, inside)


def box_at(place: Chain, indices: Sequence[Index], shape: Shape) -> Box | None:
    """The box that all indices stay in while the loops of `place` stand still; None if illegal.

    A computed index may point anywhere, so all of its axis is kept.
    """
    outer = frozenset(place)
    lo: list[UOp] = []
    sizes: list[int] = []
    for axis, dim in enumerate(shape):
        if any(is_computed(index[axis]) for index in indices):
            lo.append(division.ZERO)
            sizes.append(max(max_dim(dim), 1))
            continue
        splits = [split_index(index[axis], outer) for index in indices]
        first = splits[0]
        if first is None:
            return None
        low, high = math.inf, -math.inf
        for split in splits:
            if split is None or split[0] is not first[0]:
                return None
            low, high = min(low, split[1].bounds.min), max(high, split[1].bounds.max)
        if first[0] is division.ZERO:
            # Outside of the whole value there is nothing to be kept.
            low, high = max(low, 0), min(high, max_dim(dim) - 1)
        lo.append(division.add_index(first[0], division.index_const(int(low))))
        sizes.append(max(int(high - low) + 1, 1))
    return Box(place, tuple(lo), tuple(sizes))


def place_value(readings: Sequence[Reading], shape: Shape, least: int = 1) -> Box:
    """The place of a value and its box; before all loops, where no other place is legal.

    A box of fewer than `least` elements, too few for a register tile, is passed over.
    """
    indices = [reading.index for reading in readings]
    known = [part for index in indices for part in index if not is_computed(part)]
    depends = frozenset().union(*map(ranges_in, known))
    shared = common_prefix([reading.chain for reading in readings])
    # Readings that differ by a variable have only all of the value in common.
    whole = Box((), (division.ZERO,) * len(shape), tuple(max(max_dim(dim), 1) for dim in shape))
    best = box_at((), indices, shape) or whole
    for depth, variable in enumerate(shared):
        if variable.arg.kind in TILE_KINDS or variable not in depends:
            break
        found = box_at(shared[: depth + 1], indices, shape)
        if found is not None and found.size >= least:
            best = found
    return best


def running_box(box: Box, readings: Sequence[Reading], shape: Shape, axis: int) -> Box:
    """The box at the innermost loop that moves it along `axis`, whatever is inside that loop."""
    moving = [n for n, variable in enumerate(box.place) if variable in ranges_in(box.lo[axis])]
    if not moving:
        return box
    outer = box.place[: moving[-1] + 1]
    return box_at(outer, [reading.index for reading in readings], shape) or box


def last_live(gate: UOp, variable: UOp, outer: frozenset[UOp]) -> UOp | None:
    """How many iterations of a loop come before the gate holds for all that is inside of it.

    i + 8 * k - j < 0 for a loop over j, with k inside, in 4  ->  j in i + 25

    None where the gate does not hold for the rest of a loop.
    """
    if gate.op is Op.CONST:
        return division.ZERO if gate.arg else None
    if gate.op is not Op.CMPLT or gate.src[1].op is not Op.CONST:
        return None
    constant, found = division.terms_of(gate.src[0])
    step = -found.get(variable, 0)
    coefficients = {atom: factor for atom, factor in found.items() if atom is not variable}
    if step <= 0 or any(variable in ranges_in(atom) for atom in coefficients):
        return None
    total = division.sum_of(constant - gate.src[1].arg, coefficients)
    steps = division.divide_index(division.extreme(total, outer), step)
    return division.add_index(steps, division.index_const(1))
