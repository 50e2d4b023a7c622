"""Search for the fastest plan of a kernel: BEAM.

In:  a kernel, the Target, a plan to start from, and a stopwatch that times plans.
Out: the plans that were timed: the winner, then the others, fastest first.

A stopwatch gives seconds for each plan, infinity for one that cannot be lowered or run or is the
same program as another. With the same stopwatch the search does the same: nothing is drawn at
random, and of equal times that of the shorter plan is first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from kernelet.base.target import Target
from kernelet.graph.uop import UOp
from kernelet.lower.analysis import Analysis, size_of
from kernelet.lower.running import running_axis
from kernelet.lower.transforms import (
    GroupLanes,
    Loop,
    Loops,
    Nest,
    Parallel,
    Plan,
    Reorder,
    Split,
    StageLoad,
    Transform,
    lanes_for,
)

Item = TypeVar("Item")
Stopwatch = Callable[[Sequence[Plan]], Sequence[float]]
Timed = tuple[float, Plan]

GAIN = 0.98  # a round has to make the kernel so much faster for another to follow
MOST_COPIES = 64  # of the body in one register tile
FINALISTS = 4


def search(
    kernel: UOp, target: Target, start: Plan, width: int, stopwatch: Stopwatch
) -> list[Timed]:
    """Rounds over the neighbours of the `width` fastest plans, until none is faster."""
    timed: dict[Plan, float] = {start: stopwatch([start])[0]}
    best = timed[start]
    while best < math.inf:
        beam = [plan for _, plan in _ranked(timed)[:width]]
        found = [other for plan in beam for other in neighbours(plan, kernel, target)]
        fresh = list(dict.fromkeys(plan for plan in found if plan not in timed))
        timed |= zip(fresh, stopwatch(fresh), strict=True)
        fastest = _ranked(timed)[0][0]
        if not fresh or fastest > best * GAIN:
            break
        best = fastest
    # The least of many noisy times is flattered: the fastest are timed once more, beside the start.
    finalists = [plan for _, plan in _ranked(timed)[:FINALISTS]]
    again = list(dict.fromkeys([*finalists, start]))
    final = dict(zip(again, stopwatch(again), strict=True))
    ranked = _ranked(final) + [item for item in _ranked(timed) if item[1] not in final]
    if ranked and final[start] * GAIN <= ranked[0][0]:
        ranked.sort(key=lambda item: item[1] != start)  # what is not clearly faster has not won
    return ranked


def _ranked(timed: dict[Plan, float]) -> list[Timed]:
    pairs = [(seconds, plan) for plan, seconds in timed.items() if seconds < math.inf]
    return sorted(pairs, key=lambda pair: (pair[0], len(repr(pair[1])), repr(pair[1])))


# ---- the neighbours of a plan ----


class Facts:
    """What the changes need to know about a kernel: all that is the same for each of its plans."""

    def __init__(self, plan: Plan, kernel: UOp, target: Target) -> None:
        self.analysis = analysis = Analysis(kernel, Plan(merged=plan.merged))
        running = running_axis(analysis)
        self.running = None if running is None else running.axis
        self.threads = target.threads
        self.widest = target.lanes(analysis.itemsize)
        inner = [site for site in analysis.sites if site.stage]
        # Of every reduction where it may have lanes: its stage, an axis and its size.
        self.reductions = [
            (number, axis, size_of(variable))
            for number in sorted({site.stage for site in inner})
            for axis, variable in analysis.reduced_axes(number).items()
            if analysis.can_have_lanes(variable)
        ]
        # The memory arguments that are read inside reductions.
        self.slots = {load.src[0].src[0].arg.slot for site in inner for load in site.loads}

    def loops(self) -> Loops:
        """The loops of the output before any transform."""
        return Loops(self.analysis.nest)


Change = Callable[[Plan, Facts], Iterator[Plan]]


def neighbours(plan: Plan, kernel: UOp, target: Target) -> list[Plan]:
    """Every plan that differs from this one by one change, each once, always in the same order."""
    if plan.parts:
        alone = replace(target, threads=1)  # parts run one after the other
        return [
            replace(plan, parts=_with(plan.parts, n, other))
            for n, (part, inner) in enumerate(zip(plan.parts, kernel.src, strict=True))
            for other in neighbours(part, inner, alone)
        ]
    facts = Facts(plan, kernel, target)
    return list(dict.fromkeys(other for change in CHANGES for other in change(plan, facts)))


def _with(items: tuple[Item, ...], n: int, *others: Item) -> tuple[Item, ...]:
    """The items with others in the place of one."""
    return (*items[:n], *others, *items[n + 1 :])


def _with_root(plan: Plan, facts: Facts, root: Sequence[Transform]) -> Iterator[Plan]:
    """The plan with other loops of the output, if they are possible.

    Orders are mended to the loops that there are, and what has no effect is left out.
    """
    loops = facts.loops()
    for transform in root:
        first = next(iter(loops.nest), Loop(-1, 1))
        if isinstance(transform, Reorder):
            loops.put_first(*(n for n in transform.order if n < len(loops.nest)))
        elif isinstance(transform, Parallel):
            if first.axis == facts.running:
                return
            if first.kind == "loop" and first.steps > 1:
                loops.apply(transform)
        elif isinstance(transform, Split) and not _is_possible(transform, loops.nest, facts):
            return
        else:
            loops.apply(transform)
    if math.prod(loop.steps for loop in loops.nest if loop.kind == "unroll") <= MOST_COPIES:
        yield replace(plan, root=loops.transforms)


def _is_possible(split: Split, nest: Nest, facts: Facts) -> bool:
    """Whether there is a loop to cut; tiles that overlap may not read what they have written."""
    own = [loop for loop in nest if loop.axis == split.axis]
    inner = min(own, key=lambda loop: loop.stride, default=Loop(split.axis, 1))
    if not 1 < split.factor <= inner.steps or inner.mirror is not None:
        return False
    is_running = split.axis == facts.running
    is_whole = inner.steps % split.factor == 0
    if not is_whole and (is_running or facts.analysis.in_place):
        return False
    if split.kind != "vector":
        return inner.kind == "loop" and not is_running  # scans run through single steps or lanes
    return inner.kind in ("loop", "unroll")  # a tile may be cut into lanes, but lanes are whole


def _other_sizes(plan: Plan, facts: Facts) -> Iterator[Plan]:
    """Other factors: unroll 4 -> 2, 3, 5, 8; vector 16 -> 8; a split in two -> none."""
    for n, old in enumerate(plan.root):
        for changed in _sizes(old, plan.root[n + 1 :], facts.widest):
            yield from _with_root(plan, facts, _with(plan.root, n, *changed))


def _sizes(
    old: Transform, after: Sequence[Transform], widest: int
) -> Iterator[Sequence[Transform]]:
    if not isinstance(old, Split):
        return
    splits = (t for t in after if isinstance(t, Split) and t.axis == old.axis)
    step = max((split.factor for split in splits), default=1)
    factors = [old.factor * 2, old.factor // 2 // step * step]
    if old.kind == "vector":
        factors = [n for n in factors if 1 < n <= widest]
    else:
        factors += [old.factor + step, old.factor - step]
    for factor in dict.fromkeys(factors):
        yield [replace(old, factor=factor)] if factor > step else []


def _splits(plan: Plan) -> list[Split]:
    return [transform for transform in plan.root if isinstance(transform, Split)]


def _more_copies(plan: Plan, facts: Facts) -> Iterator[Plan]:
    """An axis gets copies in the register tile: for i in 64  ->  for i in 32: for j in 2 (unroll)"""
    done = {split.axis for split in _splits(plan) if split.kind == "unroll"}
    lanes = {split.axis: split.factor for split in _splits(plan) if split.kind == "vector"}
    for axis in dict.fromkeys(loop.axis for loop in facts.loops().nest):
        for copies in (2, 4) if axis not in done else ():
            split = Split(axis, copies * lanes.get(axis, 1), "unroll")
            yield from _with_root(plan, facts, [split, *plan.root])


def _other_lanes(plan: Plan, facts: Facts) -> Iterator[Plan]:
    """Another axis of the output has the lanes, and its copies go to the old one; or none has."""
    splits = _splits(plan)
    old = next((split.axis for split in splits if split.kind == "vector"), None)
    sizes = {loop.axis: loop.steps for loop in facts.loops().nest}
    if old is not None:
        rest = [t for t in plan.root if not isinstance(t, Split) or t.axis != old]
        yield from _with_root(plan, facts, rest)
    for axis, size in sizes.items():
        if axis == old or size < 2:
            continue
        if old is None:
            place = max((n + 1 for n, t in enumerate(plan.root) if t in splits), default=0)
            split = Split(axis, lanes_for(size, facts.widest), "vector")
            yield from _with_root(plan, facts, [*plan.root[:place], split, *plan.root[place:]])
        else:
            moved = {old: axis, axis: old}
            root = [_on_axis(t, moved, sizes) if isinstance(t, Split) else t for t in plan.root]
            yield from _with_root(plan, facts, root)


def _on_axis(split: Split, moved: Mapping[int, int], sizes: Mapping[int, int]) -> Split:
    axis = moved.get(split.axis, split.axis)
    if axis == split.axis:
        return split
    size = sizes[axis]
    fitting = lanes_for(size, split.factor) if split.kind == "vector" else min(split.factor, size)
    return replace(split, axis=axis, factor=fitting)


def _loop_orders(plan: Plan, facts: Facts) -> Iterator[Plan]:
    """A loop moves to the front, where it may be shared out to threads, or past its neighbour."""
    threads = [t for t in plan.root if isinstance(t, Parallel)]
    root = [t for t in plan.root if not isinstance(t, Parallel)]
    loops = facts.loops()
    loops.apply(*root)
    plain = loops.plain()
    for place, n in enumerate(plain[1:]):
        for first in ([n], [*plain[:place], n]):
            order = dict.fromkeys([*first, *plain, *range(len(loops.nest))])
            yield from _with_root(plan, facts, [*root, Reorder(tuple(order)), *threads])


def _threads(plan: Plan, facts: Facts) -> Iterator[Plan]:
    """The outermost loop is shared out to threads, or no longer."""
    alone = tuple(t for t in plan.root if not isinstance(t, Parallel))
    if alone != plan.root:
        yield from _with_root(plan, facts, alone)
    elif facts.threads > 1:
        yield from _with_root(plan, facts, (*alone, Parallel()))


def _partial_sums(plan: Plan, facts: Facts) -> Iterator[Plan]:
    """A reduction has more or fewer partial results, or its first ones."""
    present = dict(plan.grouped)
    for number, axis, size in facts.reductions:
        old = present.get(number)
        left = {key: value for key, value in present.items() if key != number}
        if old is None or old.axis != axis:
            widths = (facts.widest, max(facts.widest // 2, 1))
            groups = [GroupLanes(axis, unroll, lanes) for lanes in widths for unroll in (1, 4)]
        else:
            yield replace(plan, grouped=tuple(sorted(left.items())))
            groups = [replace(old, unroll=n) for n in (old.unroll * 2, old.unroll // 2)]
            groups += [replace(old, lanes=n) for n in (old.lanes * 2, old.lanes // 2)]
        for group in groups:
            if 1 <= group.lanes <= facts.widest and 1 < group.unroll * group.lanes <= size:
                yield replace(plan, grouped=tuple(sorted({**left, number: group}.items())))


def _stored_values(plan: Plan, facts: Facts) -> Iterator[Plan]:
    """A value is kept in scratch, or computed anew at each use."""
    for number in range(len(facts.analysis.writer.candidate_order)):
        yield replace(plan, stored=tuple(sorted({*plan.stored} ^ {number})))


def _staged_loads(plan: Plan, facts: Facts) -> Iterator[Plan]:
    """What is read of an argument is copied into scratch, at another loop, or no longer."""
    for n, load in enumerate(plan.staged):
        depths = [depth for depth in (load.depth - 1, load.depth + 1) if depth >= 0]
        for changed in ((), *((replace(load, depth=depth),) for depth in depths)):
            yield replace(plan, staged=_with(plan.staged, n, *changed))
    for slot in sorted(facts.slots - {load.slot for load in plan.staged}):
        for depth in range(3):
            yield replace(plan, staged=(*plan.staged, StageLoad(slot, depth)))


def _block_sizes(plan: Plan, facts: Facts) -> Iterator[Plan]:
    """A sum that is cut into parts has shorter or longer ones, or is whole."""
    if plan.blocked is not None:
        yield replace(plan, blocked=None)
        for size in (plan.blocked.size // 2, plan.blocked.size * 2):
            if size > 1:
                yield replace(plan, blocked=replace(plan.blocked, size=size))


def _held_values(plan: Plan, facts: Facts) -> Iterator[Plan]:
    """A value with scratch of its own has a larger or smaller box, or is computed in place."""
    for n, one in enumerate(plan.held):
        sizes = [least for least in (one.least // 2, one.least * 2) if least]
        for changed in ((), *((replace(one, least=least),) for least in sizes)):
            yield replace(plan, held=_with(plan.held, n, *changed))


CHANGES: tuple[Change, ...] = (
    _other_sizes,
    _more_copies,
    _other_lanes,
    _loop_orders,
    _threads,
    _partial_sums,
    _stored_values,
    _staged_loads,
    _block_sizes,
    _held_values,
)
