"""Tensors start from whatever users hand over, on the device they name."""

import numpy as np
import pytest

from kernelet.base.dtype import dtypes
from kernelet.base.errors import DeviceError, ShapeError
from kernelet.frontend.leaves import device_name, known_shape
from kernelet.frontend.tensor import Tensor
from kernelet.graph.uop import UOp


def test_bytes_become_elements() -> None:
    assert Tensor(b"\x01\x02").tolist() == [1, 2]
    assert Tensor(b"\x01\x00\x02\x00", dtype="int16").tolist() == [1, 2]
    assert Tensor(memoryview(b"\x05")).dtype is dtypes.uint8


def test_tensors_and_nothing_become_tensors() -> None:
    assert Tensor(Tensor([1, 2]), dtype="float32").tolist() == [1.0, 2.0]
    assert Tensor().shape == (0,)


def test_devices_have_one_spelling() -> None:
    assert device_name("python:0") == "PYTHON"
    assert device_name(("PYTHON:2",)) == "PYTHON:2"
    assert device_name(None) == "PYTHON"
    assert device_name(["python:0", "PYTHON:1"]) == ("PYTHON", "PYTHON:1")
    with pytest.raises(DeviceError, match="Name each once"):
        device_name(("PYTHON", "PYTHON:0"))
    with pytest.raises(DeviceError, match="TPU"):
        Tensor([1], device="TPU")


def test_bound_sizes_are_known_and_unbound_ones_are_not() -> None:
    n = UOp.variable("n", 1, 9)
    assert known_shape((2, n.bind(4), n.bind(4) + 1)) == (2, 4, 5)
    with pytest.raises(ShapeError, match="Variable"):
        known_shape((n,))


def test_numpy_numbers_and_arrays_are_taken_everywhere() -> None:
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    x, two = Tensor(rows), np.int64(2)
    assert Tensor([rows[0], rows[1]]).tolist() == rows.tolist()
    assert Tensor([x[0], [7, 8, 9]]).tolist() == [[0, 1, 2], [7, 8, 9]]
    assert Tensor.full((two,), np.float32(3)).tolist() == [3.0, 3.0]
    assert x.reshape(np.int64(3), two).sum(np.int64(1)).tolist() == [1, 5, 9]
    assert (rows.T @ x).tolist() == (rows.T @ rows).tolist()
    assert (x @ rows.T).tolist() == (rows @ rows.T).tolist()


def test_tensors_are_not_equal_to_nothing() -> None:
    x = Tensor([1.0])
    assert (x == None) is False  # noqa: E711
    assert (x != "x") is True
    assert [y for y in (None, x) if y != None] == [x]  # noqa: E711
