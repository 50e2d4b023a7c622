"""Decomposed expressions have the same values, and nothing in them can trap."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelet.base.dtype import EXACT_BITS, DType, dtypes
from kernelet.base.target import Target
from kernelet.graph.ops import Op
from kernelet.graph.show import show_expression
from kernelet.graph.uop import UOp, VariableArg
from kernelet.lower import transcendental
from kernelet.lower.decompose import decompose
from tests.reference.evaluate import evaluate, evaluate_all

PLAIN = Target("plain", operations=frozenset({"TRUNCDIV"}))
CPU = Target("CPU", operations=frozenset({"SUB", "FDIV", "MULACC", "TRUNCDIV", "TRUNCMOD"}))
OWN = Target("own", operations=frozenset({"IDIV", "MOD", "EXP2", "LOG2", "SIN"}))
TARGETS = pytest.mark.parametrize("target", [PLAIN, CPU], ids=["plain", "cpu"])
INTEGERS = (*dtypes.ints, dtypes.index)


def variable(name: str, dtype: DType, low: int | None = None, high: int | None = None) -> UOp:
    least = int(dtype.min) if low is None and not dtype.is_float else low or 0
    most = int(dtype.max) if high is None and not dtype.is_float else high or 0
    return UOp(Op.VARIABLE, dtype, (), VariableArg(name, least, most))


def integers(dtype: DType) -> st.SearchStrategy[int]:
    low, high = int(dtype.min), int(dtype.max)
    near = [low, low + 1, -2, -1, 0, 1, 2, 7, 8, high - 1, high]
    special = st.sampled_from([value for value in near if low <= value <= high])
    return special | st.integers(low, high) | st.integers(max(low, -100), min(high, 100))


def check(node: UOp, bindings: dict[UOp, list[int]], target: Target) -> None:
    """The same values before and after, and no division that a processor could refuse."""
    found = decompose(node, target)
    assert evaluate(found, bindings) == evaluate(node, bindings)
    for part in found.toposort():
        assert part.op not in (Op.IDIV, Op.MOD)
        if part.op in (Op.TRUNCDIV, Op.TRUNCMOD):
            pairs = zip(*evaluate_all(part.src, bindings), strict=True)
            for x, y in pairs:
                assert y != 0
                assert not (x == part.dtype.min and y == -1)


@TARGETS
@pytest.mark.parametrize("op", [Op.IDIV, Op.MOD], ids=["div", "mod"])
@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda dtype: dtype.name)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_floor_division_holds_for_all_numbers(
    dtype: DType, op: Op, target: Target, data: st.DataObject
) -> None:
    pairs = data.draw(st.lists(st.tuples(integers(dtype), integers(dtype)), min_size=4, max_size=4))
    lanes = dtype.vec(4)
    x, y = variable("x", lanes), variable("y", lanes)
    left, right = zip(*pairs, strict=True)
    check(x.alu(op, y), {x: list(left), y: list(right)}, target)


@TARGETS
@pytest.mark.parametrize("op", [Op.IDIV, Op.MOD], ids=["div", "mod"])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_floor_division_by_constants_holds_within_bounds(
    op: Op, target: Target, data: st.DataObject
) -> None:
    dtype = data.draw(st.sampled_from(INTEGERS))
    low, high = sorted((data.draw(integers(dtype)), data.draw(integers(dtype))))
    x = variable("x", dtype, low, high)
    divisor = data.draw(integers(dtype))
    node = x.alu(op, UOp.const(divisor, dtype))
    for value in (low, high, data.draw(st.integers(low, high))):
        check(node, {x: [value]}, target)


@TARGETS
@pytest.mark.parametrize("op", [Op.IDIV, Op.MOD], ids=["div", "mod"])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_floor_division_of_bounded_numbers_holds(
    op: Op, target: Target, data: st.DataObject
) -> None:
    dtype = data.draw(st.sampled_from(INTEGERS))
    limits = [sorted((data.draw(integers(dtype)), data.draw(integers(dtype)))) for _ in "xy"]
    x, y = (variable(name, dtype, *ends) for name, ends in zip("xy", limits, strict=True))
    values = {
        node: [data.draw(st.sampled_from(ends) | st.integers(*ends))]
        for node, ends in zip((x, y), limits, strict=True)
    }
    check(x.alu(op, y), values, target)


X = variable("x", dtypes.index, 0, 100)
SIGNED = variable("s", dtypes.index, -5, 100)
ANY = variable("a", dtypes.int32)
SIZE = variable("n", dtypes.index, 1, 9)


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (X // 8, "x >> 3"),
        (X % 8, "x & 7"),
        (SIGNED // 8, "s >> 3"),
        (ANY % 8, "a & 7"),
        (X // 3, "truncdiv(x, 3)"),
        (X % 3, "truncmod(x, 3)"),
        (X // SIZE, "truncdiv(x, n)"),
        (X % SIZE, "truncmod(x, n)"),
        (SIGNED // 3, "truncdiv(s + 6, 3) + -2"),
        (SIGNED % 3, "truncmod(s + 6, 3)"),
        (ANY % 7, "truncmod(a, 7) + ((truncmod(a, 7) >> 31) & 7)"),
        (ANY // -1, "-a"),
        (ANY // 0, "0"),
        (ANY % 0, "0"),
    ],
)
def test_division_of_an_index_is_cheap(node: UOp, text: str) -> None:
    assert show_expression(decompose(node, CPU)) == text


def test_a_mask_is_known_to_be_positive() -> None:
    assert show_expression(decompose(ANY % 8 // 3, CPU)) == "truncdiv(a & 7, 3)"


def test_operations_of_the_target_stay() -> None:
    x, y = variable("x", dtypes.int32), variable("y", dtypes.int32)
    a = variable("a", dtypes.float32)
    node = UOp.sink(x // y, x % 8, a.alu(Op.EXP2), a.alu(Op.LOG2), a.alu(Op.SIN))
    assert decompose(node, OWN) is node


# ---- floats ----

A, B, C, D = (variable(name, dtypes.float32) for name in "abcd")


def divided(x: UOp, y: UOp | float) -> UOp:
    return x * (y if isinstance(y, UOp) else x.const_like(y)).alu(Op.RECIPROCAL)


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (A * B + C, "mulacc(a, b, c)"),
        (C + A * B, "mulacc(a, b, c)"),
        (A * B - C, "mulacc(a, b, -c)"),
        (C - A * B, "mulacc(-a, b, c)"),
        (C - A * 2.0, "mulacc(-a, 2.0, c)"),
        (A * B + C * D, "(a * b) + (c * d)"),
        (A * B - A * B, "(a * b) - (a * b)"),
        (A * B + C + B * D, "mulacc(b, d, mulacc(a, b, c))"),
        (A - B, "a - b"),
        (-A + B, "b - a"),
        (divided(A, B), "fdiv(a, b)"),
        (divided(A, B) + C, "fdiv(a, b) + c"),
        (divided(A, 3.0), "fdiv(a, 3.0)"),
        (divided(A, 8.0), "a * 0.125"),
        (divided(A, -0.5), "a * -2.0"),
        (divided(A, 0.0), "fdiv(a, 0.0)"),
        (divided(A, math.inf), "fdiv(a, inf)"),
        (A.maximum(0.0), "where(a < 0.0, 0.0, a)"),
        (A.maximum(B), "max(a, b)"),
    ],
)
def test_float_arithmetic_uses_what_the_target_has(node: UOp, text: str) -> None:
    assert show_expression(decompose(node, CPU)) == text


@pytest.mark.parametrize("node", [A * B + C, A - B, divided(A, B), divided(A, 3.0)])
def test_float_arithmetic_stays_where_the_target_has_no_more(node: UOp) -> None:
    assert decompose(node, PLAIN) is node


def test_fused_sums_are_taken_apart_where_they_must() -> None:
    fused = UOp(Op.MULACC, A.dtype, (A, B, C))
    assert decompose(fused, PLAIN) is A * B + C
    assert decompose(fused, CPU) is fused
    x = variable("x", dtypes.int32)
    assert decompose(UOp(Op.MULACC, x.dtype, (x, x, x)), CPU) is x * x + x


def test_a_quotient_is_rounded_once() -> None:
    values = [float(n) for n in range(1, 129)]
    x, y = variable("x", dtypes.float32.vec(128)), variable("y", dtypes.float32.vec(128))
    products = [value * 3 for value in values]
    found = evaluate(decompose(divided(x, y), CPU), {x: products, y: values})
    assert found == [3.0] * 128


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda dtype: dtype.name)
def test_the_maximum_of_both_signs_is_the_size(dtype: DType) -> None:
    x = variable("x", dtype.vec(7))
    found = decompose(x.maximum(-x), CPU)
    assert Op.MAX not in {node.op for node in found.toposort()}
    values = [1.5, -1.5, -0.0, 0.0, math.inf, -math.inf]
    *sizes, last = evaluate(found, {x: [*values, math.nan]})
    assert sizes == [abs(value) for value in values]
    assert math.isnan(last)


def test_a_maximum_with_a_number_keeps_nan() -> None:
    x = variable("x", dtypes.float32.vec(5))
    node = decompose(x.maximum(1.0), CPU)
    found = evaluate(node, {x: [-math.inf, 0.5, 2.0, math.inf, math.nan]})
    assert found[:4] == [1.0, 1.0, 2.0, math.inf]
    assert math.isnan(found[4])


# ---- exponential, logarithm, sine ----


def scaled_exp(x: UOp, scale: float) -> UOp:
    return (x * x.const_like(scale)).alu(Op.EXP2)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
@pytest.mark.parametrize("sign", [1, -1])
def test_exp_of_large_arguments_loses_nothing(dtype: DType, sign: int) -> None:
    values = [-87.3, -50.123, -1.0, 0.0, 3.7, 66.6, 88.5]
    x = variable("x", dtype.vec(len(values)))
    node = decompose(scaled_exp(x, sign * math.log2(math.e)), CPU)
    held = evaluate(x.cast(dtypes.float64.vec(x.dtype.lanes)), {x: values})
    for value, found in zip(held, evaluate(node, {x: values}), strict=True):
        value = evaluate(UOp.const(value, dtypes.float64).cast(dtype))[0]
        limit = 3e-7 if dtype is dtypes.float32 else 1e-15
        assert math.isclose(float(found), math.exp(sign * value), rel_tol=limit)


def test_other_powers_are_scaled_first() -> None:
    x = variable("x", dtypes.float32)
    found = evaluate(decompose(scaled_exp(x, 3.0), CPU), {x: [2.0]})
    assert found == [64.0]


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
def test_cosine_of_large_arguments_loses_nothing(dtype: DType) -> None:
    values = [-1e5, -3.0, 0.0, 0.5, 100.0, 99840.0]
    x = variable("x", dtype.vec(len(values)))
    node = decompose((x + x.const_like(math.pi / 2)).alu(Op.SIN), CPU)
    for value, found in zip(values, evaluate(node, {x: values}), strict=True):
        assert abs(float(found) - math.cos(value)) < 1.2e-7
    quarter = x.const_like(math.pi / 2)
    assert decompose((quarter - x).alu(Op.SIN), CPU) is node
    squared = decompose((x * x + quarter).alu(Op.SIN), CPU)
    assert squared is decompose(transcendental.cos(x * x), CPU)
    assert decompose((x - quarter).alu(Op.SIN), CPU) is not node


@pytest.mark.parametrize("dtype", dtypes.floats, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("op", [Op.EXP2, Op.LOG2, Op.SIN])
def test_functions_of_all_floats_agree_with_the_reference(op: Op, dtype: DType) -> None:
    values = [0.25, 0.5, 1.0, 1.5, 2.0, 7.0]
    x = variable("x", dtype.vec(len(values)))
    node = x.alu(op)
    found = decompose(node, CPU)
    assert not {Op.EXP2, Op.LOG2, Op.SIN} & {part.op for part in found.toposort()}
    limit = (5 if dtype.itemsize > 2 else 2) * 2.0 ** -EXACT_BITS[dtype.name]
    pairs = zip(evaluate(found, {x: values}), evaluate(node, {x: values}), strict=True)
    assert all(math.isclose(float(a), float(b), rel_tol=limit) for a, b in pairs)


# ---- truth values and small integers ----

TRUTHS = [[False, False, True, True], [False, True, False, True]]


@pytest.mark.parametrize(
    "op",
    [Op.ADD, Op.MUL, Op.MAX, Op.SUB, Op.CMPLT, Op.CMPNE, Op.IDIV, Op.MOD],
    ids=lambda op: op.name,
)
def test_arithmetic_on_truth_values_becomes_logic(op: Op) -> None:
    x, y = (UOp(Op.VARIABLE, dtypes.bool.vec(4), (), VariableArg(n, 0, 1)) for n in "xy")
    node = x.alu(op, y)
    found = decompose(node, CPU)
    assert {part.op for part in found.toposort() if part.src} <= {Op.AND, Op.OR, Op.XOR}
    bindings = dict(zip((x, y), TRUTHS, strict=True))
    assert evaluate(found, bindings) == evaluate(node, bindings)


def test_the_sign_of_truth_values_is_nothing() -> None:
    truth = variable("t", dtypes.bool, 0, 1)
    assert decompose(-truth, CPU) is truth


def test_comparisons_of_numbers_stay() -> None:
    x, y = variable("x", dtypes.int32), variable("y", dtypes.int32)
    for node in (x < y, x.not_equal(y)):
        assert decompose(node, CPU) is node


@pytest.mark.parametrize("dtype", [d for d in dtypes.ints if d.is_unsigned], ids=lambda d: d.name)
def test_negative_unsigned_numbers_wrap(dtype: DType) -> None:
    x = variable("x", dtype.vec(3))
    values = {x: [0, 1, int(dtype.max)]}
    for target in (PLAIN, CPU):
        assert evaluate(decompose(-x, target), values) == [0, int(dtype.max), 1]
