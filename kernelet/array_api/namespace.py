"""The functions of the array API standard, https://data-apis.org/array-api/2024.12, over tensors.

In:  tensors and numbers.
Out: tensors; what a function does is documented there.

There are no complex numbers and no linear algebra or Fourier extensions, and `x.size` is a method.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

from kernelet.base.dtype import DType, Scalar, dtypes, promote
from kernelet.base.errors import ArgumentError
from kernelet.frontend.device import Device
from kernelet.frontend.primitives import DeviceLike, broadcast_shape
from kernelet.frontend.promotion import scalar_dtype
from kernelet.frontend.tensor import Tensor

__array_api_version__ = "2024.12"

Array = Tensor
Axes = int | tuple[int, ...] | None
Function = Callable[..., Tensor]

e, pi, inf, nan, newaxis = math.e, math.pi, math.inf, math.nan, None
bool, float32, float64 = dtypes.bool, dtypes.float32, dtypes.float64
int8, int16, int32, int64 = dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64
uint8, uint16, uint32, uint64 = dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64

# ---- functions that are methods ----

# Those of the first tensor, by the same name or by ours.
_METHODS = """
abs acos acosh asin asinh atan atan2 atanh ceil cos cosh exp expm1 floor isfinite isinf isnan log
log10 log1p log2 logical_not reciprocal round sign sin sinh sqrt square tan tanh trunc
add bitwise_and bitwise_or bitwise_xor copysign divide greater greater_equal less less_equal
logaddexp logical_and logical_or logical_xor maximum minimum multiply not_equal pow remainder
subtract clip matmul moveaxis where
zeros_like ones_like empty_like full_like
bitwise_invert=bitwise_not bitwise_left_shift=lshift bitwise_right_shift=rshift equal=eq
floor_divide=floordiv permute_dims=permute tile=repeat
broadcast_to=expand
"""
# Those that have an axis and may keep it.
_REDUCTIONS = "all any max min sum prod mean argmax argmin count_nonzero"


def _calling(name: str) -> Function:
    def call(first: Any, /, *others: Any, **options: Any) -> Tensor:  # noqa: ANN401 - as there
        if not isinstance(first, Tensor):  # a number before a tensor
            first = others[0].full_like(first, dtype=result_type(first, others[0]))
        given = {key: value for key, value in options.items() if value is not None}
        found: Tensor = getattr(first, name)(*others, **given)
        return found

    call.__name__, call.__doc__ = name, getattr(Tensor, name).__doc__
    return call


def _reducing(name: str) -> Function:
    def call(
        x: Array, /, *, axis: Axes = None, keepdims: builtins.bool = False, **more: object
    ) -> Array:
        found: Tensor = getattr(x, name)(axis, keepdims, **more)
        return found

    call.__name__, call.__doc__ = name, getattr(Tensor, name).__doc__
    return call


for _entry in _METHODS.split():
    _name, _, _method = _entry.partition("=")
    globals()[_name] = _calling(_method or _name)
for _name in _REDUCTIONS.split():
    globals()[_name] = _reducing(_name)


def positive(x: Array, /) -> Array:
    """x itself."""
    return x


def negative(x: Array, /) -> Array:
    """-x"""
    return -x


def signbit(x: Array, /) -> Array:
    """Whether the sign is negative, also of -0.0."""
    return x.full_like(1).copysign(x) < 0


def hypot(x: Array, y: Array, /) -> Array:
    """sqrt(x**2 + y**2), without the squares that are too large."""
    most, least = x.abs().maximum(y.abs()), x.abs().minimum(y.abs())
    ratio = (most == 0).where(0, least / most)
    found = most * (ratio.square() + 1).sqrt()
    return most.isinf().where(inf, found)


# ---- statistics ----


def var(
    x: Array, /, *, axis: Axes = None, correction: float = 0.0, keepdims: builtins.bool = False
) -> Array:
    """The mean square of the distance from the mean, over n - correction."""
    return x.var(axis, keepdims, int(correction))


def std(
    x: Array, /, *, axis: Axes = None, correction: float = 0.0, keepdims: builtins.bool = False
) -> Array:
    """The root of `var`."""
    return x.std(axis, keepdims, int(correction))


def cumulative_sum(
    x: Array,
    /,
    *,
    axis: int | None = None,
    dtype: DType | None = None,
    include_initial: builtins.bool = False,
) -> Array:
    """The sums of all elements up to each."""
    found = x.cast(dtype or x.dtype).cumsum(axis or 0)
    return _after(0, found, axis or 0) if include_initial else found


def cumulative_prod(
    x: Array,
    /,
    *,
    axis: int | None = None,
    dtype: DType | None = None,
    include_initial: builtins.bool = False,
) -> Array:
    """The products of all elements up to each."""
    found = x.cast(dtype or x.dtype).cumprod(axis or 0)
    return _after(1, found, axis or 0) if include_initial else found


def _after(start: int, x: Array, axis: int) -> Array:
    shape = list(x.shape)
    shape[axis] = 1
    return concat([Tensor.full(shape, start, dtype=x.dtype, device=x.device), x], axis=axis)


def diff(
    x: Array,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Array | None = None,
    append: Array | None = None,
) -> Array:
    """What each element is more than the one before, n times over."""
    x = concat([part for part in (prepend, x, append) if part is not None], axis=axis)
    for _ in range(n):
        x = x.transpose(0, axis)
        x = (x[1:] - x[:-1]).transpose(0, axis)
    return x


# ---- shapes ----


def concat(arrays: Sequence[Array], /, *, axis: int | None = 0) -> Array:
    """All of them in a row."""
    parts = [part.flatten() for part in arrays] if axis is None else list(arrays)
    dtype = result_type(*parts)
    return Tensor.cat(*[part.cast(dtype) for part in parts], dim=axis or 0)


def stack(arrays: Sequence[Array], /, *, axis: int = 0) -> Array:
    """All of them along an axis of their own."""
    return Tensor.stack(*arrays, dim=axis)


def unstack(x: Array, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The parts along an axis."""
    return x.unbind(axis)


