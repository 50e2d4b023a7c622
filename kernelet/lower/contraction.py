"""Choose the loops of a matrix product or convolution: tile, panels, order, threads.

In:  one kernel and the Target.
Out: a Plan, or None where another nest is better.

A contraction reads few elements and combines each with many others. One output axis has the lanes;
the operand that moves along it is copied into a panel in which neighbouring results are neighbours,
unless it lies so already; the other operand is broadcast from where it is. The same rule serves
matrix products, convolutions and their gradients: only the axes differ.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelet.base.target import Target
from kernelet.graph.ops import Op
from kernelet.graph.placement import ranges_in
from kernelet.graph.uop import UOp
from kernelet.lower.analysis import (
    Analysis,
    Site,
    joined_axes,
    known_size,
    run_as_one,
    size_of,
    stride_of,
    tile_rows,
)
from kernelet.lower.panels import LARGEST_COPY
from kernelet.lower.stage import root_nest
from kernelet.lower.transforms import (
    BlockSum,
    Nest,
    Parallel,
    Plan,
    Reorder,
    Split,
    StageLoad,
    Transform,
    apply_transforms,
)

LEAST_WORK = 1 << 15  # fewer steps than this are not worth a panel
THREAD_WORK = 1 << 18  # in lanes, fewer are done before another thread has begun
MANY_ROWS = 128
MOST_HELD = 8  # partial sums may be so many times larger than a panel
WIDE_PANEL = 256
SHORT_SUM = 4  # products with shorter sums are bound by memory, as an outer product is
TILE_ROWS = 8  # by two vectors: 16 sums in 32 registers
FEW_TILE_ROWS = 6  # 12 sums in 16 registers
MANY_REGISTERS = 32
TILE_VECTORS = 2
TILE_SUMS = 8  # sums under way, at least, to cover the latency of an addition
FEW_ROWS = 16  # with fewer rows a panel is not read often enough
COPY_COST = 2.0  # moving a vector into a panel
GATHER_COST = 2.0  # moving one element
SCATTER_COST = 1.5  # storing one element
LONG_DOT = 64  # along an axis this long dot products can be as good
DOT_COST = 1.0
FINISH_COST = 16.0  # joining the lanes of one sum
LARGE_HALO = 1.0  # and where the halo does not stay in a cache
MASKED_ROW = 0.2  # how much slower numbers are that come from a halo instead of straight rows


@dataclass(frozen=True, slots=True)
class Output:
    """One loop over the results: the axes that it runs through, and which loads move along it."""

    variable: UOp
    group: tuple[int, ...]
    size: int
    moves: tuple[bool, ...]

    def shares_with(self, other: Output) -> bool:
        """Whether some load moves along both."""
        return any(a and b for a, b in zip(self.moves, other.moves, strict=True))


@dataclass(frozen=True, slots=True)
class Choice:
    """Where lanes and rows go, which arguments get panels, and what that costs."""

    cost: float
    lanes: tuple[Output, ...]
    row: Output
    width: int
    vectors: int
    panels: tuple[UOp, ...]


def plan_contraction(analysis: Analysis, target: Target) -> Plan | None:
    """The plan of a kernel that is one contraction, unless dot products cost less."""
    main = _main_site(analysis) if target.lanes(analysis.itemsize) > 1 else None
    if main is None:
        return None
    merged = _axes_that_run_as_one(analysis, main)
    if any(len(group) > 1 for group in merged):
        analysis = Analysis(analysis.kernel, Plan(merged=merged))
        main = _main_site(analysis)
        assert main is not None
    return _Contraction(analysis, main, target).plan()


def _main_site(analysis: Analysis) -> Site | None:
    """The statement that adds up products, if the kernel is about nothing else."""
    stages = list(analysis.writer.stages)
    if len(stages) != 1 or stages[0].op is not Op.REDUCE or stages[0].arg.op is not Op.ADD:
        return None
    if analysis.in_place or analysis.work < LEAST_WORK:
        return None
    inner = [site for site in analysis.sites if site.stage]
    main = max(inner, key=lambda site: site.weight)
    if any(variable not in main.loops for variable in analysis.ranges):
        return None  # many results read one sum
    slots = {load.src[0].src[0].arg.slot for load in main.loads}
    loops = set(itertools.chain(*(site.loops for site in analysis.sites)))
    known = all(variable.src[0].op is Op.CONST for variable in loops)
    if known and math.prod(size_of(v) for v in main.loops if v.arg.kind == "reduce") < SHORT_SUM:
        return None
    return main if known and len(main.loads) == len(slots) == 2 else None


def _moves(load: UOp, variable: UOp) -> bool:
    parts = (load.src[0].src[1], *load.src[1:])
    return any(variable in ranges_in(part) for part in parts)


def _axes_that_run_as_one(analysis: Analysis, main: Site) -> tuple[tuple[int, ...], ...]:
    """Neighbouring output axes that the products and the results run through as if they were one."""
    sites = [main, *(site for site in analysis.sites if site.stage == 0)]
    return joined_axes(analysis, lambda o, i: all(run_as_one(site, o, i) for site in sites))


class _Contraction:
    def __init__(self, analysis: Analysis, main: Site, target: Target) -> None:
        self.analysis = analysis
        self.main = main
        self.target = target
        self.shape = analysis.kernel.src[0].src[1].shape
        self.widest = target.lanes(analysis.itemsize)
        self.rows = TILE_ROWS if target.vector_registers >= MANY_REGISTERS else FEW_TILE_ROWS
        self.store = next(site for site in analysis.sites if site.stage == 0).target
        self.reduced = [size_of(v) for v in main.loops if v.arg.kind == "reduce"]
        groups = analysis.plan.merged or tuple((axis,) for axis in range(len(self.shape)))
        self.outputs = [
            Output(
                variable,
                groups[loop.axis],
                size_of(variable),
                tuple(_moves(load, variable) for load in main.loads),
            )
            for loop, variable in zip(analysis.nest, analysis.ranges, strict=True)
        ]

    def plan(self) -> Plan | None:
        """The cheapest choice as a plan."""
        choices = [
            choice
            for position, lane in enumerate(self.outputs)
            for row in self.outputs
            if (choice := self._choice(position, lane, row)) is not None
        ]
        best = min(choices, key=lambda choice: choice.cost, default=None)
        if best is None or best.cost >= self._dot_cost():
            return None
        return self._plan(best)

    # ---- the choice ----

    def _choice(self, position: int, lane: Output, row: Output) -> Choice | None:
        """The cost of lanes along one axis and rows along another; None if nothing is reused."""
        if lane.size < 4 or row.size < 2 or not any(lane.moves):
            return None
        if lane.shares_with(row):
            return None
        panels = tuple(
            load
            for load, moves in zip(self.main.loads, lane.moves, strict=True)
            if moves and self._needs_panel(load, lane.variable, row)
        )
        lanes: tuple[Output, ...] = (lane,)
        if panels and position and self._continues(self.outputs[position - 1], lane):
            lanes = (self.outputs[position - 1], lane)
        size = math.prod(axis.size for axis in lanes)
        width = min(self.widest, 1 << (size.bit_length() - 1))
        vectors = min(TILE_VECTORS, size // width)
        rows = min(row.size, self.rows * TILE_VECTORS // vectors)
        idle = _rounded(size, width * vectors) / size * _rounded(row.size, rows) / row.size
        weight = self.main.weight * idle / width
        cost = weight * max(1.0, TILE_SUMS / (rows * vectors))
        cost += sum(self._copy_cost(load, lane.variable, width) for load in panels)
        stored = math.prod(axis.size for axis in self.outputs)
        near = stride_of(self.store.src[1], lane.variable) == 1
        cost += stored * (1 / width if near else SCATTER_COST)
        for load, moves in zip(self.main.loads, lane.moves, strict=True):
            if not moves and len(load.src) == 2:
                cost += weight * MASKED_ROW + self._steps(load) * COPY_COST / width
                cost += weight * LARGE_HALO * self._is_large_halo(load, lane, row)
            if not moves and self._is_far(load):
                cost += self._steps(load) * GATHER_COST
        return Choice(cost, lanes, row, width, vectors, panels)

    def _dot_cost(self) -> float:
        """What dot products cost, which read both operands as they lie."""
        offsets = [load.src[0].src[1] for load in self.main.loads]
        inner = [
            size_of(variable)
            for variable in self.main.loops
            if variable.arg.kind == "reduce" and all(stride_of(o, variable) == 1 for o in offsets)
        ]
        if not inner or max(inner) < LONG_DOT or self.main.loads[-1].src[1:]:
            return math.inf
        stored = math.prod(axis.size for axis in self.outputs)
        return DOT_COST * self.main.weight / self.widest + stored * FINISH_COST

    def _needs_panel(self, load: UOp, lane: UOp, row: Output) -> bool:
        """Masked or scattered lanes need one; rows far apart do not stay in the cache without."""
        if len(load.src) == 2 or stride_of(load.src[0].src[1], lane) != 1:
            return True
        large = self._steps(load) * self.analysis.itemsize > self.target.cache_bytes[-1]
        return large and row.size >= FEW_ROWS * 2

    def _continues(self, outer: Output, lane: Output) -> bool:
        """Whether results go on in the next row of the same operand, so that lanes may too."""
        far = stride_of(self.store.src[1], outer.variable)
        near = stride_of(self.store.src[1], lane.variable)
        return outer.moves == lane.moves and near is not None and far == near * lane.size

    def _is_large_halo(self, load: UOp, lane: Output, row: Output) -> bool:
        """Whether the padded copy of an operand, for the rows of a tile and a part of the sum, is."""
        outer = [o.size for o in self.outputs if o.shares_with(lane) and _moves(load, o.variable)]
        memory = load.src[0].src[0]
        room = self.target.cache_bytes[-1] // 2
        size = memory.arg.size * memory.dtype.itemsize / math.prod(outer)
        if _moves(load, row.variable):
            size *= min(self.rows / row.size, 1)
        reduced = math.prod(size_of(v) for v in self.main.loops if v.arg.kind == "reduce")
        panel = reduced * self.widest * TILE_VECTORS * self.analysis.itemsize
        return bool(size * min(room / panel, 1) > room)

    def _is_far(self, load: UOp) -> bool:
        """Whether a sum runs through an operand in long steps, which then does not stay cached."""
        if self._steps(load) * self.analysis.itemsize <= self.target.cache_bytes[-1]:
            return False
        summed = [v for v in self.main.loops if v.arg.kind == "reduce"]
        return all(stride_of(load.src[0].src[1], variable) != 1 for variable in summed)

    def _copy_cost(self, load: UOp, lane: UOp, width: int) -> float:
        near = stride_of(load.src[0].src[1], lane) == 1
        return self._steps(load) * (COPY_COST / width if near else GATHER_COST)

    def _steps(self, load: UOp) -> int:
        """How many different elements are read, each tap of a window for itself."""
        return math.prod(size_of(v) for v in self.main.loops if _moves(load, v))

    # ---- the plan ----

    def _plan(self, choice: Choice) -> Plan:
        """Splits for panel and tile, then the order, then threads, then the copies."""
        groups = self._groups(choice)
        number = {o.group: _position(groups, o.group) for o in self.outputs}
        lane, row = number[choice.lanes[-1].group], number[choice.row.group]
        panel, cut, steps = self._panel(choice)
        splits = self._splits(choice, lane, row, panel)
        whole = root_nest(self.analysis.kernel, Plan(merged=groups))
        moving = {number[o.group] for o in self.outputs if o.shares_with(choice.lanes[-1])}
        order = _Order(apply_transforms(whole, splits), lane, row, moving, len(choice.lanes) > 1)
        threads = self.target.threads
        if (
            threads > 1
            and not order.shares_out(threads)
            and choice.row.size % (threads * splits[0].factor) == 0
        ):
            # Each thread takes some of the rows, and has a panel of its own.
            splits.insert(0, Split(row, choice.row.size // threads))
            nest = apply_transforms(whole, splits)
            order = _Order(nest, lane, row, {*moving, row}, len(choice.lanes) > 1)
        order.share_out(threads)
        transforms: list[Transform] = [*splits, Reorder(tuple(order.all()))]
        if order.loops and threads > 1 and self.analysis.work >= THREAD_WORK:
            transforms.append(Parallel())
            if steps and not order.outer:
                order.put_outside(order.all()[0])
        rest = order.along + order.inner
        blocked = BlockSum(len(order.outer), steps, cut) if steps and rest else None
        depth = len(order.outer)
        if blocked is not None:  # inside the loops of the sum's parts, if there are several
            depth += cut + (steps < self.reduced[cut])
        inside = depth + len(order.along) + any(order.axis(n) == row for n in order.inner[:1])
        return replace(
            self.analysis.plan,
            merged=groups,
            root=tuple(transforms),
            lanes=self.widest,
            blocked=blocked,
            staged=self._staged(choice, depth, inside),
        )

    def _groups(self, choice: Choice) -> tuple[tuple[int, ...], ...]:
        """The axes of each output loop; those of the lanes are one."""
        groups = self.analysis.plan.merged or tuple((axis,) for axis in range(len(self.shape)))
        first, last = choice.lanes[0].group, choice.lanes[-1].group
        start, end = groups.index(first), groups.index(last)
        joined = tuple(itertools.chain(*groups[start : end + 1]))
        return (*groups[:start], joined, *groups[end + 1 :])

    def _splits(self, choice: Choice, lane: int, row: int, panel: int) -> list[Split]:
        rows = tile_rows(choice.row.size, self.rows * TILE_VECTORS // choice.vectors)
        splits = [Split(row, rows, "unroll")]
        size = math.prod(axis.size for axis in choice.lanes)
        if panel < size and panel > choice.width * choice.vectors:
            splits.append(Split(lane, panel))
        if choice.vectors > 1:
            splits.append(Split(lane, choice.width * choice.vectors, "unroll"))
        splits.append(Split(lane, choice.width, "vector"))
        return [split for split in splits if split.factor > 1]

    def _panel(self, choice: Choice) -> tuple[int, int, int]:
        """Results that share a panel; which loop of the sum is cut, and its steps (0: none).

        A panel has whole rows of results, few idle lanes, and fits in half of the second cache.
        """
        tile = choice.width * choice.vectors
        reduced = self.reduced
        room = self.target.cache_bytes[-1] // 2 // self.analysis.itemsize
        if not choice.panels:
            return tile, 0, 0
        whole = math.prod(axis.size for axis in choice.lanes)
        # A panel that few rows read is to be copied at full speed: in long pieces.
        near = stride_of(choice.panels[0].src[0].src[1], choice.lanes[-1].variable) == 1
        sizes = [
            min(WIDE_PANEL, whole // tile * tile) if near and choice.row.size < MANY_ROWS else tile
        ]
        if len(choice.lanes) > 1:
            rows, length = (axis.size for axis in choice.lanes)
            sizes = [count * length for count in range(1, rows + 1) if rows % count == 0]
            sizes = [size for size in sizes if size >= tile] or [rows * length]
            # One step at least has to fit, and the partial sums of all results of a panel.
            steps = math.prod(reduced[1:])
            held = math.prod(o.size for o in self.outputs if not o.shares_with(choice.lanes[-1]))
            fitting = [n for n in sizes if n * max(steps, held // MOST_HELD) <= 2 * room]
            sizes = fitting or sizes[:1]

        def part_for(size: int) -> tuple[int, int]:
            for cut, count in enumerate(reduced):
                rest = math.prod(reduced[cut + 1 :]) * size
                most = room // rest
                if most:
                    steps = max(n for n in range(1, min(count, most) + 1) if count % n == 0)
                    return cut, steps
                if rest * self.analysis.itemsize <= LARGEST_COPY:
                    return cut, 1
            return len(reduced) - 1, 1

        def is_cut(size: int) -> bool:
            return bool(reduced) and part_for(size) != (0, reduced[0])

        def preference(size: int) -> tuple[float, bool, int]:
            return round(_rounded(size, tile) / size, 1), is_cut(size), -size

        best = min(sizes, key=preference)
        return (best, *part_for(best)) if is_cut(best) else (best, 0, 0)

    def _staged(self, choice: Choice, depth: int, inside: int) -> tuple[StageLoad, ...]:
        """Panels, with the halo that fills them; then the other operand if it has masks."""
        staged = []
        for load in choice.panels:
            one = StageLoad(load.src[0].src[0].arg.slot, depth)
            staged += [one, one] if len(load.src) == 2 else [one]
        for load, moves in zip(self.main.loads, choice.lanes[-1].moves, strict=True):
            if not moves and len(load.src) == 2:
                staged.append(StageLoad(load.src[0].src[0].arg.slot, inside))
        return tuple(staged)


class _Order:
    """The loops around a tile, as numbers: those outside of the panel, along it, inside of it."""

    def __init__(self, nest: Nest, lane: int, row: int, moving: set[int], is_joined: bool) -> None:
        self.nest = nest
        self.loops = [n for n, loop in enumerate(nest) if loop.kind == "loop"]
        self.along = [n for n in self.loops if nest[n].axis == lane]
        self.outer = [n for n in self.loops if nest[n].axis in moving and n not in self.along]
        # Of the loops over rows only the first, which shares them out, may be outside.
        self.outer = [n for n in self.outer if nest[n].axis != row or n == self._first(row)]
        if not is_joined or len(self.along) > 1:
            self.outer += self.along[:1]
        self.along = [n for n in self.along if n not in self.outer]
        rest = [n for n in self.loops if n not in self.outer and n not in self.along]
        self.inner = sorted(rest, key=lambda n: nest[n].axis != row)

    def put_outside(self, number: int) -> None:
        """A loop goes outside of the panel."""
        self.outer.append(number)
        self.along = [n for n in self.along if n != number]
        self.inner = [n for n in self.inner if n != number]

    def _first(self, axis: int) -> int:
        return next(n for n in self.loops if self.nest[n].axis == axis)

    def axis(self, number: int) -> int:
        """The axis of a loop."""
        return self.nest[number].axis

    def all(self) -> list[int]:
        """All loops from the outermost."""
        return list(dict.fromkeys([*self.outer, *self.along, *self.inner, *range(len(self.nest))]))

    def _even(self, loops: list[int], threads: int) -> list[int]:
        sizes = {n: known_size(self.nest[n].size) for n in loops}
        return [n for n in loops if sizes[n] >= 4 * threads or sizes[n] % threads == 0]

    def shares_out(self, threads: int) -> bool:
        """Whether a loop outside of the panel keeps all threads busy."""
        return bool(self._even(self.outer, threads))

    def share_out(self, threads: int) -> None:
        """The loop that keeps all threads busy goes outermost."""
        if not self.outer:
            # Every thread fills the panel for itself, before its first row.
            even = self._even(self.along + self.inner, threads)
            self.along = [*even[:1], *(n for n in self.along if n not in even[:1])]
            self.inner = [n for n in self.inner if n not in even[:1]]
            return
        sizes = {n: known_size(self.nest[n].size) for n in self.outer}
        even = self._even(self.outer, threads)
        first = even[0] if even else max(self.outer, key=lambda n: sizes[n])
        self.outer.sort(key=lambda n: n != first)


def _position(groups: Sequence[tuple[int, ...]], group: tuple[int, ...]) -> int:
    return next(n for n, axes in enumerate(groups) if set(group) <= set(axes))


def _rounded(size: int, tile: int) -> int:
    return -(-size // tile) * tile


def _fewest_idle(size: int, width: int, most: int) -> int:
    """Vectors side by side: as many as leave few lanes idle."""
    counts = [count for count in range(1, most + 1) if count * width <= size]
    return min(counts, key=lambda count: (_rounded(size, count * width), -count), default=1)
