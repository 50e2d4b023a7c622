"""Random linear programs give the same memory in every language."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kernelet.base.dtype import DType, Scalar, dtypes, round_to
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from tests.render.conftest import c_machine, llvm_machine, python_machine
from tests.render.linear_programs import Builder, Run, constant, decode, encode, same

TYPES = (
    *(dtypes.bool, dtypes.int8, dtypes.uint16, dtypes.int32, dtypes.int64, dtypes.uint64),
    *(dtypes.float32, dtypes.float64),
)
SIZE = 256
FLOAT_OPS = (Op.ADD, Op.MUL, Op.SUB, Op.MAX)
BOOL_OPS = (Op.AND, Op.OR, Op.XOR, Op.MAX, Op.ADD, Op.MUL)
INTEGER_OPS = (*FLOAT_OPS, Op.AND, Op.OR, Op.XOR, Op.TRUNCDIV, Op.TRUNCMOD)


@dataclass
class Author:
    """Writes one random program over a parameter, registers and an array of each dtype."""

    choose: random.Random
    lanes: int
    make: Builder = field(default_factory=Builder)
    loops: list[UOp] = field(default_factory=list)
    scopes: list[list[UOp]] = field(default_factory=lambda: [[]])

    def program(self) -> list[UOp]:
        """A program that starts from known registers and ends by storing them."""
        make = self.make
        self.parameters = [make.parameter(slot, dtype, SIZE) for slot, dtype in enumerate(TYPES)]
        self.registers = [make.scratch(t.vec(self.lanes), 2, register=True) for t in TYPES]
        self.arrays = [make.scratch(dtype, 64) for dtype in TYPES]
        for register in self.registers:
            for place in range(2):
                make.store(register, place, constant(place + 1, register.dtype))
        fill = make.loop(64)
        for array in self.arrays:
            make.store(array, fill, constant(3, array.dtype))
        make.end(fill)
        for _ in range(self.choose.randrange(20, 60)):
            self.statement()
        while self.loops:
            self.close()
        for memory, register in zip(self.parameters, self.registers, strict=True):
            for place in range(2):
                make.store(memory, 128 + 16 * place, make.load(register, place))
        # Parameters come first in a linear program.
        return sorted(make.program, key=lambda node: node.op is not Op.PARAM)

    def statement(self) -> None:
        """Open or close a loop, store a value, or compute one."""
        kind = self.choose.random()
        if kind < 0.08 and len(self.loops) < 2:
            self.loops.append(self.make.loop(self.choose.randrange(4)))
            self.scopes.append([])
        elif kind < 0.2 and self.loops:
            self.close()
        elif kind < 0.45:
            self.store()
        else:
            self.scopes[-1].append(self.value())

    def close(self) -> None:
        """Close the innermost loop."""
        self.make.end(self.loops.pop())
        self.scopes.pop()

    def store(self) -> None:
        """Store something to a parameter, a register or an array."""
        number = self.choose.randrange(len(TYPES))
        value, kind = self.pick(TYPES[number]), self.choose.random()
        if kind < 0.4:
            self.make.store(self.parameters[number], self.offset(), value, self.gate())
        elif kind < 0.8:
            self.make.store(self.registers[number], self.choose.randrange(2), value)
        else:
            self.make.store(self.arrays[number], self.offset(), value)

    def pick(self, dtype: DType) -> UOp:
        """A value computed before, or a constant."""
        wanted = dtype.vec(self.lanes)
        known = [node for scope in self.scopes for node in scope if node.dtype is wanted]
        if known and self.choose.random() < 0.8:
            return self.choose.choice(known)
        return constant(self.choose.choice([0, 1, 2, 5, 9]), wanted)

    def offset(self) -> UOp:
        """An address below 64 that depends on a loop, if any is open."""
        base = constant(16 * self.choose.randrange(2), dtypes.index)
        if self.loops and self.choose.random() < 0.7:
            return self.choose.choice(self.loops) * 16 + base
        return base

    def gate(self) -> UOp | None:
        """No gate, one for each lane, or one for all."""
        kind = self.choose.random()
        if kind < 0.2 and self.lanes > 1:
            return self.pick(dtypes.bool)
        if kind < 0.3 and self.loops:
            return self.choose.choice(self.loops) < self.choose.randrange(3)
        return None

    def value(self) -> UOp:
        """A load, a cast or an operation."""
        make, choose, kind = self.make, self.choose, self.choose.random()
        dtype = choose.choice(TYPES)
        number = TYPES.index(dtype)
        if kind < 0.12:
            return make.load(self.parameters[number], self.offset(), self.lanes, self.gate())
        if kind < 0.2:
            return make.load(self.registers[number], choose.randrange(2))
        if kind < 0.25:
            return make.load(self.arrays[number], self.offset(), self.lanes)
        if kind < 0.4:
            return make.add(self.pick(choose.choice(TYPES)).cast(dtype.vec(self.lanes)))
        left, right = self.pick(dtype), self.pick(dtype)
        if kind < 0.6:
            return make.add(self.pick(dtypes.bool).where(left, right))
        if kind < 0.7:
            return make.add(left.alu(choose.choice((Op.CMPLT, Op.CMPNE)), right))
        if kind < 0.75:
            return make.add(left.alu(Op.NEG))
        ops = FLOAT_OPS if dtype.is_float else BOOL_OPS if dtype.is_bool else INTEGER_OPS
        return make.add(left.alu(choose.choice(ops), right))


def sample(choose: random.Random, dtype: DType) -> Scalar:
    """One element of memory before the run."""
    return round_to(dtype, choose.choice([0, 1, -3, 7.5, 100, 255, -1e9, math.nan, 2**31]))


@pytest.fixture(params=["gcc", "clang", "llvm"])
def compiled(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """A way to run a program as machine code."""
    return llvm_machine(tmp_path) if request.param == "llvm" else c_machine(request.param, tmp_path)


@pytest.mark.parametrize("seed", range(8))
def test_machine_code_agrees_with_python(compiled: Run, seed: int) -> None:
    choose = random.Random(seed)
    program = Author(choose, lanes=(1, 8, 16)[seed % 3]).program()
    memories = [encode(t, [sample(choose, t) for _ in range(SIZE)]) for t in TYPES]
    wanted, found = python_machine()(program, memories), compiled(program, memories)
    for dtype, *pair in zip(TYPES, wanted, found, strict=True):
        left, right = (decode(dtype, data) for data in pair)
        assert all(map(same, left, right)), f"{dtype.name} of seed {seed}: {left} != {right}"
