"""Linear programs built by hand, and ways to run their source, for the tests of the renderers."""

from __future__ import annotations

import ctypes
import hashlib
import struct
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelet.base.dtype import (
    FORMATS,
    DType,
    Scalar,
    dtypes,
    float_from_bits,
    float_to_bits,
    round_to,
)
from kernelet.graph.ops import Op
from kernelet.graph.uop import ParamArg, RangeArg, ScratchArg, UOp

Run = Callable[..., list[bytes]]

C_FLAGS = [
    "-O2",
    "-march=native",
    "-std=gnu11",
    "-fwrapv",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-Wno-psabi",
    "-Wall",
    "-Werror",
    "-Wno-unused-variable",
    "-Wno-unused-but-set-variable",
    "-Wno-tautological-compare",
    "-Wno-unused-parameter",
    "-shared",
    "-fPIC",
]


class Builder:
    """Writes a linear program: every method appends what it returns."""

    def __init__(self) -> None:
        self.program: list[UOp] = []
        self._scopes: list[set[UOp]] = [set()]
        self._ranges = 0
        self._scratch = 0

    def add(self, node: UOp) -> UOp:
        """Append a node and those of its sources that no open loop has computed."""
        for source in node.toposort():
            if source is not node and not any(source in scope for scope in self._scopes):
                self._append(source)
        self._append(node)
        return node

    def _append(self, node: UOp) -> None:
        self.program.append(node)
        self._scopes[-1].add(node)

    def parameter(self, slot: int, dtype: DType, size: int = 1 << 20) -> UOp:
        return self.add(UOp(Op.PARAM, dtype, (), ParamArg(slot, size, "CPU")))

    def variable(self, name: str, least: int = 0, greatest: int = 1 << 20) -> UOp:
        return self.add(UOp.variable(name, least, greatest))

    def scratch(self, dtype: DType, size: int, register: bool = False) -> UOp:
        self._scratch += 1
        return self.add(UOp(Op.SCRATCH, dtype, (), ScratchArg(self._scratch - 1, size, register)))

    def loop(self, size: UOp | int, kind: str = "loop") -> UOp:
        end = size if isinstance(size, UOp) else UOp.const(size, dtypes.index)
        self._ranges += 1
        arg = RangeArg(self._ranges - 1, kind)
        loop = self.add(UOp(Op.RANGE, dtypes.index, (end,), arg))
        self._scopes.append(set())
        return loop

    def end(self, loop: UOp) -> None:
        self._scopes.pop()
        self._append(UOp(Op.END, dtypes.void, (loop,)))

    def index(self, memory: UOp, offset: UOp | int) -> UOp:
        where = offset if isinstance(offset, UOp) else UOp.const(offset, dtypes.index)
        return UOp(Op.INDEX, memory.dtype.scalar, (memory, where))

    def load(
        self, memory: UOp, offset: UOp | int, lanes: int | None = None, gate: UOp | None = None
    ) -> UOp:
        """A LOAD at this point of the program, also where it stands in the list already."""
        dtype = memory.dtype if lanes is None else memory.dtype.vec(lanes)
        gates = () if gate is None else (gate,)
        return self.add(UOp(Op.LOAD, dtype, (self.index(memory, offset), *gates)))

    def store(self, memory: UOp, offset: UOp | int, value: UOp, gate: UOp | None = None) -> None:
        gates = () if gate is None else (gate,)
        self.add(UOp(Op.STORE, dtypes.void, (self.index(memory, offset), value, *gates)))


def splat(value: UOp, lanes: int) -> UOp:
    """The scalar in every lane."""
    return UOp(Op.VECTORIZE, value.dtype.vec(lanes), (value,) * lanes)


def lanes_of(*values: UOp) -> UOp:
    """A vector of different scalars."""
    return UOp(Op.VECTORIZE, values[0].dtype.vec(len(values)), values)


def extract(vector: UOp, lane: int) -> UOp:
    """One lane of a vector."""
    return UOp(Op.EXTRACT, vector.dtype.scalar, (vector,), lane)


def constant(value: Scalar, dtype: DType) -> UOp:
    """A constant, the same in all lanes of a vector dtype."""
    return UOp.const(value, dtype)


