"""Gradients of indexing add up what was read several times."""

from __future__ import annotations

import numpy as np
import pytest

from kernelet import Tensor


@pytest.mark.parametrize(("rows", "reads", "width"), [(50, 64, 64), (300, 65, 7), (9, 400, 32)])
def test_rows_that_are_read_again_get_all_their_gradients(
    rows: int, reads: int, width: int
) -> None:
    random = np.random.default_rng(rows)
    picks = random.integers(-rows, rows, reads)
    given = random.standard_normal((reads, width)).astype(np.float32)
    table = Tensor.zeros(rows, width).contiguous().requires_grad_()
    (table[Tensor(picks)] * Tensor(given)).sum().backward()
    wanted = np.zeros((rows, width), np.float32)
    np.add.at(wanted, picks, given)
    assert table.grad is not None
    np.testing.assert_allclose(table.grad.numpy(), wanted, rtol=1e-5, atol=1e-5)


def test_a_table_that_is_also_a_factor_gets_both_gradients() -> None:
    random = np.random.default_rng(0)
    values = random.standard_normal((70, 32)).astype(np.float32)
    picks = random.integers(0, 70, 40)
    table = Tensor(values, requires_grad=True)
    (table[Tensor(picks)] @ table.T).sum().backward()
    wanted = np.tile(values[picks].sum(0), (70, 1))
    np.add.at(wanted, picks, values.sum(0))
    assert table.grad is not None
    np.testing.assert_allclose(table.grad.numpy(), wanted, rtol=1e-4, atol=1e-4)
