"""Masks go where the product is zero without them, and nowhere else."""

from __future__ import annotations

import pytest

from kernelet.base.dtype import dtypes
from kernelet.graph.division import index_const
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.lower.masks import without_masks
from tests.lower.pseudocode import F32, around, load, loop, memory, store, value_text

I = loop(0, 8)
INSIDE = UOp(Op.CMPLT, dtypes.bool, (I, index_const(5)))
OTHER = UOp(Op.CMPLT, dtypes.bool, (I, index_const(3)))
X, W = load(memory(1, 8), I), load(memory(2, 8), I)  # X is 0 outside
TOTAL = load(memory(0, 8), I)
ZERO = UOp.const(0.0, F32)


def left(value: UOp) -> str:
    """The value that is stored in the end."""
    return value_text(without_masks(store(memory(0, 8), I, value), X, (INSIDE,)).src[1])


@pytest.mark.parametrize(
    "product", [X, X * W, W * X, (X * W) * W, X.cast(dtypes.float64).cast(F32)]
)
def test_a_product_with_a_zero_needs_no_mask(product: UOp) -> None:
    assert left(INSIDE.where(product, ZERO)) == value_text(product)
    total = TOTAL.alu(Op.ADD, product)
    assert left(INSIDE.where(total, TOTAL)) == value_text(total)
    assert left(TOTAL.alu(Op.ADD, INSIDE.where(product, ZERO))) == value_text(total)


@pytest.mark.parametrize("value", [X + W, W, X * W.alu(Op.RECIPROCAL), X * W.alu(Op.LOG2)])
def test_what_is_not_zero_without_the_load_keeps_its_mask(value: UOp) -> None:
    masked = INSIDE.where(value, ZERO)
    assert left(masked) == value_text(masked)


def test_other_conditions_stay() -> None:
    both = UOp(Op.AND, dtypes.bool, (INSIDE, OTHER))
    assert left(both.where(X * W, ZERO)) == value_text(OTHER.where(X * W, ZERO))


def test_another_value_outside_stays() -> None:
    masked = INSIDE.where(X * W, UOp.const(1.0, F32))
    assert left(masked) == value_text(masked)


def test_all_statements_below_loops_lose_their_masks() -> None:
    inside = store(memory(0, 8), I, INSIDE.where(X * W, ZERO))
    found = without_masks(around(I, inside), X, (INSIDE,))
    assert found is around(I, store(memory(0, 8), I, X * W))
