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
from dataclasses import dataclass, replace

from kernelet.base.target import Target
from kernelet.graph.ops import Op
from kernelet.graph.placement import ranges_in
from kernelet.graph.uop import UOp
from kernelet.lower.analysis import (
    Analysis,
    joined_axes,
    run_as_one,
    size_of,
    tile_rows,
)
from kernelet.lower.loops import stride_of
from kernelet.lower.panels import LARGEST_COPY
from kernelet.lower.stage import root_nest
from kernelet.lower.transforms import BlockSum, Loops, Plan, StageLoad, lanes_for

LEAST_WORK = 1 << 15  # fewer steps than this are not worth a panel
THREAD_WORK = 1 << 18  # in lanes, fewer are done before another thread has begun
MANY_ROWS = 128
WIDE_PANEL = 256
SHORT_SUM = 4  # products with shorter sums are bound by memory, as an outer product is
TILE_VECTORS = 2
TILE_SUMS = 8  # sums under way, at least, to cover the latency of an addition
FEW_ROWS = 16  # with fewer rows a panel is not read often enough
COPY_COST = 2.0  # moving a vector into a panel
GATHER_COST = 2.0  # moving one element
SCATTER_COST = 1.5  # storing one element
LONG_DOT = 64  # along an axis this long dot products can be as good
WORTH_WHOLE = 256  # tiles a thread that make up for copying a whole operand, once for each share
DOT_COST = 1.0
FINISH_COST = 16.0  # joining the lanes of one sum
LARGE_HALO = 1.0  # and where the halo does not stay in a cache
MASKED_ROW = 0.2  # how much slower numbers are that come from a halo instead of straight rows


@dataclass(frozen=True, slots=True)
class Output:
    """One loop over the results: its axis, and which loads move along it."""

    variable: UOp
    axis: int
    size: int
    moves: frozenset[UOp]


@dataclass(frozen=True, slots=True)
class Choice:
    """Where lanes and rows go, which arguments get panels, and what that costs."""

    cost: float
    lanes: tuple[Output, ...]
    row: Output
    width: int
    vectors: int
    panels: tuple[UOp, ...]
    taps: tuple[Output, ...]

    @property
    def size(self) -> int:
        """The results along the lanes."""
        return math.prod(axis.size for axis in self.lanes)

    @property
    def tile(self) -> int:
        """Those of them that a register tile has."""
        return self.width * self.vectors


@dataclass(frozen=True, slots=True)
class Axes:
    """The axes of the output once those of the lanes are one; `moving` are those of the panel."""

    groups: tuple[tuple[int, ...], ...]
    lane: int
    row: int
    moving: set[int]
    is_joined: bool

    def outside(self, loops: Loops) -> list[int]:
        """The loops around a panel."""
        along = loops.plain(self.lane)
        # Of the loops over rows only the first, which shares them out, may be outside.
        inside = (*along, *loops.plain(self.row)[1:])
        moving = [n for n in loops.plain() if loops.nest[n].axis in self.moving]
        # Lanes of two axes may all be in one panel.
        is_whole = self.is_joined and len(along) == 1
        return [n for n in moving if n not in inside] + ([] if is_whole else along[:1])


def plan_contraction(analysis: Analysis, target: Target) -> Plan | None:
    """The plan of a kernel that is one contraction, unless dot products cost less."""
    if target.lanes(analysis.itemsize) == 1 or not _is_contraction(analysis):
        return None
    analysis = analysis.merged(_axes_that_run_as_one(analysis))
    return _Contraction(analysis, target).plan()


def _is_contraction(analysis: Analysis) -> bool:
    """Whether a kernel adds up products and is about nothing else."""
    stages = list(analysis.writer.stages)
    if len(stages) != 1 or stages[0].op is not Op.REDUCE or stages[0].arg.op is not Op.ADD:
        return False
    if analysis.in_place or analysis.work < LEAST_WORK:
        return False
    main = analysis.main_site()
    if any(variable not in main.loops for variable in analysis.ranges):
        return False  # many results read one sum
    loops = set(itertools.chain(*(site.loops for site in analysis.sites)))
    if any(variable.src[0].op is not Op.CONST for variable in loops):
        return False
    slots = {load.src[0].src[0].arg.slot for load in main.loads}
    steps = math.prod(map(size_of, main.summed))
    return steps >= SHORT_SUM and len(main.loads) == len(slots) == 2


