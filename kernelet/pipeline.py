"""The whole compiler on one page: every pass, in order, as data.

In:  a SINK over a tensor-level graph; then each kernel of its Schedule and the Target.
Out: the Schedule; then each kernel as a linear program.

`python -m kernelet.pipeline` prints the passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from kernelet.base import config, trace
from kernelet.base.dtype import dtypes
from kernelet.base.program import Estimates
from kernelet.base.target import Target
from kernelet.graph.algebra import simplify
from kernelet.graph.infer import max_dim
from kernelet.graph.ops import ELEMENTWISE, Op
from kernelet.graph.show import show
from kernelet.graph.spec import KERNEL, LOOPS, PROGRAM, TENSOR, Spec, verify
from kernelet.graph.uop import UOp
from kernelet.kernelize.boundaries import choose_boundaries
from kernelet.kernelize.normalize import normalize, simplify_values
from kernelet.kernelize.overlap import separate_overlaps
from kernelet.kernelize.passes import cut_into_kernels
from kernelet.kernelize.schedule import Schedule
from kernelet.lower.decompose import decompose
from kernelet.lower.dtypes import widen_narrow_floats
from kernelet.lower.expand import expand_tiles
from kernelet.lower.formats import write_small_floats
from kernelet.lower.heuristics import plan_kernel
from kernelet.lower.linearize import linearize
from kernelet.lower.memory import scratch_to_registers
from kernelet.lower.nest import write_nest
from kernelet.lower.transforms import Plan

Graph = TypeVar("Graph", UOp, list[UOp])  # a root, or a linear program


@dataclass(frozen=True, slots=True)
class Pass:
    """One named step from graph to graph, and the spec of what it leaves."""

    name: str
    run: Callable[[UOp, Target], UOp]
    leaves: Spec


def _for_all(run: Callable[[UOp], UOp]) -> Callable[[UOp, Target], UOp]:
    """A step that is the same for every target."""
    return lambda graph, target: run(graph)


KERNELIZE = (
    Pass("simplify values", _for_all(simplify_values), TENSOR),
    Pass("normalize", _for_all(normalize), TENSOR),
    Pass("choose boundaries", _for_all(choose_boundaries), TENSOR),
    Pass("separate overlaps", _for_all(separate_overlaps), TENSOR),
)
LOWER = (
    Pass("widen narrow floats", widen_narrow_floats, LOOPS),
    Pass("write small floats", write_small_floats, LOOPS),
    Pass("expand tiles", _for_all(expand_tiles), LOOPS),
    Pass("simplify", _for_all(simplify), LOOPS),
    Pass("decompose", decompose, LOOPS),
    Pass("scratch to registers", _for_all(scratch_to_registers), LOOPS),
)
ANY = Target("ANY")


def _step(name: str, run: Callable[[], Graph], leaves: Spec) -> Graph:
    """What one step makes; it is checked when VERIFY is on."""
    with trace.cost("python", name):
        found = run()
    if config.current().verify:
        verify(found, leaves, name)
    return found


def run_passes(graph: UOp, passes: Sequence[Pass], target: Target = ANY) -> UOp:
    """The graph after all passes; each result is checked when VERIFY is on."""
    for each in passes:
        graph = _step(each.name, partial(each.run, graph, target), each.leaves)
        if trace.wants("graph"):
            trace.emit("graph", each.name, show(graph))
    return graph


def schedule(sink: UOp, device: str) -> Schedule:
    """Kernels in order; `device` is for values made of constants alone."""
    if config.current().verify:
        verify(sink, TENSOR, "the frontend")
    given = [node.arg.slot + 1 for node in sink.toposort() if node.op is Op.PARAM]
    sink = run_passes(sink, KERNELIZE)
    with trace.cost("python", "cut into kernels"):
        found = cut_into_kernels(sink, device, max(given, default=0))
    if config.current().verify:
        for kernel in found.kernels:
            verify(kernel, KERNEL, "cut into kernels")
    return found


@dataclass(frozen=True, slots=True)
class Lowered:
    """One kernel as a linear program, with what a launch needs to know."""

    program: tuple[UOp, ...]
    plan: Plan
    estimates: Estimates

    @property
    def thread_size(self) -> int:
        """The greatest extent of the thread loop; 0 where there is none."""
        loops = (node for node in self.program if node.op is Op.RANGE)
        return next((max_dim(loop.src[0]) for loop in loops if loop.arg.kind == "thread"), 0)

    @property
    def slots(self) -> int:
        """The number of memory arguments."""
        return 1 + max((n.arg.slot for n in self.program if n.op is Op.PARAM), default=-1)

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the integer arguments."""
        return tuple(node.arg.name for node in self.program if node.op is Op.VARIABLE)


def lower(kernel: UOp, target: Target, plan: Plan | None = None) -> Lowered:
    """A kernel as a linear program; the heuristics choose the plan unless one is given."""
    if plan is None:
        with trace.cost("python", "plan"):
            plan = plan_kernel(kernel, target)
    block = _step("write loops", partial(write_nest, kernel, plan), LOOPS)
    block = run_passes(block, LOWER, target)
    given = [node for node in kernel.toposort() if node.op is Op.PARAM]
    program = tuple(_step("linearize", partial(linearize, block, given), PROGRAM))
    return Lowered(program, plan, estimate(program))


def estimate(program: Sequence[UOp]) -> Estimates:
    """Arithmetic operations of one launch, and the bytes of all memory arguments."""
    operations, nbytes = 0, 0
    trips = [1]
    for node in program:
        if node.op is Op.RANGE:
            trips.append(trips[-1] * max(int(node.bounds.max) + 1, 1))
        elif node.op is Op.END:
            trips.pop()
        elif node.op is Op.PARAM:
            nbytes += node.arg.size * node.dtype.itemsize
        elif node.op in ELEMENTWISE and node.dtype.scalar is not dtypes.index:
            operations += trips[-1] * node.dtype.lanes * (2 if node.op is Op.MULACC else 1)
    return Estimates(operations, nbytes)


def table() -> str:
    """The passes as text: stage, name, what the result is checked against."""
    rows = [("kernelize", step.name, step.leaves.name) for step in KERNELIZE]
    rows += [("kernelize", "cut into kernels", KERNEL.name), ("lower", "write loops", LOOPS.name)]
    rows += [("lower", step.name, step.leaves.name) for step in LOWER]
    rows.append(("lower", "linearize", PROGRAM.name))
    return "\n".join(f"{stage:10} {name:24} {leaves}" for stage, name, leaves in rows)


if __name__ == "__main__":
    import sys

    sys.stdout.write(table() + "\n")