def expand_dims(x: Array, /, *, axis: int = 0) -> Array:
    """With an axis of size 1."""
    return x.unsqueeze(axis)


def squeeze(x: Array, /, axis: int | tuple[int, ...]) -> Array:
    """Without axes of size 1."""
    return x.squeeze(axis)


def flip(x: Array, /, *, axis: Axes = None) -> Array:
    """Backwards along some axes, or all."""
    return x.flip(tuple(range(x.ndim)) if axis is None else axis)


def roll(x: Array, /, shift: int | tuple[int, ...], *, axis: Axes = None) -> Array:
    """Moved along axes; what leaves at one end comes in at the other."""
    return x.roll(shift, axis)


def repeat(x: Array, repeats: int, /, *, axis: int | None = None) -> Array:
    """Each element several times."""
    return x.repeat_interleave(repeats, axis)


def reshape(x: Array, /, shape: tuple[int, ...], *, copy: builtins.bool | None = None) -> Array:
    """The same elements in another shape."""
    return x.clone().reshape(shape) if copy else x.reshape(shape)


def matrix_transpose(x: Array, /) -> Array:
    """The last two axes exchanged."""
    return x.transpose(-2, -1)


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that all of these broadcast to."""
    return broadcast_shape(*shapes)  # type: ignore[return-value]


def broadcast_arrays(*arrays: Array) -> list[Array]:
    """All of them in the shape that they broadcast to."""
    shape = broadcast_shape(*[array.shape for array in arrays])
    return [array.expand(*shape) for array in arrays]


def meshgrid(*arrays: Array, indexing: Any = "xy") -> list[Array]:  # noqa: ANN401 - checked there
    """Coordinates of a grid, from those along each axis."""
    return list(Tensor.meshgrid(*arrays, indexing=indexing))


def tril(x: Array, /, *, k: int = 0) -> Array:
    """The lower triangle; 0 above."""
    return x.tril(k)


def triu(x: Array, /, *, k: int = 0) -> Array:
    """The upper triangle; 0 below."""
    return x.triu(k)


def tensordot(x: Array, y: Array, /, *, axes: Any = 2) -> Array:  # noqa: ANN401 - checked there
    """The sum of products over some axes of both."""
    return x.tensordot(y, axes)


def vecdot(x: Array, y: Array, /, *, axis: int = -1) -> Array:
    """The sum of products along one axis of both."""
    return (x * y).sum(axis)


# ---- order ----


def sort(
    x: Array,
    /,
    *,
    axis: int = -1,
    descending: builtins.bool = False,
    stable: builtins.bool = True,
) -> Array:
    """In order along an axis."""
    return x.sort(axis, descending)[0]


def argsort(
    x: Array,
    /,
    *,
    axis: int = -1,
    descending: builtins.bool = False,
    stable: builtins.bool = True,
) -> Array:
    """The places of the elements in order."""
    return x.argsort(axis, descending)


def take(x: Array, indices: Array, /, *, axis: int | None = None) -> Array:
    """Some of the parts along an axis."""
    return x.index_select(0 if axis is None else axis, indices)


def take_along_axis(x: Array, indices: Array, /, *, axis: int = -1) -> Array:
    """The elements at these places along an axis."""
    return x.take_along_dim(indices, axis)


def nonzero(x: Array, /) -> tuple[Array, ...]:
    """The indices of what is not 0, a tensor for each axis."""
    return x.nonzero().unbind(1)


def searchsorted(
    x: Array, values: Array, /, *, side: str = "left", sorter: Array | None = None
) -> Array:
    """Where in x, which is in order, each value belongs: before or behind equal ones."""
    _check_choice("searchsorted: side", side, ("left", "right"))
    x, values = x if sorter is None else take(x, sorter), values.unsqueeze(-1)
    return (x < values if side == "left" else x <= values).sum(-1)


def isin(x: Array, others: Array, /, *, invert: builtins.bool = False) -> Array:
    """Whether each element is one of the others."""
    found = (x.unsqueeze(-1) == others.flatten()).any(-1)
    return found.logical_not() if invert else found


class Unique(NamedTuple):
    """The different elements, where each comes first, the number of each, and where all are."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """The different elements, and the number of each."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """The different elements, and which of them each element is."""

    values: Array
    inverse_indices: Array


def unique_all(x: Array, /) -> Unique:
    """The different elements in order."""
    flat = x.flatten()
    values, order = flat.sort()
    is_first = concat([values[:1] == values[:1], values[1:] != values[:-1]])
    starts = is_first.logical_or(values != values).nonzero().flatten()
    ends = concat([starts[1:], starts.full_like(len(flat))[:1]])
    place = (starts.unsqueeze(0) <= flat._arange(len(flat)).unsqueeze(1)).sum(1) - 1
    inverse = place.zeros_like().scatter(0, order, place).reshape(x.shape)
    return Unique(take(values, starts), take(order, starts), inverse, ends - starts)


def unique_values(x: Array, /) -> Array:
    """The different elements in order."""
    return unique_all(x).values


def unique_counts(x: Array, /) -> UniqueCounts:
    """The different elements in order, and the number of each."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Array, /) -> UniqueInverse:
    """The different elements in order, and which of them each element is."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


# ---- creation ----


def asarray(
    obj: object,
    /,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    copy: builtins.bool | None = None,
) -> Array:
    """A tensor of numbers, lists or arrays; a tensor itself unless it has to be another."""
    found = Tensor(obj, device=device, dtype=dtype)
    if isinstance(obj, Tensor) and found.uop is obj.uop and not copy:
        return obj
    return found.clone() if copy else found


def from_dlpack(
    x: object, /, *, device: DeviceLike = None, copy: builtins.bool | None = None
) -> Array:
    """A tensor over the memory of another library's array."""
    return Tensor.from_dlpack(x, device=device, copy=copy)


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
) -> Array:
    """start, start + step, ... below stop."""
    return Tensor.arange(start, stop, step, dtype=dtype, device=device)


