"""C source that people read and gcc (from 9) or clang (from 10) compile.

In:  a linear program.
Out: C for one function: pointers, then variables, then the bounds of the thread loop.

Compiler flags: `-O2 -march=native -std=gnu11 -fwrapv -ffp-contract=off -fno-math-errno
-Wno-psabi`, and `-lm` where the processor has no fused multiply-add. Signed overflow wraps by
`-fwrapv`; a fused multiply-add is written as such, so no other is made (`-ffp-contract=off`).
Pointers carry no `restrict`: the same memory may be given twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from kernelet.base.dtype import DType, dtypes
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.render.c_casts import bitcast, cast
from kernelet.render.c_helpers import Prelude, mask_dtype
from kernelet.render.c_memory import lane_address, memory_dtype, scratch_lines, signature
from kernelet.render.c_types import literal, scalar_name
from kernelet.render.renderer import (
    BOOL_OPERATIONS,
    Lines,
    Walker,
    gate_of,
    raise_unexpected,
    repeated_source,
    safe_divisor,
)

# How tightly the outermost operator binds; a part is put in parentheses above its limit.
_ATOM, _UNARY, _PRODUCT, _SUM, _LOOSE = 0, 2, 3, 4, 9

_OPERATORS: dict[Op, tuple[str, int]] = {
    Op.ADD: ("+", _SUM),
    Op.SUB: ("-", _SUM),
    Op.MUL: ("*", _PRODUCT),
    Op.FDIV: ("/", _PRODUCT),
    Op.CMPLT: ("<", _LOOSE),
    Op.CMPNE: ("!=", _LOOSE),
    Op.AND: ("&", _LOOSE),
    Op.OR: ("|", _LOOSE),
    Op.XOR: ("^", _LOOSE),
    Op.SHL: ("<<", _LOOSE),
    Op.SHR: (">>", _LOOSE),
}
_BITWISE = frozenset({Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR})
_FUNCTIONS = {Op.SQRT: "sqrt", Op.TRUNC: "trunc", Op.MULACC: "fma"}
_MAY_OVERFLOW = frozenset({Op.ADD, Op.SUB, Op.MUL, Op.SHL, Op.NEG, Op.MULACC})
_PARAMETERS = "parameters"  # what all parameters are, as far as overlap goes
_INLINE_LENGTH = 64


@dataclass(frozen=True, slots=True)
class _Text:
    """C text of a value; `reads` names the memory that it loads from when it is evaluated."""

    text: str
    level: int
    reads: frozenset[object] = frozenset()


def render(program: Sequence[UOp], name: str) -> str:
    """The C source of `program` as a function called `name`."""
    return _Renderer(program, name).source()


@final
class _Renderer(Walker):
    """Values used once are written where they are used."""

    def __init__(self, program: Sequence[UOp], name: str) -> None:
        super().__init__(program, name)
        self._prelude = Prelude()
        self._lines = Lines()
        self._waiting: dict[UOp, _Text] = {}  # not written yet: used once, further down
        self._masks: dict[UOp, DType] = {}
        self._reads: set[object] = set()
        # Vectors whose lanes are stored one by one, or put together with those of others.
        users = [node for node in program if node.op in (Op.STORE, Op.VECTORIZE)]
        lanes = dict.fromkeys(each for node in users for each in node.src)
        vectors = [each.src[0] for each in lanes if each.op is Op.EXTRACT]
        self._scattered = {v for v in vectors if v.dtype.lanes > 1 and not v.dtype.is_bool}

    def source(self) -> str:
        """The whole text."""
        self._lines.open(f"{signature(self.outline, self.name)} {{")
        for line in scratch_lines(self.outline, self._prelude):
            self._lines.add(line)
        self.walk()
        if self.outline.is_in_heap:
            self._lines.add("__builtin_free(heap);")
        self._lines.close("}")
        prelude = self._prelude.text()
        return f"{prelude}\n{self._lines.text()}" if prelude else self._lines.text()

    def _type(self, node: UOp) -> str:
        if node.dtype.is_bool and node.dtype.lanes > 1:
            return self._prelude.type(self._mask(node))
        return self._prelude.type(node.dtype)

    # ---- statements ----

    def open_loop(self, node: UOp) -> None:
        """for (...) {"""
        name, first, end = self.values[node], "0", self._use(node.src[0], _SUM)
        if node.arg.kind == "thread":
            first, end = "thread_begin", "thread_end"
        # What is computed before a loop is written before it.
        self._write_waiting()
        self._lines.open(f"for (long long {name} = {first}; {name} < {end}; {name}++) {{")

    def close_loop(self, node: UOp) -> None:
        """The closing brace."""
        self._write_waiting()
        self._lines.close("}")

    def address(self, node: UOp, uses: int) -> str:
        """The offset, in elements; a variable if it is used again or reads memory."""
        offset = node.src[1]
        waiting = self._waiting.get(offset)
        if waiting is not None and (uses > 1 or waiting.reads):
            self._write(offset)
        return self._use(offset, _SUM)

    def compute(self, node: UOp, uses: int) -> None:
        """const T v = ...; or nothing yet."""
        self._reads = set()
        text, level = self._expression(node)
        is_memory = node.op is Op.LOAD and self.addresses[node.src[0]][1]
        is_made = is_memory or node.op is Op.VECTORIZE
        if node in self._scattered and uses > 1 and not is_made:
            text, level = f"{self._prelude.whole(node.dtype)}({text})", _ATOM
        self._waiting[node] = _Text(text, level, frozenset(self._reads))
        if uses > 1 or len(text) > _INLINE_LENGTH:
            self._write(node)

    def _write(self, node: UOp) -> None:
        value, name = self._waiting.pop(node), self.fresh()
        self.values[node] = name
        self._lines.add(f"const {self._type(node)} {name} = {value.text};")

    def _write_waiting(self, memory: object = None) -> None:
        """Write what waits, or only what reads a memory that is about to change."""
        for node, value in list(self._waiting.items()):
            if memory is None or memory in value.reads:
                self._write(node)

    def _memory(self, node: UOp) -> object:
        memory = node.src[0]
        return _PARAMETERS if memory.op is Op.PARAM else self.addresses[node][0]

    def store(self, node: UOp) -> None:
        """An assignment, under an `if` where it has a gate."""
        index, value, gate = node.src[0], node.src[1], gate_of(node)
        name, offset = self.addresses[index]
        is_lanes = value.dtype.lanes > 1
        if value.dtype.is_bool and is_lanes:
            mask = memory_dtype(value.dtype)
            sign, limit = ("-", _ATOM) if offset else ("", _LOOSE)
            text = sign + self._mask_text(value, mask, limit)
        else:
            text = self._use(value, _LOOSE)
        if gate is not None and gate.dtype.lanes > 1:
            if not offset:
                raise_unexpected(node, "a register is stored under a gate of lanes")
            flags = self._mask_text(gate, mask_dtype(value.dtype), _LOOSE)
            helper = self._prelude.store(memory_dtype(value.dtype))
            address = lane_address(name, offset, value.dtype)
            statement = f"{helper}({address}, {flags}, {text});"
        else:
            target = f"{name}[{offset}]" if offset else name
            if offset and is_lanes:
                target = f"*({self._prelude.type(memory_dtype(value.dtype))}*)({name} + {offset})"
            condition = "" if gate is None else f"if ({self._use(gate, _SUM)}) "
            statement = f"{condition}{target} = {text};"
        self._write_waiting(self._memory(index))
        self._lines.add(statement)

    # ---- values ----

    def _use(self, node: UOp, limit: int) -> str:
        """The text of a source, in parentheses where it binds less tightly than `limit`."""
        if node.op is Op.CONST:
            text = literal(node.dtype, node.arg)
            if node.dtype.lanes > 1:
                return f"{self._prelude.splat(node.dtype)}({text})"
            return f"({text})" if text.startswith("-") and limit < _PRODUCT else text
        value = self._waiting.pop(node, None)
        if value is None:
            return self.value_of(node)
        self._reads |= value.reads
        return f"({value.text})" if value.level > limit else value.text

    def _expression(self, node: UOp) -> tuple[str, int]:
        if node.op is Op.LOAD:
            return self._load(node)
        if node.dtype.is_bool and node.dtype.lanes > 1:
            return self._mask_expression(node)
        write = _EXPRESSIONS.get(node.op)
        if write is None:
            raise_unexpected(node, "C has no expression for it")
        return write(self, node)

    def _load(self, node: UOp) -> tuple[str, int]:
        name, offset = self.addresses[node.src[0]]
        self._reads.add(self._memory(node.src[0]))
        is_mask = node.dtype.is_bool and node.dtype.lanes > 1
        if not offset:
            return name, _ATOM
        dtype = memory_dtype(node.dtype) if is_mask else node.dtype
        gate = gate_of(node)
        if gate is not None and gate.dtype.lanes > 1:
            flags = self._mask_text(gate, mask_dtype(dtype), _LOOSE)
            address = lane_address(name, offset, node.dtype)
            text, level = f"{self._prelude.load(dtype)}({address}, {flags})", _ATOM
        elif dtype.lanes == 1:
            text, level = f"{name}[{offset}]", _ATOM
        else:
            text, level = f"*({self._prelude.type(dtype)}*)({name} + {offset})", _UNARY
        if gate is not None and gate.dtype.lanes == 1:
            zero = "0" if dtype.lanes == 1 else f"({self._prelude.type(dtype)}){{0}}"
            text, level = f"{self._use(gate, _SUM)} ? {text} : {zero}", _LOOSE
        return (f"-({text})", _UNARY) if is_mask else (text, level)

    def _binary(self, node: UOp) -> tuple[str, int]:
        op = node.op
        left, right = node.src
        if node.dtype.is_bool and op in BOOL_OPERATIONS and left.dtype.is_bool:
            if op is Op.CMPNE and right.op is Op.CONST and right.arg:
                return f"!{self._use(left, _ATOM)}", _UNARY
            op = BOOL_OPERATIONS[op]
        sign, level = _OPERATORS[op]
        limit = min(level, _SUM) if op not in _BITWISE else _UNARY
        # x + (y + z) may be written without parentheses where rounding plays no part.
        regroups = op in (Op.ADD, Op.MUL) and node.dtype.is_integer
        first = self._use(left, limit)
        if left.op is Op.CONST and right.op is Op.CONST and left.dtype.scalar is dtypes.index:
            first = f"({self._prelude.type(left.dtype)}){first}"
        second = self._use(right, limit if regroups or level > _SUM else limit - 1)
        return self._narrowed(node, f"{first} {sign} {second}", level)

    def _narrowed(self, node: UOp, text: str, level: int) -> tuple[str, int]:
        # C computes with at least 32 bits, so what is narrower must be cut back.
        is_narrow = node.dtype.is_integer and node.dtype.itemsize < 4 and node.dtype.lanes == 1
        if is_narrow and node.op in _MAY_OVERFLOW:
            return f"({scalar_name(node.dtype)})({text})", _UNARY
        return text, level

    def _negate(self, node: UOp) -> tuple[str, int]:
        if node.dtype.is_bool:
            return self._use(node.src[0], _LOOSE), _LOOSE
        return self._narrowed(node, f"-{self._use(node.src[0], _ATOM)}", _UNARY)

    def _maximum(self, node: UOp) -> tuple[str, int]:
        if node.dtype.is_bool:
            return self._binary(node)
        return self._call(self._prelude.maximum(node.dtype), node.src), _ATOM

    def _divide(self, node: UOp) -> tuple[str, int]:
        is_modulo = node.op is Op.TRUNCMOD
        if node.dtype.lanes == 1 and safe_divisor(node.src[1]):
            left, right = self._use(node.src[0], _PRODUCT), self._use(node.src[1], _UNARY)
            return f"{left} {'%' if is_modulo else '/'} {right}", _PRODUCT
        helper = self._prelude.modulo if is_modulo else self._prelude.divide
        return self._call(helper(node.dtype), node.src), _ATOM

    def _call(self, function: str, sources: Sequence[UOp]) -> str:
        return f"{function}({', '.join(self._use(source, _LOOSE) for source in sources)})"

    def _float_function(self, node: UOp) -> tuple[str, int]:
        if node.dtype.is_float:
            name = self._prelude.float_function(_FUNCTIONS[node.op], node.dtype)
            return self._call(name, node.src), _ATOM
        if node.op is Op.TRUNC:
            return self._use(node.src[0], _LOOSE), _LOOSE
        product = f"{self._use(node.src[0], _PRODUCT)} * {self._use(node.src[1], _UNARY)}"
        return self._narrowed(node, f"{product} + {self._use(node.src[2], _SUM)}", _SUM)

    def _reciprocal(self, node: UOp) -> tuple[str, int]:
        return f"{literal(node.dtype, 1.0)} / {self._use(node.src[0], _UNARY)}", _PRODUCT

    def _where(self, node: UOp) -> tuple[str, int]:
        condition, yes, no = node.src
        if node.dtype.lanes > 1:
            mask = self._mask_text(condition, mask_dtype(node.dtype), _LOOSE)
            values = f"{self._use(yes, _LOOSE)}, {self._use(no, _LOOSE)}"
            return f"{self._prelude.select(node.dtype)}({mask}, {values})", _ATOM
        test = self._use(condition, _SUM)
        return f"{test} ? {self._use(yes, _SUM)} : {self._use(no, _SUM)}", _LOOSE

    def _cast(self, node: UOp) -> tuple[str, int]:
        source, target = node.src[0], node.dtype
        if target.is_bool:
            if source.dtype.is_bool:
                return self._use(source, _LOOSE), _LOOSE
            if source.dtype.scalar is dtypes.float16:
                return f"({self._use(source, _UNARY)} & 0x7fff) != 0", _LOOSE
            return f"{self._use(source, _SUM)} != {literal(source.dtype, 0)}", _LOOSE
        if source.dtype.is_bool and target.lanes > 1:
            text = f"-{self._mask_text(source, self._mask(source))}"
            return cast(self._prelude, text, self._mask(source), target), _UNARY
        kind = dtypes.uint8 if source.dtype.is_bool else source.dtype
        return cast(self._prelude, self._use(source, _LOOSE), kind, target), _UNARY

    def _bitcast(self, node: UOp) -> tuple[str, int]:
        source, target = node.src[0], node.dtype
        if source.dtype.is_bool and target.lanes > 1:
            narrow = dtypes.int8.vec(target.lanes)
            text = f"-{self._mask_text(source, narrow)}"
            return bitcast(self._prelude, text, narrow, target), _UNARY
        if target.is_bool:
            return f"{self._use(source, _SUM)} != 0", _LOOSE
        kind = dtypes.uint8 if source.dtype.is_bool else source.dtype
        return bitcast(self._prelude, self._use(source, _LOOSE), kind, target), _UNARY

    def _vectorize(self, node: UOp) -> tuple[str, int]:
        if node.dtype.lanes == 1:
            return self._use(node.src[0], _LOOSE), _LOOSE
        if repeated_source(node) is not None:
            name = self._prelude.splat(node.dtype)
            return f"{name}({self._use(node.src[0], _LOOSE)})", _ATOM
        lanes = ", ".join(self._use(source, _LOOSE) for source in node.src)
        return f"({self._prelude.type(node.dtype)}){{{lanes}}}", _UNARY

    def _extract(self, node: UOp) -> tuple[str, int]:
        source = node.src[0]
        if source.dtype.lanes == 1:
            return self._use(source, _LOOSE), _LOOSE
        if node.dtype.is_bool:
            return f"{self._mask_operand(source)}[{node.arg}] != 0", _LOOSE
        return f"{self._use(source, _ATOM)}[{node.arg}]", _ATOM

    # ---- vector bools ----

    def _mask(self, node: UOp) -> DType:
        """The integers that hold a vector bool: as wide as what made it."""
        return self._masks.get(node, dtypes.int8.vec(node.dtype.lanes))

    def _mask_operand(self, node: UOp, limit: int = _ATOM) -> str:
        if node.op is Op.CONST:
            mask = self._mask(node)
            return f"{self._prelude.splat(mask)}({-int(node.arg)})"
        return self._use(node, limit)

    def _mask_text(self, node: UOp, wanted: DType, limit: int = _ATOM) -> str:
        """A vector bool as integers of the wanted width."""
        if node.op is Op.CONST:
            return f"{self._prelude.splat(wanted)}({-int(node.arg)})"
        if self._mask(node) is wanted:
            return self._mask_operand(node, limit)
        text = self._mask_operand(node, _LOOSE)
        return f"__builtin_convertvector({text}, {self._prelude.type(wanted)})"

    def _mask_expression(self, node: UOp) -> tuple[str, int]:
        op, sources = node.op, node.src
        if op is Op.VECTORIZE:
            if repeated_source(node) is not None:
                name = self._prelude.splat(self._mask(node))
                return f"{name}(-{self._use(sources[0], _ATOM)})", _ATOM
            lanes = ", ".join(f"-{self._use(source, _ATOM)}" for source in sources)
            return f"({self._prelude.type(self._mask(node))}){{{lanes}}}", _UNARY
        if not sources[-1].dtype.is_bool:
            return self._comparison(node)
        # Constants take any width, so the others decide.
        widths = [self._mask(source) for source in sources if source.op is not Op.CONST]
        mask = max(widths, key=lambda dtype: dtype.itemsize, default=self._mask(node))
        self._masks[node] = mask
        if op is Op.CMPNE and sources[1].op is Op.CONST and sources[1].arg:
            return f"~{self._mask_text(sources[0], mask)}", _UNARY
        texts = [self._mask_text(source, mask) for source in sources]
        if op is Op.WHERE:
            return f"{self._prelude.select(mask)}({', '.join(texts)})", _ATOM
        if op in (Op.NEG, Op.CAST, Op.TRUNC):
            return texts[0], _UNARY
        if op is Op.CMPLT:
            return f"~{texts[0]} & {texts[1]}", _LOOSE
        sign, level = _OPERATORS.get(BOOL_OPERATIONS.get(op, op), ("", 0))
        if not sign:
            raise_unexpected(node, "C has no expression for it on vector bools")
        return f"{texts[0]} {sign} {texts[1]}", level

    def _comparison(self, node: UOp) -> tuple[str, int]:
        source = node.src[0]
        mask = self._masks[node] = mask_dtype(source.dtype)
        left = self._use(source, _SUM)
        if node.op in (Op.CAST, Op.BITCAST):
            if source.dtype.scalar is dtypes.float16:
                left = f"({left} << 1)"
            return f"({self._prelude.type(mask)})({left} != ({self._type(source)}){{0}})", _UNARY
        sign, _ = _OPERATORS[node.op]
        return f"({self._prelude.type(mask)})({left} {sign} {self._use(node.src[1], _SUM)})", _UNARY


_EXPRESSIONS: dict[Op, Callable[[_Renderer, UOp], tuple[str, int]]] = {
    **dict.fromkeys(_OPERATORS, _Renderer._binary),
    Op.NEG: _Renderer._negate,
    Op.MAX: _Renderer._maximum,
    Op.TRUNCDIV: _Renderer._divide,
    Op.TRUNCMOD: _Renderer._divide,
    **dict.fromkeys(_FUNCTIONS, _Renderer._float_function),
    Op.RECIPROCAL: _Renderer._reciprocal,
    Op.WHERE: _Renderer._where,
    Op.CAST: _Renderer._cast,
    Op.BITCAST: _Renderer._bitcast,
    Op.VECTORIZE: _Renderer._vectorize,
    Op.EXTRACT: _Renderer._extract,
}