def _moves(load: UOp, variable: UOp) -> bool:
    parts = (load.src[0].src[1], *load.src[1:])
    return any(variable in ranges_in(part) for part in parts)


def _is_masked(load: UOp) -> bool:
    return len(load.src) == 2


def _axes_that_run_as_one(analysis: Analysis) -> tuple[tuple[int, ...], ...]:
    """Neighbouring output axes that the products and the results run through as if they were one."""
    sites = [analysis.main_site(), *(site for site in analysis.sites if site.stage == 0)]
    return joined_axes(analysis, lambda o, i: all(run_as_one(site, o, i) for site in sites))


class _Contraction:
    def __init__(self, analysis: Analysis, target: Target) -> None:
        self.analysis = analysis
        self.target = target
        self.main = main = analysis.main_site()
        self.widest = target.lanes(analysis.itemsize)
        self.store = next(site for site in analysis.sites if site.stage == 0).target
        self.reduced = [size_of(v) for v in main.summed]
        self.outputs = [
            Output(
                variable,
                analysis.axis_of(variable),
                size_of(variable),
                frozenset(load for load in main.loads if _moves(load, variable)),
            )
            for variable in analysis.ranges
        ]
        self.results = math.prod(axis.size for axis in self.outputs)

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
        if lane.size < 4 or row.size < 2 or not lane.moves or lane.moves & row.moves:
            return None
        moving = [load for load in self.main.loads if load in lane.moves]
        panels = tuple(load for load in moving if self._needs_panel(load, lane.variable, row))
        taps = tuple(o for o in self.outputs if any(self._is_tap(o, load) for load in panels))
        lanes: tuple[Output, ...] = (lane,)
        if panels and position and self._continues(self.outputs[position - 1], lane):
            lanes = (self.outputs[position - 1], lane)
        size = math.prod(axis.size for axis in lanes)
        width = lanes_for(size, self.widest)
        vectors = min(TILE_VECTORS, size // width)
        rows = min(row.size, self.target.tile_rows * TILE_VECTORS // vectors)
        idle = _rounded(size, width * vectors) / size * _rounded(row.size, rows) / row.size
        weight = self.main.weight * idle / width
        cost = weight * max(1.0, TILE_SUMS / (rows * vectors))
        again = math.prod(tap.size for tap in taps)
        cost += sum(self._copy_cost(load, lane.variable, width) for load in panels) / again
        near = stride_of(self.store.src[1], lane.variable) == 1
        cost += self.results * (1 / width if near else SCATTER_COST)
        for load in self.main.loads:
            if load in moving:
                continue
            if _is_masked(load):
                cost += weight * MASKED_ROW + self._steps(load) * COPY_COST / width
                cost += weight * LARGE_HALO * self._is_large_halo(load, lane, row)
            if self._is_far(load):
                cost += self._steps(load) * GATHER_COST
        return Choice(cost, lanes, row, width, vectors, panels, taps)

    def _dot_cost(self) -> float:
        """What dot products cost, which read both operands as they lie."""
        inner = [
            v for v in self.main.summed if all(_stride(load, v) == 1 for load in self.main.loads)
        ]
        longest = max(map(size_of, inner), default=0)
        if longest < LONG_DOT or _is_masked(self.main.loads[-1]):
            return math.inf
        return DOT_COST * self.main.weight / self.widest + self.results * FINISH_COST

    def _needs_panel(self, load: UOp, lane: UOp, row: Output) -> bool:
        """Masked or scattered lanes need one; rows far apart do not stay in the cache without."""
        if _is_masked(load) or _stride(load, lane) != 1:
            return True
        return self._is_large(load) and row.size >= FEW_ROWS * 2

    def _continues(self, outer: Output, lane: Output) -> bool:
        """Whether results go on in the next row of the same operand, so that lanes may too."""
        far = stride_of(self.store.src[1], outer.variable)
        near = stride_of(self.store.src[1], lane.variable)
        return outer.moves == lane.moves and near is not None and far == near * lane.size

    def _is_large_halo(self, load: UOp, lane: Output, row: Output) -> bool:
        """Whether the padded copy of an operand, for the rows of a tile and a part of the sum, is."""
        outer = [o.size for o in self.outputs if o.moves & lane.moves and load in o.moves]
        memory = load.src[0].src[0]
        size = memory.arg.size * memory.dtype.itemsize / math.prod(outer)
        if load in row.moves:
            size *= min(self.target.tile_rows / row.size, 1)
        panel = math.prod(self.reduced) * self.widest * TILE_VECTORS * self.analysis.itemsize
        room = self._room(())
        return bool(size * min(room / panel, 1) > room)

    def _room(self, taps: tuple[Output, ...]) -> int:
        """The bytes of a panel: taps read it again and again, others stream through it."""
        return self.target.cache_bytes[0] if taps else self.target.cache_bytes[-1] // 2

    def _is_large(self, load: UOp) -> bool:
        """Whether what is read does not stay in a cache."""
        return self._steps(load) * self.analysis.itemsize > self.target.cache_bytes[-1]

    def _is_far(self, load: UOp) -> bool:
        """Whether a sum runs through an operand in long steps, which then does not stay cached."""
        return self._is_large(load) and all(_stride(load, v) != 1 for v in self.main.summed)

    def _copy_cost(self, load: UOp, lane: UOp, width: int) -> float:
        return self._steps(load) * (COPY_COST / width if _stride(load, lane) == 1 else GATHER_COST)

    def _is_tap(self, output: Output, load: UOp) -> bool:
        """Whether a short loop over results only shifts the window that the sum runs through.

        One copy with a halo then serves all its steps.
        """
        step = _stride(load, output.variable) or 0
        long = [v for v in self.main.summed if size_of(v) >= 2 * output.size]
        strides = [_stride(load, v) or 0 for v in long]
        return any(0 < step <= by < step * output.size and by % step == 0 for by in strides)

    def _steps(self, load: UOp) -> int:
        """How many different elements are read, each tap of a window for itself."""
        return math.prod(size_of(v) for v in self.main.loops if _moves(load, v))

    # ---- the plan ----

    def _plan(self, choice: Choice) -> Plan:
        """Splits for panel and tile, then the order, then threads, then the copies."""
        threads = self.target.threads
        first, last = choice.lanes[0].axis, choice.lanes[-1].axis
        groups = self.analysis.joined(first, last)
        # The axes of the lanes become one.
        number = {o.axis: min(o.axis, max(first, o.axis - last + first)) for o in self.outputs}
        around = [o for o in self.outputs if o.moves & choice.lanes[-1].moves]
        moving = {number[o.axis] for o in around if o not in choice.taps}
        axes = Axes(groups, first, number[choice.row.axis], moving, first != last)
        panel, part = self._panel(choice)
        rows = tile_rows(choice.row.size, self.target.tile_rows * TILE_VECTORS // choice.vectors)
        loops = self._tiled(choice, axes, rows, panel)
        outer = axes.outside(loops)
        can_share = threads > 1 and choice.row.size % (threads * rows) == 0
        if can_share and not loops.evenly_shared(outer, threads):
            # Each thread takes some of the rows, and has a panel of its own.
            loops = self._tiled(choice, axes, rows, panel, choice.row.size // threads)
            outer = replace(axes, moving={*moving, axes.row}).outside(loops)
        plain = loops.plain()
        along = [n for n in loops.plain(axes.lane) if n not in outer]
        loops.put_first(*outer, *along, *loops.plain(axes.row), *plain)
        outside, beside = len(outer), len(along)
        is_worth = self.analysis.work >= THREAD_WORK
        shared = loops.share_out(range(len(outer or plain)), threads if is_worth else 1)
        if plain and not outer:
            # Every thread fills a panel for itself, once for each part of a sum.
            outside = int(shared is not None and part is not None)
            beside = len({*range(beside)} - {shared or 0}) + 1 - outside
        blocked, depth = None, outside
        if part is not None and outside < len(plain):
            cut, steps = part
            blocked = BlockSum(outside, steps, cut)
            depth += cut + (steps < self.reduced[cut])
        inner = outside + beside
        inside = depth + beside + (inner < len(plain) and loops.nest[inner].axis == axes.row)
        return replace(
            self.analysis.plan,
            merged=groups,
            root=loops.transforms,
            lanes=self.widest,
            blocked=blocked,
            staged=self._staged(choice, depth, inside),
        )

    def _tiled(
        self, choice: Choice, axes: Axes, rows: int, panel: int, part_of_rows: int = 1
    ) -> Loops:
        loops = Loops(root_nest(self.analysis.kernel, Plan(merged=axes.groups)))
        loops.split(axes.row, part_of_rows)
        loops.split(axes.row, rows, "unroll")
        if choice.tile < panel < choice.size:
            loops.split(axes.lane, panel)
        loops.tile(axes.lane, choice.width, choice.vectors)
        return loops

    def _panel(self, choice: Choice) -> tuple[int, tuple[int, int] | None]:
        """Results that share a panel, and the part of the sum that it is for.

        A panel has whole rows of results, few idle lanes, and fits in its cache.
        """
        if not choice.panels:
            return choice.tile, None
        room = self._room(choice.taps)

        def preference(size: int) -> tuple[float, bool, int]:
            idle = round(_rounded(size, choice.tile) / size, 1)
            return idle, self._part(size, room) is not None, -size

        best = min(self._panel_sizes(choice), key=preference)
        return best, self._part(best, room)

    def _panel_sizes(self, choice: Choice) -> list[int]:
        if len(choice.lanes) == 1:
            # A panel that few rows read is to be copied at full speed: in long pieces.
            near = _stride(choice.panels[0], choice.lanes[0].variable) == 1
            wide = min(WIDE_PANEL, choice.size // choice.tile * choice.tile)
            return [wide if near and choice.row.size < MANY_ROWS else choice.tile]
        rows, length = (axis.size for axis in choice.lanes)
        sizes = [count * length for count in range(1, rows + 1) if rows % count == 0]
        sizes = [size for size in sizes if size >= choice.tile]
        # One step of the outermost sum at least has to fit.
        least = math.prod(self.reduced[1:]) * self.analysis.itemsize
        return [size for size in sizes if size * least <= 2 * self._room(())] or sizes[:1]

    def _part(self, size: int, room: int) -> tuple[int, int] | None:
        """Which loop of the sum is cut for a panel of this size, and its steps; None: it is whole."""
        for cut, count in enumerate(self.reduced):
            step = math.prod(self.reduced[cut + 1 :]) * size * self.analysis.itemsize
            most = min(count, room // step)
            if most:
                steps = max(n for n in range(1, most + 1) if count % n == 0)
                return (cut, steps) if cut or steps < count else None
            if step <= LARGEST_COPY:
                return cut, 1
        return len(self.reduced) - 1, 1

    def _staged(self, choice: Choice, depth: int, inside: int) -> tuple[StageLoad, ...]:
        """The other operand if it is far; panels, with the halo that fills them; masks."""
        # What a sum runs through in long steps is copied as a whole, the sum's elements side by side.
        fixed = [load for load in self.main.loads if load not in choice.lanes[-1].moves]
        is_read = choice.size >= WORTH_WHOLE * choice.tile * self.target.threads
        far = [load for load in fixed if is_read and self._is_far(load) and not _is_masked(load)]
        staged = [StageLoad(load.src[0].src[0].arg.slot, 0) for load in far]
        for load in choice.panels:
            one = StageLoad(load.src[0].src[0].arg.slot, depth)
            staged += [one, one] if _is_masked(load) else [one]
        for load in fixed:
            if _is_masked(load):
                staged.append(StageLoad(load.src[0].src[0].arg.slot, inside))
        return tuple(staged)


def _stride(load: UOp, variable: UOp) -> int | None:
    return stride_of(load.src[0].src[1], variable)


def _rounded(size: int, tile: int) -> int:
    return -(-size // tile) * tile
