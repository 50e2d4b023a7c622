"""Which reductions run along their results, proved from conditions and bounds."""

from __future__ import annotations

import pytest

from kernelet.base.dtype import DType, dtypes
from kernelet.graph.ops import Op
from kernelet.graph.scan import Scan, identity_of, scan_of
from kernelet.graph.uop import UOp
from tests.lower.pseudocode import F32, expand, flip, memory, reduce, reshape

SIZE = 6
ROWS = expand(reshape(memory(1, SIZE), 1, SIZE), SIZE, SIZE)


def numbers(axis: int, dtype: DType = dtypes.int32) -> UOp:
    shape = (SIZE, 1) if axis == 0 else (1, SIZE)
    count = UOp(Op.ARANGE, dtype, (), (SIZE,))
    return expand(reshape(count, *shape), SIZE, SIZE)


def number(value: float, dtype: DType = F32) -> UOp:
    return UOp.const(value, dtype).broadcast_to((SIZE, SIZE))


I, J = numbers(0), numbers(1)
ONE, ZERO = number(1, dtypes.int32), number(0.0)


def less(left: UOp, right: UOp) -> UOp:
    return left.alu(Op.CMPLT, right)


def masked(condition: UOp, value: UOp = ROWS, other: UOp = ZERO, op: Op = Op.ADD) -> UOp:
    return reduce(condition.where(value, other), op, 1)


def shown(node: UOp) -> tuple[int, int, bool] | None:
    found = scan_of(node)
    return None if found is None else (found.first, found.step, found.backwards)


def test_an_inclusive_sum_adds_the_element_at_each_result() -> None:
    assert scan_of(masked(less(J, I + ONE))) == Scan(0, 1, ROWS, 0, 1, False)


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        (less(J, I), (-1, 1, False)),
        (less(I, J + ONE), (0, 1, True)),
        (less(I, J), (1, 1, True)),
        (less(J + I, number(SIZE, dtypes.int32)), (SIZE - 1, -1, True)),
        (less(number(SIZE - 2, dtypes.int32), J + I), (SIZE - 1, -1, False)),
        (flip(less(I, J + ONE), 0, 1), (0, 1, False)),
    ],
    ids=["exclusive", "from the end", "after it", "falling", "rising", "flipped"],
)
def test_a_condition_says_which_element_is_new(
    condition: UOp, wanted: tuple[int, int, bool]
) -> None:
    assert shown(masked(condition)) == wanted


def test_the_value_may_stand_where_the_condition_fails() -> None:
    assert shown(reduce(less(I, J).where(ZERO, ROWS), Op.ADD, 1)) == (0, 1, False)


def test_what_is_left_out_must_change_nothing() -> None:
    condition = less(J, I + ONE)
    assert scan_of(masked(condition, ROWS, number(1.0))) is None
    assert scan_of(masked(condition, ROWS, number(1.0), Op.MUL)) is not None
    assert scan_of(masked(condition, ROWS, number(0.0), Op.MAX)) is None


def test_values_that_differ_from_result_to_result_start_again() -> None:
    assert scan_of(masked(less(J, I + ONE), ROWS * I.cast(F32))) is None
    assert scan_of(masked(less(J, I + ONE), ROWS * J.cast(F32))) is not None


@pytest.mark.parametrize(
    "condition",
    [less(J, I + number(2, dtypes.int32)), less(J + J, I), less(J, number(3, dtypes.int32))],
    ids=["two at first", "every second", "no result"],
)
def test_other_conditions_are_no_scan(condition: UOp) -> None:
    assert scan_of(masked(condition)) is None


def test_counters_that_wrap_are_no_scan() -> None:
    size = 300
    count = UOp(Op.ARANGE, dtypes.uint8, (), (size,))
    row, column = reshape(count, size, 1), reshape(count, 1, size)
    condition = less(expand(column, size, size), expand(row, size, size))
    value = expand(reshape(memory(1, size), 1, size), size, size)
    masked_value = condition.where(value, UOp.const(0.0, F32).broadcast_to((size, size)))
    assert scan_of(reduce(masked_value, Op.ADD, 1)) is None


@pytest.mark.parametrize(
    ("op", "dtype", "value"),
    [
        (Op.ADD, F32, 0),
        (Op.MUL, dtypes.int32, 1),
        (Op.MAX, F32, float("-inf")),
        (Op.MAX, dtypes.uint8, 0),
        (Op.MAX, dtypes.bool, False),
    ],
)
def test_a_reduction_starts_at_what_changes_nothing(op: Op, dtype: DType, value: float) -> None:
    assert identity_of(op, dtype) == value
