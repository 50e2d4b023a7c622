"""Plan a kernel in which one contraction reads another: both get register tiles.

In:  one kernel, as its graph.
Out: the values that are held in scratch between the two, and the block of rows that is held.

    for q0 in T / 32: s[32, T] = tiles of q @ k
        for q1 in 4: p[8, T] = softmax of rows of s
            out[8, :] = tiles of p @ v
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from kernelet.base.target import Target
from kernelet.graph.masks import may_mask
from kernelet.graph.ops import ELEMENTWISE, MOVEMENT, Op
from kernelet.graph.placement import ranges_in
from kernelet.graph.reuse import is_contraction, numel
from kernelet.graph.uop import UOp
from kernelet.graph.walk import base_of, consumers_of
from kernelet.lower.analysis import stride_of
from kernelet.lower.loops import statements_of
from kernelet.lower.nest import NestWriter
from kernelet.lower.stage import Stage, absorbed_reductions, root_nest
from kernelet.lower.transforms import (
    GroupLanes,
    Held,
    Loop,
    Nest,
    Parallel,
    Plan,
    Reorder,
    Split,
    StageLoad,
    Transform,
    apply_transforms,
)

TILE_ROWS = 8
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
    below: set[UOp] = set()
    absorbed = {node for nodes in absorbed_reductions(kernel).values() for node in nodes}
    for node in reversed(list(kernel.toposort())):
        if node in below or (node.op is Op.REDUCE and node not in absorbed):
            below.update(node.src)
    return [
        node
        for node in kernel.toposort()
        if node in below and node.op is Op.REDUCE and node not in absorbed and is_contraction(node)
    ]


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
    above: set[UOp] = set(products)
    for node in kernel.toposort():
        if node in above or not above.isdisjoint(node.src):
            above.add(node)
    for node in kernel.toposort():
        if node.op is not Op.REDUCE or node not in above or not is_contraction(node):
            continue
        value = node.src[0]
        while value.op in MOVEMENT or value.op is Op.CAST:
            value = value.src[0]
        for source in value.src:
            while source.op in MOVEMENT:
                source = source.src[0]
            if source in above and source.op in ELEMENTWISE:
                yield source


# ---- the plan ----


class _Chain:
    """The plan of one kernel, one decision after the other."""

    def __init__(self, kernel: UOp, held: dict[UOp, bool], target: Target) -> None:
        self.kernel = kernel
        self.target = target
        positions = {node: number for number, node in enumerate(kernel.toposort())}
        self.tiled = list(held.values())
        values = tuple(Held(positions[node]) for node in held)
        self.plan = Plan(held=values, trimmed=may_mask(kernel))
        self.written: NestWriter | None = None
        self.shared = False  # whether threads share the first loop
        itemsizes = [stage.node.dtype.itemsize for stage in self.stages]
        self.widest = target.lanes(max(4, *itemsizes))

    @property
    def writer(self) -> NestWriter:
        """What the plan gives so far, written when it is asked for."""
        if self.written is None:
            self.written = NestWriter(self.kernel, self.plan)
            self.written.build()
        return self.written

    @property
    def stages(self) -> list[Stage]:
        """The stages of the held values, as the plan lists them."""
        writer = self.writer
        found = {one.position: writer.stages[node] for node, one in writer.held.items()}
        return [found[one.position] for one in self.plan.held]

    def _take(self, plan: Plan) -> None:
        if plan != self.plan:
            self.plan, self.written = plan, None

    def _add(self, *transforms: Transform) -> None:
        self._take(replace(self.plan, root=(*self.plan.root, *transforms)))

    @property
    def nest(self) -> Nest:
        """The loops over the outputs."""
        return root_nest(self.kernel, self.plan)

    def choose(self) -> Plan | None:
        """All decisions."""
        self._needed_first()
        rows = self._row_axis()
        if rows is None:
            return None
        self._block(rows)
        self._tile_products()
        grouped = tuple(self._grouped())
        stored = worth_storing(self.kernel, self.plan, self.writer, ROW_BYTES)
        self._tile_output(rows)
        self._take(replace(self.plan, stored=stored, grouped=grouped, lanes=self.widest))
        self._share_out()
        staged = tuple(self._staged())
        if self.shared:
            self._add(Parallel())
        return replace(self.plan, staged=staged)

    def _needed_first(self) -> None:
        """Output loops that all held values depend on go outside of the others."""
        needs = [self._depends(stage) for stage in self.stages]
        needed = [all(v in need for need in needs) for v in self.writer.root_ranges]
        order = sorted(range(len(needed)), key=lambda position: not needed[position])
        if order != list(range(len(needed))):
            self._add(Reorder(tuple(order)))

    @staticmethod
    def _depends(stage: Stage) -> frozenset[UOp]:
        return frozenset().union(*[ranges_in(i) for a in stage.accesses for i in a.index])

    def _row_axis(self) -> int | None:
        """The output axis whose neighbours are rows of a held product: the last that it is at."""
        for stage, is_tiled in zip(self.stages, self.tiled, strict=True):
            if is_tiled and stage.place and stage.place[-1] in self.writer.root_ranges:
                loop = self.nest[self.writer.root_ranges.index(stage.place[-1])]
                return loop.axis if isinstance(loop.size, int) else None
        return None

    def _block(self, axis: int) -> None:
        """Hold many rows, so that what the other operand gives is loaded once for all of them."""
        position = next(n for n, loop in enumerate(self.nest) if loop.axis == axis)
        size = self.nest[position].size
        assert isinstance(size, int)
        sizes = [math.prod(stage.sizes) for stage in self.stages]
        width = max(sizes) * max(stage.node.dtype.itemsize for stage in self.stages)
        block = min(size, BLOCK_ROWS)
        while block > TILE_ROWS and block * width > BLOCK_BYTES:
            block = max(block // 2, TILE_ROWS)
        held = tuple(
            replace(one, least=block * count) if is_tiled else one
            for one, is_tiled, count in zip(self.plan.held, self.tiled, sizes, strict=True)
        )
        root = self.plan.root
        if block < size:
            # The rows of a block stand right inside it.
            others = range(position + 1, len(self.nest))
            order = Reorder((*range(position + 1), len(self.nest), *others))
            root = (*root, Split(axis, block), order)
        self._take(replace(self.plan, root=root, held=held))

    def _tile_products(self) -> None:
        """8 rows by two vectors for each held product."""
        held = tuple(
            replace(one, transforms=self._tile(stage)) if is_tiled else one
            for one, is_tiled, stage in zip(self.plan.held, self.tiled, self.stages, strict=True)
        )
        self._take(replace(self.plan, held=held))

    def _tile(self, stage: Stage) -> tuple[Transform, ...]:
        axes = [axis for axis, size in enumerate(stage.sizes) if size > 1]
        splits: list[Split] = []
        if len(axes) > 1:
            splits.append(Split(axes[-2], min(TILE_ROWS, stage.sizes[axes[-2]]), "unroll"))
        if axes:
            splits += self._vectors(axes[-1], stage.sizes[axes[-1]])
        sizes = [stage.sizes[axis] for axis in axes]
        nest = apply_transforms(tuple(map(Loop, axes, sizes)), splits)
        if len([loop for loop in nest if loop.kind == "loop"]) < 2:
            return tuple(splits)
        # All rows read the columns at hand before the next ones are loaded.
        outer = len(axes)
        return (*splits, Reorder((outer - 1, *range(outer - 1), *range(outer, len(nest)))))

    def _vectors(self, axis: int, size: int) -> list[Split]:
        """Up to two vectors along an axis."""
        lanes = min(self.widest, 1 << (size.bit_length() - 1))
        splits = [Split(axis, 2 * lanes, "unroll")] if size >= 2 * lanes else []
        return [*splits, Split(axis, lanes, "vector")] if lanes > 1 else []

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

    def _tile_output(self, rows: int) -> None:
        """The register tile of the product at the end; lanes alone where there is none."""
        last = self.nest[-1]
        if last.axis == rows or last.kind != "loop" or not isinstance(last.size, int):
            return
        splits = []
        if any(is_contraction(node) and node.op is Op.REDUCE for node in self._outer_sums()):
            row = next(loop for loop in reversed(self.nest) if loop.axis == rows)
            assert isinstance(row.size, int)
            splits.append(Split(rows, min(TILE_ROWS, row.size), "unroll"))
            splits += self._vectors(last.axis, last.size)
        else:
            splits += self._vectors(last.axis, last.size)[-1:]
        self._add(*[split for split in splits if split.factor > 1])

    def _outer_sums(self) -> list[UOp]:
        """Reductions that the output reads, and no held value."""
        inside = {node for held in self.writer.held for node in held.toposort()}
        return [node for node in self.writer.stages if node.op is Op.REDUCE and node not in inside]

    def _share_out(self) -> None:
        """Threads for an outer loop at which everything is computed anew."""
        threads = self.target.threads
        if threads < 2:
            return
        place = frozenset.intersection(*[frozenset(stage.place) for stage in self.stages])
        pairs = zip(self.nest, self.writer.root_ranges, strict=True)
        sizes = {
            n: loop.size
            for n, (loop, v) in enumerate(pairs)
            if v in place and loop.kind == "loop" and isinstance(loop.size, int)
        }
        even = (n for n, size in sizes.items() if size >= 4 * threads or size % threads == 0)
        first = next(even, max(sizes, key=lambda n: (sizes[n], -n), default=None))
        if first is None:
            return
        order = (first, *(n for n in range(len(self.nest)) if n != first))
        if first > 0:
            self._add(Reorder(order))
        self.shared = True

    def _staged(self) -> Iterator[StageLoad]:
        """Operands whose neighbours along the lanes are far apart, copied in the order of lanes.

        The copy stands outside of the first loop that the operand does not depend on: all rows.
        """
        for statement, chain in statements_of(self.writer.block):
            vectors = [v for v in chain if v.arg.kind == "vector"]
            loads = [n for n in statement.toposort() if n.op is Op.LOAD and _is_given(n)]
            for load in loads if vectors else ():
                memory, offset = load.src[0].src
                moves = ranges_in(offset)
                outer = [v for v in chain if v in self.writer.root_ranges]
                depth = next((n for n, v in enumerate(outer) if v not in moves), None)
                far = vectors[-1] in moves and stride_of(offset, vectors[-1]) != 1
                if far and depth is not None:
                    same = [other for other in loads if other.src[0].src[0] is memory]
                    number = same.index(load) if len(same) > 1 else -1
                    yield StageLoad(memory.arg.slot, depth, number)


def _is_given(load: UOp) -> bool:
    return load.src[0].src[0].op is Op.PARAM


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
