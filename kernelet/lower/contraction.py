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
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kernelet.base.target import Target
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.lower.analysis import Analysis, joined_axes, run_as_one, size_of
from kernelet.lower.loops import stride_of
from kernelet.lower.nest import write_nest
from kernelet.lower.panels import LARGEST_COPY
from kernelet.lower.stage import root_nest
from kernelet.lower.tiles import Tile, TileCosts, is_masked, moves, stride
from kernelet.lower.transforms import BlockSum, Loops, Plan, StageLoad, lanes_for

MOST_TRIED = 4  # choices whose copies are tried
LEAST_WORK = 1 << 15  # fewer steps than this are not worth a panel
THREAD_WORK = 1 << 18  # in lanes, fewer are done before another thread has begun
SHORT_SUM = 4  # products with shorter sums are bound by memory, as an outer product is
FEW_ROWS = 32  # with fewer rows a panel is not read often enough


@dataclass(frozen=True, slots=True)
class Choice:
    """Where lanes and rows go, which arguments get panels, and what that costs."""

    cost: float
    lanes: tuple[UOp, ...]
    row: UOp
    tile: Tile
    panels: tuple[UOp, ...]
    taps: tuple[UOp, ...]
    whole: tuple[UOp, ...]


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


def _axes_that_run_as_one(analysis: Analysis) -> tuple[tuple[int, ...], ...]:
    """Neighbouring output axes that the products and the results run through as if they were one."""
    sites = [analysis.main_site(), *(site for site in analysis.sites if site.stage == 0)]
    return joined_axes(analysis, lambda o, i: all(run_as_one(site, o, i) for site in sites))


