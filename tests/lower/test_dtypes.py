"""Narrow floats are computed in float32 and rounded as if each result had been stored."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelet.base.dtype import DType, Scalar, dtypes, round_float
from kernelet.base.target import Target
from kernelet.graph.ops import Op
from kernelet.graph.show import show, show_expression
from kernelet.graph.uop import ParamArg, ScratchArg, UOp, VariableArg
from kernelet.lower.dtypes import widen_narrow_floats
from tests.reference.evaluate import evaluate

TARGET = Target("CPU", storage_only=frozenset({"float16", "bfloat16"}))
NARROW = (dtypes.float16, dtypes.bfloat16)
BOTH = pytest.mark.parametrize("dtype", NARROW, ids=lambda dtype: dtype.name)


def variable(name: str, dtype: DType) -> UOp:
    return UOp(Op.VARIABLE, dtype, (), VariableArg(name, 0, 0))


def text(node: UOp) -> str:
    return show_expression(widen_narrow_floats(node, TARGET))


H, K = variable("h", dtypes.float16), variable("k", dtypes.float16)
F = variable("f", dtypes.float32)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (H + K, "float16(float32(h) + float32(k))"),
        (H * K + 1.5, "float16(float32(float16(float32(h) * float32(k))) + 1.5)"),
        (H < K, "float32(h) < float32(k)"),
        ((H < K).where(H, K), "float16(where(float32(h) < float32(k), float32(h), float32(k)))"),
        (-H, "float16(-float32(h))"),
        (F + 1.0, "f + 1.0"),
        (H.cast(dtypes.float32) + F, "float32(h) + f"),
        (F.cast(dtypes.float16), "float16(f)"),
    ],
)
def test_arithmetic_is_in_float32_between_roundings(node: UOp, expected: str) -> None:
    assert text(node) == expected


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (H.maximum(K) + H, "float16(max(float32(h), float32(k)) + float32(h))"),
        (H + 0.1, f"float16(float32(h) + {round_float(dtypes.float16, 0.1)})"),
        ((-H) * K, "float16((-float32(h)) * float32(k))"),
    ],
)
def test_exact_results_are_not_rounded(node: UOp, expected: str) -> None:
    assert text(node) == expected


def test_what_was_in_float32_is_rounded() -> None:
    # The user asked for the rounding, so it stays though float32 follows.
    node = (F * 3.0).cast(dtypes.float16).cast(dtypes.float32)
    assert widen_narrow_floats(node, TARGET) is node


def test_nothing_changes_where_the_target_computes_with_them() -> None:
    assert widen_narrow_floats(H + K, Target("GPU")) is H + K


@BOTH
def test_exp_and_cos_round_no_argument(dtype: DType) -> None:
    values = [-10.0, -3.3, 0.5, 7.25, 10.0]
    x = variable("x", dtype.vec(5))
    held = [round_float(dtype, value) for value in values]
    cases = [
        ((x * x.const_like(math.log2(math.e))).alu(Op.EXP2), math.exp),
        ((x * x.const_like(-math.log2(math.e))).alu(Op.EXP2), lambda value: math.exp(-value)),
        ((x + x.const_like(math.pi / 2)).alu(Op.SIN), math.cos),
    ]
    for node, function in cases:
        found = evaluate(widen_narrow_floats(node, TARGET), {x: held})
        for value, result in zip(held, found, strict=True):
            # At most the next number: the argument in float32 has an error of its own.
            wanted = round_float(dtype, function(value))
            unit = 2.0**-10 if dtype is dtypes.float16 else 2.0**-7
            assert math.isclose(result, wanted, rel_tol=unit), value


@BOTH
def test_other_arguments_are_rounded(dtype: DType) -> None:
    x = variable("x", dtype)
    for node in ((x * 3.0).alu(Op.EXP2), (x + 1.0).alu(Op.SIN), (x * x).alu(Op.EXP2)):
        value = round_float(dtype, 1.23)
        found = evaluate(widen_narrow_floats(node, TARGET), {x: value})
        assert found == evaluate(node, {x: value})


# ---- whole expressions ----

_UNARY = (Op.NEG, Op.TRUNC, Op.SQRT, Op.RECIPROCAL)
_BINARY = (Op.ADD, Op.MUL, Op.MAX)


def expression(choices: random.Random, leaves: list[UOp], depth: int) -> UOp:
    """A random expression over `leaves`, all of one narrow dtype."""
    if depth == 0:
        return choices.choice(leaves)
    x = expression(choices, leaves, depth - 1)
    y = expression(choices, leaves, choices.randrange(depth))
    kind = choices.randrange(4)
    if kind == 0:
        return x.alu(choices.choice(_UNARY))
    if kind == 1:
        return (x < y).where(y, x)
    return x.alu(choices.choice(_BINARY), y)


def same(found: Scalar, wanted: Scalar) -> bool:
    return found == wanted or (found != found and wanted != wanted)


@BOTH
@pytest.mark.parametrize("lanes", [1, 4])
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9), data=st.data())
def test_values_are_those_of_the_reference(
    dtype: DType, lanes: int, seed: int, data: st.DataObject
) -> None:
    x, y = variable("x", dtype.vec(lanes)), variable("y", dtype.vec(lanes))
    leaves = [x, y, x.const_like(0.1), x.const_like(-3.0)]
    node = expression(random.Random(seed), leaves, 4)
    numbers = st.floats(width=16) | st.sampled_from([0.0, 1.0, 1e-7, 6e4, math.inf, math.nan])
    values = st.lists(numbers, min_size=lanes, max_size=lanes)
    bindings = {leaf: [round_float(dtype, value) for value in data.draw(values)] for leaf in (x, y)}
    wide = widen_narrow_floats(node, TARGET)
    pairs = zip(evaluate(wide, bindings), evaluate(node, bindings), strict=True)
    assert all(same(found, wanted) for found, wanted in pairs)
    for part in wide.toposort():
        assert part.dtype.scalar not in NARROW or part.op in (Op.CAST, Op.VARIABLE)


def test_lanes_are_taken_apart_and_joined_in_float32() -> None:
    vector = UOp(Op.VECTORIZE, dtypes.float16.vec(2), (H, K))
    lane = UOp(Op.EXTRACT, dtypes.float16, (vector + vector,), 1)
    found = widen_narrow_floats(lane, TARGET)
    assert evaluate(found, {H: 1.5, K: 2.5}) == [5.0]
    assert {part.op for part in found.toposort() if part.dtype.scalar in NARROW} <= {
        Op.CAST,
        Op.VARIABLE,
    }


# ---- memory ----


def address(memory: UOp) -> UOp:
    return UOp(Op.INDEX, dtypes.index, (memory, UOp.const(0, dtypes.index)))


def test_scratch_is_float32_and_loses_no_precision_to_it() -> None:
    scratch = UOp(Op.SCRATCH, dtypes.float16, (), ScratchArg(0, 8))
    memory = UOp(Op.PARAM, dtypes.float16, (), ParamArg(0, 8, "CPU"))
    value = UOp(Op.LOAD, dtypes.float16, (address(scratch),)).maximum(
        UOp(Op.LOAD, dtypes.float16, (address(memory),))
    )
    update = UOp(Op.STORE, dtypes.void, (address(scratch), value))
    result = UOp(Op.STORE, dtypes.void, (address(memory), value))
    first, second = widen_narrow_floats(UOp.sink(update, result), TARGET).src
    wide = scratch.replace(dtype=dtypes.float32)
    kept = UOp(Op.LOAD, dtypes.float32, (address(wide),))
    read = UOp(Op.LOAD, dtypes.float16, (address(memory),)).cast(dtypes.float32)
    assert first is UOp(Op.STORE, dtypes.void, (address(wide), kept.maximum(read)))
    expected = UOp(
        Op.STORE, dtypes.void, (address(memory), kept.maximum(read).cast(dtypes.float16))
    )
    assert second is expected, show(second)


def test_sums_are_rounded_into_scratch() -> None:
    scratch = UOp(Op.SCRATCH, dtypes.bfloat16, (), ScratchArg(0, 1, True))
    total = UOp(Op.LOAD, dtypes.bfloat16, (address(scratch),))
    memory = UOp(Op.PARAM, dtypes.bfloat16, (), ParamArg(0, 8, "CPU"))
    gate = variable("g", dtypes.bool)
    part = UOp(Op.LOAD, dtypes.bfloat16, (address(memory), gate))
    store = UOp(Op.STORE, dtypes.void, (address(scratch), total + part, gate))
    found = widen_narrow_floats(store, TARGET)
    wide = scratch.replace(dtype=dtypes.float32)
    kept = UOp(Op.LOAD, dtypes.float32, (address(wide),))
    total_wide = (kept + part.cast(dtypes.float32)).cast(dtypes.bfloat16).cast(dtypes.float32)
    assert found is UOp(Op.STORE, dtypes.void, (address(wide), total_wide, gate))
