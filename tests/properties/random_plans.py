"""Random legal plans: merged axes, splits that overlap, orders, lanes, partial sums, scratch."""

from __future__ import annotations

import random
from dataclasses import replace

from kernelet.base.target import Target
from kernelet.graph.ops import ELEMENTWISE, Op
from kernelet.graph.uop import UOp
from kernelet.lower.analysis import Analysis
from kernelet.lower.nest import NestWriter
from kernelet.lower.stage import output_shape, root_nest
from kernelet.lower.transforms import (
    GroupLanes,
    Held,
    Nest,
    Parallel,
    Plan,
    Reorder,
    Split,
    Transform,
)

FACTORS = (2, 3, 4, 5, 7, 8, 16)


def random_plan(choose: random.Random, kernel: UOp, target: Target) -> Plan:
    """A plan that no heuristic would think of, but that must give the same values."""
    if kernel.src[0].op is Op.SINK:
        # Parts run one after the other, in one thread.
        parts = [random_plan(choose, part, target) for part in kernel.src]
        return Plan(parts=tuple([_in_one_thread(part) for part in parts]))
    plan = Plan(merged=_merged(choose, kernel), lanes=choose.choice((1, 4, 8)))
    in_place = Analysis(kernel, plan).in_place
    nest = root_nest(kernel, plan)
    root: list[Transform] = []
    for _ in range(choose.randrange(4)):
        split = _split(choose, nest, choose.choice(("loop", "unroll")), in_place)
        if split is not None:
            root.append(split)
            nest = split.apply(nest)
    vector = _split(choose, nest, "vector", in_place) if choose.random() < 0.6 else None
    if len(nest) > 1 and choose.random() < 0.6:
        order = Reorder(tuple(choose.sample(range(len(nest)), len(nest))))
        root.append(order)
        nest = order.apply(nest)
    if vector is not None:
        root.append(vector)
        nest = vector.apply(nest)
    is_shared = choose.random() < 0.5
    if is_shared and nest and nest[0].kind == "loop" and isinstance(nest[0].size, int):
        root.append(Parallel())
    # Copies of the body must stay few.
    if _tile(nest) > 64:
        return plan
    plan = replace(plan, root=tuple(root), held=_held(choose, kernel))
    plan = replace(plan, stored=_stored(choose, kernel, plan))
    grouped = _grouped(choose, kernel, plan) if vector is None else ()
    return replace(plan, grouped=grouped)


def _in_one_thread(plan: Plan) -> Plan:
    root = [transform for transform in plan.root if not isinstance(transform, Parallel)]
    return replace(plan, root=tuple(root))


def _tile(nest: Nest) -> int:
    size = 1
    for loop in nest:
        if loop.kind in ("unroll", "vector"):
            assert isinstance(loop.size, int)
            size *= loop.size
    return size


def _merged(choose: random.Random, kernel: UOp) -> tuple[tuple[int, ...], ...]:
    groups: list[tuple[int, ...]] = []
    shape = output_shape(kernel)
    for axis, size in enumerate(shape):
        joins = groups and all(isinstance(shape[a], int) for a in (*groups[-1], axis))
        if joins and choose.random() < 0.3:
            groups[-1] = (*groups[-1], axis)
        else:
            groups.append((axis,))
        assert size is not None
    return tuple(groups)


def _split(choose: random.Random, nest: Nest, kind: str, in_place: bool) -> Split | None:
    """A split of the innermost loop of an axis; where outputs are read, tiles must not overlap."""
    innermost = {loop.axis: loop for loop in sorted(nest, key=lambda loop: -loop.stride)}
    options = []
    for axis, loop in innermost.items():
        if not isinstance(loop.size, int) or loop.kind != "loop":
            continue
        for factor in FACTORS:
            whole = loop.size % factor == 0
            if factor <= loop.size and (whole or not in_place):
                options.append(Split(axis, factor, kind))
    return choose.choice(options) if options else None


def _held(choose: random.Random, kernel: UOp) -> tuple[Held, ...]:
    """Any computed values, their boxes at any loop that may hold them, filled in any order."""
    values = {
        position: node
        for position, node in enumerate(kernel.toposort())
        if node.op in ELEMENTWISE or node.op is Op.REDUCE
    }
    chosen = [position for position in values if choose.random() < 0.1]
    kinds = ("loop", "unroll", "vector")
    found = []
    for position in chosen:
        axes = range(len(values[position].shape))
        splits = [
            Split(choose.choice(axes), choose.choice((2, 3, 4, 8)), choose.choice(kinds))
            for _ in range(choose.randrange(3) if axes else 0)
        ]
        # One loop of lanes is the innermost.
        splits.sort(key=lambda split: split.kind == "vector")
        few = splits if len([s for s in splits if s.kind == "vector"]) < 2 else splits[1:]
        found.append(Held(position, choose.choice((1, 4, 64)), tuple(few)))
    return tuple(found)


def _stored(choose: random.Random, kernel: UOp, plan: Plan) -> tuple[int, ...]:
    count = len(NestWriter(kernel, plan).candidate_order)
    return tuple(number for number in range(count) if choose.random() < 0.3)


def _grouped(choose: random.Random, kernel: UOp, plan: Plan) -> tuple[tuple[int, GroupLanes], ...]:
    analysis = Analysis(kernel, plan)
    writer = analysis.writer
    found = []
    for node, number in writer.numbering.items():
        if node.op is not Op.REDUCE or writer.absorbed.get(node) or node not in writer.stages:
            continue
        if any(v.arg.kind == "vector" for v in writer.stages[node].ranges):
            continue
        axis = choose.choice(node.arg.axes) if node.arg.axes else 0
        size = node.src[0].shape[axis]
        loops = {v for site in analysis.sites if site.stage == number for v in site.loops}
        reduced = {v for v in loops if v.arg.kind == "reduce"}
        if not node.arg.axes or not isinstance(size, int) or choose.random() < 0.3:
            continue
        if any(reduced & set(stage.place) for stage in writer.stages.values()):
            continue
        group = GroupLanes(axis, choose.choice((1, 2, 3, 4)), choose.choice((1, 2, 4, 8)))
        if 1 < group.unroll * group.lanes <= size:
            found.append((number, group))
    return tuple(found)
