"""Write the loops: every stage at its place, producers first.

In:  one kernel and a Plan.
Out: a BLOCK of LOOPs and STOREs over scalar expressions.

A BLOCK inside the loops is a group of stores that happen at once: all values are read before any is
written.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace

from kernelet.base.dtype import dtypes
from kernelet.graph.division import (
    TRUE,
    ZERO,
    add_index,
    index_const,
    minimum_index,
    replace_ranges,
    scale_index,
    terms_of,
)
from kernelet.graph.movement import Index
from kernelet.graph.ops import Op
from kernelet.graph.placement import TILE_KINDS, Chain, last_live
from kernelet.graph.scan import identity_of, identity_value
from kernelet.graph.uop import ScratchArg, UOp
from kernelet.graph.walk import rebuild, substitute
from kernelet.lower.blocking import block_sum
from kernelet.lower.loops import fresh_numbers, join_loops
from kernelet.lower.padding import needed_gates, without_padding
from kernelet.lower.panels import stage_loads
from kernelet.lower.scan import carry_of
from kernelet.lower.scatter import scatter_sum
from kernelet.lower.share import share_loops
from kernelet.lower.stage import Stage, Staging, merged_shape, root_nest, target_address
from kernelet.lower.statements import Statements, combine, store, wrap
from kernelet.lower.transforms import Loop, Plan, coordinate_of

Writer = Callable[[Chain], Statements]
Axes = dict[int, UOp]  # the loop along each axis that is summed, or an index made of loops


class NestWriter(Staging):
    """Builds the loops of one kernel."""

    def __init__(self, kernel: UOp, plan: Plan) -> None:
        super().__init__(kernel, plan)
        self.writers: dict[UOp, Writer] = {}
        self.placed: dict[Chain, list[UOp]] = {}
        self.before: dict[UOp, Statements] = {}  # loop -> what is done once, before it
        self.carried: set[UOp] = set()
        self.block = kernel
        self.root_ranges: Chain = ()

    def build(self) -> UOp:
        """The whole kernel."""
        write_root = self._root()
        for node in self.order:
            stage = self.stages.get(node)
            if stage is None:
                continue
            self.settle(stage)
            self.writers[node] = (
                self._reduction(stage) if node.op is Op.REDUCE else self._kept(stage)
            )
            # Stages come readers first, so a producer goes to the front.
            self.placed.setdefault(stage.place, []).insert(0, node)
        statements = self._written_at(()) + write_root(())
        block = self.block = UOp(Op.BLOCK, dtypes.void, tuple(statements))
        resolved = {read: stage.address(read.src[1:]) for read, stage in self.addresses.items()}
        # The index of a gathered element is read from scratch itself: an address in an address.
        while (settled := substitute(block, resolved)) is not block:
            block = settled
        return block

    def written_values(self) -> Iterable[UOp]:
        """All nodes of the expressions that are stored."""
        return self.block.toposort()

    def _written_at(self, chain: Chain) -> Statements:
        found: Statements = []
        for node in self.placed.get(chain, []):
            found += self.writers[node](chain)
        return found

    def around(self, loops: Chain, statements: Statements) -> Writer:
        """Statements in loops at which stages may be placed; the register tile is innermost."""
        order = sorted(loops, key=lambda variable: variable.arg.kind in TILE_KINDS)
        return self.opened(tuple(order), lambda _: statements)

    def opened(self, loops: Chain, inside: Writer) -> Writer:
        """What is written inside of loops at which stages may be placed."""
        return lambda chain: self.nest(loops, chain, inside)

    def nest(self, loops: Chain, chain: Chain, inside: Writer) -> Statements:
        """Open loops one by one; stages placed at a loop come first in its body."""
        if not loops:
            return inside(chain)
        chain = (*chain, loops[0])
        body = self._written_at(chain) + self.nest(loops[1:], chain, inside)
        return [*self.before.get(loops[0], ()), UOp(Op.LOOP, dtypes.void, (loops[0], *body))]

    # ---- the outputs ----

    def _root(self) -> Writer:
        nest, shape = root_nest(self.kernel, self.plan), merged_shape(self.kernel, self.plan)
        ranges = self.root_ranges = self.open_ranges(nest)
        places = tuple(coordinate_of(nest, ranges, axis) for axis in range(len(shape)))
        index, behind = self.stand_ins(places, shape)
        stores = []
        for statement in self.kernel.src:
            target, value = (UOp(Op.RESHAPE, n.dtype, (n,), shape) for n in statement.src)
            found = self.expression(value, index, ranges, None, TRUE, behind)
            address = replace_ranges(target_address(target, index), behind)
            stores.append(store(address, found))
        group = [UOp(Op.BLOCK, dtypes.void, tuple(stores))] if len(stores) > 1 else stores
        return self.around(ranges, group)

    # ---- values kept in scratch ----

    def _kept(self, stage: Stage) -> Writer:
        index = stage.coordinates
        chain = (*stage.place, *stage.ranges)
        node = stage.node
        gate = stage.gate
        sources = tuple(self.expression(source, index, chain, None, gate) for source in node.src)
        value = sources[0] if node in self.held else UOp(node.op, node.dtype, sources)
        statement = store(stage.address(index), value)
        return self.around(stage.ranges, [statement])

    # ---- reductions ----

    def _reduction(self, stage: Stage) -> Writer:
        carry = carry_of(self, stage)
        if carry is not None:
            self.carried.add(stage.node)
            self.before.setdefault(carry.loop, []).extend(carry.start())
            return self.around(stage.own, carry.step())
        group = self.grouped.get(stage.number)
        node = stage.node
        if any(variable.arg.kind == "vector" for variable in stage.tile):
            # The readers' lanes run along the results already.
            group = None
        address = stage.address(stage.coordinates)
        outer = [axis for axis in node.arg.axes if group is None or axis != group.axis]
        axes = self._trimmed_axes(stage, self._open_axes(node, outer))
        absorbed = self.absorbed.get(node, ())
        inner = {n: tuple(self._open_axes(n, n.arg.axes).values()) for n in absorbed}
        loops = _loops(itertools.chain(axes.values(), *inner.values()))
        start = wrap(stage.tile, [store(address, identity_value(node))])
        after: Statements = []
        if group is None:
            update = self.update(stage, axes, inner, (*loops, *stage.tile), address)
            # What is masked is copied without masks where the sum is alone; else they stay outside.
            order = _far_steps_outside(loops, update) if inner and not self.order[1:] else loops
            inside = self.around((*order, *stage.tile), [update])
        else:
            lanes = _Lanes(self, stage, axes, inner, loops)
            start += lanes.start()
            after = lanes.finish()
            inside = self.opened(loops, lanes.body)
        return self.opened(stage.own, lambda chain: start + inside(chain) + after)

    def _open_axes(self, node: UOp, axes: Iterable[int]) -> Axes:
        """Loop variables for axes of a reduction."""
        nest = tuple(Loop(axis, node.src[0].shape[axis], 1, "reduce") for axis in axes)
        return dict(zip(axes, self.open_ranges(nest), strict=True))

    def _trimmed_axes(self, stage: Stage, axes: Axes) -> Axes:
        """The loops of a reduction as far as they are needed."""
        if not self.plan.trimmed:
            return axes
        rest = self._open_axes(stage.node, [a for a in stage.node.arg.axes if a not in axes])
        found: Axes = {}
        for axis, variable in axes.items():
            index = source_index(stage, rest | axes | found)
            found[axis] = self.trimmed(stage, index, variable, found.values())
        return found

    def trimmed(self, stage: Stage, index: Index, variable: UOp, around: Iterable[UOp]) -> UOp:
        """A loop of a reduction that ends where nothing more is added.

        for k in T: acc += where(q < k, 0, x[k])  ->  for k in min(T, q + 1): ...
        """
        node = stage.node
        if not self.plan.trimmed or node in self.absorbed or variable is ZERO:
            return variable
        outer = frozenset((*stage.place, *stage.own, *around))
        size = variable.src[0]
        for gate, value in self.masks.parts(node.src[0], index):
            end = last_live(gate, variable, outer)
            if end is not None and value == identity_of(node.arg.op, node.dtype):
                size = minimum_index(size, end)
        return ZERO if size.arg == 1 else variable.replace(src=(size,))

    def update(
        self, stage: Stage, axes: Axes, inner: dict[UOp, Chain], around: Chain, address: UOp
    ) -> UOp:
        """The statement that combines one element of the source into the accumulator."""
        node = stage.node
        around = (*stage.place, *stage.own, *around)
        index = source_index(stage, axes)
        value = self.expression(node.src[0], index, around, inner, stage.gate)
        return combine(node.arg.op, address, node.dtype, value)


def source_index(stage: Stage, axes: Axes) -> Index:
    """Which element of its source a reduction is at."""
    return tuple(axes.get(axis, at) for axis, at in enumerate(stage.coordinates))


def _far_steps_outside(loops: Chain, update: UOp) -> Chain:
    """The loops of a sum of sums in the order of their steps: what is near is read together.

    for y: for x: for k: acc += a[k, y, x] * b[k, y, x]  ->  for k: for y: for x: ...
    """
    places = [n.src[0] for n in update.src[1].toposort() if n.op is Op.LOAD]
    places = [place for place in places if place is not update.src[0]]
    # A loop may end where another stands, and what is kept in scratch is computed at one of them.
    is_needed = any(variable.src[0].op is not Op.CONST for variable in loops)
    if is_needed or any(place.src[0].op is Op.SCRATCH for place in places):
        return loops
    steps = [terms_of(place.src[1]).coefficients for place in places]
    return tuple(sorted(loops, key=lambda v: -sum(abs(found.get(v, 0)) for found in steps)))


def _loops(variables: Iterable[UOp]) -> Chain:
    """The loops of more than one iteration."""
    return tuple(variable for variable in variables if variable is not ZERO)


class _Lanes:
    """A reduction with several partial results, see `GroupLanes`."""

    def __init__(
        self, writer: NestWriter, stage: Stage, axes: Axes, absorbed: dict[UOp, Chain], loops: Chain
    ) -> None:
        group = self.group = writer.grouped[stage.number]
        self.writer, self.stage = writer, stage
        self.axes, self.absorbed, self.loops = axes, absorbed, loops
        width = self.width = group.unroll * group.lanes
        size = stage.node.src[0].shape[group.axis]
        assert isinstance(size, int), "a symbolic axis has no lanes"
        arg = stage.memory.arg
        arg = ScratchArg(writer.last_number + arg.number, arg.size * width)
        self.memory = UOp(Op.SCRATCH, stage.node.dtype, (), arg)
        steps, unroll, lane = writer.open_ranges(
            (
                Loop(group.axis, size // width, 1, "reduce"),
                Loop(group.axis, group.unroll, 1, "unroll"),
                Loop(group.axis, group.lanes, 1, "vector"),
            )
        )
        self.lane, self.inner = lane, _loops((unroll, lane))
        self.part = add_index(scale_index(unroll, group.lanes), lane)
        self.parts = [self._added(steps, width, self.part, self.address(self.part), self.inner)]
        if size % width:
            (tail,) = writer.open_ranges((Loop(group.axis, size % width, 1, "reduce"),))
            first = index_const(size - size % width)
            self.parts.append(self._added(tail, 1, first, stage.address(stage.coordinates), ()))

    def _added(
        self, variable: UOp, step: int, first: UOp, address: UOp, inner: Chain
    ) -> tuple[Chain, Statements]:
        """The loop, ended early if the rest is masked, that adds every `step`-th element."""
        stage, tile = self.stage, (*self.stage.tile, *inner)

        def axes() -> Axes:
            return self.axes | {self.group.axis: add_index(scale_index(variable, step), first)}

        index = source_index(stage, axes())
        variable = self.writer.trimmed(stage, index, variable, self.axes.values())
        own = _loops((variable,))
        around = (*self.loops, *stage.tile, *own, *inner)
        update = self.writer.update(stage, axes(), self.absorbed, around, address)
        return own, wrap(tile, [update])

    def address(self, offset: UOp) -> UOp:
        """One partial result of the accumulator at hand."""
        base = self.stage.address(self.stage.coordinates).src[1]
        offset = add_index(scale_index(base, self.width), offset)
        return UOp(Op.INDEX, dtypes.index, (self.memory, offset))

    def start(self) -> Statements:
        """Every partial result starts at the identity."""
        statement = store(self.address(self.part), identity_value(self.stage.node))
        return wrap((*self.stage.tile, *self.inner), [statement])

    def body(self, chain: Chain) -> Statements:
        """The whole vectors, then the rest."""
        written = [self.writer.around(loops, added)(chain) for loops, added in self.parts]
        return [statement for statements in written for statement in statements]

    def finish(self) -> Statements:
        """Join the partial results: vectors first, then the lanes of one vector by halves."""
        node, group, tile = self.stage.node, self.group, self.stage.tile
        op, dtype = node.arg.op, node.dtype
        found: Statements = []
        for step in range(1, group.unroll):
            offset = add_index(self.lane, index_const(step * group.lanes))
            value = UOp(Op.LOAD, dtype, (self.address(offset),))
            joined = combine(op, self.address(self.lane), dtype, value)
            found += wrap((*tile, self.lane), [joined])
        values = [
            UOp(Op.LOAD, dtype, (self.address(index_const(lane)),)) for lane in range(group.lanes)
        ]
        while len(values) > 1:
            half = len(values) // 2
            values = [values[n].alu(op, values[n + half]) for n in range(half)]
        address = self.stage.address(self.stage.coordinates)
        return found + wrap(tile, [combine(op, address, dtype, values[0])])


def write_nest(kernel: UOp, plan: Plan) -> UOp:
    """One kernel as loops over scalar expressions."""
    if not plan.parts:
        block = NestWriter(kernel, plan).build()
        if len(kernel.src) > 1:
            block = share_loops(block)
        if plan.scatter is not None:
            block = scatter_sum(block, plan.scatter)
        if plan.blocked is not None:
            block = block_sum(block, plan.blocked)
        if plan.staged:
            gates = needed_gates(block)
            block = stage_loads(block, plan.staged, plan.lanes)
            block = join_loops(without_padding(block, gates))
        return block
    blocks: dict[tuple[UOp, Plan], UOp] = {}
    found = []
    for part, inner in zip(kernel.src, plan.parts, strict=True):
        form, memories = form_of_part(part)
        if (form, inner) not in blocks:
            blocks[form, inner] = write_nest(form, inner)
        found.append(substitute(blocks[form, inner], memories))
    return _one_after_the_other(found)


def form_of_part(part: UOp) -> tuple[UOp, dict[UOp, UOp]]:
    """A part over memories 0, 1, ..., so that equal work is done once, and what they stand for."""
    memories = [node for node in part.toposort() if node.op is Op.PARAM]
    numbered = [n.replace(arg=replace(n.arg, slot=at)) for at, n in enumerate(memories)]
    form = substitute(part, dict(zip(memories, numbered, strict=True)))
    return form, dict(zip(numbered, memories, strict=True))


def _one_after_the_other(blocks: list[UOp]) -> UOp:
    """The statements of all blocks in one, each with loops and scratch of its own."""
    statements: Statements = []
    used = 0

    def apart(_: UOp, made: UOp) -> UOp:
        if made.op not in (Op.RANGE, Op.SCRATCH):
            return made
        return made.replace(arg=replace(made.arg, number=made.arg.number + used))

    for block in blocks:
        # A loop may end where another one says: its size is renumbered too.
        renumbered = rebuild(block, apart)
        statements += renumbered.src
        used = max(used, *(next(fresh_numbers(renumbered, op)) for op in (Op.RANGE, Op.SCRATCH)))
    return UOp(Op.BLOCK, dtypes.void, tuple(statements))
