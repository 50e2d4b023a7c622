"""What the untransformed kernel does, statement by statement.

In:  one kernel and a Plan.
Out: its sites: loops, loads and target of each statement; how an address moves along a loop.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from kernelet.graph.infer import max_dim
from kernelet.graph.ops import Op
from kernelet.graph.placement import Chain, ranges_in
from kernelet.graph.uop import UOp
from kernelet.lower.loops import indices_run_as_one, statements_of
from kernelet.lower.nest import NestWriter
from kernelet.lower.stage import output_shape, root_nest
from kernelet.lower.statements import loads_of
from kernelet.lower.transforms import Plan


@dataclass(frozen=True, slots=True)
class Site:
    """One statement of the untransformed kernel: its stage (0: output), loops, loads, target."""

    stage: int
    loops: Chain
    loads: tuple[UOp, ...]
    target: UOp

    @property
    def weight(self) -> float:
        """How often it runs."""
        return math.prod(size_of(variable) for variable in self.loops)

    @property
    def summed(self) -> Chain:
        """Those of its loops that belong to reductions."""
        return tuple(variable for variable in self.loops if variable.arg.kind == "reduce")


def size_of(variable: UOp) -> int:
    """The most iterations of a loop."""
    return max_dim(variable.src[0])


class Analysis:
    """What the untransformed kernel does, statement by statement."""

    def __init__(self, kernel: UOp, plan: Plan) -> None:
        self.kernel = kernel
        self.plan = plan
        self.writer = NestWriter(kernel, plan)
        block = self.writer.build()
        self.nest = root_nest(kernel, plan)
        self.sites = tuple(sites_of(block))
        outputs = [site for site in self.sites if site.stage == 0]
        self.ranges = tuple(v for v in outputs[0].loops)
        written = {site.target.src[0] for site in outputs}
        read = {load.src[0].src[0] for site in self.sites for load in site.loads}
        self.in_place = not written.isdisjoint(read)
        self.work = sum(site.weight for site in self.sites)
        itemsizes = [load.dtype.itemsize for site in self.sites for load in site.loads]
        itemsizes += [statement.src[1].dtype.itemsize for statement in kernel.src]
        self.itemsize = max(min(max(itemsizes), 8), 4)

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The axes of the output that each loop runs through."""
        return self.plan.merged or tuple((n,) for n in range(len(output_shape(self.kernel))))

    def merged(self, groups: tuple[tuple[int, ...], ...]) -> Analysis:
        """The analysis with these axes of the output as one."""
        if all(len(group) == 1 for group in groups):
            return self
        return Analysis(self.kernel, replace(self.plan, merged=groups))

    def joined(self, first: int, last: int) -> tuple[tuple[int, ...], ...]:
        """The axes of each loop after the loops `first` to `last` have become one."""
        inside = tuple(itertools.chain(*self.groups[first : last + 1]))
        return (*self.groups[:first], inside, *self.groups[last + 1 :])

    def axis_of(self, variable: UOp) -> int:
        """The axis of an output loop, as transforms name it."""
        return self.nest[self.ranges.index(variable)].axis

    def main_site(self, stage: int = 0) -> Site:
        """The statement of a stage, or of any, that runs most often."""
        sites = (site for site in self.sites if site.stage and stage in (0, site.stage))
        return max(sites, key=lambda site: site.weight)

    def reduced_axes(self, stage: int) -> dict[int, UOp]:
        """The loops of a reduction, by the axis of its source that each runs along."""
        node = next(n for n, number in self.writer.numbering.items() if number == stage)
        if node.op is not Op.REDUCE or self.writer.absorbed.get(node):
            return {}
        axes = [axis for axis in node.arg.axes if node.src[0].shape[axis] != 1]
        loops = self.main_site(stage).summed
        return dict(zip(axes, loops[max(len(loops) - len(axes), 0) :], strict=False))

    def can_have_lanes(self, variable: UOp) -> bool:
        """Whether the size of a loop is known, and nothing is computed once for each iteration."""
        inner = any(variable in stage.place for stage in self.writer.stages.values())
        return variable.src[0].op is Op.CONST and not inner

    def stage_depends(self, variable: UOp) -> bool:
        """Whether any stage is read at an index that moves with an output loop."""
        accesses = (a for stage in self.writer.stages.values() for a in stage.accesses)
        return any(variable in ranges_in(part) for access in accesses for part in access.index)


def sites_of(block: UOp) -> Iterator[Site]:
    """All statements of a program."""
    for statement, loops in statements_of(block):
        address, value = statement.src
        memory = address.src[0]
        stage = memory.arg.number if memory.op is Op.SCRATCH else 0
        yield Site(stage, loops, tuple(loads_of(value)), address)


def joined_axes(
    analysis: Analysis, run_as_one: Callable[[UOp, UOp], bool]
) -> tuple[tuple[int, ...], ...]:
    """The output axes in groups: neighbours whose loops may be one, and axes of size 1."""
    variables = dict(zip((loop.axis for loop in analysis.nest), analysis.ranges, strict=True))
    groups: list[tuple[int, ...]] = [()]
    outer: UOp | None = None
    for axis in range(len(output_shape(analysis.kernel))):
        inner = variables.get(axis)
        if outer is None or inner is None or run_as_one(outer, inner):
            groups[-1] += (axis,)
        else:
            groups.append((axis,))
        outer = outer if inner is None else inner
    return tuple(filter(None, groups))


def tile_rows(size: int, most: int, *, whole: bool = False) -> int:
    """Rows of a register tile: few idle rows first, then as many as allowed."""
    choices = [n for n in range(1, min(size, most) + 1) if not whole or size % n == 0]
    return min(choices, key=lambda rows: (-(-size // rows) * rows + size / rows, -rows))


def run_as_one(site: Site, outer: UOp, inner: UOp) -> bool:
    """Whether every address of a statement runs through two loops as if they were one."""
    if any({outer, inner} & ranges_in(load.src[1]) for load in site.loads if len(load.src) == 2):
        return False
    targets = [] if site.stage else [site.target]
    addresses = [*(load.src[0] for load in site.loads), *targets]
    return indices_run_as_one(outer, inner, (address.src[1] for address in addresses))
