"""Choose the loops of a kernel without running it.

In:  one kernel and the Target.
Out: a Plan: which axis has the lanes, the register tile, the loop shared out to threads.

The kernel is written once without any transform; the address of every load then tells how it moves
along each loop: contiguous lanes are one instruction, a value that does not move is reused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from kernelet.base.target import Target
from kernelet.graph.masks import may_mask
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
from kernelet.lower.chains import chain_plan, worth_storing
from kernelet.lower.columns import plan_columns
from kernelet.lower.contraction import plan_contraction
from kernelet.lower.nest import form_of_part
from kernelet.lower.running import Running, running_axis, running_transforms
from kernelet.lower.searching import plan_scatter
from kernelet.lower.transforms import (
    Follow,
    GroupLanes,
    Nest,
    Parallel,
    Plan,
    Reorder,
    Split,
    Transform,
    apply_transforms,
)

THREAD_WORK = 1 << 16  # fewer steps than this are not worth waking a thread
SCRATCH_BYTES = 1 << 15  # the largest row kept in scratch
TILE_ROWS = 8
DOT_TILE = 4
GATHER_COST = 3.0  # reading lanes one by one and putting them together
SHARING_ROWS = 4  # how many times cheaper gathered lanes are at most, for the rows of a tile
FINISH_COST = 24  # joining the lanes of one accumulator


# ---- merging axes ----


def merge_axes(analysis: Analysis) -> tuple[tuple[int, ...], ...]:
    """Join neighbouring output axes that every address runs through as if they were one."""
    return joined_axes(analysis, lambda outer, inner: _can_merge(analysis, outer, inner))


def _can_merge(analysis: Analysis, outer: UOp, inner: UOp) -> bool:
    if inner.src[0].op is not Op.CONST or outer.src[0].op is not Op.CONST:
        return False
    if analysis.stage_depends(outer) or analysis.stage_depends(inner):
        return False
    if not all(run_as_one(site, outer, inner) for site in analysis.sites):
        return False
    return not _gates_depend(analysis, {outer, inner})


def _gates_depend(analysis: Analysis, variables: set[UOp]) -> bool:
    """Whether a condition or a number computed from the index uses one of the loops."""
    for node in analysis.writer.written_values():
        if node.op in (Op.CAST, Op.CMPLT) and any(
            variables & ranges_in(source) for source in node.src if source.op is not Op.LOAD
        ):
            return True
    return False


# ---- lanes ----


def _lanes_for(size: int, widest: int) -> int:
    """The greatest power of two that is at most the register and at most the axis."""
    return min(widest, 1 << (size.bit_length() - 1))


def _move_cost(address: UOp, gate: UOp | None, variable: UOp, lanes: int) -> float:
    stride = stride_of(address.src[1], variable)
    if stride is None or stride not in (0, 1):
        return GATHER_COST
    masked = gate is not None and variable in ranges_in(gate)
    return (1.5 if masked else 1.0) / lanes


def _site_cost(site: Site, variable: UOp, lanes: int) -> float:
    """Instructions of a statement with lanes along one of its loops."""
    cost = 1 / lanes + _move_cost(site.target, None, variable, lanes) if site.stage == 0 else 0.0
    for load in site.loads:
        gate = load.src[1] if len(load.src) == 2 else None
        moved = _move_cost(load.src[0], gate, variable, lanes)
        cost += moved / _rows_of(site, load, variable) if moved == GATHER_COST else moved
    return site.weight * (cost + 1 / lanes)


def _rows_of(site: Site, load: UOp, variable: UOp) -> int:
    """The rows of a tile that share a load."""
    moves = ranges_in(load.src[0].src[1]) | {variable}
    if site.stage == 0 or variable.arg.kind != "loop":
        return 1
    sizes = [size_of(v) for v in site.loops if v not in moves and v.arg.kind == "loop"]
    return min(SHARING_ROWS, max(sizes, default=1))


def _scalar_cost(site: Site) -> float:
    return site.weight * (len(site.loads) + 2)


@dataclass(frozen=True, slots=True)
class Dot:
    """Lanes along a reduced axis: the loop, the axis, and what it costs."""

    cost: float
    variable: UOp | None = None
    axis: int = -1
    lanes: int = 1


def _best_dot(analysis: Analysis, stage: int, widest: int) -> Dot:
    """The cheapest lanes along an axis that a stage reduces."""
    sites = [site for site in analysis.sites if site.stage == stage]
    best = Dot(sum(map(_scalar_cost, sites)))
    node = next(n for n, number in analysis.writer.numbering.items() if number == stage)
    if node.op is not Op.REDUCE or analysis.writer.absorbed.get(node):
        return best
    main = max(sites, key=lambda site: site.weight)
    reduced = [v for v in main.loops if v.arg.kind == "reduce" and v.src[0].op is Op.CONST]
    axes = [axis for axis in node.arg.axes if node.src[0].shape[axis] != 1]
    all_reduced = [v for v in main.loops if v.arg.kind == "reduce"]
    for variable in reduced:
        if len(all_reduced) < len(axes) or _has_children(analysis, variable):
            continue
        size = variable.src[0].arg
        own = all_reduced[len(all_reduced) - len(axes) :]
        if variable not in own:
            continue
        axis = axes[own.index(variable)]
        outputs = main.weight / math.prod(size_of(v) for v in own)
        for lanes in (widest, widest // 2, widest // 4):
            if not 4 <= lanes <= size:
                continue
            whole = size // lanes * lanes / size
            vector = _site_cost(main, variable, lanes) * whole
            rest = _scalar_cost(main) * (1 - whole)
            cost = vector + rest + outputs * FINISH_COST * lanes / 16
            if cost < best.cost:
                best = Dot(cost, variable, axis, lanes)
    return best


def _has_children(analysis: Analysis, variable: UOp) -> bool:
    return any(variable in other.place for other in analysis.writer.stages.values())


# ---- the plan ----


@dataclass(frozen=True, slots=True)
class Lanes:
    """Where the lanes go: an output loop or none, and the reductions with lanes of their own."""

    cost: float
    variable: UOp | None
    lanes: int
    dots: dict[int, Dot]


def choose_lanes(analysis: Analysis, widest: int) -> Lanes:
    """The cheapest axis for the lanes."""
    numbers = {site.stage for site in analysis.sites} - {0}
    dots = {number: _best_dot(analysis, number, widest) for number in numbers}
    best: Lanes | None = None
    for variable in (*reversed(analysis.ranges), None):
        if variable is not None and (variable.src[0].op is not Op.CONST or size_of(variable) < 4):
            continue
        lanes = 1 if variable is None else _lanes_for(size_of(variable), widest)
        if variable is not None and analysis.in_place:
            lanes = math.gcd(lanes, size_of(variable))
            if lanes < 4:
                continue
        cost, used = 0.0, {}
        for number in numbers:
            inside = [s for s in analysis.sites if s.stage == number and variable in s.loops]
            if variable is not None and inside:
                cost += sum(_site_cost(site, variable, lanes) for site in inside)
            else:
                cost += dots[number].cost
                used[number] = dots[number]
        for site in analysis.sites:
            if site.stage == 0:
                cost += (
                    _scalar_cost(site) if variable is None else _site_cost(site, variable, lanes)
                )
        if best is None or cost < best.cost * 0.999:
            best = Lanes(cost, variable, lanes, used)
    assert best is not None
    return best


def _reuse(sites: Iterable[Site], variable: UOp, lane: UOp | None) -> float:
    """How many loads do not move with a loop, weighted by how often they run.

    A vector counts twice: a number for all lanes can be read by the instruction that uses it.
    """
    found = 0.0
    for site in sites:
        if variable not in site.loops:
            continue
        for load in site.loads:
            moves = ranges_in(load.src[0].src[1])
            if variable not in moves:
                found += site.weight * (2 if lane in moves else 1)
    return found


def plan_kernel(kernel: UOp, target: Target) -> Plan:
    """The plan that the heuristics give for a kernel on a device."""
    if kernel.src[0].op is Op.SINK:  # its parts are too small for several threads
        alone = replace(target, threads=1)
        forms = [form_of_part(part)[0] for part in kernel.src]
        plans = {form: plan_kernel(form, alone) for form in dict.fromkeys(forms)}
        return Plan(parts=tuple([plans[form] for form in forms]))
    chain = chain_plan(kernel, target)
    if chain is not None:
        return chain
    analysis = Analysis(kernel, Plan())
    scatter = plan_scatter(analysis, target)
    if scatter is not None:
        return scatter
    contraction = plan_contraction(analysis, target)
    if contraction is not None:
        return contraction
    merged = merge_axes(analysis)
    if any(len(group) > 1 for group in merged):
        analysis = Analysis(kernel, Plan(merged=merged))
    columns = plan_columns(analysis, target)
    if columns is not None:
        return columns
    running = running_axis(analysis)
    if running is not None:
        follow = Follow(running.axis, 1, running.backwards)
        analysis = Analysis(kernel, replace(analysis.plan, root=(follow,)))
    order = _dependent_first(analysis) if running is None else None
    if order is not None:
        plan = replace(analysis.plan, root=(Reorder(order),))
        analysis = Analysis(kernel, plan)
    stored = worth_storing(kernel, analysis.plan, analysis.writer, SCRATCH_BYTES)
    if stored:
        analysis = Analysis(kernel, replace(analysis.plan, stored=stored))
    planner = _Planner(analysis, target)
    if running is not None:
        return planner.running_plan(running)
    return replace(planner.plan(), trimmed=may_mask(kernel))


def _dependent_first(analysis: Analysis) -> tuple[int, ...] | None:
    """Output loops that reductions depend on go outside of those that they do not."""
    if not analysis.writer.stages:
        return None
    needed = [analysis.stage_depends(variable) for variable in analysis.ranges]
    order = sorted(range(len(needed)), key=lambda position: not needed[position])
    return tuple(order) if order != list(range(len(needed))) else None


class _Planner:
    def __init__(self, analysis: Analysis, target: Target) -> None:
        self.analysis = analysis
        self.target = target
        self.widest = target.lanes(analysis.itemsize)
        self.lanes = choose_lanes(analysis, self.widest)

    def plan(self) -> Plan:
        """Splits for the tile, then the order, then threads."""
        analysis = self.analysis
        root: list[Transform] = list(analysis.plan.root)
        nest = analysis.nest
        vector = self.lanes.variable
        tiled = [s for s in analysis.sites if s.stage and self._in_tile(s)]
        splits: list[Split] = []
        if vector is not None:
            axis = self._axis(vector)
            count = self._vectors(vector, tiled)
            row = self._row_axis(tiled, {vector}) if tiled else None
            if row is not None:
                splits.append(Split(self._axis(row), self._tile_rows(row), "unroll"))
                # One vector wide, the tile needs a second axis to have enough sums under way.
                other = self._row_axis(tiled, {vector, row}) if count == 1 else None
                if other is not None:
                    splits.append(Split(self._axis(other), self._tile_rows(other, 2), "unroll"))
            if count > 1:
                splits.append(Split(axis, self.lanes.lanes * count, "unroll"))
            splits.append(Split(axis, self.lanes.lanes, "vector"))
        else:
            splits += self._dot_tile()
        splits = [split for split in splits if split.factor > 1]
        root += splits
        nest = apply_transforms(nest, splits)
        root += self._threads(nest)
        has_tile = any(split.kind == "unroll" for split in splits)
        grouped = tuple(
            (number, self._group(dot, has_tile))
            for number, dot in sorted(self.lanes.dots.items())
            if dot.variable is not None
        )
        return replace(analysis.plan, root=tuple(root), grouped=grouped, lanes=self.widest)

    def running_plan(self, running: Running) -> Plan:
        """The loops for running reductions; others in the kernel have lanes of their own."""
        analysis = self.analysis
        shared = self.target.threads > 1 and analysis.work >= THREAD_WORK
        root = running_transforms(analysis, running, self.target, shared=shared)
        numbers = {site.stage for site in analysis.sites} - {0}
        dots = {number: _best_dot(analysis, number, self.widest) for number in sorted(numbers)}
        grouped = tuple(
            (n, self._group(dot, False)) for n, dot in dots.items() if dot.variable is not None
        )
        return replace(analysis.plan, root=root, grouped=grouped, lanes=self.widest)

    def _axis(self, variable: UOp) -> int:
        return self.analysis.nest[self.analysis.ranges.index(variable)].axis

    def _in_tile(self, site: Site) -> bool:
        return self.lanes.variable is not None and self.lanes.variable in site.loops

    def _vectors(self, variable: UOp, tiled: list[Site]) -> int:
        """Vectors side by side in the tile."""
        if not tiled:
            return 1
        size, lanes = size_of(variable), self.lanes.lanes
        most = 2 if self._row_axis(tiled, {variable}) is not None else 4
        counts = [c for c in range(1, most + 1) if c * lanes <= size]
        if self.analysis.in_place:
            counts = [c for c in counts if size % (c * lanes) == 0]
        return min(counts, key=lambda c: (-(-size // (c * lanes)) * c, -c), default=1)

    def _row_axis(self, sites: list[Site], without: set[UOp]) -> UOp | None:
        """The output loop along which most loads are reused."""
        best, found = 0.0, None
        lane = self.lanes.variable
        for variable in reversed(self.analysis.ranges):
            if variable in without or variable.src[0].op is not Op.CONST:
                continue
            reuse = _reuse(sites, variable, lane)
            if reuse > best:
                best, found = reuse, variable
        return found

    def _tile_rows(self, variable: UOp, most: int = TILE_ROWS) -> int:
        return tile_rows(size_of(variable), most, whole=self.analysis.in_place)

    def _dot_tile(self) -> list[Split]:
        """A square of dot products that share their operands."""
        sites = [
            site
            for site in self.analysis.sites
            if site.stage in self.lanes.dots and len(site.loads) > 1
        ]
        splits = []
        used: set[UOp] = set()
        for _ in range(2):
            row = self._row_axis(sites, used)
            if row is None:
                break
            used.add(row)
            splits.append(Split(self._axis(row), self._tile_rows(row, DOT_TILE), "unroll"))
        return splits

    def _group(self, dot: Dot, has_tile: bool) -> GroupLanes:
        assert dot.variable is not None
        steps = size_of(dot.variable) // dot.lanes
        unroll = 1
        if not has_tile:
            # 49 vectors: 7 at once leave no rest.
            whole = (u for u in (4, 8, 6, 5, 7) if steps % u == 0)
            unroll = next(whole, next((u for u in (4, 2) if steps % u == 0 or steps >= 8 * u), 1))
        return GroupLanes(dot.axis, unroll, dot.lanes)

    def _threads(self, nest: Nest) -> list[Transform]:
        """Share out the longest outer loop that may come first."""
        # A launch shares out a number of iterations that is known before it.
        outer = [n for n, loop in enumerate(nest) if loop.kind == "loop" and known_size(loop.size)]
        if not outer or self.target.threads < 2 or self.analysis.work < THREAD_WORK:
            return []
        free = outer
        if self.analysis.writer.stages:
            needed = [n for n in outer if self._stages_need(nest[n].axis)]
            free = needed or outer
        # A loop moved outwards reads the others' operands again, so an even share will do.
        threads = self.target.threads
        even = (n for n in free if self._shares(known_size(nest[n].size), threads))
        first = next(even, max(free, key=lambda n: (known_size(nest[n].size), -n)))
        if known_size(nest[first].size) < 2:
            return []
        order = (first, *(n for n in range(len(nest)) if n != first))
        moved: list[Transform] = [] if first == 0 else [Reorder(order)]
        return [*moved, Parallel()]

    @staticmethod
    def _shares(size: int, threads: int) -> bool:
        """Whether a loop of this size keeps all threads about equally busy."""
        return size >= 4 * threads or (size >= threads and size % threads == 0)

    def _stages_need(self, axis: int) -> bool:
        position = [loop.axis for loop in self.analysis.nest].index(axis)
        return self.analysis.stage_depends(self.analysis.ranges[position])
