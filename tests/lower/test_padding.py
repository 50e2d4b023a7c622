"""Loops leave out padding from end to end, and nothing that counts."""

from __future__ import annotations

import pytest

from kernelet.base.dtype import dtypes
from kernelet.graph.division import add_index, index_const, less_index, scale_index
from kernelet.graph.ops import Op
from kernelet.graph.spec import LOOPS, verify
from kernelet.graph.uop import UOp
from kernelet.lower.padding import needed_gates, without_padding
from tests.lower.pseudocode import F32, around, at, block, load, loop, memory, store, written

ROW, TAP, UNIT = loop(0, 14), loop(1, 3, "reduce"), loop(2, 2, "unroll")
ONE = index_const(1)
TOTAL = load(memory(0, 14), ROW)
WEIGHT = load(memory(2, 3), TAP)


def pixel(row: UOp = ROW) -> UOp:
    """x[row + tap - 1], which is 0 outside of 14."""
    place = add_index(add_index(row, TAP), index_const(-1))
    inside = [less_index(index_const(-1), place), less_index(place, index_const(14))]
    return load(memory(1, 14), place, gates=[inside[0].alu(Op.AND, inside[1])])


def left(*statements: UOp) -> str:
    """What becomes of statements in the loop over taps, for each row."""
    found = block(around(ROW, around(TAP, *statements)))
    found = without_padding(found, needed_gates(found))
    verify(found, LOOPS, "without padding")
    return written(found)


def added(value: UOp, row: UOp = ROW) -> UOp:
    total = load(memory(0, 28), row)
    return store(memory(0, 28), row, total.alu(Op.ADD, value))


def size_of_taps(text: str) -> str:
    return next(line.split(" in ")[1] for line in text.splitlines() if "for r1 in" in line)


SHORTER = "(max(-3, r0 + -15) * -1) + (max(0, (r0 * -1) + 1) * -1) reduce:"


def test_a_loop_begins_and_ends_where_the_padding_does() -> None:
    text = left(added(pixel() * WEIGHT))
    assert size_of_taps(text) == SHORTER
    assert "p2[r1 + max(0, (r0 * -1) + 1)]" in text


def test_a_masked_sum_is_as_good_as_a_masked_load() -> None:
    gate = pixel().src[1]
    value = TOTAL.alu(Op.ADD, WEIGHT)
    masked = UOp(Op.STORE, dtypes.void, (at(memory(0, 14), ROW), gate.where(value, TOTAL)))
    assert size_of_taps(left(masked)) == SHORTER


def test_rows_of_a_tile_have_the_taps_that_any_of_them_needs() -> None:
    row = add_index(scale_index(ROW, 2), UNIT)
    found = block(around(ROW, around(TAP, around(UNIT, added(pixel(row) * WEIGHT, row)))))
    found = without_padding(found, needed_gates(found))
    assert size_of_taps(written(found)) == "max(-3, (r0 * 2) + -15) * -1 reduce:"


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param((added(pixel() + WEIGHT),), id="a sum is not 0"),
        pytest.param((added(WEIGHT * pixel().alu(Op.RECIPROCAL)),), id="1 / 0"),
        pytest.param((store(memory(0, 14), ROW, pixel()),), id="the last tap stays"),
        pytest.param((store(memory(0, 14), 3, TOTAL.alu(Op.ADD, pixel())),), id="other memory"),
        pytest.param((added(pixel() * WEIGHT), added(WEIGHT)), id="another sum"),
        pytest.param(
            (
                store(
                    memory(0, 14),
                    ROW,
                    pixel().src[1].where(TOTAL.alu(Op.ADD, WEIGHT), UOp.const(0.0, F32)),
                ),
            ),
            id="0 instead",
        ),
    ],
)
def test_what_counts_is_not_left_out(statements: tuple[UOp, ...]) -> None:
    assert size_of_taps(left(*statements)) == "3 reduce:"


def test_loops_inside_do_not_tell_where_one_begins() -> None:
    found = block(around(TAP, around(ROW, added(pixel() * WEIGHT))))
    assert without_padding(found, needed_gates(found)) is found