def linspace(
    start: float,
    stop: float,
    /,
    num: int,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    endpoint: builtins.bool = True,
) -> Array:
    """Numbers at equal distances, the last of which is stop or one step before it."""
    steps = num if endpoint else num + 1
    return Tensor.linspace(start, stop, steps, dtype=dtype, device=device)[:num]


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DType | None = None,
    device: DeviceLike = None,
) -> Array:
    """1 on a diagonal, 0 elsewhere."""
    columns = n_rows if n_cols is None else n_cols
    found = Tensor.arange(n_rows, device=device).unsqueeze(1) + k == Tensor.arange(
        columns, device=device
    )
    return found.cast(dtype or dtypes.default_float)


Sizes = int | tuple[int, ...]


def full(
    shape: Sizes, fill_value: Scalar, *, dtype: DType | None = None, device: DeviceLike = None
) -> Array:
    """One value in every place."""
    return Tensor.full(shape, fill_value, dtype=dtype or scalar_dtype(fill_value), device=device)


def zeros(shape: Sizes, *, dtype: DType | None = None, device: DeviceLike = None) -> Array:
    """0 in every place."""
    return full(shape, 0.0, dtype=dtype, device=device)


def ones(shape: Sizes, *, dtype: DType | None = None, device: DeviceLike = None) -> Array:
    """1 in every place."""
    return full(shape, 1.0, dtype=dtype, device=device)


