"""What each op and each element type does to one number, as plain Python functions.

In:  Python numbers; memory as a `memoryview` of bytes.
Out: Python numbers. `NAMESPACE` holds every function that a program rendered as Python calls:
     the meanings below by name, and for each dtype `load_float32(memory, offset)`,
     `store_float32(memory, offset, value)` and `round_float32(value)`, offsets in elements.

A meaning takes values of the op's own dtype and gives the value before it is rounded to it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from kernelet.base.dtype import (
    FORMATS,
    DType,
    Scalar,
    dtypes,
    float_from_bits,
    float_to_bits,
    round_to,
)

Load = Callable[[memoryview, int], Scalar]
Store = Callable[[memoryview, int, Scalar], None]
Round = Callable[[Scalar], Scalar]


# ---- meanings ----


def exp2(x: float) -> float:
    """2 to the power x; infinity where that is too large."""
    try:
        return math.exp2(x)
    except OverflowError:
        return math.inf


def log2(x: float) -> float:
    """The logarithm to base 2: minus infinity of 0, NaN of negative numbers."""
    if math.isnan(x) or x < 0:
        return math.nan
    return math.log2(x) if x > 0 else -math.inf


def sine(x: float) -> float:
    """The sine; NaN of an infinity."""
    return math.sin(x) if math.isfinite(x) else math.nan


def square_root(x: float) -> float:
    """The square root; NaN of negative numbers, and -0 of -0."""
    return math.sqrt(x) if x >= 0 else math.nan


def reciprocal(x: float) -> float:
    """1 / x; an infinity with the sign of x where x is 0."""
    return 1 / x if x else math.copysign(math.inf, x)


def negate(x: float) -> float:
    """-x; of a bool, the bool itself once it is rounded."""
    return -x


def truncate(x: Scalar) -> Scalar:
    """x without its fraction; the sign of zero stays: -0.5 gives -0.0."""
    return math.copysign(math.trunc(x), x) if isinstance(x, float) and math.isfinite(x) else x


def maximum(x: float, y: float) -> float:
    """The greater of both; NaN wins."""
    return x if x > y or x != x else y


def floor_divide(x: int, y: int) -> int:
    """x // y, rounded down; 0 where y is 0."""
    return x // y if y else 0


def floor_modulo(x: int, y: int) -> int:
    """x % y, with the sign of y; 0 where y is 0."""
    return x % y if y else 0


def trunc_divide(x: int, y: int) -> int:
    """x / y as in C, rounded to zero; 0 where y is 0."""
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) if y else 0


def trunc_modulo(x: int, y: int) -> int:
    """x % y as in C, with the sign of x; x where y is 0."""
    return x - y * trunc_divide(x, y)


def divide(x: float, y: float) -> float:
    """x / y of floats; an infinity or NaN where y is 0."""
    if y:
        return x / y
    return math.nan if x == 0 or x != x else math.copysign(math.inf, x) * math.copysign(1, y)


def shift_left(x: int, y: int) -> int:
    """x << y; 0 for an amount that no integer has, so that no huge number is built."""
    return x << y if 0 <= y < 64 else 0


def shift_right(x: int, y: int) -> int:
    """x >> y; 0 for a negative amount."""
    return x >> y if y >= 0 else 0


def multiply_add(x: float, y: float, z: float) -> float:
    """x * y + z."""
    return x * y + z


def bitcast(value: Scalar, source: str, target: str) -> Scalar:
    """The bits of `value`, an element of the dtype named `source`, read as the one of `target`."""
    cell = memoryview(bytearray(8))
    _STORE[source](cell, 0, value)
    return _LOAD[target](cell, 0)


# ---- memory ----


def scratch(nbytes: int) -> memoryview:
    """Memory of a kernel's own, filled with 0."""
    return memoryview(bytearray(nbytes))


def load(dtype_name: str) -> Load:
    """The function that reads one element: `load("int32")(memory, offset)`."""
    return _LOAD[dtype_name]


def store(dtype_name: str) -> Store:
    """The function that writes one element, which must be a value of the dtype."""
    return _STORE[dtype_name]


def _out_of_range(name: str, size: int, memory: memoryview, offset: int) -> IndexError:
    elements = len(memory) // size
    return IndexError(f"element {offset} of {name} memory that holds {elements} elements")


def _loader(dtype: DType) -> Load:
    name, size = dtype.name, dtype.itemsize
    if dtype.name in FORMATS:
        bits = _loader(_UNSIGNED[size])
        return lambda memory, offset: float_from_bits(dtype, int(bits(memory, offset)))
    unpack = struct.Struct(f"<{dtype.code}").unpack_from

    def read(memory: memoryview, offset: int) -> Scalar:
        if not 0 <= offset * size <= len(memory) - size:
            raise _out_of_range(name, size, memory, offset)
        return unpack(memory, offset * size)[0]  # type: ignore[no-any-return]

    return read


def _storer(dtype: DType) -> Store:
    name, size = dtype.name, dtype.itemsize
    if dtype.name in FORMATS:
        put = _storer(_UNSIGNED[size])
        return lambda memory, offset, value: put(memory, offset, float_to_bits(dtype, value))
    pack = struct.Struct(f"<{dtype.code}").pack_into

    def write(memory: memoryview, offset: int, value: Scalar) -> None:
        if not 0 <= offset * size <= len(memory) - size:
            raise _out_of_range(name, size, memory, offset)
        pack(memory, offset * size, value)

    return write


def _rounder(dtype: DType) -> Round:
    if not dtype.is_integer:
        return lambda value: round_to(dtype, value)
    mask = (1 << dtype.itemsize * 8) - 1
    half = 0 if dtype.is_unsigned else 1 << (dtype.itemsize * 8 - 1)

    def wrap(value: Scalar) -> Scalar:
        if isinstance(value, float):
            return round_to(dtype, value)
        return ((value + half) & mask) - half

    return wrap


_UNSIGNED = {1: dtypes.uint8, 2: dtypes.uint16}
_DTYPES = (*dtypes.all, dtypes.index)
_LOAD = {dtype.name: _loader(dtype) for dtype in _DTYPES}
_STORE = {dtype.name: _storer(dtype) for dtype in _DTYPES}
_ROUND = {dtype.name: _rounder(dtype) for dtype in _DTYPES}

_FUNCTIONS: tuple[Callable[..., object], ...] = (
    exp2,
    log2,
    sine,
    square_root,
    reciprocal,
    negate,
    truncate,
    maximum,
    floor_divide,
    floor_modulo,
    trunc_divide,
    trunc_modulo,
    divide,
    shift_left,
    shift_right,
    multiply_add,
    bitcast,
    scratch,
)

NAMESPACE: dict[str, object] = {
    "inf": math.inf,
    "nan": math.nan,
    **{function.__name__: function for function in _FUNCTIONS},
    **{f"load_{name}": function for name, function in _LOAD.items()},
    **{f"store_{name}": function for name, function in _STORE.items()},
    **{f"round_{name}": function for name, function in _ROUND.items()},
}
