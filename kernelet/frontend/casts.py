"""Short names for casts; apart from the others because they are also names of Python types.

In:  tensors.
Out: CAST nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kernelet.base.dtype import DType, dtypes
from kernelet.frontend.primitives import Primitives

TensorT = TypeVar("TensorT", bound=Primitives)


def _cast_to(dtype: DType) -> Callable[[TensorT], TensorT]:
    """The method that casts to a type."""

    def cast(tensor: TensorT) -> TensorT:
        return tensor.cast(dtype)

    cast.__doc__ = f"The values as {dtype.name}."
    return cast


class Casts(Primitives):
    """float(), half(), int() and the like."""

    __slots__ = ()

    bool, short = _cast_to(dtypes.bool), _cast_to(dtypes.int16)
    int, long = _cast_to(dtypes.int32), _cast_to(dtypes.int64)
    half, bfloat16 = _cast_to(dtypes.float16), _cast_to(dtypes.bfloat16)
    float, double = _cast_to(dtypes.float32), _cast_to(dtypes.float64)
