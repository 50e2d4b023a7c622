"""The op table says of each op what its Python meaning does."""

import inspect
import itertools
import math

import pytest

from kernelet.base.dtype import dtypes, round_to
from kernelet.graph.ops import ELEMENTWISE, MOVEMENT, OP_TABLE, Op

BINARY = frozenset(op for op, info in OP_TABLE.items() if info.arity == 2)
SAMPLES = [-7, -2, -1, 0, 1, 2, 3, 6]
BITWISE = {Op.AND, Op.OR, Op.XOR}


def meaning(op: Op, *values: float) -> float:
    return OP_TABLE[op].meaning(*values)


@pytest.mark.parametrize("op", sorted(ELEMENTWISE), ids=lambda op: op.name)
def test_the_meaning_takes_as_many_arguments_as_the_arity_says(op: Op) -> None:
    assert len(inspect.signature(OP_TABLE[op].meaning).parameters) == OP_TABLE[op].arity


@pytest.mark.parametrize("op", sorted(BINARY - {Op.SHL, Op.SHR}), ids=lambda op: op.name)
def test_an_op_commutes_exactly_where_the_table_says_so(op: Op) -> None:
    pairs = itertools.product(SAMPLES, repeat=2)
    assert all(meaning(op, x, y) == meaning(op, y, x) for x, y in pairs) == OP_TABLE[op].commutative


@pytest.mark.parametrize("op", sorted(BINARY), ids=lambda op: op.name)
def test_an_associative_op_can_be_regrouped(op: Op) -> None:
    if OP_TABLE[op].associative:
        for x, y, z in itertools.product(SAMPLES, repeat=3):
            assert meaning(op, meaning(op, x, y), z) == meaning(op, x, meaning(op, y, z))


@pytest.mark.parametrize("op", sorted(ELEMENTWISE), ids=lambda op: op.name)
def test_the_identity_changes_nothing(op: Op) -> None:
    identity = OP_TABLE[op].identity
    if identity is not None:
        assert all(meaning(op, x, identity) == x for x in SAMPLES)


@pytest.mark.parametrize("op", sorted(ELEMENTWISE), ids=lambda op: op.name)
def test_comparisons_give_truth_values(op: Op) -> None:
    values = [1] * OP_TABLE[op].arity
    assert isinstance(meaning(op, *values), bool) == OP_TABLE[op].compares


def test_division_is_total_and_rounds_as_it_says() -> None:
    for x, y in itertools.product(SAMPLES, repeat=2):
        if y == 0:
            assert all(meaning(op, x, y) == 0 for op in (Op.IDIV, Op.MOD, Op.TRUNCDIV))
            continue
        assert (meaning(Op.IDIV, x, y), meaning(Op.MOD, x, y)) == divmod(x, y)
        assert meaning(Op.TRUNCDIV, x, y) == math.trunc(x / y)
        assert meaning(Op.TRUNCMOD, x, y) == math.fmod(x, y)


def test_special_floats_never_raise() -> None:
    special = [0.0, -0.0, 1.0, -1.5, 1e308, 5e-324, math.inf, -math.inf, math.nan]
    whole = BITWISE | {Op.SHL, Op.SHR, Op.TRUNCDIV, Op.TRUNCMOD}
    for op in sorted(ELEMENTWISE - whole):
        for values in itertools.product(special, repeat=OP_TABLE[op].arity):
            for dtype in dtypes.floats:
                round_to(dtype, meaning(op, *values))


def test_nan_wins_a_maximum_and_zero_keeps_its_sign() -> None:
    assert math.isnan(meaning(Op.MAX, math.nan, 1.0))
    assert math.isnan(meaning(Op.MAX, 1.0, math.nan))
    assert math.copysign(1, meaning(Op.TRUNC, -0.5)) == -1
    assert math.copysign(1, meaning(Op.SQRT, -0.0)) == -1
    assert meaning(Op.RECIPROCAL, -0.0) == -math.inf


def test_no_elementwise_op_moves() -> None:
    assert not MOVEMENT & ELEMENTWISE
