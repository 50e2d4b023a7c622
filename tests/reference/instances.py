"""Equations written out at one dtype, with variables in place of their placeholders."""

from __future__ import annotations

from typing import Any

from kernelet.base.dtype import DType, dtypes, round_to
from kernelet.graph.ops import COMPARISONS, Op
from kernelet.graph.pattern import ANY_DTYPE, Equation, PlaceholderArg
from kernelet.graph.uop import UOp, VariableArg


def placeholders_of(rule: Equation) -> list[UOp]:
    """The placeholders of the left side."""
    return [node for node in rule.left.toposort() if isinstance(node.arg, PlaceholderArg)]


def written_out(rule: Equation, dtype: DType) -> tuple[UOp, UOp, list[UOp]]:
    """Both sides at one dtype, and the variables that took the place of the placeholders."""
    known: dict[UOp, UOp] = {}
    for node in UOp.sink(rule.left, rule.right).toposort():
        known[node] = _instance(node, dtype, tuple(known[source] for source in node.src))
    return known[rule.left], known[rule.right], [known[node] for node in placeholders_of(rule)]


def _instance(node: UOp, dtype: DType, src: tuple[UOp, ...]) -> UOp:
    own = dtype if node.dtype is ANY_DTYPE else node.dtype
    if node.op in COMPARISONS:
        own = dtypes.bool
    if isinstance(node.arg, PlaceholderArg):
        limits: tuple[Any, Any] = (own.min, own.max)
        return UOp(Op.VARIABLE, own, (), VariableArg(node.arg.name, *limits))
    if node.op is Op.CONST:
        return UOp.const(round_to(own, node.arg), own)
    return UOp(node.op, own, src, node.arg)
