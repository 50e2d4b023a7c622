"""Search for the fastest plan of a kernel: BEAM.

In:  a kernel, the Target, a plan to start from, and a stopwatch that times plans.
Out: the plans that were timed: the winner, then the others, fastest first.

A stopwatch gives seconds for each plan, infinity for one that cannot be lowered or run or is the
same program as another. With the same stopwatch the search does the same: nothing is drawn at
random, and of equal times that of the shorter plan is first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from kernelet.base.target import Target
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.lower.analysis import Analysis
from kernelet.lower.stage import root_nest
from kernelet.lower.transforms import (
    Follow,
    GroupLanes,
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


@dataclass(frozen=True, slots=True)
class Facts:
    """What the changes need to know about a kernel: all that is the same for each of its plans."""

    kernel: UOp
    widest: int
    in_place: bool
    reductions: tuple[tuple[int, int, int], ...]  # stage, axis and size where lanes may go
    candidates: int
    slots: tuple[int, ...]  # memory arguments that are read inside reductions
    threads: int

    def nest(self, plan: Plan, transforms: Sequence[Transform] = ()) -> Nest:
        """The loops of the output after these transforms alone."""
        return apply_transforms(root_nest(self.kernel, replace(plan, root=())), transforms)


Change = Callable[[Plan, Facts], Iterator[Plan]]


def neighbours(plan: Plan, kernel: UOp, target: Target) -> list[Plan]:
    """Every plan that differs from this one by one change, each once, always in the same order."""
    if plan.parts:
        alone = replace(target, threads=1)  # parts run one after the other
        return [
            replace(plan, parts=(*plan.parts[:n], other, *plan.parts[n + 1 :]))
            for n, (part, inner) in enumerate(zip(plan.parts, kernel.src, strict=True))
            for other in neighbours(part, inner, alone)
        ]
    facts = _facts(plan, kernel, target)
    return list(dict.fromkeys(other for change in CHANGES for other in change(plan, facts)))


def _facts(plan: Plan, kernel: UOp, target: Target) -> Facts:
    analysis = Analysis(kernel, Plan(merged=plan.merged))
    writer = analysis.writer
    reductions = []
    for node, number in writer.numbering.items():
        if node.op is not Op.REDUCE or writer.absorbed.get(node) or node not in writer.stages:
            continue
        loops = {loop for site in analysis.sites if site.stage == number for loop in site.loops}
        own = {loop for loop in loops if loop.arg.kind == "reduce"}
        if any(own & set(stage.place) for stage in writer.stages.values()):
            continue  # what is computed inside these loops has no place among their lanes
        sizes = ((axis, node.src[0].shape[axis]) for axis in node.arg.axes)
        reductions += [(number, axis, n) for axis, n in sizes if isinstance(n, int) and n > 1]
    widest = target.lanes(analysis.itemsize)
    loads = (load for site in analysis.sites if site.stage for load in site.loads)
    slots = tuple(sorted({load.src[0].src[0].arg.slot for load in loads}))
    return Facts(
        kernel,
        widest,
        analysis.in_place,
        tuple(reductions),
        len(writer.candidate_order),
        slots,
        target.threads,
    )


def _with_root(plan: Plan, facts: Facts, root: Sequence[Transform]) -> Iterator[Plan]:
    """The plan with other loops of the output, if they are possible.

    Orders are mended to the loops that there are, and what has no effect is left out.
    """
    nest = facts.nest(plan)
    kept: list[Transform] = []
    followed = {transform.axis for transform in root if isinstance(transform, Follow)}
    for transform in root:
        changed = _mended(transform, nest)
        if isinstance(changed, Split) and (
            changed.axis in followed or not _is_possible(changed, nest, facts)
        ):
            return
        if isinstance(changed, Parallel) and nest[0].axis in followed:
            return
        if changed is None:
            continue
        try:
            nest = changed.apply(nest)
        except (AssertionError, ValueError):  # there is no such loop, or it cannot be cut
            return
        kept.append(changed)
    if math.prod(_size(loop) for loop in nest if loop.kind == "unroll") <= MOST_COPIES:
        yield replace(plan, root=tuple(kept))


def _mended(transform: Transform, nest: Nest) -> Transform | None:
    if isinstance(transform, Reorder):
        known = [position for position in transform.order if position < len(nest)]
        order = (*known, *(n for n in range(len(nest)) if n not in known))
        return Reorder(order) if order != tuple(range(len(nest))) else None
    if isinstance(transform, Parallel):
        is_shared = nest and nest[0].kind == "loop" and _size(nest[0]) > 1
        return transform if is_shared else None
    return transform


def _is_possible(split: Split, nest: Nest, facts: Facts) -> bool:
    """Whether there is a loop to cut; tiles that overlap may not read what they have written."""
    own = [loop for loop in nest if loop.axis == split.axis]
    inner = min(own, key=lambda loop: loop.stride, default=None)
    if inner is None or not 1 < split.factor <= _size(inner):
        return False
    is_whole = not facts.in_place or _size(inner) % split.factor == 0
    # A tile may be cut into lanes, but lanes are whole.
    return is_whole and (inner.kind == "loop" or (inner.kind, split.kind) == ("unroll", "vector"))


def _size(loop: Loop) -> int:
    """The size of a loop; 0 where it is not known."""
    return loop.size if isinstance(loop.size, int) else 0


def _power_below(size: int) -> int:
    return 1 << max(size.bit_length() - 1, 0)


def _tile_sizes(plan: Plan, facts: Facts) -> Iterator[Plan]:
    """Other factors: unroll 4 -> 2, 3, 5, 8; vector 16 -> 8; a split in two -> none."""
    for n, split in enumerate(plan.root):
        if not isinstance(split, Split):
            continue
        before, after = plan.root[:n], plan.root[n + 1 :]
        inner = [t.factor for t in after if isinstance(t, Split) and t.axis == split.axis]
        step = max(inner, default=1)
        factors = [split.factor * 2, split.factor // 2 // step * step]
        if split.kind != "vector":
            factors += [split.factor + step, split.factor - step]
        for factor in dict.fromkeys(factors):
            if split.kind == "vector" and not 1 < factor <= facts.widest:
                continue
            changed = (replace(split, factor=factor),) if factor > step else ()
            yield from _with_root(plan, facts, (*before, *changed, *after))


def _scan_lanes(plan: Plan, facts: Facts) -> Iterator[Plan]:
    """A scan runs along its axis with more or fewer lanes."""
    for n, follow in enumerate(plan.root):
        if not isinstance(follow, Follow):
            continue
        for lanes in (follow.lanes // 2, follow.lanes * 2):
            if 1 <= lanes <= facts.widest:
                changed = replace(follow, lanes=lanes)
                yield from _with_root(plan, facts, (*plan.root[:n], changed, *plan.root[n + 1 :]))


def _more_copies(plan: Plan, facts: Facts) -> Iterator[Plan]:
    """An axis gets copies in the register tile: for i in 64  ->  for i in 32: for j in 2 (unroll)"""
    splits = [transform for transform in plan.root if isinstance(transform, Split)]
    done = {split.axis for split in splits if split.kind == "unroll"}
    lanes = {split.axis: split.factor for split in splits if split.kind == "vector"}
    for axis in dict.fromkeys(loop.axis for loop in facts.nest(plan)):
        for copies in (2, 4) if axis not in done else ():
            split = Split(axis, copies * lanes.get(axis, 1), "unroll")
            first = [transform for transform in plan.root if isinstance(transform, Follow)]
            rest = [transform for transform in plan.root if transform not in first]
            yield from _with_root(plan, facts, (*first, split, *rest))


def _other_lanes(plan: Plan, facts: Facts) -> Iterator[Plan]:
    """Another axis of the output has the lanes, and its copies go to the old one; or none has."""
    splits = [transform for transform in plan.root if isinstance(transform, Split)]
    old = next((split.axis for split in splits if split.kind == "vector"), None)
    sizes = {loop.axis: _size(loop) for loop in facts.nest(plan)}
    if old is not None:
        rest = [t for t in plan.root if not (isinstance(t, Split) and t.axis == old)]
        yield from _with_root(plan, facts, rest)
    for axis, size in sizes.items():
        if axis == old or size < 2:
            continue
        if old is None:
            place = max((n + 1 for n, t in enumerate(plan.root) if t in splits), default=0)
            split = Split(axis, min(facts.widest, _power_below(size)), "vector")
            yield from _with_root(plan, facts, (*plan.root[:place], split, *plan.root[place:]))
            continue
        swap = {old: axis, axis: old}
        root = [
            replace(t, axis=swap[t.axis], factor=_fitting(t, sizes[swap[t.axis]]))
            if isinstance(t, Split) and t.axis in swap
            else t
            for t in plan.root
        ]
        yield from _with_root(plan, facts, root)


def _fitting(split: Split, size: int) -> int:
    return min(split.factor, _power_below(size) if split.kind == "vector" else size)


def _loop_orders(plan: Plan, facts: Facts) -> Iterator[Plan]:
    """A loop moves to the front, where it may be shared out to threads, or past its neighbour."""
    threads = tuple(t for t in plan.root if isinstance(t, Parallel))
    root = [t for t in plan.root if not isinstance(t, Parallel)]
    nest = facts.nest(plan, root)
    loops = [n for n, loop in enumerate(nest) if loop.kind == "loop"]
    for place, n in enumerate(loops[1:]):
        moved = [
            [n, *(other for other in loops if other != n)],
            [*loops[:place], n, loops[place], *loops[place + 2 :]],
        ]
        for order in moved:
            full = (*order, *(other for other in range(len(nest)) if other not in order))
            before, last = root, root[-1:]
            if last and isinstance(last[0], Reorder):
                before, full = root[:-1], tuple(last[0].order[at] for at in full)
            yield from _with_root(plan, facts, (*before, Reorder(full), *threads))


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
        others: list[GroupLanes | None] = []
        if old is None or old.axis != axis:
            widths = (facts.widest, max(facts.widest // 2, 1))
            others += [GroupLanes(axis, unroll, lanes) for lanes in widths for unroll in (1, 4)]
        if old is not None and old.axis == axis:
            others.append(None)
            others += [replace(old, unroll=n) for n in (old.unroll * 2, old.unroll // 2)]
            others += [replace(old, lanes=n) for n in (old.lanes * 2, old.lanes // 2)]
        for group in others:
            if group is None:
                left = {key: value for key, value in present.items() if key != number}
            elif 1 <= group.lanes <= facts.widest and 1 < group.unroll * group.lanes <= size:
                left = {**present, number: group}
            else:
                continue
            yield replace(plan, grouped=tuple(sorted(left.items())))


def _stored_values(plan: Plan, facts: Facts) -> Iterator[Plan]:
    """A value is kept in scratch, or computed anew at each use."""
    for number in range(facts.candidates):
        left = set(plan.stored) ^ {number}
        yield replace(plan, stored=tuple(sorted(left)))


def _staged_loads(plan: Plan, facts: Facts) -> Iterator[Plan]:
    """What is read of an argument is copied into scratch, at another loop, or no longer."""
    for n, load in enumerate(plan.staged):
        before, after = plan.staged[:n], plan.staged[n + 1 :]
        yield replace(plan, staged=before + after)
        for depth in (load.depth - 1, load.depth + 1):
            if depth >= 0:
                yield replace(plan, staged=(*before, replace(load, depth=depth), *after))
    staged = {load.slot for load in plan.staged}
    for slot in facts.slots:
        for depth in range(3) if slot not in staged else ():
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
            yield replace(plan, held=(*plan.held[:n], *changed, *plan.held[n + 1 :]))


CHANGES: tuple[Change, ...] = (
    _tile_sizes,
    _scan_lanes,
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
