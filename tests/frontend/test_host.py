"""Python values and arrays become bytes and come back."""

from pathlib import Path

import numpy as np
import pytest

from kernelet.base.dtype import dtypes
from kernelet.base.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from kernelet.frontend import host
from kernelet.frontend.host import device_name, known_shape
from kernelet.frontend.tensor import Tensor
from kernelet.graph.uop import UOp


@pytest.mark.parametrize(
    ("value", "shape", "dtype"),
    [
        (3, (), dtypes.int32),
        (2**31, (), dtypes.int64),
        ([-(2**31) - 1], (1,), dtypes.int64),
        (2.5, (), dtypes.float32),
        (True, (), dtypes.bool),
        ([[1, 2], [3, 4.5]], (2, 2), dtypes.float32),
        ((1, True), (2,), dtypes.int32),
        ([], (0,), dtypes.float32),
        ([[], []], (2, 0), dtypes.float32),
        (range(4), (4,), dtypes.int32),
        ([np.float32(1.5), np.int64(2)], (2,), dtypes.float32),
    ],
)
def test_nested_values_have_a_shape_and_a_type(value: object, shape: object, dtype: object) -> None:
    found = host.from_nested(value, None)
    assert (found.shape, found.dtype) == (shape, dtype)


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda dtype: dtype.name)
def test_packing_and_unpacking_are_inverse(dtype: object) -> None:
    assert host.unpack(host.pack([0, 1, 1], dtype), dtype) == [0, 1, 1]  # type: ignore[arg-type]


def test_packing_converts_what_does_not_fit() -> None:
    assert host.unpack(host.pack([300, -1], dtypes.uint8), dtypes.uint8) == [44, 255]
    assert host.unpack(host.pack([1.9, -1.9], dtypes.int32), dtypes.int32) == [1, -1]
    assert host.unpack(host.pack([1e6], dtypes.float16), dtypes.float16) == [float("inf")]


def test_nesting_follows_the_shape() -> None:
    assert host.nest([1], ()) == 1
    assert host.nest(list(range(8)), (2, 2, 2)) == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    assert host.nest([], (2, 0)) == [[], []]
    assert host.nest([], (0, 2)) == []


def test_ragged_lists_are_refused() -> None:
    with pytest.raises(ShapeError, match="ragged"):
        Tensor([[1, 2], [3]])
    with pytest.raises(ShapeError, match="ragged"):
        Tensor([[1, 2], 3])
    with pytest.raises(ArgumentError, match="str"):
        Tensor(["a"])


def test_arrays_keep_their_type() -> None:
    for name in ("bool", "int8", "uint16", "int64", "float16", "float64"):
        assert Tensor(np.ones(2, name)).dtype is dtypes.from_name(name)
    assert Tensor(np.ones(2, ">i4")).tolist() == [1, 1]
    assert Tensor(np.arange(6).reshape(2, 3).T).tolist() == [[0, 3], [1, 4], [2, 5]]
    assert Tensor(np.float32(1.5)).shape == ()
    assert Tensor(np.ones(2), dtype="bfloat16").dtype is dtypes.bfloat16
    assert Tensor(np.ones(2), dtype="int32").tolist() == [1, 1]
    with pytest.raises(DTypeError, match="complex64"):
        Tensor(np.ones(2, "complex64"))


# ---- the nodes that tensors start from ----


def test_bytes_become_elements() -> None:
    assert Tensor(b"\x01\x02").tolist() == [1, 2]
    assert Tensor(b"\x01\x00\x02\x00", dtype="int16").tolist() == [1, 2]
    assert Tensor(memoryview(b"\x05")).dtype is dtypes.uint8


def test_a_path_becomes_the_bytes_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "elements"
    path.write_bytes(b"\x01\x00\x02\x00")
    assert Tensor(path).tolist() == [1, 0, 2, 0]
    assert Tensor(path, dtype="int16").tolist() == [1, 2]
    with pytest.raises(FileNotFoundError):
        Tensor(tmp_path / "missing")


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