def multiply_add(x: UOp, y: UOp, z: UOp) -> UOp:
    """x * y + z, rounded once."""
    return UOp(Op.MULACC, z.dtype, (x, y, z))


# ---- whole programs ----


def vector_add(lanes: int) -> list[UOp]:
    """out = in + in over `thread` chunks of `lanes` values."""
    make = Builder()
    out, left, right = (make.parameter(slot, dtypes.float32) for slot in range(3))
    loop = make.loop(8, "thread")
    offset = loop * lanes
    value = make.load(left, offset, lanes) + make.load(right, offset, lanes)
    make.store(out, offset, value)
    make.end(loop)
    return make.program


def matmul_tile(size: int, rows: int, lanes: int, vectors: int) -> list[UOp]:
    """A square matrix product with a register tile of rows x (vectors * lanes)."""
    make = Builder()
    out, left, right = (make.parameter(slot, dtypes.float32, size * size) for slot in range(3))
    vector = dtypes.float32.vec(lanes)
    tile = make.scratch(vector, rows * vectors, register=True)
    row = make.loop(size // rows, "thread")
    column = make.loop(size // (lanes * vectors))
    for place in range(rows * vectors):
        make.store(tile, place, constant(0.0, vector))
    step = make.loop(size, "reduce")
    panel = [
        make.load(right, step * size + column * (lanes * vectors) + lanes * place, lanes)
        for place in range(vectors)
    ]
    for y in range(rows):
        factor = splat(make.load(left, (row * rows + y) * size + step), lanes)
        make.add(factor)
        for x in range(vectors):
            place = y * vectors + x
            total = multiply_add(factor, panel[x], make.load(tile, place))
            make.store(tile, place, total)
    make.end(step)
    for y in range(rows):
        for x in range(vectors):
            where = (row * rows + y) * size + column * (lanes * vectors) + lanes * x
            make.store(out, where, make.load(tile, y * vectors + x))
    make.end(column)
    make.end(row)
    return make.program


def row_maximum(rows: int, columns: int, lanes: int) -> list[UOp]:
    """The greatest value of each row, by lanes and then over them; NaN wins."""
    make = Builder()
    out, values = make.parameter(0, dtypes.float32), make.parameter(1, dtypes.float32)
    best = make.scratch(dtypes.float32.vec(lanes), 1, register=True)
    row = make.loop(rows, "thread")
    make.store(best, 0, constant(-float("inf"), best.dtype))
    step = make.loop(columns // lanes, "reduce")
    block = make.load(values, row * columns + step * lanes, lanes)
    make.store(best, 0, make.load(best, 0).maximum(block))
    make.end(step)
    last = make.load(best, 0)
    result = extract(last, 0)
    for lane in range(1, lanes):
        result = result.maximum(extract(last, lane))
    make.store(out, row, result)
    make.end(row)
    return make.program


# ---- values as bytes ----


def encode(dtype: DType, values: Sequence[Scalar]) -> bytes:
    """The values as they lie in memory."""
    if dtype.name in FORMATS:
        values = [float_to_bits(dtype, float(value)) for value in values]
    return struct.pack(f"<{len(values)}{dtype.code}", *values)


def decode(dtype: DType, data: bytes) -> list[Scalar]:
    """The values that lie in memory."""
    count = len(data) // dtype.itemsize
    values = list(struct.unpack(f"<{count}{dtype.code}", data))
    return [float_from_bits(dtype, code) for code in values] if dtype.name in FORMATS else values


# ---- running ----


def call(
    address: int, memories: Sequence[bytearray], values: Sequence[int], threads: range
) -> None:
    """Call a compiled kernel at an address."""
    integers = [*values, threads.start, threads.stop]
    kinds = [ctypes.c_void_p] * len(memories) + [ctypes.c_longlong] * len(integers)
    views = [(ctypes.c_char * len(memory)).from_buffer(memory) for memory in memories]
    ctypes.CFUNCTYPE(None, *kinds)(address)(*map(ctypes.addressof, views), *integers)


def compile_c(compiler: str, source: str, folder: Path) -> ctypes.CDLL:
    """Build C source with gcc or clang and load it."""
    stem = folder / hashlib.sha1(source.encode()).hexdigest()
    stem.with_suffix(".c").write_text(source)
    library = stem.with_suffix(".so")
    command = [compiler, str(stem.with_suffix(".c")), "-o", str(library), *C_FLAGS, "-lm"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{result.stderr}\n{source}"
    return ctypes.CDLL(str(library))


def compile_llvm(source: str) -> object:
    """Optimise LLVM IR for this processor and compile it in process."""
    from llvmlite import binding

    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=3
    )
    module = binding.parse_assembly(source)
    module.verify()
    options = binding.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = True
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    engine = binding.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine


# ---- tables of cases: the same sample values through many expressions ----

SPECIAL_FLOATS = (
    0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.75, 1e-3, 127.6, -128.9, 255.5, 32767.5, 65504.0, 65519.0,
    65520.0, -70000.0, 2.0**31, -(2.0**31), 2.0**32, -(2.0**33), 2.0**63, -(2.0**63), 2.0**64, 3e38,
    6e-8, 2.0**-25, 1e-40, -1e-7, 16777217.0, float("inf"), -float("inf"), float("nan"),
)  # fmt: skip


def samples(dtype: DType) -> list[Scalar]:
    """32 values of a dtype, the awkward ones among them."""
    if dtype.is_bool:
        return [bool(index & 1) for index in range(32)]
    if dtype.is_float:
        return [round_to(dtype, value) for value in SPECIAL_FLOATS]
    low, high = int(dtype.min), int(dtype.max)
    near = [low, low + 1, high, high - 1, 0, 1, 2, 3, 5, 7, 10, 17, 64, 100, 126, 127]
    far = [high // 3, high // 2, high // 7 + 1, low // 2, low // 3, 9, 12, 23]
    wrapped = [round_to(dtype, value) for value in (-1, -2, -3, -7, 1000, 65521, 16777217, 1 << 40)]
    return [*near, *far, *wrapped]


@dataclass(frozen=True)
class Case:
    """An expression over values of some dtypes, and what it gives in Python."""

    name: str
    sources: tuple[DType, ...]
    target: DType
    build: Callable[..., UOp]
    expected: Callable[..., Scalar]
    values: tuple[Sequence[Scalar], ...] = ()

    def inputs(self) -> list[list[Scalar]]:
        """Every sample with every fifth one, or the values that were given."""
        if self.values:
            return [list(column) for column in self.values]
        columns = [samples(dtype) for dtype in self.sources]
        if len(columns) == 1:
            return columns
        return [
            [column[(index + shift * 5 * (index // 32 + 1)) % 32] for index in range(128)]
            for shift, column in enumerate(columns)
        ]


# Compilers take more than twice as long for a function that is twice as long.
CASES_AT_ONCE = 60


def check_cases(machine: Run, cases: Sequence[Case], lanes: int) -> None:
    """Run all cases, many in one program, and compare each element with the Python meaning."""
    for start in range(0, len(cases), CASES_AT_ONCE):
        _check_program(machine, cases[start : start + CASES_AT_ONCE], lanes)


def _check_program(machine: Run, cases: Sequence[Case], lanes: int) -> None:
    make = Builder()
    memories: list[bytes] = []
    for case in cases:
        columns = case.inputs()
        count = len(columns[0])
        out = make.parameter(len(memories), case.target)
        memories.append(bytes(count * case.target.itemsize))
        sources = []
        for dtype, column in zip(case.sources, columns, strict=True):
            sources.append(make.parameter(len(memories), dtype))
            memories.append(encode(dtype, column))
        loop = make.loop(count // lanes)
        loads = [make.load(source, loop * lanes, lanes) for source in sources]
        make.store(out, loop * lanes, case.build(*loads))
        make.end(loop)
    # Parameters come first in a linear program.
    program = sorted(make.program, key=lambda node: node.op is not Op.PARAM)
    results = machine(program, memories)
    slot = 0
    for case in cases:
        columns = case.inputs()
        found = decode(case.target, results[slot])
        for *arguments, value in zip(*columns, found, strict=True):
            wanted = round_to(case.target, case.expected(*arguments))
            assert same(value, wanted), (
                f"{case.name}({', '.join(map(repr, arguments))}) is {wanted!r}, found {value!r}"
            )
        slot += 1 + len(columns)


def same(left: Scalar, right: Scalar) -> bool:
    """Whether both are the same number, or both NaN."""
    return left == right or (left != left and right != right)
