"""What a graph may contain at a border between stages.

In:  a graph, or a linear program, and the pass that made it.
Out: nothing, or an InternalError that names the pass and shows the node that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kernelet.base.dtype import dtypes
from kernelet.base.errors import InternalError
from kernelet.graph import checks, program_checks
from kernelet.graph.checks import Form, elementwise_forms
from kernelet.graph.ops import ELEMENTWISE, MOVEMENT, Op
from kernelet.graph.program_checks import Misplaced
from kernelet.graph.show import show
from kernelet.graph.uop import (
    BufferArg,
    ParamArg,
    RangeArg,
    ReduceArg,
    ScratchArg,
    UOp,
    VariableArg,
)


@dataclass(frozen=True, slots=True, eq=False)
class Spec:
    """A named set of forms: one for each op that may occur; then checks of all nodes in order."""

    name: str
    forms: Mapping[Op, Form]
    whole: tuple[Callable[[Sequence[UOp]], Misplaced | None], ...] = ()


def verify(graph: UOp | Sequence[UOp], spec: Spec, pass_name: str) -> None:
    """Raise InternalError unless `graph`, a root or a linear program, is what `spec` says."""
    nodes = list(graph.toposort()) if isinstance(graph, UOp) else graph
    for node in nodes:
        form = spec.forms.get(node.op)
        problem = f"{node.op.name} may not occur" if form is None else _problem(form, node)
        if problem is not None:
            raise _broken(spec, pass_name, node, problem)
    for look in spec.whole:
        misplaced = look(nodes)
        if misplaced is not None:
            raise _broken(spec, pass_name, *misplaced)


def _problem(form: Form, node: UOp) -> str | None:
    # A malformed payload or a missing source may be what is wrong.
    try:
        return form.problem(node)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        return f"it is malformed ({error})"


def _broken(spec: Spec, pass_name: str, node: UOp, problem: str) -> InternalError:
    return InternalError(
        f"{pass_name}: the result breaks the spec {spec.name!r}: {problem}. The node:\n"
        f"{show(node, 40)}\nThis is a bug in that pass; DEBUG=6 shows the graphs around it."
    )


_VOID, _INDEX = dtypes.void, dtypes.index
_OPTIONAL = frozenset({Op.SUB, Op.FDIV, Op.TRUNCDIV, Op.TRUNCMOD})
_LEAVES: dict[Op, Form] = {
    Op.PARAM: Form(0, ParamArg, checks.check_memory),
    Op.CONST: Form(0, bool | int | float, checks.check_constant),
    Op.VARIABLE: Form(0, VariableArg, checks.check_variable, _INDEX),
}
_VALUES: dict[Op, Form] = {
    **_LEAVES,
    Op.ARANGE: Form(0, tuple, checks.check_arange),
    **dict.fromkeys(MOVEMENT, Form(1, tuple, checks.check_movement, like=0)),
    **elementwise_forms(ELEMENTWISE - _OPTIONAL, over_tensors=True),
    Op.GATHER: Form(2, int, checks.check_gather, like=0),
    Op.REDUCE: Form(1, ReduceArg, checks.check_reduce, like=0),
}

TENSOR = Spec(
    "tensor graph",
    {
        **_VALUES,
        Op.BUFFER: Form(0, BufferArg, checks.check_memory),
        Op.BIND: Form(2, more=checks.check_bind, like=0),
        Op.CONTIGUOUS: Form(1, like=0),
        Op.DETACH: Form(1, int | None, like=0),
        Op.FUNCTION: Form(2, str, checks.check_function, like=0),
        Op.COPY: Form(1, str, like=0),
        Op.ASSIGN: Form(2, more=checks.check_write, like=0),
        Op.AFTER: Form(None, more=checks.check_after, like=0),
        Op.SINK: Form(None, dtype=_VOID),
    },
)

KERNEL = Spec(
    "kernel",
    {
        **_VALUES,
        Op.STORE: Form(2, more=checks.check_write, dtype=_VOID),
        Op.SINK: Form(None, more=checks.check_kernel, dtype=_VOID),
    },
)

_EXPRESSIONS: dict[Op, Form] = {
    **_LEAVES,
    **elementwise_forms(ELEMENTWISE, over_tensors=False),
    Op.SCRATCH: Form(0, ScratchArg, checks.check_memory),
    Op.RANGE: Form(1, RangeArg, checks.check_range, _INDEX),
    Op.INDEX: Form(2, more=checks.check_index),
    Op.LOAD: Form(None, more=checks.check_access),
    Op.STORE: Form(None, more=checks.check_access, dtype=_VOID),
    Op.VECTORIZE: Form(None, more=checks.check_vectorize),
    Op.EXTRACT: Form(1, int, checks.check_extract),
    Op.BARRIER: Form(None, dtype=_VOID),
}
_STATEMENTS = Form(None, more=checks.check_statements, dtype=_VOID)

LOOPS = Spec(
    "tree of loops",
    {**_EXPRESSIONS, Op.BLOCK: _STATEMENTS, Op.LOOP: _STATEMENTS},
    (program_checks.loops_surround_their_uses,),
)

PROGRAM = Spec(
    "linear program",
    {**_EXPRESSIONS, Op.END: Form(1, more=checks.check_end, dtype=_VOID)},
    (program_checks.program_is_in_order, program_checks.accesses_are_inside),
)
