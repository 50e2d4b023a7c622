"""The functions of `tinygrad.dtype`: which type holds what, and numbers as a type rounds them.

In:  element types, Python numbers.
Out: element types, Python numbers, bits of 8-bit floats.
"""

from __future__ import annotations

import functools
import math

from kernelet.base.dtype import (
    EXACT_BITS,
    FORMATS,
    DType,
    dtypes,
    float_from_bits,
    float_to_bits,
    promote,
    round_float,
    round_to,
)
from kernelet.frontend.host import Nested
from kernelet.frontend.promotion import scalar_dtype
from kernelet.graph.algebra import holds_every

# The element types by every name that they have.
DTYPES_DICT: dict[str, DType] = {
    name: value
    for name, value in vars(dtypes).items()
    if isinstance(value, DType) and value.kind not in ("void", "index") and "default" not in name
}
# What is left of a number in each type.
truncate = {dtype: functools.partial(round_to, dtype) for dtype in DTYPES_DICT.values()}


# ---- which type ----


def least_upper_dtype(*given: DType) -> DType:
    """The least type that holds all of them."""
    return functools.reduce(promote, given)


def least_upper_float(dtype: DType) -> DType:
    """A float type itself, else the default one."""
    return dtype if dtype.is_float else dtypes.default_float


def can_lossless_cast(source: DType, target: DType) -> bool:
    """Whether every value of `source` is one of `target`."""
    return source is target or holds_every(target, source)


def sum_acc_dtype(dtype: DType) -> DType:
    """The type that a sum of such elements has."""
    if dtype.is_unsigned:
        return least_upper_dtype(dtype, dtypes.uint32)
    return least_upper_dtype(dtype, dtypes.float32 if dtype.is_float else dtypes.int32)


# ---- numbers ----


def float_to_fp16(value: float) -> float:
    """The nearest float16."""
    return round_float(dtypes.float16, value)


def float_to_bf16(value: float) -> float:
    """The nearest bfloat16."""
    return round_float(dtypes.bfloat16, value)


def float_to_fp8(value: float, dtype: DType) -> int:
    """The 8 bits of the nearest number of an 8-bit float type; the greatest for what is larger.

    An infinity is NaN where there is none.
    """
    form = FORMATS[dtype.name]
    if math.isfinite(value):
        greatest = float_from_bits(dtype, form.overflow - form.has_infinity)
        value = min(max(value, -greatest), greatest)
    elif not form.has_infinity:
        value = math.copysign(math.nan, value)
    return float_to_bits(dtype, value)


def fp8_to_float(bits: int, dtype: DType) -> float:
    """The number that 8 bits stand for in an 8-bit float type."""
    return float_from_bits(dtype, bits)


# ---- what tinygrad's types have beside ours ----


def _from_py(value: Nested) -> DType:
    if isinstance(value, list | tuple):
        kinds = [_from_py(each) for each in value]
        return max(kinds, key=lambda dtype: dtype.priority) if kinds else dtypes.default_float
    return scalar_dtype(value)


def _finfo(dtype: DType) -> tuple[int, int]:
    """The bits of exponent and fraction."""
    fraction = EXACT_BITS[dtype.name] - 1
    return dtype.itemsize * 8 - 1 - fraction, fraction


DTYPE_MEMBERS: dict[str, object] = {
    "bitsize": property(lambda dtype: dtype.itemsize * 8),
    "count": property(lambda dtype: dtype.lanes),
    "fmt": property(lambda dtype: None if dtype.name in FORMATS else dtype.code),
    "const": lambda dtype, value: round_to(dtype, value),
}
DTYPES_MEMBERS: dict[str, object] = {
    "is_float": staticmethod(lambda dtype: dtype.is_float),
    "is_int": staticmethod(lambda dtype: dtype.is_integer),
    "is_unsigned": staticmethod(lambda dtype: dtype.is_unsigned),
    "is_bool": staticmethod(lambda dtype: dtype.is_bool),
    "min": staticmethod(lambda dtype: dtype.min),
    "max": staticmethod(lambda dtype: dtype.max),
    "as_const": staticmethod(lambda value, dtype: round_to(dtype, value)),
    "fields": staticmethod(lambda: dict(DTYPES_DICT)),
    "finfo": staticmethod(_finfo),
    "from_py": staticmethod(_from_py),
    "fp8s": (dtypes.fp8e4m3, dtypes.fp8e5m2),
    "sints": tuple(dtype for dtype in dtypes.ints if not dtype.is_unsigned),
    "uints": tuple(dtype for dtype in dtypes.ints if dtype.is_unsigned),
}
