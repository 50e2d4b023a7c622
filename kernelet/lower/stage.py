"""Where each value of a kernel lives: the loops it is computed at and the box that is kept.

In:  one kernel: SINK of STOREs over a tensor-level graph, and a Plan.
Out: a BLOCK of loops and stores over scalar expressions.

A stage is a value with loops of its own: the stored outputs, each reduction, and each value that
the plan keeps in scratch. Its place is a loop of one of its readers: the innermost that it
depends on, so that no work is repeated and the scratch is smallest.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kernelet.base.dtype import dtypes
from kernelet.graph.division import (
    TRUE,
    add_index,
    and_gates,
    bounds_gate,
    divide_index,
    extreme,
    index_const,
    index_of,
    maximum_index,
    minimum_index,
    replace_ranges,
    substitute_index,
    subtract_index,
    terms_of,
)
from kernelet.graph.infer import Dim, Shape
from kernelet.graph.inline import Inliner
from kernelet.graph.masks import Masks
from kernelet.graph.movement import (
    Index,
    Place,
    flatten_index,
    movement_index,
    product_of,
    row_major_strides,
)
from kernelet.graph.ops import MOVEMENT, Op
from kernelet.graph.placement import (
    TILE_KINDS,
    Chain,
    Reading,
    is_computed,
    loop_over,
    place_value,
    ranges_in,
    running_box,
    split_index,
)
from kernelet.graph.reuse import absorbed_sums
from kernelet.graph.scan import scan_of
from kernelet.graph.uop import ScratchArg, UOp
from kernelet.graph.walk import rebuild
from kernelet.lower.loops import merge_sum_axes
from kernelet.lower.statements import open_loop
from kernelet.lower.transforms import (
    Held,
    Loop,
    Nest,
    Plan,
    Split,
    apply_transforms,
    can_apply,
    coordinate_of,
)

DEAR = (Op.EXP2, Op.LOG2, Op.SIN, Op.SQRT, Op.RECIPROCAL)  # rather kept than computed twice


@dataclass(slots=True)
class Stage:
    """A value with loops of its own.

    `chain` are the loops that are open around its body; `lo` and `sizes` say which box of the value
    one iteration of its place holds; `nest` and `ranges` are its own loops over that box.
    """

    number: int
    node: UOp
    accesses: list[Reading] = field(default_factory=list)
    place: Chain = ()
    lo: Index = ()
    sizes: tuple[int, ...] = ()
    nest: Nest = ()
    ranges: Chain = ()

    @property
    def memory(self) -> UOp:
        """The scratch that holds the box."""
        size = math.prod(self.sizes)
        return UOp(Op.SCRATCH, self.node.dtype, (), ScratchArg(self.number, size))

    @property
    def coordinates(self) -> Index:
        """Where in the value its own loops stand."""
        axes = enumerate(self.lo)
        return tuple(add_index(lo, coordinate_of(self.nest, self.ranges, a)) for a, lo in axes)

    @property
    def gate(self) -> UOp:
        """Where its own loops are inside the value: a box read under padding may stick out."""
        pairs = zip(self.coordinates, self.node.shape, strict=True)
        return and_gates(*[bounds_gate(at, dim) for at, dim in pairs if dim != 1])

    def address(self, index: Index) -> UOp:
        """The scratch element that holds the value at `index`; lanes lie side by side."""
        lanes = {loop.axis for loop in self.nest if loop.kind == "vector"}
        order = sorted(range(len(index)), key=lambda axis: (axis in lanes, axis))
        strides = row_major_strides(tuple(self.sizes[axis] for axis in order))
        steps = [subtract_index(index[axis], self.lo[axis]) for axis in order]
        offset = flatten_index(steps, strides)
        return UOp(Op.INDEX, dtypes.index, (self.memory, offset))

    @property
    def own(self) -> Chain:
        """Its own loops around the register tile."""
        return tuple(variable for variable in self.ranges if variable.arg.kind not in TILE_KINDS)

    @property
    def tile(self) -> Chain:
        """Its own loops of the register tile."""
        return tuple(variable for variable in self.ranges if variable.arg.kind in TILE_KINDS)


class Staging:
    """One kernel on its way from a graph to loops."""

    def __init__(self, kernel: UOp, plan: Plan) -> None:
        kernel, self.held = with_held_values(merge_sum_axes(kernel, plan.merged), plan.held)
        self.kernel = kernel
        self.plan = plan
        self.numbers = itertools.count()
        inside = absorbed_sums(kernel)
        self.absorbed: dict[UOp, tuple[UOp, ...]] = {}
        for inner, outer in inside.items():
            self.absorbed[outer] = (inner, *self.absorbed.get(inner, ()))
        values = [n for n in kernel.toposort() if n.op is Op.REDUCE and n not in inside]
        candidates = stored_candidates(kernel)
        stored = [candidates[number] for number in plan.stored]
        numbered = [*values, *candidates, *self.held]
        with_loops = {*values, *stored, *self.held}
        self.numbering = {n: at for at, n in enumerate(numbered, 1) if n in with_loops}
        self.last_number = len(numbered) + 1
        # Readers come before what they read.
        self.order = [n for n in reversed(list(kernel.toposort())) if n in self.numbering]
        self.stages: dict[UOp, Stage] = {}
        self.addresses: dict[UOp, Stage] = {}  # of reads, before the boxes are known
        self.grouped = dict(plan.grouped)
        self.loop_of: dict[UOp, Loop] = {}
        self.evaluations: dict[UOp, int] = {}
        self.masks = Masks()
        self.candidate_order = tuple(candidates)
        self.candidates = set(candidates)

    def open_ranges(self, nest: Nest) -> Chain:
        """One loop variable for each loop of the nest, ZERO for those of one step."""
        made = tuple(open_loop(loop.size, self.numbers, loop.kind) for loop in nest)
        self.loop_of.update(zip(made, nest, strict=True))
        return made

    # ---- reading ----

    def expression(
        self,
        node: UOp,
        index: Index,
        chain: Chain,
        loops: Mapping[UOp, Chain] | None = None,
        gate: UOp = TRUE,
        given: Mapping[UOp, UOp] | None = None,
    ) -> UOp:
        """The value of `node` inside the loops of `chain`; reads of other stages are recorded.

        A reduction in `loops` is the sum that these loops are for: its source is read instead.

        Coordinates made of several loops stand behind one variable while indices are computed:
        (x // 5 * 5 + x % 5) is x for a variable, but not for 16 * i + j.
        """
        behind = given
        if behind is None:
            index, behind = self.stand_ins(index, node.shape)
        value = self._inliner(chain, loops or {}, behind).expression(node, index, gate)
        return replace_ranges(value, behind) if behind else value

    def stand_ins(self, index: Index, shape: Shape) -> tuple[Index, dict[UOp, UOp]]:
        """The index with variables for composed coordinates, and what stands behind each."""
        made: list[UOp] = []
        behind: dict[UOp, UOp] = {}
        for position, dim in zip(index, shape, strict=True):
            low, high = position.bounds
            # What may stick out of the value cannot pass for one of its indices.
            outside = not isinstance(dim, int) or low < 0 or high >= dim
            if not position.src or position.op is Op.RANGE or outside:
                made.append(position)
                continue
            start = index_const(int(low))
            variable = loop_over(int(high - low) + 1, next(self.numbers), "axis")
            behind[variable] = subtract_index(position, start)
            made.append(add_index(variable, start))
        return tuple(made), behind

    def _inliner(
        self, chain: Chain, opened: Mapping[UOp, Chain], behind: Mapping[UOp, UOp]
    ) -> Inliner:
        evaluated: set[UOp] = set()

        def read_stage(place: Place) -> UOp | Place | None:
            node = place.node
            if node in self.candidates and node not in evaluated:
                evaluated.add(node)
                self.evaluations[node] = self.evaluations.get(node, 0) + 1
            if node in opened:
                axes = dict(zip(node.arg.axes, opened[node], strict=True))
                index = [axes.get(axis, position) for axis, position in enumerate(place.index)]
                return Place(node.src[0], tuple(index), place.gate)
            if node not in self.numbering:
                return None
            index = [substitute_index(position, behind) for position in place.index]
            gate = substitute_index(place.gate, behind)
            return self.read(node, tuple(index), chain, gate)

        return Inliner(read_stage)

    def read(self, node: UOp, index: Index, chain: Chain, gate: UOp) -> UOp:
        """A load from the scratch of a stage, at an address settled when its box is known.

        An index that may leave the value, as below padding, carries the gate.
        """
        stage = self.stages.setdefault(node, Stage(self.numbering[node], node))
        stage.accesses.append(Reading(index, chain))
        memory = UOp(Op.SCRATCH, node.dtype, (), ScratchArg(stage.number, -1))
        address = UOp(Op.INDEX, dtypes.index, (memory, *index))
        self.addresses[address] = stage
        places = zip(index, node.shape, strict=True)
        if gate is TRUE or all(bounds_gate(at, dim) is TRUE for at, dim in places):
            return UOp(Op.LOAD, node.dtype, (address,))
        return UOp(Op.LOAD, node.dtype, (address, gate))

    # ---- placing ----

    def settle(self, stage: Stage) -> None:
        """Choose the place, compute the box, and open the stage's own loops."""
        held = self.held.get(stage.node)
        box = place_value(stage.accesses, stage.node.shape, held.least if held else 1)
        scan = scan_of(stage.node)
        if scan is not None:
            box = running_box(box, stage.accesses, stage.node.shape, scan.axis)
        stage.place, stage.lo, stage.sizes = box
        stage.nest = self._held_nest(stage, held) if held else self._box_nest(stage)
        if self.plan.trimmed and scan is None:
            stage.nest = _read_part(stage)
        stage.ranges = self.open_ranges(stage.nest)

    def _held_nest(self, stage: Stage, held: Held) -> Nest:
        """The loops that the plan gives to a value: register tiles, or lanes along its rows.

        Under another order of loops a box may be too small for its tile, which is left out then.
        """
        long = [axis for axis, size in enumerate(stage.sizes) if size > 1]
        plain = nest = tuple(_plain(stage, axis) for axis in long)
        for transform in held.transforms:
            if not can_apply(transform, nest):
                nest = plain
                break
            nest = transform.apply(nest)
        return _tile_last(self._with_lanes(stage, nest) if nest is plain else nest)

    def _box_nest(self, stage: Stage) -> Nest:
        nest: list[Loop] = []
        for axis, size in enumerate(stage.sizes):
            if size > 1:
                nest += _mirrored(stage, axis) or [_plain(stage, axis)]
        # A diagonal is read by the lanes of one loop along two axes.
        vectors = [n for n, loop in enumerate(nest) if loop.kind == "vector"]
        for position in vectors[:-1]:
            nest[position] = replace(nest[position], kind="unroll")
        return _tile_last(tuple(nest) if vectors else self._with_lanes(stage, tuple(nest)))

    def _with_lanes(self, stage: Stage, nest: Nest) -> Nest:
        """Lanes along what lies side by side in its scratch, if that is long enough."""
        if not nest or self.plan.lanes == 1:
            return nest
        last, size = nest[-1].axis, stage.sizes[nest[-1].axis]
        alone = stage.node.op is not Op.REDUCE and last == len(stage.sizes) - 1
        fits = (alone or scan_of(stage.node) is not None) and size >= self.plan.lanes
        if nest[-1] != Loop(last, size) or not fits:
            return nest
        return Split(last, self.plan.lanes, "vector").apply(nest)


def _read_part(stage: Stage) -> Nest:
    """The loops over as much of a box as is read, where the loops that read it end early."""
    outer = frozenset(stage.place)
    inside = {v for access in stage.accesses for v in access.chain} - outer
    if all(outer.isdisjoint(variable.src[0].toposort()) for variable in inside):
        return stage.nest
    nest = list(stage.nest)
    for axis, lo in enumerate(stage.lo):
        loops = [n for n, loop in enumerate(nest) if loop.axis == axis and loop.kind == "loop"]
        if not loops:
            continue
        ends = [extreme(subtract_index(access.index[axis], lo), outer) for access in stage.accesses]
        end = add_index(functools.reduce(maximum_index, ends), index_const(1))
        position = max(loops, key=lambda n: nest[n].stride)
        count, step = nest[position].size, nest[position].stride
        needed = divide_index(add_index(end, index_const(step - 1)), step)
        size = minimum_index(index_of(count), needed)
        if size is not index_of(count):
            nest[position] = replace(nest[position], size=size)
    return tuple(nest)


def _tile_last(nest: Nest) -> Nest:
    """The register tile is innermost: its rows, then the vectors of one row, then their lanes.

    What all vectors of a row share is then read just before they do, and takes one register.
    """
    lanes = {loop.axis for loop in nest if loop.kind == "vector"}
    order = {"loop": 0, "unroll": 1, "vector": 3}
    beside = {loop for loop in nest if loop.kind == "unroll" and loop.axis in lanes}
    return tuple(sorted(nest, key=lambda loop: order[loop.kind] + (loop in beside)))


def _plain(stage: Stage, axis: int) -> Loop:
    """One loop along an axis, of the size of the one symbolic loop that reads along it."""
    part, *others = _inner_parts(stage, axis)
    if others or part.op is not Op.RANGE or part.src[0].op is Op.CONST:
        return Loop(axis, stage.sizes[axis])
    # A loop that ends early is over an axis of known size; a loop over a padded axis goes on where
    # the value has ended.
    is_own = not ranges_in(part.src[0]) and part.src[0].bounds.max <= stage.sizes[axis]
    return Loop(axis, part.src[0] if is_own else stage.sizes[axis])


def _inner_parts(stage: Stage, axis: int) -> set[UOp]:
    outer = frozenset(stage.place)
    found = set()
    for access in stage.accesses:
        if is_computed(access.index[axis]):
            return {access.index[axis]}
        split = split_index(access.index[axis], outer)
        assert split is not None
        found.add(split[1])
    return found


def _mirrored(stage: Stage, axis: int) -> list[Loop] | None:
    """The loops of the readers' register tile along an axis, to be used for filling too."""
    part, *others = _inner_parts(stage, axis)
    if others:
        return None
    _, coefficients = terms_of(part)
    loops, expected = [], 1
    for atom, factor in sorted(coefficients.items(), key=lambda item: item[1]):
        if atom.op is not Op.RANGE or atom.arg.kind not in TILE_KINDS or factor != expected:
            return None
        loops.append(Loop(axis, atom.src[0].arg, factor, atom.arg.kind))
        expected *= atom.src[0].arg
    return list(reversed(loops)) if expected == stage.sizes[axis] else None


def with_held_values(kernel: UOp, held: Sequence[Held]) -> tuple[UOp, dict[UOp, Held]]:
    """The kernel with CONTIGUOUS above each value that the plan holds, and those nodes.

    max(sum(q * k))  ->  max(CONTIGUOUS(sum(q * k))): the box and the register tile of one sum
    """
    if not held:
        return kernel, {}
    order = list(kernel.toposort())
    wanted = {order[one.position]: one for one in held}
    found: dict[UOp, Held] = {}

    def mark(node: UOp, made: UOp) -> UOp:
        if node not in wanted:
            return made
        marked = UOp(Op.CONTIGUOUS, made.dtype, (made,))
        found[marked] = wanted[node]
        return marked

    return rebuild(kernel, mark), found


def stored_candidates(kernel: UOp) -> list[UOp]:
    """The inline values that a plan may keep in scratch: elementwise and above a reduction."""
    found = []
    below: set[UOp] = set()
    for node in kernel.toposort():
        if node.op is Op.REDUCE or any(source in below for source in node.src):
            below.add(node)
            if node.op in DEAR:
                found.append(node)
    return found


# ---- the output ----


def output_shape(kernel: UOp) -> tuple[Dim, ...]:
    """The shape that all stores of a kernel share."""
    return kernel.src[0].src[1].shape


def merged_shape(kernel: UOp, plan: Plan) -> Shape:
    """The shape of the outputs where the axes that the plan merges count as one."""
    shape = output_shape(kernel)
    groups = plan.merged or [(axis,) for axis in range(len(shape))]
    return tuple(product_of(tuple(shape[axis] for axis in axes)) for axes in groups)


def root_nest(kernel: UOp, plan: Plan) -> Nest:
    """The loops over the outputs; axes that the plan merges count as one."""
    sizes = enumerate(merged_shape(kernel, plan))
    return apply_transforms(tuple(Loop(axis, size) for axis, size in sizes if size != 1), plan.root)


def target_address(target: UOp, index: Index) -> UOp:
    """Where in its memory a store writes the element at `index`."""
    node = target
    while node.op in MOVEMENT:
        index, gate = movement_index(node, index)
        assert gate is TRUE, "a store cannot go through padding"
        node = node.src[0]
    return UOp(Op.INDEX, dtypes.index, (node, index[0]))
