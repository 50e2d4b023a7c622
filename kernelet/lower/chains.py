"""Plan a kernel in which one contraction reads another: both get register tiles.

In:  one kernel, as its graph.
Out: the values that are held in scratch between the two, and the block of rows that is held.

    for q0 in T / 32: s[32, T] = tiles of q @ k
        for q1 in 4: p[8, T] = softmax of rows of s
            out[8, :] = tiles of p @ v
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property

from kernelet.base.target import Target
from kernelet.graph.masks import may_mask
from kernelet.graph.ops import ELEMENTWISE, MOVEMENT, Op
from kernelet.graph.placement import ranges_in
from kernelet.graph.reuse import absorbed_sums, is_contraction, numel
from kernelet.graph.uop import UOp
from kernelet.graph.walk import base_of, consumers_of
from kernelet.lower.loops import statements_of, stride_of
from kernelet.lower.nest import NestWriter
from kernelet.lower.stage import Stage, root_nest
from kernelet.lower.statements import loads_of
from kernelet.lower.transforms import (
    GroupLanes,
    Held,
    Loop,
    Loops,
    Plan,
    StageLoad,
    Transform,
    lanes_for,
)

BLOCK_ROWS = 32  # rows that share what is loaded for them
ROW_BYTES = 1 << 17  # the largest row of dear values that is kept beside them
BLOCK_BYTES = 1 << 19  # of the rows between two contractions, while there are more than a tile


def chain_plan(kernel: UOp, target: Target) -> Plan | None:
    """Where the values between two contractions are held; None if there are no two."""
    products = _inner_products(kernel)
    if not products:
        return None
    held = {_whole_value(kernel, node): True for node in products}
    for node in _operands_above(kernel, set(products)):
        held.setdefault(node, False)
    return _Chain(kernel, held, target).choose()


# ---- what is held ----


def _inner_products(kernel: UOp) -> list[UOp]:
    """The contractions that another reduction is above of."""
    absorbed = absorbed_sums(kernel)
    sums = [n for n in kernel.toposort() if n.op is Op.REDUCE and n not in absorbed]
    products = [node for node in sums if is_contraction(node)]
    return [node for node in products if any(node in other.src[0].toposort() for other in sums)]


def _whole_value(kernel: UOp, node: UOp) -> UOp:
    """The last value of as many elements that is made of a product alone: scaled and masked."""
    consumers = consumers_of(kernel)
    size = numel(node.shape)
    while len(consumers[node]) == 1:
        (reader,) = consumers[node]
        if reader.op not in ELEMENTWISE | MOVEMENT or numel(reader.shape) != size:
            break
        node = reader
    return base_of(node)


def _operands_above(kernel: UOp, products: set[UOp]) -> Iterator[UOp]:
    """The computed operands of contractions that have a product below."""
    for node in kernel.toposort():
        if node.op is not Op.REDUCE or not is_contraction(node):
            continue
        value = base_of(node.src[0], {*MOVEMENT, Op.CAST})
        for source in map(base_of, value.src):
            if source.op in ELEMENTWISE and not products.isdisjoint(source.toposort()):
                yield source


# ---- the plan ----


class _Chain:
    """The plan of one kernel, one decision after the other."""

    def __init__(self, kernel: UOp, held: dict[UOp, bool], target: Target) -> None:
        self.kernel = kernel
        self.target = target
        # Blocks of rows are powers of two: tiles that do not divide them would have idle rows.
        self.rows = 1 << (target.tile_rows(2).bit_length() - 1)
        positions = {node: number for number, node in enumerate(kernel.toposort())}
        self.tiled = {positions[node] for node, is_tiled in held.items() if is_tiled}
        values = tuple(Held(positions[node]) for node in held)
        self.plan = Plan(held=values, trimmed=may_mask(kernel))
        itemsizes = [stage.node.dtype.itemsize for stage in self.stages]
        self.widest = target.lanes(max(4, *itemsizes))

    def _take(self, plan: Plan) -> None:
        if plan != self.plan:
            self.plan = plan
            self.__dict__.pop("writer", None)

    @cached_property
    def writer(self) -> NestWriter:
        """What the plan gives so far, written when it is asked for."""
        writer = NestWriter(self.kernel, self.plan)
        writer.build()
        return writer

    @property
    def stages(self) -> list[Stage]:
        """The stages of the held values, as the plan lists them."""
        found = {one.position: self.writer.stages[n] for n, one in self.writer.held.items()}
        return [found[one.position] for one in self.plan.held]

    @property
    def loops(self) -> Loops:
        """The loops over the outputs."""
        return Loops(root_nest(self.kernel, self.plan))

    def choose(self) -> Plan | None:
        """All decisions."""
        self._needed_first()
        rows = self._rows()
        if rows is None:
            return None
        self._block(*rows)
        self._tile_products()
        stored = worth_storing(self.kernel, self.plan, self.writer, ROW_BYTES)
        grouped = tuple(self._grouped())
        loops = self.loops
        self._share_out(loops)
        self._tile_output(loops, rows[0])
        root = (*self.plan.root, *loops.transforms)
        self._take(replace(self.plan, root=root, stored=stored, grouped=grouped, lanes=self.widest))
        return replace(self.plan, staged=tuple(self._staged()))

    def _needed_first(self) -> None:
        """Output loops that all held values depend on go outside of the others."""
        needs = [
            frozenset().union(*[ranges_in(i) for a in stage.accesses for i in a.index])
            for stage in self.stages
        ]
        needed = frozenset.intersection(*needs)
        loops = self.loops
        loops.put_first(*(n for n, v in enumerate(self.writer.root_ranges) if v in needed))
        self._take(replace(self.plan, root=loops.transforms))

    def _with_tiled(self, change: Callable[[Held, Stage], Held]) -> tuple[Held, ...]:
        """The held values, with the products among them changed."""
        pairs = zip(self.plan.held, self.stages, strict=True)
        return tuple(change(o, stage) if o.position in self.tiled else o for o, stage in pairs)

    def _rows(self) -> tuple[int, int] | None:
        """The output loop whose neighbours are rows of a held product: its axis and size."""
        ranges = self.writer.root_ranges
        for one, stage in zip(self.plan.held, self.stages, strict=True):
            if one.position in self.tiled and stage.place and stage.place[-1] in ranges:
                loop = self.loops.nest[ranges.index(stage.place[-1])]
                return (loop.axis, loop.steps) if loop.steps else None
        return None

    def _block(self, axis: int, size: int) -> None:
        """Hold many rows, so that what the other operand gives is loaded once for all of them."""
        width = max(math.prod(stage.sizes) for stage in self.stages)
        width *= max(stage.node.dtype.itemsize for stage in self.stages)
        block = min(size, BLOCK_ROWS)
        while block > self.rows and block * width > BLOCK_BYTES:
            block = max(block // 2, self.rows)
        held = self._with_tiled(
            lambda one, stage: replace(one, least=block * math.prod(stage.sizes))
        )
        loops = self.loops
        if block < size:
            # The rows of a block stand right inside it.
            position = next(n for n, loop in enumerate(loops.nest) if loop.axis == axis)
            loops.split(axis, block)
            loops.put_first(*range(position + 1), len(loops.nest) - 1)
        self._take(replace(self.plan, root=(*self.plan.root, *loops.transforms), held=held))

    def _tile_products(self) -> None:
        """Rows of two vectors for each held product."""
        held = self._with_tiled(lambda one, stage: replace(one, transforms=self._tile(stage)))
        self._take(replace(self.plan, held=held))

    def _tile(self, stage: Stage) -> tuple[Transform, ...]:
        long = [Loop(axis, size) for axis, size in enumerate(stage.sizes) if size > 1]
        loops = Loops(tuple(long))
        if len(long) > 1:
            loops.split(long[-2].axis, min(self.rows, long[-2].steps), "unroll")
        if long:
            self._add_vectors(loops, long[-1])
        if len(loops.plain()) > 1:
            # All rows read the columns at hand before the next ones are loaded.
            loops.put_first(len(long) - 1)
        return loops.transforms

    def _add_vectors(self, loops: Loops, along: Loop) -> None:
        """Up to two vectors along an axis."""
        lanes = lanes_for(along.steps, self.widest)
        loops.tile(along.axis, lanes, min(2, along.steps // lanes))

    def _grouped(self) -> Iterator[tuple[int, GroupLanes]]:
        """Lanes along the rows that are no products: their greatest value, their sum."""
        for node in self.writer.stages:
            if node.op is not Op.REDUCE or is_contraction(node) or self.writer.absorbed.get(node):
                continue
            axis = node.arg.axes[-1]
            size = node.src[0].shape[axis]
            if not isinstance(size, int) or size < self.widest or len(node.arg.axes) > 1:
                continue
            # Loops that may end early end at a whole step.
            most = (2,) if self.plan.trimmed else (4, 2)
            unroll = next((u for u in most if size >= 2 * u * self.widest), 1)
            if self.widest > 1:
                yield self.writer.numbering[node], GroupLanes(axis, unroll, self.widest)

    def _tile_output(self, loops: Loops, rows: int) -> None:
        """The register tile of the product at the end; lanes alone where there is none."""
        last = loops.nest[-1]
        if last.axis == rows or last.kind != "loop" or not last.steps:
            return
        if any(is_contraction(node) for node in self._outer_sums()):
            row = next(loop for loop in reversed(loops.nest) if loop.axis == rows)
            loops.split(rows, min(self.rows, row.steps), "unroll")
            self._add_vectors(loops, last)
        else:
            loops.tile(last.axis, lanes_for(last.steps, self.widest))

    def _outer_sums(self) -> list[UOp]:
        """Reductions that the output reads, and no held value."""
        inside = {node for held in self.writer.held for node in held.toposort()}
        return [node for node in self.writer.stages if node.op is Op.REDUCE and node not in inside]

    def _share_out(self, loops: Loops) -> None:
        """Threads for an outer loop at which everything is computed anew."""
        place = frozenset.intersection(*[frozenset(stage.place) for stage in self.stages])
        pairs = enumerate(self.writer.root_ranges)
        outer = [n for n, v in pairs if v in place and n in loops.plain() and loops.nest[n].steps]
        loops.share_out(outer, self.target.threads)

    def _staged(self) -> Iterator[StageLoad]:
        """Operands whose neighbours along the lanes are far apart, copied in the order of lanes.

        The copy stands outside of the first loop that the operand does not depend on: all rows.
        """
        for statement, chain in statements_of(self.writer.block):
            vectors = [v for v in chain if v.arg.kind == "vector"]
            loads = loads_of(statement) if vectors else []
            for load in loads:
                memory, offset = load.src[0].src
                moves = ranges_in(offset)
                outer = [v for v in chain if v in self.writer.root_ranges]
                depth = next((n for n, v in enumerate(outer) if v not in moves), None)
                far = vectors[-1] in moves and stride_of(offset, vectors[-1]) != 1
                if far and depth is not None:
                    same = [other for other in loads if other.src[0].src[0] is memory]
                    number = same.index(load) if len(same) > 1 else -1
                    yield StageLoad(memory.arg.slot, depth, number)


def worth_storing(kernel: UOp, plan: Plan, writer: NestWriter, most: int) -> tuple[int, ...]:
    """Dear values that several loops read, where a row of them takes at most so many bytes."""
    found: list[int] = []
    for number, node in enumerate(writer.candidate_order):
        dear = node.op in (Op.EXP2, Op.LOG2, Op.SIN)
        if not dear or writer.evaluations.get(node, 0) < 2:
            continue
        trial = NestWriter(kernel, replace(plan, stored=(*found, number)))
        trial.build()
        stage = trial.stages[node]
        if stage.place and math.prod(stage.sizes) * node.dtype.itemsize <= most:
            found.append(number)
    return tuple(found)
