"""Tensors tell their sizes and values to Python and numpy."""

import numpy as np
import pytest

from kernelet.base.dtype import dtypes
from kernelet.base.errors import ArgumentError, ShapeError
from kernelet.frontend.tensor import Tensor


def test_facts_have_the_names_of_pytorch() -> None:
    x = Tensor([[1, 2, 3]], dtype="int16")
    assert (x.shape, x.size(), x.size(-1), x.ndim, x.dim(), len(x)) == ((1, 3), (1, 3), 3, 2, 2, 1)
    assert (x.numel(), x.element_size(), x.nbytes(), x.dtype) == (3, 2, 6, dtypes.int16)
    assert x.device == "PYTHON"
    assert not x.is_floating_point()
    with pytest.raises(ShapeError, match="that has axes"):
        len(Tensor(1))


def test_values_become_python_and_numpy() -> None:
    x = Tensor([[1.5, 2.5], [3.5, 4.5]])
    assert x.tolist() == [[1.5, 2.5], [3.5, 4.5]]
    assert x.numpy().dtype == np.float32
    assert bytes(x.data()) == x.numpy().tobytes()
    assert np.asarray(x).shape == (2, 2)
    assert (Tensor([7]).item(), int(Tensor(7.9)), float(Tensor(2)), bool(Tensor([0]))) == (
        7,
        7,
        2.0,
        False,
    )
    assert [1, 2, 3][Tensor(1)] == 2
    assert [row.tolist() for row in x] == x.tolist()
    with pytest.raises(ShapeError, match="item"):
        x.item()
    with pytest.raises(ArgumentError, match="index"):
        [1, 2, 3][Tensor(1.0)]
    with pytest.raises(ShapeError, match="iter"):
        iter(Tensor(1))


def test_every_type_goes_in_and_out() -> None:
    for dtype in dtypes.all:
        assert Tensor([0, 1], dtype=dtype).tolist() == [0, 1]
    assert Tensor([1.5, -2.25], dtype="bfloat16").numpy().tolist() == [1.5, -2.25]
