"""Element types: what one number in a tensor is, and how two of them combine.

In:  names, Python values.
Out: interned `DType` values, compared by identity; `dtypes` is the list users see.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import cache
from typing import Literal

Kind = Literal["void", "bool", "int", "uint", "float", "index"]
Scalar = bool | int | float


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """How a small float is laid out: a sign, `exponent` bits, `mantissa` bits.

    From `limit` on a number gets the code `overflow`: infinity, or the greatest number where there
    is none.
    """

    exponent: int
    mantissa: int
    limit: float
    overflow: int
    nan: int

    @property
    def bias(self) -> int:
        """What is added to the exponent of a number to store it."""
        return (1 << (self.exponent - 1)) - 1

    @property
    def has_infinity(self) -> bool:
        """Whether `overflow` is the code of infinity, not of a number."""
        return self.overflow == ((1 << self.exponent) - 1) << self.mantissa


# Floats that the `struct` module does not know; those of 8 bits are OCP's OFP8.
FORMATS = {
    "bfloat16": FloatFormat(8, 7, 2.0**128, 0x7F80, 0x7FC0),
    "fp8e4m3": FloatFormat(4, 3, 464.0, 0x7E, 0x7F),
    "fp8e5m2": FloatFormat(5, 2, 65536.0, 0x7C, 0x7F),
}

# How many bits a whole number may have to be exact in each float type.
EXACT_BITS = {
    **{name: form.mantissa + 1 for name, form in FORMATS.items()},
    "float16": 11,
    "float32": 24,
    "float64": 53,
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DType:
    """One element type; `lanes > 1` is a vector register of that many elements.

    `priority` orders promotion, `code` is the `struct` letter of one element, or of its bits where
    the type is one of `FORMATS`.
    """

    name: str
    kind: Kind
    itemsize: int
    priority: int
    code: str
    lanes: int = 1

    def vec(self, lanes: int) -> DType:
        """The vector type of `lanes` such elements; 1 gives the scalar type itself."""
        return _vector(self.scalar, lanes)

    @property
    def scalar(self) -> DType:
        """The element type of a vector type; a scalar type itself."""
        return self if self.lanes == 1 else _BY_NAME[self.name]

    @property
    def is_float(self) -> bool:
        """Whether values have a fraction."""
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """Whether values are whole numbers (bool is not)."""
        return self.kind in ("int", "uint", "index")

    @property
    def is_unsigned(self) -> bool:
        """Whether values are whole numbers from 0."""
        return self.kind == "uint"

    @property
    def is_bool(self) -> bool:
        """Whether values are True or False."""
        return self.kind == "bool"

    @property
    def min(self) -> Scalar:
        """The least value; minus infinity for floats that have it."""
        if self.is_float:
            return round_float(self, -math.inf)
        if self.is_bool:
            return False
        return 0 if self.is_unsigned else -(1 << (self.itemsize * 8 - 1))

    @property
    def max(self) -> Scalar:
        """The greatest value; infinity for floats that have it."""
        if self.is_float:
            return round_float(self, math.inf)
        if self.is_bool:
            return True
        return (1 << (self.itemsize * 8 - (0 if self.is_unsigned else 1))) - 1

    def __repr__(self) -> str:
        return f"dtypes.{self.name}" if self.lanes == 1 else f"dtypes.{self.name}.vec({self.lanes})"

    def __reduce__(self) -> tuple[object, ...]:
        return _by_name, (self.name, self.lanes)


@cache
def _vector(scalar: DType, lanes: int) -> DType:
    if lanes == 1:
        return scalar
    return DType(scalar.name, scalar.kind, scalar.itemsize, scalar.priority, scalar.code, lanes)


def _by_name(name: str, lanes: int) -> DType:
    return _BY_NAME[name].vec(lanes)


class dtypes:  # the name users of PyTorch and tinygrad know
    """The element types by name.

    >>> dtypes.half is dtypes.float16
    True
    """

    void = DType("void", "void", 0, -1, "x")
    index = DType("index", "index", 8, 4, "q")  # loop and address arithmetic inside kernels
    bool = DType("bool", "bool", 1, 0, "?")
    int8 = DType("int8", "int", 1, 1, "b")
    uint8 = DType("uint8", "uint", 1, 2, "B")
    int16 = DType("int16", "int", 2, 3, "h")
    uint16 = DType("uint16", "uint", 2, 4, "H")
    int32 = DType("int32", "int", 4, 5, "i")
    uint32 = DType("uint32", "uint", 4, 6, "I")
    int64 = DType("int64", "int", 8, 7, "q")
    uint64 = DType("uint64", "uint", 8, 8, "Q")
    fp8e4m3 = DType("fp8e4m3", "float", 1, 9, "B")
    fp8e5m2 = DType("fp8e5m2", "float", 1, 10, "B")
    float16 = DType("float16", "float", 2, 11, "e")
    bfloat16 = DType("bfloat16", "float", 2, 12, "H")
    float32 = DType("float32", "float", 4, 13, "f")
    float64 = DType("float64", "float", 8, 14, "d")

    char, uchar, short, ushort = int8, uint8, int16, uint16
    int, uint, long, ulong = int32, uint32, int64, uint64
    half, float, double = float16, float32, float64
    float8_e4m3fn, float8_e5m2 = fp8e4m3, fp8e5m2
    default_float, default_int = float32, int32

    floats = (fp8e4m3, fp8e5m2, float16, bfloat16, float32, float64)
    ints = (int8, uint8, int16, uint16, int32, uint32, int64, uint64)
    all = (bool, *ints, *floats)

    @staticmethod
    def from_name(name: str) -> DType:
        """The type called `name`; KeyError when there is none."""
        return _BY_NAME[name]


_BY_NAME: dict[str, DType] = {
    dtype.name: dtype for dtype in (*dtypes.all, dtypes.void, dtypes.index)
}


@cache
def promote(left: DType, right: DType) -> DType:
    """The least type that holds both: floats win over integers, the wider over the narrower.

    int64 with uint64 gives float32; two floats of one size, neither of which holds the other, give
    the next wider one: float16 with bfloat16 float32, the two of 8 bits float16.
    """
    if left is right:
        return left
    if left.is_float and right.is_float and left.itemsize == right.itemsize:
        return dtypes.float16 if left.itemsize == 1 else dtypes.float32
    low, high = sorted((left, right), key=lambda dtype: dtype.priority)
    if high.is_float or high.kind == low.kind or low.is_bool:
        return high
    unsigned, signed = (low, high) if low.is_unsigned else (high, low)
    if signed.itemsize > unsigned.itemsize:
        return signed
    wider = {1: dtypes.int16, 2: dtypes.int32, 4: dtypes.int64, 8: dtypes.float32}
    return wider[unsigned.itemsize]


def round_to(dtype: DType, value: Scalar) -> Scalar:
    """`value` as an element of `dtype` holds it: floats are rounded, integers wrap.

    A float that is not finite, or out of range, becomes the integer that x86 conversion gives
    after saturation: NaN is 0.
    """
    if dtype.is_bool:
        return bool(value)
    if dtype.is_float:
        return round_float(dtype, value if isinstance(value, float) else _to_double(dtype, value))
    if isinstance(value, float):
        if math.isnan(value):
            return 0
        low, high = int(dtype.min), int(dtype.max)
        return low if value <= low else high if value >= high else int(value)
    bits = dtype.itemsize * 8
    wrapped = int(value) & ((1 << bits) - 1)
    return wrapped - (1 << bits) if not dtype.is_unsigned and wrapped >> (bits - 1) else wrapped


def _to_double(dtype: DType, value: int) -> float:
    # A wide integer must be rounded once: cut to 53 bits with a sticky last bit, the double is
    # exact and the only rounding is the one to `dtype`.
    cut = value.bit_length() - 53
    if cut <= 0 or dtype.scalar is dtypes.float64:
        return float(value)
    magnitude = abs(value)
    kept = magnitude >> cut
    kept |= kept << cut != magnitude
    return math.copysign(math.ldexp(kept, cut), value)


def round_float(dtype: DType, value: float) -> float:
    """The nearest value that the float type `dtype` holds, ties to even."""
    if dtype.scalar is dtypes.float64 or math.isnan(value):
        return value
    if dtype.name in FORMATS:
        return float_from_bits(dtype, float_to_bits(dtype, value))
    try:
        return struct.unpack(f"<{dtype.code}", struct.pack(f"<{dtype.code}", value))[0]  # type: ignore[no-any-return]
    except OverflowError:
        return math.copysign(math.inf, value)


def float_to_bits(dtype: DType, value: float) -> int:
    """The bits of `value` in one of the `FORMATS`, rounded to float32, then to nearest even."""
    form = FORMATS[dtype.name]
    word = int(struct.unpack("<I", struct.pack("<f", round_float(dtypes.float32, value)))[0])
    magnitude, cut = word & 0x7FFFFFFF, 23 - form.mantissa
    size = struct.unpack("<f", struct.pack("<I", magnitude))[0]
    if math.isnan(value):
        code = form.nan
    elif size >= form.limit:
        code = form.overflow
    elif size < 2.0 ** (1 - form.bias):
        code = round(math.ldexp(size, form.bias - 1 + form.mantissa))
    else:
        odd = (magnitude >> cut) & 1
        nearest = magnitude + ((form.bias - 127) << 23) + (1 << (cut - 1)) - 1 + odd
        code = nearest >> cut
    return code | (word >> 31) << (form.exponent + form.mantissa)


def float_from_bits(dtype: DType, bits: int) -> float:
    """The number that the bits of one of the `FORMATS` stand for."""
    form = FORMATS[dtype.name]
    code = bits & ((1 << (form.exponent + form.mantissa)) - 1)
    fraction, exponent = code & ((1 << form.mantissa) - 1), code >> form.mantissa
    if code > form.overflow:
        size = math.nan
    elif code == form.overflow and form.has_infinity:
        size = math.inf
    else:
        whole = fraction | (1 << form.mantissa if exponent else 0)
        size = math.ldexp(whole, max(exponent, 1) - form.bias - form.mantissa)
    return -size if bits != code else size
