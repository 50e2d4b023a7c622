"""Formulas are read as numpy reads them, and refused with the reason."""

import pytest

from kernelet.base.errors import ArgumentError, ShapeError
from kernelet.frontend.einsum import Equation, parse_equation


def test_letters_that_occur_once_are_the_output() -> None:
    assert parse_equation("kj,ji", [(2, 3), (3, 4)]).output == ("i", "k")
    assert parse_equation("ii", [(3, 3)]).output == ()


def test_axes_under_the_ellipsis_count_from_the_last() -> None:
    found = parse_equation("a...,...b->...ab", [(2, 3, 4), (4, 5)])
    assert found == Equation((("a", -2, -1), (-1, "b")), (-2, -1, "a", "b"))
    assert parse_equation("...a->a...", [(5, 2)]).output == ("a", -1)
    assert parse_equation("a...", [(2, 3)]).output == (-1, "a")


def test_an_explicit_output_without_ellipsis_sums_over_it() -> None:
    assert parse_equation("...a->a", [(5, 2)]).output == ("a",)


@pytest.mark.parametrize(
    ("formula", "shapes", "why"),
    [
        ("ij,jk", [(2, 3)], "2 operands and 1"),
        ("ij->k", [(2, 3)], "no input has it"),
        ("ij->ii", [(2, 3)], "twice"),
        ("i2", [(2, 3)], "letter"),
        ("ij->i*", [(2, 3)], "letters"),
    ],
)
def test_formulas_that_make_no_sense_are_refused(formula: str, shapes: list, why: str) -> None:
    with pytest.raises(ArgumentError, match=why):
        parse_equation(formula, shapes)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"names 2 axes.*\(3, 3, 4\)"):
        parse_equation("ij", [(3, 3, 4)])
    with pytest.raises(ShapeError, match="'j' has sizes 3 and 4"):
        parse_equation("ij,jk", [(3, 3), (4, 1)])
    with pytest.raises(ShapeError, match="under '...'"):
        parse_equation("...,...", [(3,), (4,)])
