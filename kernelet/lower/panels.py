"""The transform `StageLoad`: copy what inner loops read into scratch, in the order they read it.

In:  a BLOCK of loops over scalar expressions.
Out: the same program; one load reads scratch that is filled at an outer loop.

for i: for k: acc += a[i, k] * b[k * 512 + j0 * 32 + j]
->  for k: for j: p[k, j] = b[k * 512 + j0 * 32 + j]
    for i: for k: acc += a[i, k] * p[k, j]

The copy has one axis for each way in which the address moves. Loops that only ever count together,
as a pixel and a tap of a convolution, share an axis: that is its halo. Padding is filled with
zeros, so that the inner loops have no masks.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kernelet.base.dtype import dtypes
from kernelet.graph.division import (
    TRUE,
    ZERO,
    add_index,
    and_gates,
    bounds_gate,
    combination,
    divide_index,
    gate_parts,
    index_const,
    less_index,
    minimum_index,
    modulo_index,
    replace_ranges,
    scale_index,
    substitute_index,
    terms_of,
)
from kernelet.graph.ops import Op
from kernelet.graph.placement import TILE_KINDS, Chain, is_computed, ranges_in
from kernelet.graph.uop import ScratchArg, UOp
from kernelet.graph.walk import rebuild, substitute
from kernelet.lower.loops import body_of, fresh_numbers, statements_of, stride_of, with_body
from kernelet.lower.masks import without_masks
from kernelet.lower.statements import loads_of, open_loop, wrap
from kernelet.lower.transforms import StageLoad

LARGEST_COPY = 1 << 23  # bytes
SHORT_PITCH = 64  # rows up to this many elements are read one after the other


_DIVISIONS = {Op.IDIV: divide_index, Op.MOD: modulo_index}


class Entangled(Exception):
    """An address cannot be taken apart into what moves inside a loop and what does not."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a copy: `variable` counts its `size` steps from `low`.

    `atoms` are the loops that count along it, each with how many steps it moves; `digits` those that
    fill it, where there are several. Of the room that these need, the first `used` steps are read.
    """

    variable: UOp
    low: int
    size: int
    atoms: Mapping[UOp, int]
    digits: tuple[tuple[UOp, int], ...] = ()
    used: int = 0

    def position(self) -> UOp:
        """Where the loops that read stand along the axis."""
        return combination(self.atoms.items(), -self.low)

    def loops(self) -> list[UOp]:
        """The loops that fill it."""
        return [variable for variable, _ in reversed(self.digits)] or [self.variable]


def stage_loads(block: UOp, staged: Sequence[StageLoad], lanes: int) -> UOp:
    """The program after all copies, first to last; a copy that is not possible is left out."""
    for one in staged:
        found = _find(block, one)
        if found is not None:
            with contextlib.suppress(Entangled):
                block = stage_load(block, *found, lanes)
    return block


def _find(block: UOp, one: StageLoad) -> tuple[UOp, Chain] | None:
    """The load that a transform names, and the loops around its copy.

    Memory that the program writes has no copy: it would go on showing what was there before.
    """
    found = list(statements_of(block))
    if any(_is_argument(statement.src[0], one.slot) for statement, _ in found):
        return None
    for statement, chain in found:
        loads = [load for load in loads_of(statement) if _is_argument(load.src[0], one.slot)]
        if loads[one.number :]:
            outer = [v for v in chain[: one.depth] if v.arg.kind not in TILE_KINDS]
            return loads[one.number], tuple(outer)
    return None


def _is_argument(address: UOp, slot: int) -> bool:
    memory = address.src[0]
    return memory.op is Op.PARAM and memory.arg.slot == slot


def stage_load(block: UOp, load: UOp, place: Chain, lanes: int) -> UOp:
    """The program with one load copied into scratch in the body of the last loop of `place`."""
    return _Copy(block, load, place, lanes).placed(block, place)


class _Copy:
    """The scratch of one load: its axes, the loops that fill it, the load that reads it."""

    def __init__(self, block: UOp, load: UOp, place: Chain, lanes: int) -> None:
        self.load = load
        self.lanes = lanes
        self.outer = frozenset(place)
        self.numbers = fresh_numbers(block, Op.RANGE)
        self.gate = self.known = load.src[1] if len(load.src) == 2 else TRUE
        self.memory, self.offset = load.src[0].src
        around = (chain for part, chain in statements_of(block) if load in part.toposort())
        self.behind: dict[UOp, UOp] = {}
        self.tile: dict[UOp, int] = {}
        self.axes = self._axes(self._tile_as_one(next(around)[len(place) :]))
        divided = _divisions(self._moved(self.offset), self._gate_over(self._moved))
        self.axes = [self._with_digits(axis, divided) for axis in self.axes]
        sizes = [axis.size for axis in self.axes]
        self.pitches = _pitches(sizes, lanes)
        room = math.prod(sizes[:1]) * self.pitches[0] if sizes else 1
        if room * load.dtype.itemsize > LARGEST_COPY:
            raise Entangled
        number = next(fresh_numbers(block, Op.SCRATCH))
        self.scratch = UOp(Op.SCRATCH, load.dtype, (), ScratchArg(number, room))
        self.reading = self._reading()
        self.fill = self._fill()

    # ---- axes ----

    def _tile_as_one(self, inside: Chain) -> Chain:
        """One variable for the loops that run through the lanes' axis, where it is divided.

        x[(p * 32 + j) // 56, (p * 32 + j) % 56]  ->  x[v // 56, v % 56], v = p * 32 + j
        """
        divided = _divisions(self.offset, self.gate)
        lane = next((variable for variable in inside if variable.arg.kind == "vector"), ZERO)
        terms = [(terms_of(node.src[0]).coefficients, node.src[1].arg) for node in divided]
        terms = [(found, divisor) for found, divisor in terms if lane in found]
        limits = {v: n for found, _ in terms for n in found if n.op is Op.MAX for v in ranges_in(n)}
        beside = [ranges_in(node) for node in divided if lane in ranges_in(node)]
        step = 1
        total = ZERO
        for variable in reversed(inside):
            if not any(variable in variables for variables in beside):
                continue
            atom = limits.get(variable, variable)
            # A limit is written as -max(-limit, -step * variable).
            factor = step if atom is variable else -1
            # Taps are counted in the same divisions, but not as what follows the lanes.
            if any((n.get(atom, 0) - n[lane] * factor) % divisor for n, divisor in terms):
                continue
            self.tile[atom] = factor
            total = add_index(total, scale_index(atom, factor))
            step *= _size(variable)
        if len(self.tile) < 2:
            self.tile.clear()
            return inside
        gone = {variable for atom in self.tile for variable in ranges_in(atom)}
        self.joined = open_loop(int(total.bounds.max) + 1, self.numbers, "vector")
        self.offset = self._over_joined(self.offset)
        self.gate = self._gate_over(self._over_joined)
        self.behind[self.joined] = total
        return (*(variable for variable in inside if variable not in gone), self.joined)

    def _over_joined(self, index: UOp) -> UOp:
        """An index over the joined variable.

        p + (2 * p + j) // 14  ->  v // 14, v = 16 * p + j
        """
        (first, factor), *others = self.tile.items()
        others = [(atom, -step * factor) for atom, step in others]
        place = combination([(self.joined, factor), *others])
        found = substitute_index(index, {first: place})
        if any(not ranges_in(found).isdisjoint(ranges_in(atom)) for atom in self.tile):
            raise Entangled
        return found

    def _axes(self, inside: Chain) -> list[Axis]:
        forms: list[dict[UOp, int]] = []
        self._collect(self.offset, forms)
        for part in self._conditions():
            for side in part.src:
                self._collect(side, forms)
        atoms = dict.fromkeys(atom for form in forms for atom in form)
        groups: dict[tuple[int, ...], dict[UOp, int]] = {}
        for atom in atoms:
            column = [form.get(atom, 0) for form in forms]
            common = math.gcd(*column)
            first = next(factor for factor in column if factor)
            common = common if first > 0 else -common
            key = tuple(factor // common for factor in column)
            groups.setdefault(key, {})[atom] = common
        order = {variable: depth for depth, variable in enumerate(inside)}
        vectors = {variable for variable in inside if variable.arg.kind == "vector"}

        def depth_of(atoms: Iterable[UOp]) -> tuple[bool, int]:
            moving = [v for atom in atoms for v in ranges_in(atom)]
            return not vectors.isdisjoint(moving), min(order[variable] for variable in moving)

        parts = []
        for group in groups.values():
            digits = _digits(group)
            in_order = digits == sorted(digits, key=depth_of)
            parts += [group] if in_order else digits
        made = [axis for part in parts for axis in self._joined(part)]
        return sorted(made, key=lambda axis: depth_of(axis.atoms))

    def _collect(self, index: UOp, forms: list[dict[UOp, int]]) -> None:
        """The sums that an index is made of, those inside divisions too."""
        form: dict[UOp, int] = {}
        for atom, factor in terms_of(index).coefficients.items():
            moving = ranges_in(atom)
            if is_computed(atom):
                raise Entangled  # it may come out of scratch that is not filled yet
            if moving <= self.outer:
                continue
            if _is_division(atom):
                self._collect(atom.src[0], forms)
            elif atom.op in (Op.RANGE, Op.MAX) and moving.isdisjoint(self.outer):
                form[atom] = factor
            else:
                raise Entangled
        if form and form not in forms:
            forms.append(form)

    def _joined(self, group: dict[UOp, int]) -> list[Axis]:
        """One axis for loops that count together, unless it would have more gaps than steps."""
        common = math.gcd(*group.values())
        atoms = {atom: factor // common for atom, factor in group.items()}
        spans = [sorted((f * atom.bounds.min, f * atom.bounds.max)) for atom, f in atoms.items()]
        low = int(sum(span[0] for span in spans))
        size = int(sum(span[1] for span in spans)) - low + 1
        steps = math.prod(_size(v) for v in {v for atom in atoms for v in ranges_in(atom)})
        # Lanes that are far apart get an axis of their own, to lie side by side in the copy.
        far = any(_is_vector(atom) and factor > 1 for atom, factor in atoms.items())
        if len(atoms) > 1 and (far or size > steps):
            return [axis for item in atoms.items() for axis in self._joined(dict([item]))]
        return [Axis(open_loop(size, self.numbers), low, size, atoms)]

    def _with_digits(self, axis: Axis, divided: Sequence[UOp]) -> Axis:
        """An axis whose quotient and remainder are used is filled by two loops.

        for p in 224: q[p] = x[p // 56, p % 56]  ->  for y in 4: for x in 56: q[y * 56 + x] = x[y, x]
        """
        found = set().union(*[_divisors(node, axis.variable) for node in divided])
        steps = [1, *sorted(step for step in found if 1 < step < axis.size)]
        if len(steps) == 1 or any(b % a for a, b in itertools.pairwise(steps)):
            return axis
        counts = [b // a for a, b in itertools.pairwise(steps)]
        counts.append(-(-axis.size // steps[-1]))
        loops = [open_loop(count, self.numbers) for count in counts]
        size = steps[-1] * counts[-1]
        digits = tuple(zip(loops, steps, strict=True))
        return replace(axis, size=size, digits=digits, used=axis.size)

    # ---- reading and filling ----

    def _moved(self, index: UOp) -> UOp:
        """An index over the variables of the axes instead of the loops that read."""
        constant, coefficients = terms_of(index)
        terms: list[tuple[UOp, int]] = []
        done: set[UOp] = set()
        for atom, factor in coefficients.items():
            if ranges_in(atom) <= self.outer:
                terms.append((atom, factor))
            elif atom.op in _DIVISIONS:
                divide = _DIVISIONS[atom.op]
                terms.append((divide(self._moved(atom.src[0]), atom.src[1].arg), factor))
            elif atom not in done:
                axis = next(axis for axis in self.axes if atom in axis.atoms)
                position = add_index(axis.variable, index_const(axis.low))
                terms.append((position, factor // axis.atoms[atom]))
                done.update(axis.atoms)
        return combination(terms, constant)

    def _conditions(self) -> list[UOp]:
        """The comparisons of indices that the gate joins."""
        parts = [part for part in gate_parts(self.gate) if part is not TRUE]
        if any(part.op is not Op.CMPLT or part.src[0].dtype is not dtypes.index for part in parts):
            raise Entangled
        return parts

    def _gate_over(self, change: Callable[[UOp], UOp]) -> UOp:
        """The gate with both sides of its comparisons changed."""
        return and_gates(*[less_index(*map(change, part.src)) for part in self._conditions()])

    def _reading(self) -> UOp:
        positions = [axis.position() for axis in self.axes]
        total = combination(zip(positions, self.pitches, strict=True))
        return UOp(Op.LOAD, self.load.dtype, (self._address(substitute_index(total, self.behind)),))

    def _address(self, offset: UOp) -> UOp:
        return UOp(Op.INDEX, dtypes.index, (self.scratch, offset))

    def _fill(self) -> UOp:
        """The loops that copy: those of the layout, the source's lanes innermost."""
        split = {axis.variable: combination(axis.digits) for axis in self.axes if axis.digits}
        offset, gate = self._moved(self.offset), self._gate_over(self._moved)
        target = combination(zip([a.variable for a in self.axes], self.pitches, strict=True))
        address = UOp(Op.INDEX, dtypes.index, (self.memory, offset))
        inside = and_gates(gate, *self._overhang(offset))
        source = self.load.replace(src=(address,) if inside is TRUE else (address, inside))
        statement = UOp(Op.STORE, dtypes.void, (self._address(target), source))
        statement = replace_ranges(statement, split)
        return self._vectorized(statement, [v for axis in self.axes for v in axis.loops()])

    def _overhang(self, offset: UOp) -> list[UOp]:
        """Conditions for rows that stick out of the copy, where they would leave the memory."""
        if bounds_gate(offset, self.memory.arg.size) is TRUE:
            return []
        longer = [axis for axis in self.axes if axis.digits and axis.size > axis.used]
        return [less_index(axis.variable, index_const(axis.used)) for axis in longer]

    def _vectorized(self, statement: UOp, loops: list[UOp]) -> UOp:
        source = next(n for n in statement.toposort() if n.op is Op.LOAD).src[0].src[1]
        lane = _lane_loop(loops, source, statement.src[0].src[1], self.lanes)
        if lane is None or self.lanes == 1:
            return wrap(tuple(loops), [statement])[0]
        size = _size(lane)
        width = min(self.lanes, 1 << (size.bit_length() - 1))
        steps = open_loop(-(-size // width), self.numbers)
        vector = open_loop(width, self.numbers, "vector")
        start = minimum_index(scale_index(steps, width), index_const(size - width))
        statement = replace_ranges(statement, {lane: add_index(start, vector)})
        order = [steps if loop is lane else loop for loop in loops]
        return wrap((*order, vector), [statement])[0]

    # ---- putting it into the program ----

    def placed(self, block: UOp, place: Chain) -> UOp:
        """The program with the copy at its place and the load replaced below it."""

        def change(node: UOp, made: UOp) -> UOp:
            is_place = node.src[:1] == place[-1:] if place else node is block
            if not is_place or node.op not in (Op.LOOP, Op.BLOCK):
                return made
            parts = body_of(node)
            reading = [n for n, part in enumerate(parts) if self.load in part.toposort()]
            if not reading:
                return made
            changed = [self._replaced(part) for part in parts]
            return with_body(made, [*changed[: reading[0]], self.fill, *changed[reading[0] :]])

        return rebuild(block, change)

    def _replaced(self, statement: UOp) -> UOp:
        if self.load not in statement.toposort():
            return statement
        copied = substitute(statement, {self.load: self.reading})
        return without_masks(copied, self.reading, gate_parts(self.known))


def _pitches(sizes: Sequence[int], lanes: int) -> list[int]:
    """Steps between neighbours along each axis; long rows an odd number of vectors apart."""
    pitches, step = [], 1
    for position, size in enumerate(reversed(sizes)):
        pitches.append(step)
        step *= size
        if position == 0 and size > SHORT_PITCH:
            step = lanes * (-(-size // lanes) | 1)
    return pitches[::-1]


def _digits(group: Mapping[UOp, int]) -> list[dict[UOp, int]]:
    """The loops that count along an axis, the greatest steps first; what a step covers is one part.

    {k: 256, i: 6, j: 1} with i * 6 + j < 256  ->  {k: 256}, {i: 6, j: 1}
    """
    digits: list[dict[UOp, int]] = []
    room = 0
    for atom, factor in sorted(group.items(), key=lambda item: abs(item[1])):
        if not digits or abs(factor) > room:
            digits.append({})
        digits[-1][atom] = factor
        room += int(abs(factor) * (atom.bounds.max - atom.bounds.min))
    return digits[::-1]


def _lane_loop(loops: Sequence[UOp], source: UOp, target: UOp, lanes: int) -> UOp | None:
    """The loop along which a copy moves whole vectors: neighbours in the source, then in scratch."""
    places = ((index, loop) for index in (source, target) for loop in reversed(loops))
    near = (loop for index, loop in places if stride_of(index, loop) == 1)
    return next((loop for loop in near if _size(loop) >= min(4, lanes)), None)


def _divisors(node: UOp, variable: UOp) -> set[int]:
    """What a variable is divided by: {3, 9} for v // 3 % 3."""
    inner, size = node.src[0], node.src[1].arg
    if inner is variable:
        return {size}
    if inner.op is Op.IDIV and inner.src[0] is variable and inner.src[1].op is Op.CONST:
        return {inner.src[1].arg, inner.src[1].arg * size}
    return set()


def _divisions(*indices: UOp) -> list[UOp]:
    return [node for index in indices for node in index.toposort() if _is_division(node)]


def _is_division(index: UOp) -> bool:
    return index.op in _DIVISIONS and index.src[1].op is Op.CONST


def _is_vector(atom: UOp) -> bool:
    return atom.op is Op.RANGE and atom.arg.kind == "vector"


def _size(variable: UOp) -> int:
    """The iterations of a loop, at most; loops may end early where the rest is masked."""
    if variable is ZERO:
        return 1
    size = variable.src[0]
    if any(node.op is Op.VARIABLE for node in size.toposort()):
        raise Entangled
    return int(size.bounds.max)
