"""What the register tiles of a contraction cost, and the copies that they read.

In:  the products of one contraction, statement by statement, and the Target.
Out: the best tile for each number of vectors; costs, in multiply-adds of vectors.

A tile has some rows of one to four vectors. One operand moves along the lanes and is read in
vectors, the other moves along the rows and is read in numbers, each spread over all lanes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernelet.base.target import Target
from kernelet.graph.placement import ranges_in
from kernelet.graph.uop import UOp
from kernelet.lower.analysis import Site, size_of
from kernelet.lower.loops import stride_of
from kernelet.lower.panels import LARGEST_COPY

TILE_VECTORS = 4
TILE_SUMS = 10  # sums under way, at least, to cover the latency of an addition
VECTOR_COST = 1.5  # reading a vector
NUMBER_COST = 1.0  # reading a number
LINE_COST = 8.0  # a cache line of numbers from beyond the nearest cache
UNEVEN_COST = 1.05  # tiles that go on in the next row, windows of which two overlap
LEAST_ROWS = 4  # of a tile that leaves none over
COPY_COST = 32.0  # moving a vector into a panel
HALO_COST = 2.0  # moving one into a copy with zeros around, for each tap that reads it
GATHER_COST = 4.0  # moving one element
FAR_LINE_COST = 40.0  # and the cache line that it is in
WHOLE_COST = 6.0  # moving an element of an operand that is copied as a whole
SCATTER_COST = 4.0  # storing one element
CROWDED_COST = 20.0  # into a line that has been driven out of the nearest cache
LONG_DOT = 64  # along an axis this long dot products can be as good
DOT_COST = 2.0
FINISH_COST = 16.0  # joining the lanes of one sum
LINE_BYTES = 64
PAGE_BYTES = 4096  # memory so far apart falls on the same lines of the nearest cache


@dataclass(frozen=True, slots=True)
class Tile:
    """`rows` times `vectors` of `width` sums in registers, and the cost of all multiply-adds."""

    rows: int
    vectors: int
    width: int
    cost: float

    @property
    def size(self) -> int:
        """The results along the lanes."""
        return self.width * self.vectors


def moves(load: UOp, variable: UOp) -> bool:
    """Whether a load depends on a loop."""
    parts = (load.src[0].src[1], *load.src[1:])
    return any(variable in ranges_in(part) for part in parts)


def is_masked(load: UOp) -> bool:
    """Whether a load may lie outside its memory."""
    return len(load.src) == 2


def stride(load: UOp, variable: UOp) -> int | None:
    """How far a step of a loop moves a load; None where that changes."""
    return stride_of(load.src[0].src[1], variable)


@dataclass(frozen=True, slots=True)
class TileCosts:
    """Costs of one contraction: of the statement that adds up its products."""

    main: Site
    itemsize: int
    target: Target

    def tiles(self, lengths: Sequence[int], lane: UOp, row: UOp, width: int) -> Iterator[Tile]:
        """The best tile for each number of vectors; the lanes run through axes of these lengths."""
        size, rows = math.prod(lengths) / width, size_of(row)
        length = lengths[-1] / width
        fixed = [load for load in self.main.loads if not moves(load, lane)]
        is_window = any(1 in self.windows(load, row) for load in fixed)
        may_copy = any(self.run(load) < LINE_BYTES // self.itemsize for load in fixed)
        for vectors in range(1, min(TILE_VECTORS, int(size)) + 1):
            counts = range(1, min(rows, self.target.tile_rows(vectors, is_window)) + 1)
            # Numbers that may be copied as a whole are so for tiles that do not overlap.
            whole = [n for n in counts if may_copy and n >= LEAST_ROWS and rows % n == 0]
            found = []
            for count in whole or counts:
                number = math.ceil(size / vectors) * math.ceil(rows / count)
                reads = VECTOR_COST * vectors + NUMBER_COST * count
                cost = number * (max(vectors * count, TILE_SUMS) + reads) / (size * rows)
                is_uneven = length % vectors > 0 or (is_window and rows % count > 0)
                cost *= UNEVEN_COST if is_uneven else 1.0
                found.append(Tile(count, vectors, width, cost * self.main.weight / width))
            yield min(found, key=lambda tile: (tile.cost, tile.rows))

    def windows(self, load: UOp, variable: UOp) -> list[int]:
        """The steps of the sums that run through a window which a loop over results moves."""
        step = stride(load, variable) or 0
        sums = [(abs(stride(load, v) or 0), size_of(v)) for v in self.main.summed]
        return [by for by, size in sums if 0 < by <= step < by * size]

    def run(self, load: UOp) -> int:
        """How many elements of one cache line a sum reads one after the other."""
        run = 1
        for variable in reversed(self.main.summed):
            if abs(stride(load, variable) or 0) == run:
                run *= size_of(variable)
        return min(run, LINE_BYTES // self.itemsize)

    def steps(self, load: UOp) -> int:
        """How many different elements are read, each tap of a window for itself."""
        return math.prod(size_of(v) for v in self.main.loops if moves(load, v))

    def numbers(self, load: UOp, row: UOp, tile: Tile) -> tuple[float, float]:
        """What reading numbers costs as they lie, and if their operand is copied as a whole.

        The copy has the elements of a sum side by side, and each thread makes it for itself.
        """
        line, run, size = LINE_BYTES // self.itemsize, self.run(load), self.steps(load)
        if run == line or size * self.itemsize <= self.target.cache_bytes[0]:
            return 0.0, math.inf  # such reads are foreseen, or near
        step = stride(load, row)
        apart = 1.0 if step is None else min(abs(step) / line, 1.0)
        lines = (1 + (tile.rows - 1) * apart) * (1 / run if run > 1 else 2.0)
        direct = self.main.weight / (tile.size * tile.rows) * lines * LINE_COST
        is_large = size * self.itemsize > LARGEST_COPY
        if size_of(row) % tile.rows or is_masked(load) or is_large:
            return direct, math.inf
        return direct, size * WHOLE_COST * self.target.threads

    def copy(self, load: UOp, lane: UOp, width: int) -> float:
        """What filling a panel costs."""
        step = stride(load, lane)
        if step == 1:
            return self.steps(load) * COPY_COST / width
        is_far = abs(step or 0) * self.itemsize >= LINE_BYTES
        return self.steps(load) * (GATHER_COST + is_far * FAR_LINE_COST / self.run(load))

    def halo(self, load: UOp, width: int) -> float:
        """What copying an operand with zeros around costs."""
        return self.steps(load) * HALO_COST / width if is_masked(load) else 0.0

    def store(self, target: UOp, lane: UOp, tile: Tile) -> float:
        """What storing one result costs; more if the lines of a tile drive each other out."""
        step = stride_of(target.src[1], lane)
        if step == 1:
            return 1 / tile.width
        apart = math.gcd((step or 0) * self.itemsize, PAGE_BYTES)
        is_crowded = tile.size * apart > self.target.cache_bytes[0] // 2
        return CROWDED_COST if is_crowded else SCATTER_COST

    def dots(self, results: int) -> float:
        """What dot products cost instead, which read both operands as they lie."""
        loads = self.main.loads
        inner = [v for v in self.main.summed if all(stride(load, v) == 1 for load in loads)]
        longest = max(map(size_of, inner), default=0)
        if longest < LONG_DOT or is_masked(loads[-1]):
            return math.inf
        lanes = self.target.lanes(self.itemsize)
        return DOT_COST * self.main.weight / lanes + results * FINISH_COST
