"""What a graph may contain at a border between stages.

In:  a graph, or a linear program, and the pass that made it.
Out: nothing, or an InternalError that names the pass and shows the node that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kernelet.base.dtype import dtypes
from kernelet.base.errors import InternalError
from kernelet.graph import checks, program_checks, uop
from kernelet.graph.checks import MOVEMENT_FORMS, Form, elementwise_forms
from kernelet.graph.ops import ELEMENTWISE, Op
from kernelet.graph.program_checks import Placed
from kernelet.graph.show import show
from kernelet.graph.uop import UOp


@dataclass(frozen=True, slots=True, eq=False)
class Spec:
    """A named set of forms: one for each op that may occur; then claims about all nodes in order."""

    name: str
    forms: Mapping[Op, Form]
    whole: tuple[Callable[[Sequence[UOp]], Placed], ...] = ()


def verify(graph: UOp | Sequence[UOp], spec: Spec, pass_name: str) -> None:
    """Raise InternalError unless `graph`, a root or a linear program, is what `spec` says."""
    nodes = list(graph.toposort()) if isinstance(graph, UOp) else graph
    for node, holds, claim in _claims(nodes, spec):
        if not holds:
            raise InternalError(
                f"{pass_name}: the result breaks the spec {spec.name!r}, by which {claim}. The "
                f"node that is not so:\n{show(node, 40)}\n"
                "This is a bug in that pass; DEBUG=6 shows the graphs around it."
            )


def _claims(nodes: Sequence[UOp], spec: Spec) -> Placed:
    for node in nodes:
        form = spec.forms.get(node.op)
        try:
            broken = f"{node.op.name} does not occur" if form is None else form.broken(node)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            # A malformed payload or a missing source may be what is wrong.
            broken = f"it is well formed ({error})"
        yield node, broken is None, broken or ""
    for claims in spec.whole:
        yield from claims(nodes)


_VOID, _INDEX = dtypes.void, dtypes.index
_OPTIONAL = frozenset({Op.SUB, Op.FDIV, Op.TRUNCDIV, Op.TRUNCMOD})
_LEAVES: dict[Op, Form] = {
    Op.PARAM: Form(0, uop.ParamArg, checks.check_memory),
    Op.CONST: Form(0, bool | int | float, checks.check_constant),
    Op.VARIABLE: Form(0, uop.VariableArg, checks.check_variable, _INDEX),
}
_VALUES: dict[Op, Form] = {
    **_LEAVES,
    Op.ARANGE: Form(0, tuple, checks.check_arange),
    **MOVEMENT_FORMS,
    **elementwise_forms(ELEMENTWISE - _OPTIONAL, over_tensors=True),
    Op.GATHER: Form(2, int, checks.check_gather, like=0),
    Op.REDUCE: Form(1, uop.ReduceArg, checks.check_reduce, like=0),
}

TENSOR = Spec(
    "tensor graph",
    {
        **_VALUES,
        Op.BUFFER: Form(0, uop.BufferArg, checks.check_memory),
        Op.BIND: Form(2, more=checks.check_bind, like=0),
        Op.CONTIGUOUS: Form(1, str | None, like=0),
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
    Op.SCRATCH: Form(0, uop.ScratchArg, checks.check_memory),
    Op.RANGE: Form(1, uop.RangeArg, checks.check_range, _INDEX),
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
