"""Extremes of indices, and where a loop may end."""

from __future__ import annotations

import pytest

from kernelet.graph.division import (
    FALSE,
    TRUE,
    add_index,
    divide_index,
    index_const,
    less_index,
    maximum_index,
    minimum_index,
    modulo_index,
    scale_index,
    subtract_index,
)
from kernelet.graph.extremes import extreme, last_live
from kernelet.graph.show import show_expression
from kernelet.graph.uop import UOp
from tests.lower.pseudocode import loop

BLOCK, ROW, COLUMN = loop(0, 4), loop(1, 8), loop(2, 40)
OUTER = frozenset({BLOCK})
PLACE = add_index(scale_index(BLOCK, 8), ROW)


def texts(index: UOp) -> tuple[str, str]:
    found = (extreme(index, OUTER, greatest=False), extreme(index, OUTER))
    return show_expression(found[0]), show_expression(found[1])


@pytest.mark.parametrize(
    ("index", "least", "greatest"),
    [
        (PLACE, "r0 * 8", "(r0 * 8) + 7"),
        (scale_index(PLACE, -1), "(r0 * -8) + -7", "r0 * -8"),
        (
            divide_index(add_index(PLACE, BLOCK), 5),
            "(r0 * 2) + ((r0 * -1) // 5)",
            "((r0 * 2) + (((r0 * -1) + 2) // 5)) + 1",
        ),
        (modulo_index(PLACE, 5), "0", "4"),
        (minimum_index(scale_index(ROW, 8), index_const(50)), "0", "50"),
        (maximum_index(ROW, BLOCK), "r0", "7"),
    ],
    ids=["sum", "negative", "quotient", "remainder", "overlap", "maximum"],
)
def test_inner_loops_stand_at_their_ends(index: UOp, least: str, greatest: str) -> None:
    assert texts(index) == (least, greatest)


def test_a_loop_that_ends_early_goes_as_far_as_its_size_may() -> None:
    short = COLUMN.replace(src=(add_index(PLACE, index_const(1)),))
    assert show_expression(extreme(short, OUTER)) == "(r0 * 8) + 7"


def gate(*terms: UOp, below: int = 0) -> UOp:
    total = index_const(0)
    for term in terms:
        total = add_index(total, term)
    return less_index(total, index_const(below))


def end(condition: UOp) -> str | None:
    found = last_live(condition, COLUMN, OUTER)
    return None if found is None else show_expression(found)


def test_a_loop_ends_where_the_rest_is_masked_for_all_inside() -> None:
    assert end(gate(PLACE, scale_index(COLUMN, -1))) == "(r0 * 8) + 8"
    assert end(gate(BLOCK, scale_index(COLUMN, -2), scale_index(ROW, -1))) == "(r0 // 2) + 1"
    assert end(gate(BLOCK, scale_index(COLUMN, -1), below=-2)) == "r0 + 3"


def test_a_loop_does_not_end_where_its_beginning_is_masked() -> None:
    assert end(gate(COLUMN, scale_index(BLOCK, -1))) is None
    assert end(gate(BLOCK, below=2)) is None
    assert end(gate(subtract_index(BLOCK, divide_index(COLUMN, 3)))) is None
    assert end(FALSE) is None
    assert end(TRUE) == "0"
