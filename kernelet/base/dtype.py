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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DType:
    """One element type; `lanes > 1` is a vector register of that many elements.

    `priority` orders promotion, `code` is the `struct` letter of one element (None: no such
    letter exists, as for bfloat16).
    """

    name: str
    kind: Kind
    itemsize: int
    priority: int
    code: str | None
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
        """The least value; minus infinity for floats."""
        if self.is_float:
            return -math.inf
        if self.is_bool:
            return False
        return 0 if self.is_unsigned else -(1 << (self.itemsize * 8 - 1))

    @property
    def max(self) -> Scalar:
        """The greatest value; infinity for floats."""
        if self.is_float:
            return math.inf
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

    void = DType("void", "void", 0, -1, None)
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
    float16 = DType("float16", "float", 2, 9, "e")
    bfloat16 = DType("bfloat16", "float", 2, 10, None)
    float32 = DType("float32", "float", 4, 11, "f")
    float64 = DType("float64", "float", 8, 12, "d")

    char, uchar, short, ushort = int8, uint8, int16, uint16
    int, uint, long, ulong = int32, uint32, int64, uint64
    half, float, double = float16, float32, float64
    default_float, default_int = float32, int32

    floats = (float16, bfloat16, float32, float64)
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

    int64 with uint64 gives float32; float16 with bfloat16 gives float32.
    """
    if left is right:
        return left
    pair = {left, right}
    if pair == {dtypes.float16, dtypes.bfloat16}:
        return dtypes.float32
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
    if dtype.scalar is dtypes.float64 or not math.isfinite(value):
        return value
    if dtype.scalar is dtypes.bfloat16:
        return struct.unpack("<f", struct.pack("<I", bfloat16_bits(value) << 16))[0]  # type: ignore[no-any-return]
    try:
        return struct.unpack(f"<{dtype.code}", struct.pack(f"<{dtype.code}", value))[0]  # type: ignore[no-any-return]
    except OverflowError:
        return math.copysign(math.inf, value)


def bfloat16_bits(value: float) -> int:
    """The 16 bits of `value` as bfloat16, rounded to nearest even."""
    bits = int(struct.unpack("<I", struct.pack("<f", round_float(dtypes.float32, value)))[0])
    if math.isnan(value):
        return (bits >> 16) | 0x40
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
