"""Operators in place."""

import operator

import numpy as np
import pytest

from kernelet import Tensor, dtypes
from kernelet.base.errors import DTypeError

INTEGER = ["iadd", "isub", "imul", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor"]


@pytest.mark.parametrize("name", [*INTEGER, "ilshift", "irshift"])
def test_integers_are_changed_in_place(name: str) -> None:
    x = np.array([[1, 2, 3], [4, 5, 6]], np.int32)
    tensor = alias = Tensor(x).realize()
    apply = getattr(operator, name)
    tensor, x = apply(tensor, 2), apply(x, 2)
    row = tensor[1]
    row, x[1] = apply(row, Tensor([1, 2, 3])), apply(x[1], np.array([1, 2, 3], np.int32))
    assert alias is tensor
    np.testing.assert_array_equal(tensor.numpy(), x)
    np.testing.assert_array_equal(row.numpy(), x[1])


def test_floats_are_divided_and_multiplied_in_place() -> None:
    x = alias = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    x /= 2
    x @= Tensor([[0.0, 1.0], [1.0, 0.0]])
    assert alias is x
    assert x.tolist() == [[1.0, 0.5], [2.0, 1.5]]


def test_a_float_result_does_not_go_into_integers() -> None:
    x = Tensor([1, 2], dtype=dtypes.int32).realize()
    with pytest.raises(DTypeError, match="int32.*holds float32"):
        x += 0.5
    with pytest.raises(DTypeError):
        x /= 2
    assert x.tolist() == [1, 2]
