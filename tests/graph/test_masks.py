"""Conditions under which a value is one known number, as far as comparisons of indices tell."""

from __future__ import annotations

import math
import time

import pytest

from kernelet.base.dtype import dtypes
from kernelet.graph.masks import Masks, deciding, implying, index_value, may_mask
from kernelet.graph.ops import Op
from kernelet.graph.show import show_expression
from kernelet.graph.uop import UOp
from tests.lower.pseudocode import expand, loop, memory, pad, permute, reshape

ROW, COLUMN = loop(0, 6), loop(1, 8)
X = memory(1, 6, 8)


def positions(axis: int, rows: int = 6, columns: int = 8) -> UOp:
    size = (rows, columns)[axis]
    line = UOp(Op.ARANGE, dtypes.int32, (), (size,))
    return expand(reshape(line, *((size, 1) if axis == 0 else (1, size))), rows, columns)


def number(value: float | bool, like: UOp = X) -> UOp:
    return UOp.const(value, like.dtype).broadcast_to(like.shape)


BEYOND = positions(0).alu(Op.CMPLT, positions(1))  # row < column
MASKED = BEYOND.where(number(-math.inf), X)


def known(node: UOp, *index: UOp) -> list[tuple[str, float]]:
    return [(show_expression(gate), value) for gate, value in Masks().parts(node, index)]


def at_both(node: UOp) -> list[tuple[str, float]]:
    return known(node, ROW, COLUMN)


GATE = "(r0 + (r1 * -1)) < 0"


def test_a_masked_value_is_the_mask() -> None:
    assert at_both(MASKED) == [(GATE, -math.inf)]
    assert at_both(BEYOND.where(X, number(0.0))) == [("((r0 * -1) + r1) < 1", 0.0)]
    assert at_both(X) == []
    assert at_both(number(3.0)) == [("True", 3.0)]


def test_a_mask_stays_through_arithmetic() -> None:
    shifted = MASKED + memory(2, 6, 8)
    assert at_both(shifted) == [(GATE, -math.inf)]
    weight = (shifted * number(1.5)).alu(Op.EXP2)
    assert at_both(weight) == [(GATE, 0.0)]
    assert at_both(weight * X) == [(GATE, 0.0)]
    assert at_both(weight + X) == []
    assert at_both(MASKED * X) == []


def test_a_mask_moves_with_the_value() -> None:
    assert known(permute(MASKED, 1, 0), COLUMN, ROW) == [(GATE, -math.inf)]
    assert known(expand(reshape(MASKED, 6, 1, 8), 6, 3, 8), ROW, loop(2, 3), COLUMN)
    assert known(pad(MASKED, (0, 0), (1, 0)), ROW, COLUMN) == []


@pytest.mark.parametrize("wanted", [True, False])
def test_conditions_follow_from_comparisons(wanted: bool) -> None:
    def found(condition: UOp) -> list[str]:
        return [show_expression(gate) for gate in implying(condition, (ROW, COLUMN), wanted)]

    yes, no = GATE, "((r0 * -1) + r1) < 1"
    assert found(BEYOND) == [yes if wanted else no]
    assert found(BEYOND.alu(Op.CMPNE, number(True, BEYOND))) == [no if wanted else yes]
    other = positions(0).alu(Op.CMPLT, number(3, positions(0)))
    assert len(found(BEYOND.alu(Op.AND, other))) == (0 if wanted else 2)
    assert len(found(BEYOND.alu(Op.OR, other))) == (2 if wanted else 0)
    assert found(X.alu(Op.CMPLT, number(0.0))) == []


def test_numbers_computed_from_the_index_are_indices() -> None:
    row, column = positions(0), positions(1)

    def found(node: UOp) -> str | None:
        value = index_value(node, (ROW, COLUMN))
        return None if value is None else show_expression(value)

    assert found(column - row) == "(r0 * -1) + r1"
    assert found((row * number(2, row) + number(3, row)).cast(dtypes.int64)) == "(r0 * 2) + 3"
    assert found(row * column) == "r0 * r1"
    assert found(memory(1, 6, 8, dtype=dtypes.int32)) is None
    assert found((row * number(100, row)).cast(dtypes.int8)) is None


def test_shared_numbers_are_computed_once_and_long_ones_never() -> None:
    row = positions(0).cast(dtypes.int64)
    shared = row
    for _ in range(20):
        shared = shared + shared
    start = time.process_time()
    value = index_value(shared, (ROW, COLUMN))
    assert value is not None
    assert show_expression(value) == f"r0 * {1 << 20}"
    for _ in range(2000):
        row = row + number(1, row)
    assert index_value(row, (ROW, COLUMN)) is None
    random = positions(0)
    for _ in range(60):
        random = (random + (random ^ number(3, random))) ^ (random * number(5, random))
    assert index_value(random, (ROW, COLUMN)) is None
    assert time.process_time() - start < 1


def test_only_values_chosen_by_their_place_may_be_masked() -> None:
    assert may_mask(MASKED)
    assert not may_mask(X.alu(Op.CMPLT, number(0.0)).where(X, number(0.0)))
    assert not may_mask(positions(0))


def test_counters_that_wrap_are_no_indices() -> None:
    count = UOp(Op.ARANGE, dtypes.uint8, (), (300,))
    assert index_value(count, (loop(0, 300),)) is None
    assert index_value(count.replace(dtype=dtypes.uint16), (loop(0, 300),)) is not None


def test_one_comparison_decides_a_condition() -> None:
    def found(condition: UOp, wanted: bool = True) -> str | None:
        gate = deciding(condition, (ROW, COLUMN), wanted)
        return None if gate is None else show_expression(gate)

    assert found(BEYOND) == found(BEYOND.logical_not(), False) == GATE
    assert found(BEYOND, False) == "((r0 * -1) + r1) < 1"
    other = positions(0).alu(Op.CMPLT, number(3, positions(0)))
    assert found(BEYOND.alu(Op.OR, other)) is None
    assert found(BEYOND.alu(Op.AND, other), False) is None
