"""LLVM IR text, from LLVM 15 on; what llvmlite (from 0.45) compiles in process.

In:  a linear program.
Out: a module with one function: pointers, then variables, then the bounds of the thread loop.

Loops have a header that counts from the first index and tests before each turn. Register scratch
is an `alloca` at the entry, which the optimiser turns into values. Nothing is marked as fast:
a fused multiply-add is written as such and no other is made. Pointers carry no `noalias`: the
same memory may be given twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from kernelet.base.dtype import DType, dtypes
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.render.llvm_types import cast_value, literal, suffix, type_name
from kernelet.render.renderer import (
    STACK_BYTES,
    array_bytes,
    bits_dtype,
    gate_of,
    outline,
    raise_unexpected,
    register_name,
    register_offset,
    repeated_source,
    safe_divisor,
)

_FLOAT_OPERATIONS = {Op.ADD: "fadd", Op.SUB: "fsub", Op.MUL: "fmul", Op.FDIV: "fdiv"}
_INTEGER_OPERATIONS = {
    Op.ADD: "add",
    Op.SUB: "sub",
    Op.MUL: "mul",
    Op.AND: "and",
    Op.OR: "or",
    Op.XOR: "xor",
    Op.SHL: "shl",
}
_BOOL_OPERATIONS = {
    Op.ADD: "or",
    Op.SUB: "xor",
    Op.MUL: "and",
    Op.MAX: "or",
    Op.AND: "and",
    Op.OR: "or",
    Op.XOR: "xor",
}
_BINARY = frozenset({*_FLOAT_OPERATIONS, *_INTEGER_OPERATIONS})


def render(program: Sequence[UOp], name: str) -> str:
    """The LLVM IR of `program` as a function called `name`."""
    return _Renderer(program, name).source()


@final
class _Renderer:
    """Walks a program once; each node becomes a value of its own."""

    def __init__(self, program: Sequence[UOp], name: str) -> None:
        self._program = program
        self._name = name
        self._outline = outline(program)
        self._lines: list[str] = []
        self._declared: dict[str, None] = {}
        self._values = {node: f"%{text}" for node, text in self._outline.names.items()}
        self._addresses: dict[UOp, str] = {}
        self._loops: dict[UOp, str] = {}
        self._labels: set[str] = set()
        self._block = "entry"
        self._count = 0
        self._in_heap = self._outline.scratch_bytes() > STACK_BYTES

    def source(self) -> str:
        """The whole text."""
        self._declare_scratch()
        for position, node in enumerate(self._program):
            self._visit(node, self._outline.uses[position])
        if self._in_heap:
            self._line(f"call void {self.declare('void', 'free', 'ptr')}(ptr %heap)")
        self._line("ret void")
        declarations = "".join(f"{line}\n" for line in self._declared)
        body = "\n".join(self._lines)
        return (
            f"define void @{self._name}({self._signature()}) #0 {{\nentry:\n{body}\n}}\n"
            f'{declarations}attributes #0 = {{ nounwind "prefer-vector-width"="512" }}\n'
        )

    # ---- text ----

    def _line(self, text: str) -> None:
        self._lines.append(f"  {text}")

    def _fresh(self) -> str:
        self._count += 1
        return f"v{self._count - 1}"

    def assign(self, text: str) -> str:
        """Append an instruction and name its result."""
        name = f"%{self._fresh()}"
        self._line(f"{name} = {text}")
        return name

    def _start(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self._block = label

    def declare(self, result: str, name: str, parameters: str) -> str:
        """Declare a function and give its name."""
        self._declared[f"declare {result} @{name}({parameters})"] = None
        return f"@{name}"

    def _intrinsic(self, name: str, dtype: DType, *operands: str) -> str:
        kind = type_name(dtype)
        parameters = ", ".join([kind] * len(operands))
        function = self.declare(kind, f"llvm.{name}.{suffix(dtype)}", parameters)
        values = ", ".join(f"{kind} {operand}" for operand in operands)
        return self.assign(f"call {kind} {function}({values})")

    def _use(self, node: UOp) -> str:
        if node.op is Op.CONST:
            return literal(node.dtype, node.arg)
        if node not in self._values:
            raise_unexpected(node, "it is used before it is computed")
        return self._values[node]

    def _typed(self, node: UOp) -> str:
        return f"{type_name(node.dtype)} {self._use(node)}"

    # ---- declarations ----

    def _signature(self) -> str:
        parts = []
        for slot, parameter in enumerate(self._outline.parameters):
            if parameter is None:
                parts.append(f"ptr %unused{slot}")
                continue
            constant = "" if parameter in self._outline.stored else "readonly "
            parts.append(f"ptr {constant}{self._values[parameter]}")
        parts += [f"i64 {self._values[variable]}" for variable in self._outline.variables]
        return ", ".join([*parts, "i64 %thread_begin", "i64 %thread_end"])

    def _declare_scratch(self) -> None:
        if self._in_heap:
            total = self._outline.scratch_bytes() + 64
            allocate = self.declare("noalias ptr", "malloc", "i64")
            self._line(f"%heap = call ptr {allocate}(i64 {total})")
            address = self.assign("ptrtoint ptr %heap to i64")
            negative = self.assign(f"sub i64 0, {address}")
            shift = self.assign(f"and i64 {negative}, 63")
            self._line(f"%aligned = getelementptr i8, ptr %heap, i64 {shift}")
        begin = 0
        for memory in self._outline.scratch:
            name = self._values[memory]
            if memory.arg.register:
                for offset in self._outline.registers.get(memory, ()):
                    register = register_name(name, memory, offset)
                    self._line(f"{register} = alloca {type_name(memory.dtype)}")
            elif self._in_heap:
                self._line(f"{name} = getelementptr i8, ptr %aligned, i64 {begin}")
                begin += array_bytes(memory)
            else:
                self._line(f"{name} = alloca [{array_bytes(memory)} x i8], align 64")

    # ---- statements ----

    def _visit(self, node: UOp, uses: int) -> None:
        op = node.op
        if op in (Op.PARAM, Op.VARIABLE, Op.SCRATCH, Op.CONST):
            return
        if op is Op.RANGE:
            self._open_loop(node)
        elif op is Op.END:
            self._close_loop(node.src[0])
        elif op is Op.INDEX:
            self._address(node)
        elif op is Op.STORE:
            self._store(node)
        elif uses:
            if op is Op.LOAD:
                self._values[node] = self._load(node)
                return
            write = _VALUES.get(op)
            if write is None:
                raise_unexpected(node, "LLVM has no instruction for it")
            self._values[node] = write(self, node)

    def _open_loop(self, node: UOp) -> None:
        first, end = "0", self._use(node.src[0])
        if node.arg.kind == "thread":
            first, end = "%thread_begin", "%thread_end"
        label = self._outline.names[node]
        if label in self._labels:
            label = f"{label}.{self._fresh()}"
        self._labels.add(label)
        variable, before = f"%{label}", self._block
        self._values[node] = variable
        self._line(f"br label %{label}.head")
        self._start(f"{label}.head")
        self._line(
            f"{variable} = phi i64 [ {first}, %{before} ], [ {variable}.next, %{label}.latch ]"
        )
        more = self.assign(f"icmp slt i64 {variable}, {end}")
        self._line(f"br i1 {more}, label %{label}.body, label %{label}.exit")
        self._start(f"{label}.body")
        self._loops[node] = label

    def _close_loop(self, node: UOp) -> None:
        label = self._loops.pop(node)
        self._line(f"br label %{label}.latch")
        self._start(f"{label}.latch")
        self._line(f"%{label}.next = add nsw i64 %{label}, 1")
        self._line(f"br label %{label}.head")
        self._start(f"{label}.exit")

    def _address(self, node: UOp) -> None:
        memory, offset = node.src
        name = self._values[memory]
        if memory.op is Op.SCRATCH and memory.arg.register:
            self._addresses[node] = register_name(name, memory, register_offset(node))
            return
        # An address outside its memory is allowed only where a gate keeps it from being used.
        inbounds = "" if node in self._outline.gated else "inbounds "
        kind = type_name(memory.dtype.scalar, in_memory=True)
        text = f"getelementptr {inbounds}{kind}, ptr {name}, i64 {self._use(offset)}"
        self._addresses[node] = self.assign(text)

    def _alignment(self, node: UOp) -> str:
        memory = node.src[0].src[0]
        is_register = memory.op is Op.SCRATCH and memory.arg.register
        return "" if is_register else f", align {memory.dtype.itemsize}"

    def _is_held_as_bytes(self, node: UOp) -> bool:
        memory = node.src[0].src[0]
        is_register = memory.op is Op.SCRATCH and memory.arg.register
        return memory.dtype.is_bool and not is_register

    def _load(self, node: UOp) -> str:
        as_bytes = self._is_held_as_bytes(node)
        kind = type_name(node.dtype, in_memory=as_bytes)
        address, gate = self._addresses[node.src[0]], gate_of(node)
        if gate is not None and gate.dtype.lanes > 1 and repeated_source(gate) is None:
            value = self._masked_load(node, dtypes.uint8 if as_bytes else node.dtype, gate)
        elif gate is not None:
            value = self._branch(gate, kind, f"load {kind}, ptr {address}{self._alignment(node)}")
        else:
            value = self.assign(f"load {kind}, ptr {address}{self._alignment(node)}")
        if as_bytes:
            return self.assign(
                f"icmp ne {kind} {value}, {_zero(dtypes.uint8.vec(node.dtype.lanes))}"
            )
        return value

    def _masked_load(self, node: UOp, dtype: DType, gate: UOp) -> str:
        lanes = node.dtype.lanes
        kind, flags = type_name(dtype.vec(lanes)), type_name(gate.dtype)
        name = f"llvm.masked.load.{suffix(dtype.vec(lanes))}.p0"
        function = self.declare(kind, name, f"ptr, i32, {flags}, {kind}")
        address, size = self._addresses[node.src[0]], dtype.itemsize
        operands = f"ptr {address}, i32 {size}, {flags} {self._use(gate)}, {kind} zeroinitializer"
        return self.assign(f"call {kind} {function}({operands})")

    def _branch(self, gate: UOp, kind: str, load: str) -> str:
        """The loaded value, or 0 without loading."""
        before, label = self._block, self._fresh()
        self._line(f"br i1 {self._scalar_gate(gate)}, label %{label}.inside, label %{label}.done")
        self._start(f"{label}.inside")
        value = self.assign(load)
        self._line(f"br label %{label}.done")
        self._start(f"{label}.done")
        zero = "zeroinitializer"
        return self.assign(f"phi {kind} [ {value}, %{label}.inside ], [ {zero}, %{before} ]")

    def _scalar_gate(self, gate: UOp) -> str:
        scalar = repeated_source(gate)
        return self._use(gate if scalar is None else scalar)

    def _store(self, node: UOp) -> None:
        index, value = node.src[0], node.src[1]
        gate, dtype = gate_of(node), value.dtype
        text = self._use(value)
        if self._is_held_as_bytes(node):
            bits = dtypes.uint8.vec(dtype.lanes)
            text = self.assign(f"zext {type_name(dtype)} {text} to {type_name(bits)}")
            dtype = bits
        kind, address = type_name(dtype), self._addresses[index]
        store = f"store {kind} {text}, ptr {address}{self._alignment(node)}"
        if gate is None:
            self._line(store)
        elif gate.dtype.lanes > 1 and repeated_source(gate) is None:
            flags, size = type_name(gate.dtype), dtype.itemsize
            name = f"llvm.masked.store.{suffix(dtype)}.p0"
            function = self.declare("void", name, f"{kind}, ptr, i32, {flags}")
            operands = f"{kind} {text}, ptr {address}, i32 {size}, {flags} {self._use(gate)}"
            self._line(f"call void {function}({operands})")
        else:
            label = self._fresh()
            scalar = self._scalar_gate(gate)
            self._line(f"br i1 {scalar}, label %{label}.inside, label %{label}.done")
            self._start(f"{label}.inside")
            self._line(store)
            self._line(f"br label %{label}.done")
            self._start(f"{label}.done")

    # ---- values ----

    def _binary(self, node: UOp) -> str:
        left, right = node.src
        if node.dtype.is_bool:
            name = _BOOL_OPERATIONS[node.op]
        elif node.dtype.is_float:
            name = _FLOAT_OPERATIONS[node.op]
        else:
            name = _INTEGER_OPERATIONS[node.op]
            # An address never overflows; saying so lets loops over it be simplified.
            if node.dtype.scalar is dtypes.index and node.op in (Op.ADD, Op.SUB, Op.MUL):
                name += " nsw"
        return self.assign(f"{name} {self._typed(left)}, {self._use(right)}")

    def _shift_right(self, node: UOp) -> str:
        name = "lshr" if node.dtype.is_unsigned else "ashr"
        return self.assign(f"{name} {self._typed(node.src[0])}, {self._use(node.src[1])}")

    def _compare(self, node: UOp) -> str:
        left, right = node.src
        return self.assign(f"{_comparison(node)} {self._typed(left)}, {self._use(right)}")

    def _negate(self, node: UOp) -> str:
        source = node.src[0]
        if node.dtype.is_bool:
            return self._use(source)
        if node.dtype.is_float:
            return self.assign(f"fneg {self._typed(source)}")
        return self.assign(f"sub {type_name(node.dtype)} {_zero(node.dtype)}, {self._use(source)}")

    def _maximum(self, node: UOp) -> str:
        if node.dtype.is_bool:
            return self._binary(node)
        left, right = node.src
        kind, x, y = type_name(node.dtype), self._use(left), self._use(right)
        if not node.dtype.is_float:
            return self._intrinsic("umax" if node.dtype.is_unsigned else "smax", node.dtype, x, y)
        # One instruction and a repair for NaN; llvm.maximum also orders zeros, which takes four.
        greater = self.assign(f"fcmp ogt {kind} {x}, {y}")
        value = self._select(node.dtype, greater, x, y)
        nan = self.assign(f"fcmp uno {kind} {x}, {_zero(node.dtype)}")
        return self._select(node.dtype, nan, x, value)

    def _select(self, dtype: DType, condition: str, yes: str, no: str) -> str:
        kind, flags = type_name(dtype), type_name(dtypes.bool.vec(dtype.lanes))
        return self.assign(f"select {flags} {condition}, {kind} {yes}, {kind} {no}")

    def _where(self, node: UOp) -> str:
        return self._select(node.dtype, *map(self._use, node.src))

    def _divide(self, node: UOp) -> str:
        left, right = node.src
        dtype = bits_dtype(node.dtype)
        kind, x, y = type_name(dtype), self._use(left), self._use(right)
        sign = "u" if dtype.is_unsigned else "s"
        name = f"{sign}{'rem' if node.op is Op.TRUNCMOD else 'div'}"
        if safe_divisor(right):
            return self.assign(f"{name} {kind} {x}, {y}")
        zero, is_modulo = _zero(dtype), node.op is Op.TRUNCMOD
        flags = type_name(dtypes.bool.vec(dtype.lanes))
        odd = is_zero = self.assign(f"icmp eq {kind} {y}, {zero}")
        special = self._select(dtype, is_zero, x, zero) if is_modulo else zero
        if not dtype.is_unsigned:
            is_negative = self.assign(f"icmp eq {kind} {y}, {literal(dtype, -1)}")
            odd = self.assign(f"or {flags} {is_zero}, {is_negative}")
            if not is_modulo:
                opposite = self.assign(f"sub {kind} {zero}, {x}")
                special = self._select(dtype, is_zero, zero, opposite)
        safe = self._select(dtype, odd, literal(dtype, 1), y)
        return self._select(dtype, odd, special, self.assign(f"{name} {kind} {x}, {safe}"))

    def _square_root(self, node: UOp) -> str:
        return self._intrinsic("sqrt", node.dtype, self._use(node.src[0]))

    def _truncate(self, node: UOp) -> str:
        value = self._use(node.src[0])
        return self._intrinsic("trunc", node.dtype, value) if node.dtype.is_float else value

    def _multiply_add(self, node: UOp) -> str:
        x, y, z = map(self._use, node.src)
        if node.dtype.is_float:
            return self._intrinsic("fma", node.dtype, x, y, z)
        product = self.assign(f"mul {type_name(node.dtype)} {x}, {y}")
        return self.assign(f"add {type_name(node.dtype)} {product}, {z}")

    def _reciprocal(self, node: UOp) -> str:
        one = literal(node.dtype, 1.0)
        return self.assign(f"fdiv {type_name(node.dtype)} {one}, {self._use(node.src[0])}")

    def _cast(self, node: UOp) -> str:
        return cast_value(self, self._use(node.src[0]), node.src[0].dtype, node.dtype)

    def _bitcast(self, node: UOp) -> str:
        source, value = node.src[0], self._use(node.src[0])
        held, wanted = type_name(source.dtype), type_name(node.dtype)
        if source.dtype.is_bool or node.dtype.is_bool:
            word = "zext" if source.dtype.is_bool else "trunc"
            return self.assign(f"{word} {held} {value} to {wanted}")
        return value if held == wanted else self.assign(f"bitcast {held} {value} to {wanted}")

    def _vectorize(self, node: UOp) -> str:
        kind, element = type_name(node.dtype), type_name(node.dtype.scalar)
        scalar = repeated_source(node)
        if node.dtype.lanes == 1:
            return self._use(node.src[0])
        value = "poison"
        for lane, source in enumerate(node.src if scalar is None else node.src[:1]):
            text = f"insertelement {kind} {value}, {element} {self._use(source)}, i32 {lane}"
            value = self.assign(text)
        if scalar is None:
            return value
        order = f"<{node.dtype.lanes} x i32> zeroinitializer"
        return self.assign(f"shufflevector {kind} {value}, {kind} poison, {order}")

    def _extract(self, node: UOp) -> str:
        source = node.src[0]
        if source.dtype.lanes == 1:
            return self._use(source)
        return self.assign(f"extractelement {self._typed(source)}, i32 {node.arg}")


def _zero(dtype: DType) -> str:
    return literal(dtype, 0)


def _comparison(node: UOp) -> str:
    dtype, is_less = node.src[0].dtype, node.op is Op.CMPLT
    if dtype.is_float:
        return "fcmp olt" if is_less else "fcmp une"
    if not is_less:
        return "icmp ne"
    return "icmp ult" if dtype.is_unsigned or dtype.is_bool else "icmp slt"


_VALUES: dict[Op, Callable[[_Renderer, UOp], str]] = {
    **dict.fromkeys(_BINARY, _Renderer._binary),
    Op.SHR: _Renderer._shift_right,
    Op.CMPLT: _Renderer._compare,
    Op.CMPNE: _Renderer._compare,
    Op.NEG: _Renderer._negate,
    Op.MAX: _Renderer._maximum,
    Op.WHERE: _Renderer._where,
    Op.TRUNCDIV: _Renderer._divide,
    Op.TRUNCMOD: _Renderer._divide,
    Op.SQRT: _Renderer._square_root,
    Op.TRUNC: _Renderer._truncate,
    Op.MULACC: _Renderer._multiply_add,
    Op.RECIPROCAL: _Renderer._reciprocal,
    Op.CAST: _Renderer._cast,
    Op.BITCAST: _Renderer._bitcast,
    Op.VECTORIZE: _Renderer._vectorize,
    Op.EXTRACT: _Renderer._extract,
}
