"""Bounds hold for every value, and are tight where tightness is what makes indices clean."""

import itertools
import math
import random

import pytest

from kernelet.base.dtype import DType, dtypes
from kernelet.graph.bounds import bounds_of
from kernelet.graph.ops import OP_TABLE, Op
from kernelet.graph.pattern import EVERY
from kernelet.graph.uop import RangeArg, UOp, VariableArg
from tests.reference.evaluate import evaluate

INTERVALS = [(0, 0), (0, 1), (3, 3), (0, 5), (2, 7), (-3, 4), (-6, -2), (120, 127), (-128, -126)]
INTEGER_OPS = sorted({op for op, info in OP_TABLE.items() if info.arity == 2} - {Op.FDIV})


def leaf(name: str, dtype: DType, low: int, high: int) -> UOp:
    return UOp(Op.VARIABLE, dtype, (), VariableArg(name, low, high))


def possible(op: Op, x: int, y: int) -> bool:
    """Whether the op means something there: divisors are not 0, shifts shorter than the width."""
    if op in (Op.TRUNCDIV, Op.TRUNCMOD):
        return y != 0
    return op not in (Op.SHL, Op.SHR) or 0 <= y < 8


@pytest.mark.parametrize("op", INTEGER_OPS, ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8], ids=lambda dtype: dtype.name)
def test_bounds_hold_for_every_pair_of_small_integers(op: Op, dtype: DType) -> None:
    intervals = [pair for pair in INTERVALS if dtype.min <= pair[0]]
    intervals.append((200, 255) if dtype.is_unsigned else (-128, 127))
    for left, right in itertools.product(intervals, repeat=2):
        x, y = leaf("x", dtype, *left), leaf("y", dtype, *right)
        low, high = x.alu(op, y).bounds
        node = UOp.const(0, dtype).alu(op, UOp.const(0, dtype))
        meaning = OP_TABLE[op].meaning
        for a, b in itertools.product(range(left[0], left[1] + 1), range(right[0], right[1] + 1)):
            if possible(op, a, b):
                value = wrap(node.dtype, meaning(a, b))
                assert low <= value <= high, (op.name, left, right, a, b)


def wrap(dtype: DType, value: int) -> int:
    return int(UOp.const(value, dtype).arg)


@pytest.mark.parametrize(
    "op", [op for op in INTEGER_OPS if OP_TABLE[op].associative or OP_TABLE[op].compares]
)
def test_bounds_hold_for_booleans(op: Op) -> None:
    for left, right in itertools.product([(0, 0), (0, 1), (1, 1)], repeat=2):
        x, y = (leaf(name, dtypes.bool, *ends) for name, ends in (("x", left), ("y", right)))
        node = x.alu(op, y)
        for a, b in itertools.product(set(left), set(right)):
            (value,) = evaluate(node, {x: bool(a), y: bool(b)})
            assert node.bounds.min <= value <= node.bounds.max
            assert isinstance(node.bounds.min, bool)


def test_bounds_are_tight_for_index_arithmetic() -> None:
    x, y = UOp.variable("x", 0, 11), UOp.variable("y", 0, 3)
    cases = [
        (x * 4 + y, (0, 47)), (x // 4, (0, 2)), (x % 4, (0, 3)), (x % 16, (0, 11)),
        ((x + 16) % 16, (0, 11)), (-x, (-11, 0)), (x - 5, (-5, 6)), (x.maximum(5), (5, 11)),
        (x < 12, (True, True)), (x < 0, (False, False)), (x < 5, (False, True)),
        (x.not_equal(20), (True, True)), ((x < 12).where(y, x), (0, 3)), (x >> 2, (0, 2)),
        (x << 1, (0, 22)), (x & 6, (0, 6)), (x | 16, (16, 31)), (x ^ 3, (0, 15)),
        ((x - 20) & 7, (0, 7)),
    ]  # fmt: skip
    for node, expected in cases:
        assert node.bounds == expected, node


def test_a_value_that_may_wrap_is_unknown() -> None:
    x = leaf("x", dtypes.int8, 100, 120)
    assert (x + x).bounds == (-128, 127)
    assert leaf("u", dtypes.uint8, 0, 5).alu(Op.NEG).bounds == (0, 255)


@pytest.mark.parametrize("old", EVERY, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("new", EVERY, ids=lambda dtype: dtype.name)
def test_bounds_hold_through_casts(old: DType, new: DType) -> None:
    samples = [-math.inf, -1e30, -129, -1, 0, 0.5, 1, 200, 1e30, math.inf]
    samples += [int(old.min), int(old.max)] if not old.is_float else []
    for sample in samples:
        constant = UOp.const(sample, old)
        x = leaf("x", old, constant.arg, constant.arg)
        (value,) = evaluate(x.cast(new), {x: constant.arg})
        assert x.cast(new).bounds.min <= value <= x.cast(new).bounds.max


def test_loops_and_lanes_have_bounds() -> None:
    n = UOp.variable("n", 1, 8)
    loop = UOp(Op.RANGE, dtypes.index, (n * 2,), RangeArg(0, "loop"))
    assert loop.bounds == (0, 15)
    pair = UOp(Op.VECTORIZE, dtypes.index.vec(2), (loop, n))
    assert pair.bounds == (0, 15)
    assert UOp(Op.EXTRACT, dtypes.index, (pair,), 1).bounds == (0, 15)
    assert n.bind(3).bounds == (1, 8)
    assert UOp(Op.ARANGE, dtypes.int32, (), (6,)).bounds == (0, 5)
    assert bounds_of(UOp.sink(n)) == (0, 0)


def test_floats_have_bounds_only_as_constants() -> None:
    x = UOp.const(2.0, dtypes.float32)
    assert x.bounds == (2.0, 2.0)
    assert (x + x).bounds == (-math.inf, math.inf)
    assert UOp.const(math.nan, dtypes.float32).bounds == (-math.inf, math.inf)
    assert (x < x).bounds == (False, True)


def test_bounds_hold_for_random_index_expressions() -> None:
    draw = random.Random(7)
    leaves = {UOp.variable(name, 0, high): high for name, high in (("x", 7), ("y", 30), ("z", 1))}
    for _ in range(300):
        nodes = list(leaves)
        for _ in range(8):
            a, b, k = draw.choice(nodes), draw.choice(nodes), draw.randint(1, 9)
            makers = [a + b, a - b, a * k, a // k, a % k, a.maximum(b), (a < b).where(a, b + k)]
            nodes.append(draw.choice(makers))
        for _ in range(5):
            values = {node: draw.randint(0, high) for node, high in leaves.items()}
            (value,) = evaluate(nodes[-1], values)
            assert nodes[-1].bounds.min <= value <= nodes[-1].bounds.max, nodes[-1]
