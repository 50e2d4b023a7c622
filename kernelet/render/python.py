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
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.render.renderer import (
    Lines,
    array_bytes,
    gate_of,
    outline,
    raise_unexpected,
    register_name,
    register_offset,
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
_EXACT = frozenset(
    {
        Op.MAX, Op.CMPLT, Op.CMPNE, Op.AND, Op.OR, Op.XOR, Op.SHR, Op.MOD, Op.TRUNCMOD, Op.TRUNC,
        Op.WHERE,
    }
)  # fmt: skip


def render(program: Sequence[UOp], name: str) -> str:
    """The Python source of `program` as a function called `name`."""
    return _Renderer(program, name).source()


@final
class _Renderer:
    """Walks a program once; each node becomes a variable."""

    def __init__(self, program: Sequence[UOp], name: str) -> None:
        self._program = program
        self._name = name
        self._outline = outline(program)
        self._lines = Lines()
        self._values = dict(self._outline.names)
        self._addresses: dict[UOp, tuple[str, str]] = {}
        self._count = 0

    def source(self) -> str:
        """The whole text."""
        self._lines.open(f"def {self._name}(memories, values, thread_begin, thread_end):")
        self._unpack("memories", self._outline.parameters)
        self._unpack("values", self._outline.variables)
        for array in self._outline.arrays():
            self._lines.add(f"{self._values[array]} = scratch({array_bytes(array)})")
        for position, node in enumerate(self._program):
            self._visit(node, self._outline.uses[position])
        self._lines.close()
        return self._lines.text()

    def _unpack(self, name: str, nodes: Sequence[UOp | None]) -> None:
        if nodes:
            targets = ", ".join("_" if node is None else self._values[node] for node in nodes)
            self._lines.add(f"{targets}{',' if len(nodes) == 1 else ''} = {name}")

    # ---- statements ----

    def _visit(self, node: UOp, uses: int) -> None:
        op = node.op
        if op in (Op.PARAM, Op.VARIABLE, Op.SCRATCH, Op.CONST):
            return
        if op is Op.RANGE:
            bounds = (
                "thread_begin, thread_end" if node.arg.kind == "thread" else self._use(node.src[0])
            )
            self._lines.open(f"for {self._values[node]} in range({bounds}):")
        elif op is Op.END:
            self._lines.close(if_empty="pass")
        elif op is Op.INDEX:
            self._address(node)
        elif op is Op.STORE:
            self._store(node)
        elif uses or op is Op.LOAD:
            name = f"v{self._count}"
            self._count += 1
            self._lines.add(f"{name} = {self._expression(node)}")
            self._values[node] = name

    def _address(self, node: UOp) -> None:
        memory, offset = node.src
        name = self._values[memory]
        if memory.op is Op.SCRATCH and memory.arg.register:
            self._addresses[node] = (register_name(name, memory, register_offset(node)), "")
        else:
            self._addresses[node] = (name, self._use(offset))

    def _store(self, node: UOp) -> None:
        (name, offset), value, gate = self._addresses[node.src[0]], node.src[1], gate_of(node)
        is_one_gate = gate is not None and (
            gate.dtype.lanes == 1 or repeated_source(gate) is not None
        )
        if gate is not None and is_one_gate:
            self._lines.open(f"if {self._one_gate(gate)}:")
        text = self._use(value)
        if not offset:
            self._lines.add(f"{name} = {text}")
        elif value.dtype.lanes == 1:
            self._lines.add(f"store_{value.dtype.name}({name}, {offset}, {text})")
        else:
            self._lines.open(f"for lane, x in enumerate({text}):")
            if gate is not None and not is_one_gate:
                self._lines.open(f"if {self._vector(gate)}[lane]:")
            self._lines.add(f"store_{value.dtype.name}({name}, {offset} + lane, x)")
            if gate is not None and not is_one_gate:
                self._lines.close()
            self._lines.close()
        if is_one_gate:
            self._lines.close()

    # ---- values ----

    def _use(self, node: UOp) -> str:
        if node.op is Op.CONST:
            text = repr(round_to(node.dtype.scalar, node.arg))
            if node.dtype.lanes > 1:
                return f"({text},) * {node.dtype.lanes}"
            return f"({text})" if text.startswith("-") else text
        if node not in self._values:
            raise_unexpected(node, "it is used before it is computed")
        return self._values[node]

    def _vector(self, node: UOp) -> str:
        return f"({self._use(node)})" if node.op is Op.CONST else self._use(node)

    def _one_gate(self, gate: UOp) -> str:
        scalar = repeated_source(gate)
        return self._use(gate if scalar is None else scalar)

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
        (name, offset), gate = self._addresses[node.src[0]], gate_of(node)
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
        return f"{text} if {self._one_gate(gate)} else {zero if lanes == 1 else f'({zero},) * {lanes}'}"


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
    if node.op in _EXACT or dtype in (dtypes.float64, dtypes.index):
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
