"""Names of types and spelling of numbers in C.

In:  dtypes, Python values.
Out: C text for gcc and clang.
"""

from __future__ import annotations

import math
import struct

from kernelet.base.dtype import FORMATS, DType, Scalar, dtypes, float_to_bits, round_float, round_to
from kernelet.render.renderer import bits_dtype

C_NAMES: dict[DType, str] = {
    dtypes.bool: "_Bool",
    dtypes.int8: "signed char",
    dtypes.uint8: "unsigned char",
    dtypes.int16: "short",
    dtypes.uint16: "unsigned short",
    dtypes.int32: "int",
    dtypes.uint32: "unsigned",
    dtypes.int64: "long long",
    dtypes.uint64: "unsigned long long",
    dtypes.float32: "float",
    dtypes.float64: "double",
}
SIGNED = {1: dtypes.int8, 2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}
UNSIGNED = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}
_SUFFIXES = {dtypes.uint32: "u", dtypes.int64: "ll", dtypes.uint64: "ull"}


def scalar_name(dtype: DType) -> str:
    """The C type of one element, in memory and in a variable."""
    return C_NAMES[bits_dtype(dtype.scalar)]


def short_name(dtype: DType) -> str:
    """A dtype as part of an identifier: `float32`, `int32x16`."""
    held = bits_dtype(dtype)
    return held.name if held.lanes == 1 else f"{held.name}x{held.lanes}"


def literal(dtype: DType, value: Scalar) -> str:
    """A scalar constant, exact to the last bit."""
    scalar = dtype.scalar
    if scalar.is_float:
        return _float_literal(scalar, float(value))
    number = int(round_to(scalar, value))
    if scalar.is_bool:
        return str(number)
    suffix = _SUFFIXES.get(scalar, "")
    if scalar is dtypes.index and abs(number) >= 1 << 31:
        suffix = "ll"
    if number == scalar.min and number < 0 and scalar.itemsize >= 4:
        return f"({number + 1}{suffix or ('ll' if scalar.itemsize == 8 else '')} - 1)"
    return f"{number}{suffix}"


def _float_literal(dtype: DType, value: float) -> str:
    if dtype.name in FORMATS:
        return hex(float_to_bits(dtype, value))
    if dtype is dtypes.float16:
        half = round_float(dtype, value)
        return hex(int(struct.unpack("<H", struct.pack("<e", half))[0]))
    suffix = "f" if dtype is dtypes.float32 else ""
    if math.isnan(value):
        return f'__builtin_nan{suffix}("")'
    rounded = round_float(dtype, value)
    if math.isinf(rounded):
        return f"{'-' if rounded < 0 else ''}__builtin_inf{suffix}()"
    text = f"{rounded:.7g}" if suffix else repr(rounded)
    if round_float(dtype, float(text)) != rounded:
        digits, exponent = rounded.hex().split("p")
        text = f"{digits.rstrip('0').rstrip('.')}p{exponent}"
    elif "." not in text and "e" not in text:
        text += ".0"
    return text + suffix
