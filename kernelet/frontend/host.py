"""Values between Python and memory, and the nodes that tensors start from.

In:  what a user hands to `Tensor(...)`: lists, numbers, numpy arrays, names of devices.
Out: BUFFER nodes with memory; nested lists and arrays made from bytes.
"""

from __future__ import annotations

import importlib
import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Union

from kernelet import backends, holdings
from kernelet.base.dtype import (
    FORMATS,
    DType,
    Scalar,
    dtypes,
    float_from_bits,
    float_to_bits,
    promote,
    round_to,
)
from kernelet.base.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from kernelet.frontend.primitives import DeviceLike, Primitives, show_shape
from kernelet.frontend.promotion import scalar_dtype
from kernelet.graph.division import index_of
from kernelet.graph.infer import Shape
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.graph.walk import with_bound_values
from kernelet.runtime.device import canonical

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
    shape, items = _flattened(value)
    numbers = [plain_number(item) for item in items]
    found = dtype or _kind_of(numbers)
    return HostData(pack(numbers, found), shape, found)


def _flattened(value: Any) -> tuple[tuple[int, ...], list[object]]:  # noqa: ANN401
    """The shape of nested lists, in which there may be arrays and tensors, and all their items."""
    if getattr(value, "shape", ()):
        value = value.tolist()
    if not isinstance(value, list | tuple | range):
        return (), [value]
    if not any(isinstance(i, list | tuple | range) or getattr(i, "shape", ()) for i in value):
        return (len(value),), [*value]
    parts = [_flattened(part) for part in value]
    (first, _), *others = parts
    for shape, _ in others:
        if shape != first:
            raise ShapeError(
                f"Tensor: the nested lists are ragged: one has shape {show_shape(first)}, another "
                f"one beside it {show_shape(shape)}. Make all lists of one depth equally long."
            )
    return (len(parts), *first), [item for _, items in parts for item in items]


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
        low, high = int(min(numbers)), int(max(numbers))
        if low < dtypes.int64.min or high > dtypes.int64.max:
            raise ArgumentError(
                f"Tensor: {low} to {high} is more than int64 holds. Name another type, as in "
                "dtype='uint64' or dtype='float64'."
            )
        return promote(scalar_dtype(min(low, 0)), scalar_dtype(high))
    return dtypes.bool


def pack(numbers: Iterable[Scalar], dtype: DType) -> bytes:
    """The bytes of `numbers` as elements of `dtype`."""
    values = list(numbers)
    if dtype.name in FORMATS:
        values = [float_to_bits(dtype, float(value)) for value in values]
    try:
        return struct.pack(f"<{len(values)}{dtype.code}", *values)
    except (struct.error, OverflowError):
        rounded = [round_to(dtype, value) for value in values]
        return struct.pack(f"<{len(values)}{dtype.code}", *rounded)


def unpack(data: bytes | memoryview, dtype: DType) -> list[Scalar]:
    """The elements that `data` holds."""
    count = len(data) // dtype.itemsize
    values = list(struct.unpack(f"<{count}{dtype.code}", data))
    if dtype.name in FORMATS:
        return [float_from_bits(dtype, bits) for bits in values]
    return values


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


def dtype_of_array(array: np.ndarray) -> DType:
    """The type of a numpy array's elements."""
    found = getattr(dtypes, array.dtype.name, None)
    if not isinstance(found, DType):
        names = ", ".join(known.name for known in dtypes.all)
        raise DTypeError(
            f"Tensor: numpy's {array.dtype.name} has no counterpart. Convert it to one of {names}."
        )
    return found


def from_array(array: np.ndarray, dtype: DType | None) -> HostData:
    """A numpy array; its own type unless another is given."""
    if dtype is not None and dtype.name not in FORMATS and dtype.name != array.dtype.name:
        array = array.astype(dtype.name)
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return HostData(little.tobytes(), tuple(array.shape), dtype_of_array(array))


def numpy_module() -> ModuleType:
    """numpy, which is optional."""
    try:
        return importlib.import_module("numpy")
    except ImportError:
        raise ArgumentError(
            "numpy(): numpy is not installed. Install it, or use tolist()."
        ) from None


# ---- the nodes that tensors start from ----


def node_of(data: object, device: DeviceLike, dtype: DType | None) -> UOp:
    """The node for whatever a user hands to Tensor(...)."""
    if isinstance(data, Primitives):
        data = data.uop
    if isinstance(data, UOp):
        node = data.cast(dtypes.default_int) if data.dtype is dtypes.index else data
        if device is not None and node.device not in (None, device_name(device)):
            node = UOp(Op.COPY, node.dtype, (node,), device_name(device))
        return node if dtype is None else node.cast(dtype)
    name = device_name(device)
    if isinstance(data, PathLike):
        data = Path(data).read_bytes()
    if isinstance(data, bytes | bytearray | memoryview):
        raw = bytes(data)
        kind = dtype or dtypes.uint8
        shape = (len(raw) // kind.itemsize,)
        return stored_node(HostData(raw, shape, kind), name)
    if hasattr(data, "__array__") and hasattr(data, "dtype"):
        node = stored_node(from_array(data.__array__(), dtype), name)
        return node if dtype is None else node.cast(dtype)
    return stored_node(from_nested([] if data is None else data, dtype), name)


def stored_node(found: HostData, device: str | tuple[str, ...]) -> UOp:
    if isinstance(device, tuple):
        node = stored_node(found, device[0])
        return UOp(Op.COPY, node.dtype, (node,), device)
    size = len(found.data) // found.dtype.itemsize
    buffer = holdings.new_buffer(found.data, size, found.dtype, device)
    if found.shape == (size,):
        return buffer
    return UOp(Op.RESHAPE, found.dtype, (buffer,), found.shape)


def device_name(device: DeviceLike) -> str | tuple[str, ...]:
    """The one spelling of a device's name, or of several names for values on all of them."""
    if device is None:
        return backends.default_device()
    if isinstance(device, str):
        return canonical(device)
    try:
        names = tuple([canonical(name) for name in device])
    except (TypeError, AttributeError):  # what is no sequence, or holds no names
        raise DeviceError(
            f"device {device!r}: a device has a name. Give one, as in 'CPU:1', or several; a type "
            "of elements as dtype=."
        ) from None
    if not names or len(set(names)) < len(names):
        raise DeviceError(
            f"device {tuple(device)}: a value lives on different devices. Name each once."
        )
    return names if len(names) > 1 else names[0]


def known_shape(shape: Shape) -> tuple[int, ...]:
    """The sizes as numbers: bound variables have their present value."""
    return tuple(dim if isinstance(dim, int) else _value_of(dim) for dim in shape)


def _value_of(dim: UOp) -> int:
    found = index_of(with_bound_values(dim))
    if found.op is not Op.CONST:
        raise ShapeError(
            "a size depends on a Variable that has no value. Bind it: Variable(...).bind(value)."
        )
    return int(found.arg)
