"""Choose the loops of a kernel without running it.

In:  one kernel and the Target.
Out: a Plan: which axis has the lanes, the register tile, the loop shared out to threads.

The kernel is written once without any transform; the address of every load then tells how it moves
along each loop: contiguous lanes are one instruction, a value that does not move is reused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kernelet.base.dtype import dtypes
from kernelet.base.target import Target
from kernelet.graph.division import index_const, substitute_index, terms_of
from kernelet.graph.masks import may_mask
from kernelet.graph.ops import Op
from kernelet.graph.placement import ranges_in
from kernelet.graph.uop import UOp
from kernelet.lower.analysis import Analysis, Site, joined_axes, run_as_one, size_of, tile_rows
from kernelet.lower.chains import chain_plan, worth_storing
from kernelet.lower.columns import plan_columns
from kernelet.lower.contraction import plan_contraction
from kernelet.lower.expand import NEAR_VECTORS
from kernelet.lower.loops import stride_of
from kernelet.lower.nest import form_of_part
from kernelet.lower.running import running_axis, running_transforms
from kernelet.lower.searching import plan_scatter
from kernelet.lower.transforms import GroupLanes, Loops, Plan, lanes_for

THREAD_WORK = 1 << 16  # fewer steps than this are not worth waking a thread
SCRATCH_BYTES = 1 << 15  # the largest row kept in scratch
TILE_ROWS = 8
DOT_TILE = 4
GATHER_COST = 3.0  # reading lanes one by one and putting them together
NEAR_COST = 1.5  # reading a vector and picking some of its lanes
SHARING_ROWS = 4  # how many times cheaper gathered lanes are at most, for the rows of a tile
CHAIN_COST = 12  # a step of a sum that waits for the one before
LONG_CHAIN = 64  # steps, of which the last ones are not done beside the next sum
FINISH_COST = 24  # joining the lanes of one accumulator


# ---- merging axes ----


def with_merged_axes(analysis: Analysis) -> Analysis:
    """The analysis with neighbouring output axes as one that every address runs through so."""

    def can_merge(outer: UOp, inner: UOp) -> bool:
        run_together = all(run_as_one(site, outer, inner) for site in analysis.sites)
        return run_together and not _gates_depend(analysis, {outer, inner})

    whole = analysis.merged(joined_axes(analysis, can_merge))
    # A sum whose own axes cannot be joined would divide to find its place.
    if _divisions(whole) <= _divisions(analysis):
        return whole
    depends = analysis.stage_depends
    return analysis.merged(
        joined_axes(analysis, lambda o, i: not depends(o) and not depends(i) and can_merge(o, i))
    )


def _divisions(analysis: Analysis) -> int:
    return sum(node.op in (Op.IDIV, Op.MOD) for node in analysis.writer.written_values())


def _gates_depend(analysis: Analysis, variables: set[UOp]) -> bool:
    """Whether a condition on an index, or a number computed from it, uses one of the loops."""
    return any(
        variables & ranges_in(source)
        for node in analysis.writer.written_values()
        if node.op in (Op.CAST, Op.CMPLT)
        for source in node.src
        if source.dtype is dtypes.index
    )


# ---- lanes ----


def _move_cost(address: UOp, gate: Sequence[UOp], variable: UOp, lanes: int) -> float:
    if stride_of(address.src[1], variable) not in (0, 1):
        return GATHER_COST
    masked = any(variable in ranges_in(part) for part in gate)
    return (1.5 if masked else 1.0) / lanes


def _load_cost(load: UOp, variable: UOp, lanes: int) -> float:
    (memory, place), gate = load.src[0].src, load.src[1:]
    cost = _move_cost(load.src[0], gate, variable, lanes)
    if cost < GATHER_COST or gate or memory.op is Op.SCRATCH:
        return cost
    first, last = (
        terms_of(substitute_index(place, {variable: index_const(lane)})) for lane in (0, lanes - 1)
    )
    vectors = abs(last.constant - first.constant) // lanes + 1
    is_near = first.coefficients == last.coefficients and vectors <= NEAR_VECTORS
    return NEAR_COST * vectors / lanes if is_near else cost


def _site_cost(site: Site, variable: UOp, lanes: int) -> float:
    """Instructions of a statement with lanes along one of its loops."""
    cost = 1 / lanes + _move_cost(site.target, (), variable, lanes) if site.stage == 0 else 0.0
    for load in site.loads:
        moved = _load_cost(load, variable, lanes)
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
    """What a reduction costs with the partial results that suit it, if any."""

    cost: float
    group: GroupLanes | None = None


def _dots(analysis: Analysis, widest: int) -> dict[int, Dot]:
    numbers = sorted({site.stage for site in analysis.sites} - {0})
    return {number: _best_dot(analysis, number, widest) for number in numbers}


def _best_dot(analysis: Analysis, stage: int, widest: int) -> Dot:
    """The cheapest lanes along an axis that a stage reduces."""
    sites = [site for site in analysis.sites if site.stage == stage]
    main, axes = analysis.main_site(stage), analysis.reduced_axes(stage)
    steps = math.prod(size_of(v) for v in axes.values())
    outputs = main.weight / steps
    best = Dot(sum(map(_scalar_cost, sites)))
    if steps >= LONG_CHAIN:
        best = Dot(max(best.cost, main.weight * CHAIN_COST))
    for axis, variable in axes.items():
        size = size_of(variable)
        for lanes in (widest, widest // 2, widest // 4):
            if not 4 <= lanes <= size or not analysis.can_have_lanes(variable):
                continue
            whole = size // lanes * lanes / size
            vector = _site_cost(main, variable, lanes) * whole
            rest = _scalar_cost(main) * (1 - whole)
            cost = vector + rest + outputs * FINISH_COST * lanes / 16
            if cost < best.cost:
                best = Dot(cost, GroupLanes(axis, _at_once(size // lanes), lanes))
    return best


def _at_once(steps: int) -> int:
    """Vectors in one step of a reduction: of 49 rather 7, which leave no rest."""
    whole = [n for n in (4, 8, 6, 5, 7) if steps % n == 0]
    large = [n for n in (4, 2) if steps % n == 0 or steps >= 8 * n]
    return [*whole, *large, 1][0]


def _grouped(dots: dict[int, Dot], most: int = 8) -> tuple[tuple[int, GroupLanes], ...]:
    """The partial results of all reductions that have some, of at most so many vectors."""
    return tuple(
        (number, replace(dot.group, unroll=min(dot.group.unroll, most)))
        for number, dot in sorted(dots.items())
        if dot.group is not None
    )


@dataclass(frozen=True, slots=True)
class Lanes:
    """Where the lanes go: an output loop or none, and the reductions with lanes of their own."""

    cost: float
    variable: UOp | None
    lanes: int
    dots: dict[int, Dot]


def choose_lanes(analysis: Analysis, widest: int) -> Lanes:
    """The cheapest axis for the lanes."""
    dots = _dots(analysis, widest)
    outputs = [site for site in analysis.sites if site.stage == 0]
    best: Lanes | None = None
    for variable in (*reversed(analysis.ranges), None):
        if variable is None:
            lanes, used, cost = 1, dots, sum(map(_scalar_cost, outputs))
        else:
            lanes = _lanes_along(analysis, variable, widest)
            inside = [site for site in analysis.sites if variable in site.loops]
            used = {n: dots[n] for n in dots.keys() - {site.stage for site in inside}}
            cost = sum(_site_cost(site, variable, lanes) for site in inside) if lanes else math.inf
        cost += sum(dot.cost for dot in used.values())
        if best is None or cost < best.cost * 0.999:
            best = Lanes(cost, variable, lanes, used)
    assert best is not None
    return best


def _lanes_along(analysis: Analysis, variable: UOp, widest: int) -> int:
    """How many results along a loop are computed at once; 0 where none can be."""
    size = size_of(variable)
    lanes = lanes_for(size, widest)
    if analysis.in_place:
        lanes = math.gcd(lanes, size)
    is_long = size >= 4 and (lanes >= 4 or not analysis.in_place)
    return lanes if is_long and variable.src[0].op is Op.CONST else 0


def _reuse(sites: Iterable[Site], variable: UOp, lane: UOp | None) -> float:
    """How many loads do not move with a loop, weighted by how often they run.

    A vector counts twice: a number for all lanes can be read by the instruction that uses it.
    """
    inside = [site for site in sites if variable in site.loops]
    loads = [(site.weight, ranges_in(load.src[0].src[1])) for site in inside for load in site.loads]
    return sum(w * (2 if lane in moves else 1) for w, moves in loads if variable not in moves)


# ---- the plan ----


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
    plan = plan_scatter(analysis, target) or plan_contraction(analysis, target)
    if plan is not None:
        return plan
    analysis = with_merged_axes(analysis)
    return plan_columns(analysis, target) or _tile_plan(analysis, target)


def _tile_plan(analysis: Analysis, target: Target) -> Plan:
    """Lanes where they cost least, then a register tile; or loops that run along an axis."""
    kernel, running = analysis.kernel, running_axis(analysis)
    loops = Loops(analysis.nest)
    if running is not None:
        running.follow(loops)
    else:
        # Loops that reductions depend on go outside of those that they do not.
        needed = [n for n, v in enumerate(analysis.ranges) if analysis.stage_depends(v)]
        loops.put_first(*needed)
    if loops.transforms:
        analysis = Analysis(kernel, replace(analysis.plan, root=loops.transforms))
    stored = worth_storing(kernel, analysis.plan, analysis.writer, SCRATCH_BYTES)
    if stored:
        analysis = Analysis(kernel, replace(analysis.plan, stored=stored))
    widest = target.lanes(analysis.itemsize)
    threads = target.threads if analysis.work >= THREAD_WORK else 1
    if running is not None:
        dots = _dots(analysis, widest)
        root = running_transforms(analysis, running, target, threads)
        return replace(analysis.plan, root=root, grouped=_grouped(dots), lanes=widest)
    tile = _Tile(analysis, choose_lanes(analysis, widest))
    tile.share_out(threads)
    has_tile = any(loop.kind == "unroll" for loop in tile.loops.nest)
    return replace(
        analysis.plan,
        root=(*analysis.plan.root, *tile.loops.transforms),
        grouped=_grouped(tile.lanes.dots, 1 if has_tile else 8),
        lanes=widest,
        trimmed=may_mask(kernel),
    )


class _Tile:
    """The loops over the outputs: the register tile, then threads."""

    def __init__(self, analysis: Analysis, lanes: Lanes) -> None:
        self.analysis = analysis
        self.lanes = lanes
        self.loops = Loops(analysis.nest)
        if lanes.variable is None:
            self._dots_side_by_side()
        else:
            self._vectors(lanes.variable)

    def _vectors(self, variable: UOp) -> None:
        """Rows of vectors that share what is loaded."""
        lanes, size = self.lanes.lanes, size_of(variable)
        sites = [site for site in self.analysis.sites if site.stage and variable in site.loops]
        row = self._row(sites, {variable})
        count = 1
        if sites:
            counts = [n for n in range(1, 5 if row is None else 3) if n * lanes <= size]
            if self.analysis.in_place:
                counts = [n for n in counts if size % (n * lanes) == 0]
            count = min(counts, key=lambda n: (-(-size // (n * lanes)) * n, -n), default=1)
        if row is not None:
            self._add_rows(row, TILE_ROWS)
            # One vector wide, the tile needs a second axis to have enough sums under way.
            other = self._row(sites, {variable, row}) if count == 1 else None
            if other is not None:
                self._add_rows(other, 2)
        self.loops.tile(self.analysis.axis_of(variable), lanes, count)

    def _dots_side_by_side(self) -> None:
        """A square of dot products that share their operands."""
        dots = [site for site in self.analysis.sites if site.stage in self.lanes.dots]
        sites = [site for site in dots if len(site.loads) > 1]
        row = self._row(sites, set())
        if row is not None:
            self._add_rows(row, DOT_TILE)
            other = self._row(sites, {row})
            if other is not None:
                self._add_rows(other, DOT_TILE)

    def _row(self, sites: list[Site], without: set[UOp]) -> UOp | None:
        """The output loop along which most loads are reused, the last of such."""
        reuse = {
            _reuse(sites, variable, self.lanes.variable): variable
            for variable in self.analysis.ranges
            if variable not in without and variable.src[0].op is Op.CONST
        }
        best = max(reuse, default=0.0)
        return reuse[best] if best else None

    def _add_rows(self, variable: UOp, most: int) -> None:
        rows = tile_rows(size_of(variable), most, whole=self.analysis.in_place)
        self.loops.split(self.analysis.axis_of(variable), rows, "unroll")

    def share_out(self, threads: int) -> None:
        """Threads for an outer loop that the reductions need: others would repeat them."""
        analysis, nest = self.analysis, self.loops.nest
        # A launch shares out a number of iterations that is known before it.
        outer = [n for n in self.loops.plain() if nest[n].steps]
        needed = {analysis.axis_of(v) for v in analysis.ranges if analysis.stage_depends(v)}
        self.loops.share_out([n for n in outer if nest[n].axis in needed] or outer, threads)
