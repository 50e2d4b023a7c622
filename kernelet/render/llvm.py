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
    BOOL_OPERATIONS,
    Walker,
    array_bytes,
    gate_of,
    is_register,
    raise_unexpected,
    register_name,
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
    Op.SHR: "ashr",
}
_FUNCTIONS = {Op.SQRT: "sqrt", Op.TRUNC: "trunc", Op.MULACC: "fma"}


def render(program: Sequence[UOp], name: str) -> str:
    """The LLVM IR of `program` as a function called `name`."""
    return _Renderer(program, name).source()


@final
class _Renderer(Walker):
    """Each node becomes a value of its own."""

    def __init__(self, program: Sequence[UOp], name: str) -> None:
        super().__init__(program, name, prefix="%")
        self._lines: list[str] = []
        self._declared: dict[str, None] = {}
        self._loops: dict[UOp, str] = {}
        self._labels: set[str] = set()
        self._block = "entry"

    def source(self) -> str:
        """The whole text."""
        self._declare_scratch()
        self.walk()
        if self.outline.is_in_heap:
            self._line(f"call void {self.declare('void', 'free', 'ptr')}(ptr %heap)")
        self._line("ret void")
        declarations = "".join(f"{line}\n" for line in self._declared)
        body = "\n".join(self._lines)
        return (
            f"define void @{self.name}({self._signature()}) #0 {{\nentry:\n{body}\n}}\n"
            f'{declarations}attributes #0 = {{ nounwind "prefer-vector-width"="512" }}\n'
        )

    # ---- text ----

    def _line(self, text: str) -> None:
        self._lines.append(f"  {text}")

    def assign(self, text: str) -> str:
        """Append an instruction and name its result."""
        name = f"%{self.fresh()}"
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
        return literal(node.dtype, node.arg) if node.op is Op.CONST else self.value_of(node)

    def _typed(self, node: UOp) -> str:
        return f"{type_name(node.dtype)} {self._use(node)}"

    # ---- declarations ----

    def _signature(self) -> str:
        parts = []
        for slot, parameter in enumerate(self.outline.parameters):
            if parameter is None:
                parts.append(f"ptr %unused{slot}")
                continue
            constant = "" if parameter in self.outline.stored else "readonly "
            parts.append(f"ptr {constant}{self.values[parameter]}")
        parts += [f"i64 {self.values[variable]}" for variable in self.outline.variables]
        return ", ".join([*parts, "i64 %thread_begin", "i64 %thread_end"])

    def _declare_scratch(self) -> None:
        if self.outline.is_in_heap:
            total = self.outline.scratch_bytes() + 64
            allocate = self.declare("noalias ptr", "malloc", "i64")
            self._line(f"%heap = call ptr {allocate}(i64 {total})")
            address = self.assign("ptrtoint ptr %heap to i64")
            negative = self.assign(f"sub i64 0, {address}")
            shift = self.assign(f"and i64 {negative}, 63")
            self._line(f"%aligned = getelementptr i8, ptr %heap, i64 {shift}")
        begin = 0
        for memory in self.outline.scratch:
            name = self.values[memory]
            if memory.arg.register:
                for offset in self.outline.registers.get(memory, ()):
                    register = register_name(name, memory, offset)
                    self._line(f"{register} = alloca {type_name(memory.dtype)}")
            elif self.outline.is_in_heap:
                self._line(f"{name} = getelementptr i8, ptr %aligned, i64 {begin}")
                begin += array_bytes(memory)
            else:
                self._line(f"{name} = alloca [{array_bytes(memory)} x i8], align 64")

    # ---- statements ----

    def open_loop(self, node: UOp) -> None:
        """The header, which counts and tests."""
        first, end = "0", self._use(node.src[0])
        if node.arg.kind == "thread":
            first, end = "%thread_begin", "%thread_end"
        label = self.outline.names[node]
        if label in self._labels:
            label = f"{label}.{self.fresh()}"
        self._labels.add(label)
        name, before = f"%{label}", self._block
        self._loops[node], self.values[node] = label, name
        self._line(f"br label {name}.head")
        self._start(f"{label}.head")
        self._line(f"{name} = phi i64 [ {first}, %{before} ], [ {name}.next, {name}.latch ]")
        more = self.assign(f"icmp slt i64 {name}, {end}")
        self._line(f"br i1 {more}, label {name}.body, label {name}.exit")
        self._start(f"{label}.body")

    def close_loop(self, node: UOp) -> None:
        """The latch, which goes back to the header."""
        label = self._loops[node]
        self._line(f"br label %{label}.latch")
        self._start(f"{label}.latch")
        self._line(f"%{label}.next = add nsw i64 %{label}, 1")
        self._line(f"br label %{label}.head")
        self._start(f"{label}.exit")

    def address(self, node: UOp, uses: int) -> str:
        """The pointer to an element."""
        memory, offset = node.src
        # An address outside its memory is allowed only where a gate keeps it from being used.
        inbounds = "" if node in self.outline.gated else "inbounds "
        kind = type_name(memory.dtype.scalar, in_memory=True)
        name = self.values[memory]
        return self.assign(f"getelementptr {inbounds}{kind}, ptr {name}, i64 {self._use(offset)}")

    def compute(self, node: UOp, uses: int) -> None:
        """%v = ..."""
        if node.op is Op.LOAD:
            self.values[node] = self._load(node)
            return
        write = _VALUES.get(node.op)
        if write is None:
            raise_unexpected(node, "LLVM has no instruction for it")
        self.values[node] = write(self, node)

    def _pointer(self, node: UOp) -> tuple[str, str]:
        """The address of a LOAD or STORE, and its alignment where it is not a register."""
        name, pointer = self.addresses[node.src[0]]
        if not pointer:
            return name, ""
        return pointer, f", align {node.src[0].src[0].dtype.itemsize}"

    def _is_held_as_bytes(self, node: UOp) -> bool:
        memory = node.src[0].src[0]
        return memory.dtype.is_bool and not is_register(memory)

    def _load(self, node: UOp) -> str:
        gate, as_bytes = gate_of(node), self._is_held_as_bytes(node)
        dtype = dtypes.uint8.vec(node.dtype.lanes) if as_bytes else node.dtype
        kind, (address, alignment) = type_name(dtype), self._pointer(node)
        load = f"load {kind}, ptr {address}{alignment}"
        if gate is None:
            value = self.assign(load)
        elif gate.dtype.lanes > 1:
            flags, name = type_name(gate.dtype), f"llvm.masked.load.{suffix(dtype)}.p0"
            function = self.declare(kind, name, f"ptr, i32, {flags}, {kind}")
            operands = f"ptr {address}, i32 {dtype.itemsize}, {self._typed(gate)}"
            value = self.assign(f"call {kind} {function}({operands}, {kind} zeroinitializer)")
        else:
            before, label = self._block, self._open_gate(gate)
            value = self.assign(load)
            self._close_gate(label)
            choice = f"[ {value}, %{label}.inside ], [ zeroinitializer, %{before} ]"
            value = self.assign(f"phi {kind} {choice}")
        return self.assign(f"icmp ne {kind} {value}, {_zero(dtype)}") if as_bytes else value

    def store(self, node: UOp) -> None:
        """A store, masked or in a block of its own where it has a gate."""
        value, gate = node.src[1], gate_of(node)
        dtype, text, (address, alignment) = value.dtype, self._use(value), self._pointer(node)
        if self._is_held_as_bytes(node):
            dtype = dtypes.uint8.vec(dtype.lanes)
            text = self.assign(f"zext {self._typed(value)} to {type_name(dtype)}")
        kind = type_name(dtype)
        store = f"store {kind} {text}, ptr {address}{alignment}"
        if gate is None:
            self._line(store)
        elif gate.dtype.lanes > 1:
            name = f"llvm.masked.store.{suffix(dtype)}.p0"
            function = self.declare("void", name, f"{kind}, ptr, i32, {type_name(gate.dtype)}")
            operands = f"{kind} {text}, ptr {address}, i32 {dtype.itemsize}, {self._typed(gate)}"
            self._line(f"call void {function}({operands})")
        else:
            label = self._open_gate(gate)
            self._line(store)
            self._close_gate(label)

    def _open_gate(self, gate: UOp) -> str:
        label = self.fresh()
        self._line(f"br i1 {self._use(gate)}, label %{label}.inside, label %{label}.done")
        self._start(f"{label}.inside")
        return label

    def _close_gate(self, label: str) -> None:
        self._line(f"br label %{label}.done")
        self._start(f"{label}.done")

    # ---- values ----

    def _binary(self, node: UOp) -> str:
        op, dtype = node.op, node.dtype
        if dtype.is_float:
            name = _FLOAT_OPERATIONS[op]
        elif dtype.is_bool:
            name = _INTEGER_OPERATIONS[BOOL_OPERATIONS.get(op, op)]
        else:
            name = "lshr" if op is Op.SHR and dtype.is_unsigned else _INTEGER_OPERATIONS[op]
            # An address never overflows; saying so lets loops over it be simplified.
            if dtype.scalar is dtypes.index and op in (Op.ADD, Op.SUB, Op.MUL):
                name += " nsw"
        return self.assign(f"{name} {self._typed(node.src[0])}, {self._use(node.src[1])}")

    def _compare(self, node: UOp) -> str:
        left, right = node.src
        if left.dtype.is_float:
            test = "fcmp olt" if node.op is Op.CMPLT else "fcmp une"
        elif node.op is Op.CMPNE:
            test = "icmp ne"
        else:
            test = "icmp ult" if left.dtype.is_unsigned or left.dtype.is_bool else "icmp slt"
        return self.assign(f"{test} {self._typed(left)}, {self._use(right)}")

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
        # Chosen, not jumped to: numbers follow no pattern that a branch could learn.
        hint = ", !unpredictable !{}" if dtype.lanes == 1 else ""
        return self.assign(f"select {flags} {condition}, {kind} {yes}, {kind} {no}{hint}")

    def _where(self, node: UOp) -> str:
        return self._select(node.dtype, *map(self._use, node.src))

    def _divide(self, node: UOp) -> str:
        dtype, is_modulo = node.dtype, node.op is Op.TRUNCMOD
        kind, x, y = type_name(dtype), *map(self._use, node.src)
        name = f"{'u' if dtype.is_unsigned else 's'}{'rem' if is_modulo else 'div'}"
        if safe_divisor(node.src[1]):
            return self.assign(f"{name} {kind} {x}, {y}")
        zero, flags = _zero(dtype), type_name(dtypes.bool.vec(dtype.lanes))
        odd = is_zero = self.assign(f"icmp eq {kind} {y}, {zero}")
        if not dtype.is_unsigned:
            is_negative = self.assign(f"icmp eq {kind} {y}, {literal(dtype, -1)}")
            odd = self.assign(f"or {flags} {is_zero}, {is_negative}")
        # By 0: 0, or x as the rest. By -1: -x, or no rest.
        opposite = zero if is_modulo else self.assign(f"sub {kind} {zero}, {x}")
        special = self._select(dtype, is_zero, x if is_modulo else zero, opposite)
        safe = self._select(dtype, odd, literal(dtype, 1), y)
        return self._select(dtype, odd, special, self.assign(f"{name} {kind} {x}, {safe}"))

    def _function(self, node: UOp) -> str:
        operands = [self._use(source) for source in node.src]
        if node.dtype.is_float:
            return self._intrinsic(_FUNCTIONS[node.op], node.dtype, *operands)
        if node.op is Op.TRUNC:
            return operands[0]
        product = self.assign(f"mul {type_name(node.dtype)} {operands[0]}, {operands[1]}")
        return self.assign(f"add {type_name(node.dtype)} {product}, {operands[2]}")

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
        if scalar is None and all(source.op is Op.EXTRACT for source in node.src):
            vectors = list(dict.fromkeys(source.src[0] for source in node.src))
            is_one_width = vectors[0].dtype is vectors[-1].dtype and vectors[0].dtype.lanes > 1
            if len(vectors) <= 2 and is_one_width:
                return self._shuffle(node, vectors)
        value = "poison"
        for lane, source in enumerate(node.src if scalar is None else node.src[:1]):
            text = f"insertelement {kind} {value}, {element} {self._use(source)}, i32 {lane}"
            value = self.assign(text)
        if scalar is None:
            return value
        order = f"<{node.dtype.lanes} x i32> zeroinitializer"
        return self.assign(f"shufflevector {kind} {value}, {kind} poison, {order}")

    def _shuffle(self, node: UOp, vectors: list[UOp]) -> str:
        """Lanes of one vector or two."""
        size = vectors[0].dtype.lanes
        lanes = [vectors.index(each.src[0]) * size + each.arg for each in node.src]
        order = ", ".join(f"i32 {lane}" for lane in lanes)
        first, last = self._typed(vectors[0]), self._typed(vectors[-1])
        return self.assign(f"shufflevector {first}, {last}, <{len(lanes)} x i32> <{order}>")

    def _extract(self, node: UOp) -> str:
        source = node.src[0]
        if source.dtype.lanes == 1:
            return self._use(source)
        return self.assign(f"extractelement {self._typed(source)}, i32 {node.arg}")


def _zero(dtype: DType) -> str:
    return literal(dtype, 0)


_VALUES: dict[Op, Callable[[_Renderer, UOp], str]] = {
    **dict.fromkeys((*_FLOAT_OPERATIONS, *_INTEGER_OPERATIONS), _Renderer._binary),
    Op.CMPLT: _Renderer._compare,
    Op.CMPNE: _Renderer._compare,
    Op.NEG: _Renderer._negate,
    Op.MAX: _Renderer._maximum,
    Op.WHERE: _Renderer._where,
    Op.TRUNCDIV: _Renderer._divide,
    Op.TRUNCMOD: _Renderer._divide,
    **dict.fromkeys(_FUNCTIONS, _Renderer._function),
    Op.RECIPROCAL: _Renderer._reciprocal,
    Op.CAST: _Renderer._cast,
    Op.BITCAST: _Renderer._bitcast,
    Op.VECTORIZE: _Renderer._vectorize,
    Op.EXTRACT: _Renderer._extract,
}
