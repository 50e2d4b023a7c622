"""Values between Python and memory: lists, numbers and numpy arrays as bytes, and back.

In:  what a user hands to `Tensor(...)`.
Out: `HostData` (bytes, shape, type), or nested lists and arrays made from bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

from kernelet.base.dtype import DType, Scalar, bfloat16_bits, dtypes, promote, round_to
from kernelet.base.errors import ArgumentError, DTypeError, ShapeError
from kernelet.frontend.primitives import scalar_dtype

if TYPE_CHECKING:
    import numpy as np

Nested = Union[Scalar, "list[Nested]"]


@dataclass(frozen=True, slots=True)
class HostData:
    """Elements in row-major order, their shape and their type."""

    data: bytes
    shape: tuple[int, ...]
    dtype: DType


def from_nested(value: object, dtype: DType | None) -> HostData:
    """A number or nested lists; the type is that of the greatest kind inside unless given."""
    value = _without_arrays(value)
    shape = _nested_shape(value)
    flat: list[object] = [value]
    for depth, size in enumerate(shape):
        flat = [item for part in flat for item in _sequence(part, size, depth)]
    numbers = [plain_number(item) for item in flat]
    found = dtype or _kind_of(numbers)
    return HostData(pack(numbers, found), shape, found)


def _without_arrays(value: object) -> object:
    """Nested lists with lists in place of the arrays and tensors in them."""
    if isinstance(value, list | tuple):
        arrays = any(getattr(item, "shape", ()) or isinstance(item, list | tuple) for item in value)
        return [_without_arrays(item) for item in value] if arrays else value
    return value.tolist() if getattr(value, "shape", ()) else value  # type: ignore[attr-defined]


def _nested_shape(value: object) -> tuple[int, ...]:
    shape = []
    while isinstance(value, list | tuple | range):
        shape.append(len(value))
        if not value:
            break
        value = value[0]
    return tuple(shape)


def _sequence(part: object, size: int, depth: int) -> Sequence[object]:
    if not isinstance(part, list | tuple | range) or len(part) != size:
        found = len(part) if isinstance(part, list | tuple | range) else "a number"
        raise ShapeError(
            f"Tensor: the nested lists are ragged: at depth {depth} there are {size} elements in "
            f"one list and {found} in another. Make all lists of one depth equally long."
        )
    return part


def plain_number(item: object) -> Scalar:
    """A Python number from one, or from what holds a single number."""
    if isinstance(item, bool | int | float):
        return item
    # numpy scalars, and tensors with one element.
    convert = getattr(item, "item", None)
    if convert is None:
        raise ArgumentError(
            f"Tensor: {type(item).__name__} cannot be an element. Give numbers, nested lists of "
            "numbers, a numpy array or bytes."
        )
    found: Scalar = convert()
    return found


def _kind_of(numbers: Sequence[Scalar]) -> DType:
    kinds = {type(number) for number in numbers}
    if not kinds or float in kinds:
        return dtypes.default_float
    if int in kinds:
        low = min(min(numbers), 0)
        return promote(scalar_dtype(int(low)), scalar_dtype(int(max(numbers))))
    return dtypes.bool


def pack(numbers: Iterable[Scalar], dtype: DType) -> bytes:
    """The bytes of `numbers` as elements of `dtype`."""
    values = list(numbers)
    if dtype is dtypes.bfloat16:
        return struct.pack(f"<{len(values)}H", *[bfloat16_bits(float(value)) for value in values])
    if dtype.is_bool:
        return bytes([bool(value) for value in values])
    try:
        return struct.pack(f"<{len(values)}{dtype.code}", *values)
    except (struct.error, OverflowError):
        rounded = [round_to(dtype, value) for value in values]
        return struct.pack(f"<{len(values)}{dtype.code}", *rounded)


def unpack(data: bytes, dtype: DType) -> list[Scalar]:
    """The elements that `data` holds."""
    count = len(data) // dtype.itemsize
    if dtype is dtypes.bfloat16:
        words = struct.unpack(f"<{count}H", data)
        data, dtype = struct.pack(f"<{count}I", *[word << 16 for word in words]), dtypes.float32
    return list(struct.unpack(f"<{count}{dtype.code}", data))


def nest(values: Sequence[Scalar], shape: Sequence[int]) -> Nested:
    """Nested lists of that shape.

    >>> nest([1, 2, 3, 4], (2, 2))
    [[1, 2], [3, 4]]
    """
    if not shape:
        return values[0]
    level: list[Nested] = list(values)
    for depth in range(len(shape) - 1, 0, -1):
        size = shape[depth]
        count = math.prod(shape[:depth])
        level = [level[at * size : (at + 1) * size] for at in range(count)]
    return level


def from_array(array: np.ndarray, dtype: DType | None) -> HostData:
    """A numpy array; its own type unless another is given."""
    name = array.dtype.name
    if dtype is not None and dtype.code is not None and dtype.name != name:
        array, name = array.astype(dtype.name), dtype.name
    try:
        found = dtypes.from_name(name)
    except KeyError:
        names = ", ".join(known.name for known in dtypes.all)
        raise DTypeError(
            f"Tensor: numpy's {name} has no counterpart. Convert it to one of {names}."
        ) from None
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return HostData(little.tobytes(), tuple(array.shape), found)


def to_array(data: bytes, shape: Sequence[int], dtype: DType) -> np.ndarray:
    """A numpy array of its own memory; bfloat16 becomes float32."""
    try:
        import numpy as np  # noqa: PLC0415 - numpy is optional
    except ImportError:
        raise ArgumentError(
            "numpy(): numpy is not installed. Install it, or use tolist()."
        ) from None
    if dtype is dtypes.bfloat16:
        words = np.frombuffer(data, dtype="<u2").astype(np.uint32) << 16
        return words.view(np.float32).reshape(tuple(shape))
    return np.frombuffer(data, dtype=dtype.name).reshape(tuple(shape)).copy()
