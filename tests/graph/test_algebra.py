"""Rules with a condition do what their example says; graphs simplify as people expect."""

import math

import pytest

from kernelet.base.dtype import DType, dtypes
from kernelet.graph.algebra import ALGEBRA, holds_every
from kernelet.graph.fold import constant_value
from kernelet.graph.ops import Op
from kernelet.graph.pattern import EVERY, Rule
from kernelet.graph.rewrite import RuleSet, graph_rewrite
from kernelet.graph.uop import UOp, VariableArg
from tests.reference.evaluate import evaluate

F32, I32, INDEX = dtypes.float32, dtypes.int32, dtypes.index
I, N = UOp.variable("i", 0, 7), UOp.variable("n", 10, 20)
BIG = UOp.variable("big", -100, 100)


def leaf(name: str, dtype: DType) -> UOp:
    return UOp(Op.VARIABLE, dtype, (), VariableArg(name, dtype.min, dtype.max))  # type: ignore[arg-type]


X, K, P = leaf("x", F32), leaf("k", I32), leaf("p", dtypes.bool)
ONE = UOp.const(1.0, F32)

# name of the rule, before, after
EXAMPLES = [
    ("constants_are_computed", UOp.const(2, I32) + UOp.const(3, I32), UOp.const(5, I32)),
    ("constants_are_computed", UOp.const(-1, I32).cast(dtypes.uint8), UOp.const(255, dtypes.uint8)),
    ("constants_go_right", 2 + I, I + 2),
    ("constants_go_right", UOp.const(1.0, F32).maximum(X), X.maximum(1.0)),
    (
        "equal_constants_are_a_vector_constant",
        UOp(Op.VECTORIZE, F32.vec(2), (ONE, ONE)),
        UOp(Op.CONST, F32.vec(2), (), 1.0),
    ),
    ("a_cast_that_loses_nothing_is_skipped", X.cast(dtypes.float64).cast(F32), X),
    ("a_cast_that_loses_nothing_is_skipped", P.cast(I32).cast(F32), P.cast(F32)),
    (
        "a_cast_that_loses_nothing_is_skipped",
        K.cast(dtypes.int16).cast(dtypes.int8),
        K.cast(dtypes.int8),
    ),
    ("one_possible_value_is_a_constant", I < 8, UOp.const(True, dtypes.bool)),
    ("one_possible_value_is_a_constant", I // 8, UOp.const(0, INDEX)),
    ("the_greater_range_is_the_maximum", I.maximum(N), N),
    ("the_greater_range_is_the_maximum", N.maximum(I), N),
]

# rules that must leave these alone
KEPT = [
    X + 0.0,
    X * 0.0,
    X.cast(dtypes.float16).cast(F32),
    K.cast(F32).cast(I32),
    K.cast(dtypes.int8).cast(F32).cast(dtypes.uint8),
    K.cast(dtypes.int8).cast(I32),
    X.cast(I32).cast(F32),
    UOp.const(0.0, F32).maximum(X),
    (X + 1.0) + 2.0,
    X.not_equal(X),
    BIG % N,
    BIG.maximum(I),
]


@pytest.mark.parametrize(("name", "before", "after"), EXAMPLES, ids=lambda part: str(part)[:40])
def test_a_rule_does_what_its_example_says(name: str, before: UOp, after: UOp) -> None:
    (rule,) = [rule for rule in ALGEBRA.rules if rule.name == name]
    assert RuleSet("one", rule).rewrite(before) is after
    assert graph_rewrite(before, ALGEBRA) is after
    values = {X: 0.1, K: -70_000, P: True, I: 5, N: 13, BIG: -3}
    assert evaluate(before, values) == evaluate(after, values)


def test_every_rule_has_an_example_and_a_docstring() -> None:
    rules = {rule.name: rule for rule in ALGEBRA.rules if isinstance(rule, Rule)}
    assert set(rules) == {name for name, _, _ in EXAMPLES}
    assert all("->" in str(rule.function.__doc__) for rule in rules.values())


@pytest.mark.parametrize("node", KEPT, ids=lambda node: str(node)[-60:])
def test_what_would_change_a_bit_is_left_alone(node: UOp) -> None:
    assert graph_rewrite(node, ALGEBRA) is node


def test_index_expressions_simplify() -> None:
    cases = [
        ((3 + I) + 4, I + 7),
        ((I + 0) * 1 + (N - N), I),
        ((I < 8).where(N, I), N),
        ((N < 5) | (I < 3), I < 3),
        (-(-(I + 2)), I + 2),
        ((P & P).logical_not().logical_not().where(I, N), P.where(I, N)),
        (P.where(I, P.where(N, I)), I),
        (P.cast(I32).not_equal(0), P),
    ]
    for before, after in cases:
        assert graph_rewrite(before, ALGEBRA) is after, before


def test_constants_are_folded_through_views_of_tensors() -> None:
    tensor = UOp(Op.RESHAPE, I32, (UOp.buffer(6, I32, "CPU"),), (2, 3))
    made = graph_rewrite((tensor + 1) + tensor.const_like(2) * 3, ALGEBRA)
    assert made is tensor + 7
    assert constant_value(graph_rewrite(tensor * 0, ALGEBRA)) == 0
    assert graph_rewrite(tensor * 0, ALGEBRA).shape == (2, 3)


def test_a_lossless_cast_is_one_that_holds_every_value() -> None:
    samples = {
        dtype: [True, False]
        if dtype.is_bool
        else [0, 1, int(dtype.min), int(dtype.max), int(dtype.max) - 1]
        if not dtype.is_float
        else [
            0.5,
            math.inf,
            1e-7,
            65504.0,
            3.3895313892515355e38,
            *(1 + 2.0**-n for n in (3, 23, 52)),
        ]
        for dtype in EVERY
    }
    for narrow in EVERY:
        for wide in EVERY:
            exact = all(
                evaluate(UOp.const(value, narrow).cast(wide).cast(narrow))
                == evaluate(UOp.const(value, narrow))
                and evaluate(UOp.const(value, narrow).cast(wide)) == [UOp.const(value, narrow).arg]
                for value in samples[narrow]
            )
            assert holds_every(wide, narrow) == exact, (narrow, wide)


def test_deep_graphs_simplify_without_recursion() -> None:
    node = K
    for step in range(4000):
        node = (node + 1) * 1 if step % 4 else node * K
    assert len(graph_rewrite(node, ALGEBRA).toposort()) == 2002


@pytest.mark.parametrize("old", EVERY, ids=lambda dtype: dtype.name)
def test_no_pair_of_casts_is_joined_wrongly(old: DType) -> None:
    x = leaf("value", old)
    samples = [0.1, -0.0, 1e-8, 70000.0, 3e38, -3e38, math.inf, -math.inf, -1.5, 2.5]
    if not old.is_float:
        low, high = int(old.min), int(old.max)
        samples = [low, low + 1, -1, 0, 1, 2, high // 2 + 1, high // 3, high - 1, high]
    values = [UOp.const(sample, old).arg for sample in samples]
    for middle in EVERY:
        for final in EVERY:
            before = x.cast(middle).cast(final)
            after = graph_rewrite(before, ALGEBRA)
            if after is not before:
                for value in values:
                    expected, found = evaluate(before, {x: value}), evaluate(after, {x: value})
                    assert repr(expected) == repr(found), (old, middle, final, value)
