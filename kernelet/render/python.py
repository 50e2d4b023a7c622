"""Python source: the reference device runs it, and people read it without knowing C.

In:  a linear program.
Out: source of `def NAME(memories, values, thread_begin, thread_end)`, to be executed with the
     functions of `kernelet.base.scalars.NAMESPACE` as its globals.

A vector is a tuple with one number a lane. Every result is rounded or wrapped to its dtype,
except where its bounds show that nothing would change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from kernelet.base.dtype import DType, dtypes, round_to
from kernelet.graph.ops import COMPARISONS, Op
from kernelet.graph.uop import UOp
from kernelet.render.renderer import (
    Lines,
    Walker,
    array_bytes,
    gate_of,
    raise_unexpected,
    repeated_source,
)

# What one lane is, with its sources in place of {0}, {1} and {2}.
_FORMULAS: dict[Op, str] = {
    Op.ADD: "{0} + {1}",
    Op.SUB: "{0} - {1}",
    Op.MUL: "{0} * {1}",
    Op.NEG: "-{0}",
    Op.MAX: "maximum({0}, {1})",
    Op.CMPLT: "{0} < {1}",
    Op.CMPNE: "{0} != {1}",
    Op.AND: "{0} & {1}",
    Op.OR: "{0} | {1}",
    Op.XOR: "{0} ^ {1}",
    Op.SHL: "shift_left({0}, {1})",
    Op.SHR: "shift_right({0}, {1})",
    Op.IDIV: "floor_divide({0}, {1})",
    Op.MOD: "floor_modulo({0}, {1})",
    Op.TRUNCDIV: "trunc_divide({0}, {1})",
    Op.TRUNCMOD: "trunc_modulo({0}, {1})",
    Op.FDIV: "divide({0}, {1})",
    Op.RECIPROCAL: "reciprocal({0})",
    Op.SQRT: "square_root({0})",
    Op.EXP2: "exp2({0})",
    Op.LOG2: "log2({0})",
    Op.SIN: "sine({0})",
    Op.TRUNC: "truncate({0})",
    Op.WHERE: "{1} if {0} else {2}",
    Op.MULACC: "multiply_add({0}, {1}, {2})",
}
_EXACT = frozenset({Op.MAX, Op.AND, Op.OR, Op.XOR, Op.SHR, Op.MOD, Op.TRUNCMOD, Op.TRUNC, Op.WHERE})


def render(program: Sequence[UOp], name: str) -> str:
    """The Python source of `program` as a function called `name`."""
    return _Renderer(program, name).source()


@final
class _Renderer(Walker):
    """Each node becomes a variable."""

    def source(self) -> str:
        """The whole text."""
        self._lines = Lines()
        self._lines.open(f"def {self.name}(memories, values, thread_begin, thread_end):")
        self._unpack("memories", self.outline.parameters)
        self._unpack("values", self.outline.variables)
        for array in self.outline.arrays():
            self._lines.add(f"{self.values[array]} = scratch({array_bytes(array)})")
        self.walk()
        return self._lines.text()

    def _unpack(self, name: str, nodes: Sequence[UOp | None]) -> None:
        if nodes:
            targets = ", ".join("_" if node is None else self.values[node] for node in nodes)
            self._lines.add(f"{targets}{',' if len(nodes) == 1 else ''} = {name}")

    # ---- statements ----

    def open_loop(self, node: UOp) -> None:
        """for i in range(...):"""
        bounds = self._use(node.src[0])
        if node.arg.kind == "thread":
            bounds = "thread_begin, thread_end"
        self._lines.open(f"for {self.values[node]} in range({bounds}):")

    def close_loop(self, node: UOp) -> None:
        """The end of the indented block."""
        self._lines.close(if_empty="pass")

    def address(self, node: UOp, uses: int) -> str:
        """The offset, in elements."""
        return self._use(node.src[1])

    def compute(self, node: UOp, uses: int) -> None:
        """v = ..."""
        text, name = self._expression(node), self.fresh()
        self._lines.add(f"{name} = {text}")
        self.values[node] = name

    def store(self, node: UOp) -> None:
        """Write one element, or lane by lane."""
        (name, offset), value, gate = self.addresses[node.src[0]], node.src[1], gate_of(node)
        kind, text = value.dtype.name, self._use(value)
        if not offset:
            statement = f"{name} = {text}"
        elif value.dtype.lanes == 1:
            statement = f"store_{kind}({name}, {offset}, {text})"
        else:
            self._lines.open(f"for lane, x in enumerate({text}):")
            statement = f"store_{kind}({name}, {offset} + lane, x)"
        if gate is not None:
            lane = "[lane]" if gate.dtype.lanes > 1 else ""
            statement = f"if {self._vector(gate) if lane else self._use(gate)}{lane}: {statement}"
        self._lines.add(statement)
        if offset and value.dtype.lanes > 1:
            self._lines.close()

    # ---- values ----

    def _use(self, node: UOp) -> str:
        if node.op is not Op.CONST:
            return self.value_of(node)
        text = repr(round_to(node.dtype.scalar, node.arg))
        if node.dtype.lanes > 1:
            return f"({text},) * {node.dtype.lanes}"
        return f"({text})" if text.startswith("-") else text

    def _vector(self, node: UOp) -> str:
        return f"({self._use(node)})" if node.op is Op.CONST else self._use(node)

    def _expression(self, node: UOp) -> str:
        op, lanes = node.op, node.dtype.lanes
        if op is Op.LOAD:
            return self._load(node)
        sources = [self._use(source) for source in node.src]
        if op is Op.VECTORIZE:
            if lanes == 1:
                return sources[0]
            if repeated_source(node) is not None:
                return f"({sources[0]},) * {lanes}"
            return f"({', '.join(sources)})"
        if op is Op.EXTRACT:
            source = node.src[0]
            return f"{self._vector(source)}[{node.arg}]" if source.dtype.lanes > 1 else sources[0]
        if lanes == 1:
            return _lane(node, sources)
        letters = ["x", "y", "z"][: len(sources)]
        lane = _lane(node, letters)
        if len(sources) == 1:
            return f"tuple([{lane} for x in {sources[0]}])"
        return f"tuple([{lane} for {', '.join(letters)} in zip({', '.join(sources)})])"

    def _load(self, node: UOp) -> str:
        (name, offset), gate = self.addresses[node.src[0]], gate_of(node)
        lanes, scalar = node.dtype.lanes, node.dtype.scalar
        zero = repr(round_to(scalar, 0))
        if not offset:
            text = name
        elif lanes == 1:
            text = f"load_{scalar.name}({name}, {offset})"
        else:
            text = f"load_{scalar.name}({name}, {offset} + lane)"
            if gate is not None and gate.dtype.lanes > 1:
                text, gate = f"{text} if {self._vector(gate)}[lane] else {zero}", None
            text = f"tuple([{text} for lane in range({lanes})])"
        if gate is None:
            return text
        return f"{text} if {self._use(gate)} else {zero if lanes == 1 else f'({zero},) * {lanes}'}"


def _lane(node: UOp, sources: Sequence[str]) -> str:
    """The formula of one lane, rounded to the dtype of the node."""
    dtype = node.dtype.scalar
    if node.op is Op.CAST:
        return _cast(sources[0], node.src[0].dtype.scalar, dtype)
    if node.op is Op.BITCAST:
        return f"bitcast({sources[0]}, {node.src[0].dtype.name!r}, {dtype.name!r})"
    if node.op not in _FORMULAS:
        raise_unexpected(node, "Python has no formula for it")
    text = _FORMULAS[node.op].format(*sources)
    return text if _needs_no_rounding(node, dtype) else f"round_{dtype.name}({text})"


def _needs_no_rounding(node: UOp, dtype: DType) -> bool:
    if node.op in _EXACT | COMPARISONS or dtype in (dtypes.float64, dtypes.index):
        return True
    if node.op is Op.NEG and dtype.is_float:
        return True
    # Bounds are those of the dtype where a value may leave it, so narrower ones prove that none does.
    return dtype.is_integer and (node.bounds.min > dtype.min or node.bounds.max < dtype.max)


def _cast(text: str, source: DType, target: DType) -> str:
    if source is target:
        return text
    if target.is_bool:
        return f"{text} != 0"
    if target is dtypes.float64:
        return text if source.is_float else f"float({text})"
    return f"round_{target.name}({text})"
