"""Numbers and names have the types that numpy and PyTorch users know."""

import numpy as np
import pytest

from kernelet.base.dtype import DType, Scalar, dtypes
from kernelet.base.errors import ArgumentError
from kernelet.frontend.promotion import as_dtype, promote_scalar
from kernelet.frontend.tensor import Tensor


@pytest.mark.parametrize(
    ("dtype", "number", "result"),
    [
        (dtypes.int64, 0.5, dtypes.float32),
        (dtypes.float16, 1.5, dtypes.float16),
        (dtypes.float16, 7, dtypes.float16),
        (dtypes.int8, 7, dtypes.int8),
        (dtypes.uint8, True, dtypes.uint8),
        (dtypes.bool, 1, dtypes.int32),
        (dtypes.bool, 1.0, dtypes.float32),
        (dtypes.bool, True, dtypes.bool),
    ],
)
def test_a_number_of_the_same_kind_does_not_promote(
    dtype: DType, number: Scalar, result: DType
) -> None:
    assert promote_scalar(dtype, number) is result
    assert (Tensor([1], dtype=dtype) + number).dtype is result


def test_numpy_numbers_count_as_python_numbers() -> None:
    assert (Tensor([1.0], dtype="half") * np.float64(2)).dtype is dtypes.float16
    assert (np.float32(2) * Tensor([1, 2])).tolist() == [2.0, 4.0]
    assert (Tensor([1.0, 2.0]) + np.array([1, 2], np.int32)).tolist() == [2.0, 4.0]


def test_dtypes_have_names() -> None:
    assert as_dtype("half") is dtypes.float16
    with pytest.raises(ArgumentError, match="float8"):
        as_dtype("float8")


@pytest.mark.parametrize("name", ["bool", "int8", "uint8", "int64", "float16", "float32"])
def test_types_of_numpy_are_types(name: str) -> None:
    wanted = as_dtype(name)
    for kind in (getattr(np, name + "_" * (name == "bool")), np.dtype(name)):
        assert as_dtype(kind) is wanted
        assert Tensor([1, 0]).cast(kind).dtype is wanted
        assert Tensor([1, 0], dtype=kind).dtype is wanted
        assert Tensor.zeros(2, dtype=kind).dtype is wanted
        assert Tensor([1, 0]).sum(dtype=kind).dtype is wanted


def test_types_of_python_are_those_of_its_numbers() -> None:
    for kind, number in ((float, 1.0), (int, 1), (bool, True)):
        assert Tensor([1, 0]).cast(kind).dtype is Tensor(number).dtype
        assert Tensor.zeros(2, dtype=kind).dtype is Tensor(number).dtype
    for kind in (str, list, np.str_, np.dtype("complex64"), object()):
        with pytest.raises(ArgumentError, match="there is no such element type"):
            Tensor([1]).cast(kind)
