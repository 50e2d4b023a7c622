"""What a graph may contain at a border between stages.

In:  a graph, or a linear program, and the pass that made it.
Out: nothing, or an InternalError that names the pass and shows the node that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kernelet.base.errors import InternalError
from kernelet.graph import checks, program_checks
from kernelet.graph.checks import Check
from kernelet.graph.ops import ELEMENTWISE, MOVEMENT, Op
from kernelet.graph.program_checks import Misplaced
from kernelet.graph.show import show
from kernelet.graph.uop import BufferArg, ParamArg, UOp


@dataclass(frozen=True, slots=True, eq=False)
class Spec:
    """A named set of checks: one for each op that may occur, then some for all nodes in order."""

    name: str
    checks: Mapping[Op, Check]
    whole: tuple[Callable[[Sequence[UOp]], Misplaced | None], ...] = ()


def verify(graph: UOp | Sequence[UOp], spec: Spec, pass_name: str) -> None:
    """Raise InternalError unless `graph`, a root or a linear program, is what `spec` says."""
    nodes = list(graph.toposort()) if isinstance(graph, UOp) else graph
    for node in nodes:
        check = spec.checks.get(node.op)
        problem = f"{node.op.name} may not occur" if check is None else _problem(check, node)
        if problem is not None:
            raise _broken(spec, pass_name, node, problem)
    for look in spec.whole:
        misplaced = look(nodes)
        if misplaced is not None:
            raise _broken(spec, pass_name, *misplaced)


def _problem(check: Check, node: UOp) -> str | None:
    # A malformed payload or a missing source may be what is wrong.
    try:
        return check(node)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        return f"it is malformed ({error})"


def _broken(spec: Spec, pass_name: str, node: UOp, problem: str) -> InternalError:
    return InternalError(
        f"{pass_name}: the result breaks the spec {spec.name!r}: {problem}. The node:\n"
        f"{show(node, 40)}\nThis is a bug in that pass; DEBUG=6 shows the graphs around it."
    )


_OPTIONAL = frozenset({Op.SUB, Op.FDIV, Op.TRUNCDIV, Op.TRUNCMOD})
_VALUES: dict[Op, Check] = {
    Op.PARAM: checks.check_memory(ParamArg),
    Op.CONST: checks.check_constant,
    Op.VARIABLE: checks.check_variable,
    Op.ARANGE: checks.check_arange,
    **dict.fromkeys(MOVEMENT, checks.check_movement),
    **dict.fromkeys(ELEMENTWISE - _OPTIONAL, checks.check_over_tensors),
    Op.GATHER: checks.check_gather,
    Op.REDUCE: checks.check_reduce,
}

TENSOR = Spec(
    "tensor graph",
    {
        **_VALUES,
        Op.BUFFER: checks.check_memory(BufferArg),
        Op.BIND: checks.check_bind,
        Op.CONTIGUOUS: checks.check_same_value,
        Op.DETACH: checks.check_same_value,
        Op.FUNCTION: checks.check_function,
        Op.COPY: checks.check_same_value,
        Op.ASSIGN: checks.check_assign,
        Op.AFTER: checks.check_after,
        Op.SINK: checks.check_sink,
    },
)

KERNEL = Spec(
    "kernel",
    {**_VALUES, Op.STORE: checks.check_store_to_view, Op.SINK: checks.check_sink_of_stores},
)

_EXPRESSIONS: dict[Op, Check] = {
    Op.PARAM: checks.check_memory(ParamArg),
    Op.SCRATCH: program_checks.check_scratch,
    Op.CONST: checks.check_constant,
    Op.VARIABLE: checks.check_variable,
    **dict.fromkeys(ELEMENTWISE, program_checks.check_scalar_elementwise),
    Op.RANGE: program_checks.check_range,
    Op.INDEX: program_checks.check_index,
    Op.LOAD: program_checks.check_load,
    Op.STORE: program_checks.check_store,
    Op.VECTORIZE: program_checks.check_vectorize,
    Op.EXTRACT: program_checks.check_extract,
    Op.BARRIER: checks.check_sink,
}

LOOPS = Spec(
    "tree of loops",
    {**_EXPRESSIONS, Op.BLOCK: program_checks.check_block, Op.LOOP: program_checks.check_loop},
    (program_checks.loops_surround_their_uses,),
)

PROGRAM = Spec(
    "linear program",
    {**_EXPRESSIONS, Op.END: program_checks.check_end},
    (program_checks.program_is_in_order, program_checks.accesses_are_inside),
)