def empty(shape: Sizes, *, dtype: DType | None = None, device: DeviceLike = None) -> Array:
    """Any values; here 0."""
    return full(shape, 0.0, dtype=dtype, device=device)


# ---- types ----


def astype(
    x: Array, dtype: DType, /, *, copy: builtins.bool = True, device: DeviceLike = None
) -> Array:
    """The values in another type."""
    return asarray(x, dtype=dtype, device=device)


_KINDS = {
    "bool": ("bool",),
    "signed integer": ("int",),
    "unsigned integer": ("uint",),
    "integral": ("int", "uint"),
    "real floating": ("float",),
    "complex floating": (),
    "numeric": ("int", "uint", "float"),
}


def isdtype(dtype: DType, kind: DType | str | tuple[DType | str, ...]) -> builtins.bool:
    """Whether a type is of a kind, or of one of several."""
    if isinstance(kind, tuple):
        return builtins.any(isdtype(dtype, each) for each in kind)
    if isinstance(kind, DType):
        return dtype is kind
    _check_choice("isdtype: kind", kind, _KINDS)
    return dtype.kind in _KINDS[kind]


def _check_choice(name: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        names = ", ".join(map(repr, known))
        raise ArgumentError(f"{name}={value!r} is not known. Use one of {names}.")


def result_type(*arrays: Array | DType | Scalar) -> DType:
    """The type in which all of these combine; numbers adapt to tensors."""
    known = [each.dtype if isinstance(each, Tensor) else each for each in arrays]
    types = [each for each in known if isinstance(each, DType)]
    numbers = [scalar_dtype(each) for each in known if not isinstance(each, DType)]
    if not types:
        return reduce(promote, numbers)
    found = reduce(promote, types)
    needs_float = builtins.any(each.is_float for each in numbers) and not found.is_float
    return dtypes.default_float if needs_float else found


def can_cast(given: DType | Array, to: DType, /) -> builtins.bool:
    """Whether promotion leads from one type to the other."""
    start = given.dtype if isinstance(given, Tensor) else given
    return promote(start, to) is to


@dataclass(frozen=True, slots=True)
class IntegerLimits:
    """What an integer type holds."""

    bits: int
    min: int
    max: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class FloatLimits:
    """What a float type holds."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


# Bits of the exponent and of the fraction.
_PARTS = {dtypes.float16: (5, 10), dtypes.float32: (8, 23), dtypes.float64: (11, 52)}
_PARTS[dtypes.bfloat16] = (8, 7)


def iinfo(given: DType | Array, /) -> IntegerLimits:
    """The limits of an integer type."""
    dtype = given.dtype if isinstance(given, Tensor) else given
    return IntegerLimits(dtype.itemsize * 8, int(dtype.min), int(dtype.max), dtype)


def finfo(given: DType | Array, /) -> FloatLimits:
    """The limits of a float type."""
    dtype = given.dtype if isinstance(given, Tensor) else given
    exponent, fraction = _PARTS[dtype]
    bias = 2 ** (exponent - 1) - 1
    most = (2.0 - 2.0**-fraction) * 2.0**bias
    bits = dtype.itemsize * 8
    return FloatLimits(bits, 2.0**-fraction, most, -most, 2.0 ** (1 - bias), dtype)


class Info:
    """What this namespace can do."""

    def capabilities(self) -> dict[str, builtins.bool | int | None]:
        """Masks and sizes that depend on data work."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> str:
        """The device of arrays for which none is named."""
        return Device.DEFAULT

    def devices(self) -> list[str]:
        """The devices that work here."""
        return list(Device.get_available_devices())

    def default_dtypes(self, *, device: DeviceLike = None) -> dict[str, DType]:
        """The types of arrays for which none is named."""
        whole = dtypes.default_int
        return {"real floating": dtypes.default_float, "integral": whole, "indexing": whole}

    def dtypes(
        self, *, device: DeviceLike = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, DType]:
        """The types of the standard by name."""
        known = (bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float32, float64)
        return {each.name: each for each in known if kind is None or isdtype(each, kind)}


def __array_namespace_info__() -> Info:
    """What this namespace can do."""
    return Info()
