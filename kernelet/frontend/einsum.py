"""The language of einsum: a label for each axis.

In:  a formula such as "...ij,jk->...ik" and the shapes of its operands.
Out: an `Equation`, in which every axis has a label and every output label an axis.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kernelet.base.errors import ArgumentError, ShapeError
from kernelet.frontend.primitives import show_dim, show_shape
from kernelet.graph.infer import Dim, Shape

Label = str | int


@dataclass(frozen=True, slots=True)
class Equation:
    """The labels of each input's axes and of the output's; numbers are axes under an ellipsis."""

    inputs: tuple[tuple[Label, ...], ...]
    output: tuple[Label, ...]


def parse_equation(formula: str, shapes: Sequence[Shape]) -> Equation:
    """The labels in `formula`, checked against the operands' shapes.

    >>> parse_equation("ij,jk", [(2, 3), (3, 4)]).output
    ('i', 'k')
    >>> parse_equation("...i->i...", [(5, 6, 7)])
    Equation(inputs=((-2, -1, 'i'),), output=('i', -2, -1))
    """
    left, arrow, right = formula.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise ArgumentError(
            f"einsum {formula!r}: the formula has {len(terms)} operands and {len(shapes)} are "
            "given. Give one tensor for each part between commas."
        )
    inputs = tuple(_labels(formula, term, shape) for term, shape in zip(terms, shapes, strict=True))
    widest = max((sum(isinstance(each, int) for each in labels) for labels in inputs), default=0)
    hidden: tuple[Label, ...] = tuple(range(-widest, 0))
    if arrow:
        before, ellipsis, after = _parts(formula, right)
        output: tuple[Label, ...] = (*before, *(hidden if ellipsis else ()), *after)
    else:
        counts = Counter(label for labels in inputs for label in labels if isinstance(label, str))
        output = (*hidden, *sorted(label for label, count in counts.items() if count == 1))
    known = {label for labels in inputs for label in labels}
    for label in output:
        if label not in known or output.count(label) > 1:
            raise ArgumentError(
                f"einsum {formula!r}: the output has {label!r} "
                f"{'twice' if label in known else 'and no input has it'}. "
                "Use each letter of the inputs at most once."
            )
    _check_sizes(formula, inputs, shapes)
    return Equation(inputs, output)


def _labels(formula: str, term: str, shape: Shape) -> tuple[Label, ...]:
    """A label for each axis; those under the ellipsis count from the last, -1, back."""
    before, ellipsis, after = _parts(formula, term)
    spare = len(shape) - len(before) - len(after)
    if spare < 0 or (spare > 0 and not ellipsis):
        raise ShapeError(
            f"einsum {formula!r}: {term!r} names {len(shape) - spare} axes and the operand has shape "
            f"{show_shape(shape)}. Give a letter for each axis, or '...' for the others."
        )
    return (*before, *range(-spare, 0), *after)


def _parts(formula: str, term: str) -> tuple[str, str, str]:
    """The letters before the ellipsis, the ellipsis, and those after it."""
    before, ellipsis, after = term.partition("...")
    if not (before + after).isalpha() and before + after:
        raise ArgumentError(
            f"einsum {formula!r}: {term!r} is not made of letters and at most one '...'. "
            "Use a letter for each axis."
        )
    return before, ellipsis, after


def _check_sizes(
    formula: str, inputs: Sequence[tuple[Label, ...]], shapes: Sequence[Shape]
) -> None:
    sizes: dict[Label, Dim] = {}
    for labels, shape in zip(inputs, shapes, strict=True):
        for label, size in zip(labels, shape, strict=True):
            known = sizes.get(label, 1)
            if known != 1 and size not in (1, known):
                listed = " with ".join(show_shape(each) for each in shapes)
                name = "an axis under '...'" if isinstance(label, int) else repr(label)
                raise ShapeError(
                    f"einsum {formula!r} of {listed}: {name} has sizes {show_dim(known)} and "
                    f"{show_dim(size)}. An axis has one size, or 1 to be repeated."
                )
            sizes[label] = size if known == 1 else known