class _Contraction:
    def __init__(self, analysis: Analysis, target: Target) -> None:
        self.analysis = analysis
        self.target = target
        self.main = main = analysis.main_site()
        self.costs = TileCosts(main, analysis.itemsize, target)
        self.widest = target.lanes(analysis.itemsize)
        self.store = next(site for site in analysis.sites if site.stage == 0).target
        self.reduced = [size_of(v) for v in main.summed]
        self.outputs = analysis.ranges
        self.moved = {v: {load for load in main.loads if moves(load, v)} for v in self.outputs}
        self.has_masks = any(map(is_masked, main.loads))
        self.results = math.prod(map(size_of, self.outputs))

    def plan(self) -> Plan | None:
        """The cheapest choice as a plan."""
        choices = [
            choice
            for position, lane in enumerate(self.outputs)
            for row in self.outputs
            for choice in self._choices(position, lane, row)
            if choice.cost < self.costs.dots(self.results)
        ]
        choices.sort(key=lambda choice: choice.cost)
        plans = map(self._plan, choices[:MOST_TRIED])
        first = next(plans, None)
        if first is None or not self.has_masks or self._copies_all(first):
            return first
        return next(filter(self._copies_all, plans), first)

    def _copies_all(self, plan: Plan) -> bool:
        """Whether all loads that a plan copies can be copied: the addresses of tiles may entangle."""
        nodes = write_nest(self.analysis.kernel, plan).toposort()
        places = sum(node.op is Op.SCRATCH for node in nodes)
        return places >= len(plan.staged) + (plan.blocked is not None)

    # ---- the choice ----

    def _choices(self, position: int, lane: UOp, row: UOp) -> Iterator[Choice]:
        """Lanes along one axis and rows along another, in tiles; none if nothing is reused."""
        moved = self.moved[lane]
        if size_of(lane) < 4 or size_of(row) < 2 or not moved or moved & self.moved[row]:
            return
        costs = self.costs
        moving = [load for load in self.main.loads if load in moved]
        fixed = [load for load in self.main.loads if load not in moved]
        panels = tuple(load for load in moving if self._needs_panel(load, lane, row))
        taps = tuple(o for o in self.outputs if any(self._is_tap(o, load) for load in panels))
        lanes: tuple[UOp, ...] = (lane,)
        if panels and position and self._continues(self.outputs[position - 1], lane):
            lanes = (self.outputs[position - 1], lane)
        width = lanes_for(math.prod(map(size_of, lanes)), self.widest)
        others = [v for v in self.outputs if v not in (*lanes, *taps) and self.moved[v] & moved]
        again = math.prod(map(size_of, taps))
        copying = sum(costs.copy(load, lane, width) for load in panels) / again
        copying += sum(costs.halo(load, width) for load in fixed)
        for tile in costs.tiles([size_of(v) for v in lanes], lane, row, width):
            numbers = {load: costs.numbers(load, row, tile) for load in fixed}
            cost = tile.cost + copying + sum(map(min, numbers.values()))
            cost += self.results * costs.store(self.store, lane, tile)
            # Threads share tiles; where they share other loops, each step copies the panel anew.
            tiles = -(-math.prod(map(size_of, lanes)) // tile.size) * -(-size_of(row) // tile.rows)
            cost *= 1.0 if others else max(self.target.threads / tiles, 1.0)
            whole = tuple(load for load, (direct, copied) in numbers.items() if copied < direct)
            yield Choice(cost, lanes, row, tile, panels, taps, whole)

    def _needs_panel(self, load: UOp, lane: UOp, row: UOp) -> bool:
        """Masked or scattered lanes need one; rows far apart do not stay in the cache without."""
        if is_masked(load) or stride(load, lane) != 1:
            return True
        is_large = self.costs.steps(load) * self.analysis.itemsize > self.target.cache_bytes[0]
        return is_large and size_of(row) >= FEW_ROWS

    def _continues(self, outer: UOp, lane: UOp) -> bool:
        """Whether results go on in the next row of the same operand, so that lanes may too."""
        far = stride_of(self.store.src[1], outer)
        near = stride_of(self.store.src[1], lane)
        follows = near is not None and far == near * size_of(lane)
        return follows and self.moved[outer] == self.moved[lane]

    def _room(self, taps: tuple[UOp, ...]) -> int:
        """The bytes of a panel: taps read it again and again, others stream through it."""
        return self.target.cache_bytes[0] if taps else self.target.cache_bytes[-1] // 2

    def _is_tap(self, output: UOp, load: UOp) -> bool:
        """Whether a short loop over results only shifts the window that the sum runs through.

        One copy with a halo then serves all its steps.
        """
        step = stride(load, output) or 0
        long = [v for v in self.main.summed if size_of(v) >= 2 * size_of(output)]
        strides = [stride(load, v) or 0 for v in long]
        return any(0 < step <= by < step * size_of(output) and by % step == 0 for by in strides)

    # ---- the plan ----

    def _plan(self, choice: Choice) -> Plan:
        """Splits for panel and tile, then the order, then threads, then the copies."""
        threads = self.target.threads
        axis = self.analysis.axis_of
        first, last = axis(choice.lanes[0]), axis(choice.lanes[-1])
        groups = self.analysis.joined(first, last)
        # The axes of the lanes become one.
        number = {v: min(axis(v), max(first, axis(v) - last + first)) for v in self.outputs}
        moved = self.moved[choice.lanes[-1]]
        around = [v for v in self.outputs if self.moved[v] & moved]
        moving = {number[v] for v in around if v not in choice.taps}
        axes = Axes(groups, first, number[choice.row], moving, first != last)
        panel, part = self._panel(choice)
        loops = self._tiled(choice, axes, panel)
        outer = axes.outside(loops)
        # A panel that every thread fills for itself, once for each part of a sum, is for many rows.
        busy = outer or (loops.plain() if part is None else [])
        share, rest = divmod(size_of(choice.row), threads)
        can_share = threads > 1 and not rest and share >= choice.tile.rows
        if can_share and not loops.evenly_shared(busy, threads):
            # Each thread takes some of the rows, and has a panel of its own.
            loops = self._tiled(choice, axes, panel, share)
            outer = replace(axes, moving={*moving, axes.row}).outside(loops)
        plain = loops.plain()
        along = [n for n in loops.plain(axes.lane) if n not in outer]
        loops.put_first(*outer, *along, *plain)
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
        # A copy with zeros around is made inside of the loops that move it as a whole.
        halos = [load for load in self.main.loads if is_masked(load)]
        halos = [load for load in halos if load not in moved]
        near = {number[v] for v in self.outputs for load in halos if self.costs.windows(load, v)}
        inner = loops.nest[outside + beside : len(plain)]
        apart = list(itertools.takewhile(lambda loop: loop.axis not in near, inner))
        return replace(
            self.analysis.plan,
            merged=groups,
            root=loops.transforms,
            lanes=self.widest,
            blocked=blocked,
            staged=self._staged(choice, depth, depth + beside + len(apart)),
        )

    def _tiled(self, choice: Choice, axes: Axes, panel: int, part_of_rows: int = 1) -> Loops:
        loops = Loops(root_nest(self.analysis.kernel, Plan(merged=axes.groups)))
        loops.split(axes.row, part_of_rows)
        loops.split(axes.row, choice.tile.rows, "unroll")
        if choice.tile.size < panel < math.prod(map(size_of, choice.lanes)):
            loops.split(axes.lane, panel)
        loops.tile(axes.lane, choice.tile.width, choice.tile.vectors)
        return loops

    def _panel(self, choice: Choice) -> tuple[int, tuple[int, int] | None]:
        """Results that share a panel, and the part of the sum that it is for.

        A panel has whole rows of results, few idle lanes, and fits in its cache.
        """
        if not choice.panels:
            return choice.tile.size, None
        room = self._room(choice.taps)

        def preference(size: int) -> tuple[float, bool, int]:
            idle = round(-(-size // choice.tile.size) * choice.tile.size / size, 1)
            return idle, self._part(size, room) is not None, -size

        best = min(self._panel_sizes(choice), key=preference)
        return best, self._part(best, room)

    def _panel_sizes(self, choice: Choice) -> list[int]:
        if len(choice.lanes) == 1:
            return [choice.tile.size]
        rows, length = map(size_of, choice.lanes)
        sizes = [count * length for count in range(1, rows + 1) if rows % count == 0]
        sizes = [size for size in sizes if size >= choice.tile.size]
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
        fixed = [load for load in self.main.loads if load not in self.moved[choice.lanes[-1]]]
        staged = [StageLoad(load.src[0].src[0].arg.slot, 0) for load in choice.whole]
        for load in choice.panels:
            one = StageLoad(load.src[0].src[0].arg.slot, depth)
            staged += [one, one] if is_masked(load) else [one]
        for load in fixed:
            if is_masked(load):
                staged.append(StageLoad(load.src[0].src[0].arg.slot, inside))
        return tuple(staged)
