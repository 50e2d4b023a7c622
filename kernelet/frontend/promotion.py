"""Which type a value has: one that is asked for, that of a number, of several values, of a sum.

In:  names of types, numbers, types.
Out: types of elements.
"""

from __future__ import annotations

from typing import TypeGuard

from kernelet.base.dtype import DType, Scalar, dtypes
from kernelet.base.errors import ArgumentError

DTypeLike = DType | str | type | None


def as_dtype(dtype: DTypeLike, usual: DType | None = None) -> DType:
    """The element type itself, or the one called as a type of numpy's, PyTorch's or Python's is.

    None is the `usual` one; Python's numbers are of the default types.
    """
    found: object = usual if dtype is None else dtype
    if isinstance(found, type) and found in (bool, int, float):
        found = scalar_dtype(found())
    if not isinstance(found, DType):
        name = getattr(found, "__name__", str(found))
        found = getattr(dtypes, name.removeprefix("torch."), None)
    if not isinstance(found, DType):
        names = ", ".join(known.name for known in dtypes.all)
        raise ArgumentError(f"dtype {dtype!r}: there is no such element type. Use one of {names}.")
    return found


def is_scalar(value: object) -> TypeGuard[Scalar]:
    """Whether `value` is a plain Python number."""
    return isinstance(value, bool | int | float)


def scalar_dtype(value: Scalar) -> DType:
    """The type that a Python number has on its own."""
    if isinstance(value, bool):
        return dtypes.bool
    if isinstance(value, int):
        return dtypes.default_int if -(1 << 31) <= value < 1 << 31 else dtypes.int64
    return dtypes.default_float


def promote_scalar(dtype: DType, value: Scalar) -> DType:
    """The type of a tensor of `dtype` combined with a Python number.

    A number of the same kind, or of a lesser one, leaves the tensor's type alone.
    """
    if dtype.is_float or isinstance(value, bool):
        return dtype
    if isinstance(value, float):
        return dtypes.default_float
    return scalar_dtype(value) if dtype.is_bool else dtype


def accumulator_dtype(dtype: DType) -> DType:
    """The type that sums and functions of `dtype` are computed in: float32 at least.

    >>> accumulator_dtype(dtypes.bfloat16), accumulator_dtype(dtypes.int64)
    (dtypes.float32, dtypes.int64)
    """
    return dtypes.float32 if dtype.is_float and dtype.itemsize < 4 else dtype


def sum_dtype(dtype: DType) -> DType:
    """The type of a sum: whole numbers narrower than 32 bits widen to 32.

    >>> sum_dtype(dtypes.uint8), sum_dtype(dtypes.bool), sum_dtype(dtypes.float16)
    (dtypes.uint32, dtypes.int32, dtypes.float16)
    """
    if dtype.is_float or dtype.itemsize == 8:
        return dtype
    return dtypes.uint32 if dtype.is_unsigned else dtypes.int32
