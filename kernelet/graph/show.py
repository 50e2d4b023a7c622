"""Text of a graph that people and tests read.

In:  a node.
Out: one line a node, sources first, each shared node once; a leaf is a line of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kernelet.base.errors import KerneletError
from kernelet.graph.ops import Op

if TYPE_CHECKING:
    from kernelet.graph.uop import UOp

_EXPRESSION_DEPTH = 16
_SYMBOLS = {
    Op.ADD: "+",
    Op.SUB: "-",
    Op.MUL: "*",
    Op.IDIV: "//",
    Op.MOD: "%",
    Op.CMPLT: "<",
    Op.CMPNE: "!=",
    Op.AND: "&",
    Op.OR: "|",
    Op.XOR: "^",
    Op.SHL: "<<",
    Op.SHR: ">>",
}


def show(node: UOp, limit: int | None = 200) -> str:
    """The graph below `node` as numbered lines; the middle of more than `limit` is left out.

    A constant is written in place, as its value. Shape and device are those of tensors only:

        %0 = BUFFER float32 (20,) number=3 CPU
        %1 = RESHAPE float32 (4, 5) %0
        %2 = REDUCE float32 (4, 1) %1 ADD axes=(1,)
    """
    if not node.src:
        return _line(node, {})
    lines = _lines(list(node.toposort()))
    if limit is not None and len(lines) > limit:
        head = limit // 4
        hidden = len(lines) - limit
        lines[head : head + hidden] = [f"... {hidden} more nodes ..."]
    return "\n".join(lines)


def show_program(program: Sequence[UOp]) -> str:
    """A linear program, one node a line, loops indented.

    A node that stands in the list again is computed anew and has a new number.
    """
    return "\n".join(_lines(program))


def show_expression(node: UOp | int) -> str:
    """A scalar expression in one line, as a formula: `(n + 1) * 4`."""
    return _formula(node, _EXPRESSION_DEPTH)


def _lines(nodes: Sequence[UOp]) -> list[str]:
    names: dict[UOp, str] = {}
    lines: list[str] = []
    closed = {node.src[0] for node in nodes if node.op is Op.END}
    depth = 0
    for node in nodes:
        if node.op is Op.CONST and node.dtype.lanes == 1:
            names[node] = str(node.arg)
            continue
        depth -= node.op is Op.END
        line = _line(node, names)
        names[node] = f"%{len(lines)}"
        lines.append(f"{'  ' * depth}{names[node]} = {line}")
        depth += node in closed
    return lines


def _line(node: UOp, names: dict[UOp, str]) -> str:
    dtype = node.dtype
    words = [node.op.name]
    if dtype.kind != "void":
        words.append(dtype.name if dtype.lanes == 1 else f"{dtype.name}x{dtype.lanes}")
    shape = _shape(node)
    if shape:
        words.append(shape)
    words += [names[source] for source in node.src]
    payload = _payload(node)
    if payload:
        words.append(payload)
    return " ".join(words)


def _shape(node: UOp) -> str:
    # A malformed graph must print too: that is when people look.
    try:
        shape = node.shape
    except (KerneletError, ValueError, TypeError, IndexError, AttributeError):
        return "(?)"
    return _tuple(shape) if shape else ""


def _tuple(value: Any) -> str:  # noqa: ANN401 - payloads are of many types
    if isinstance(value, tuple):
        inside = ", ".join(_tuple(part) for part in value)
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    return _formula(value, _EXPRESSION_DEPTH) if hasattr(value, "toposort") else str(value)


_PAYLOADS: dict[Op, Callable[[UOp], str]] = {
    Op.BUFFER: lambda node: f"number={node.arg.number} {node.arg.device}",
    Op.PARAM: lambda node: f"slot={node.arg.slot} {node.arg.device}",
    Op.CONST: lambda node: str(node.arg),
    Op.VARIABLE: lambda node: f"{node.arg.name}={node.arg.min}..{node.arg.max}",
    # The shape says it already.
    Op.RESHAPE: lambda node: "",
    Op.EXPAND: lambda node: "",
    Op.REDUCE: lambda node: f"{node.arg.op.name} axes={_tuple(node.arg.axes)}",
    Op.RANGE: lambda node: f"r{node.arg.number} {node.arg.kind}",
    Op.SCRATCH: lambda node: (
        f"s{node.arg.number}[{node.arg.size}]{' register' if node.arg.register else ''}"
    ),
}


def _payload(node: UOp) -> str:
    if node.arg is None:
        return ""
    write = _PAYLOADS.get(node.op)
    try:
        return write(node) if write is not None else _tuple(node.arg)
    except AttributeError:
        return repr(node.arg)


def _formula(node: UOp | int, depth: int) -> str:
    if isinstance(node, int):
        return str(node)
    op = node.op
    if op is Op.CONST:
        return str(node.arg)
    if op is Op.VARIABLE:
        return str(node.arg.name)
    if op is Op.BIND:
        return f"{_formula(node.src[0], depth)}={_formula(node.src[1], depth)}"
    if op is Op.RANGE:
        return f"r{node.arg.number}"
    if depth == 0:
        return "..."
    parts = [_formula(source, depth - 1) for source in node.src]
    if op in _SYMBOLS:
        parts = [_bracket(text, below) for text, below in zip(parts, node.src, strict=True)]
        return f" {_SYMBOLS[op]} ".join(parts)
    if op is Op.NEG:
        return "-" + _bracket(parts[0], node.src[0])
    name = op.name.lower() if op is not Op.CAST else node.dtype.name
    return f"{name}({', '.join(parts)})"


def _bracket(text: str, node: UOp) -> str:
    return f"({text})" if node.op in _SYMBOLS or node.op is Op.NEG else text
