"""Arguments for the calls that are compared: shapes, types and edge values, all from one seed.

In:  a generator of random numbers, the element type of the sample, whether edge values come in,
     and whether special ones (NaN, infinities, the greatest numbers) are among these.
Out: `Draw`, whose methods make operands, shapes and axes, and `Operand`, an array with a type.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

Array = np.ndarray[Any, Any]
ChoiceT = TypeVar("ChoiceT")

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = (*SIGNED, *UNSIGNED)
NARROW = ("fp8e4m3", "fp8e5m2")
FLOATS = (*NARROW, "float16", "bfloat16", "float32", "float64")
NUMBERS = (*INTEGERS, *FLOATS)
WHOLE = ("bool", *INTEGERS)
EVERY = ("bool", *NUMBERS)

SETS = {"all": EVERY, "numbers": NUMBERS, "integers, bool": WHOLE}
SETS |= {"integers": INTEGERS, "floats": FLOATS}

# Half the distance from 1 to the next number, and the greatest number.
EPSILON = {
    "fp8e4m3": 2.0**-4,
    "fp8e5m2": 2.0**-3,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float32": 2.0**-24,
    "float64": 2.0**-53,
}
GREATEST = {
    "fp8e4m3": 448.0,
    "fp8e5m2": 57344.0,
    "float16": 65504.0,
    "bfloat16": (2 - 2.0**-7) * 2.0**127,
    "float32": (2 - 2.0**-23) * 2.0**127,
    "float64": (2 - 2.0**-52) * 2.0**1023,
}

SHAPES: tuple[tuple[int, ...], ...] = (
    *((), (0,), (1,), (2,), (7,), (13,), (2, 3), (1, 5), (0, 3), (4, 1), (5, 1, 2), (2, 3, 4)),
    *((2, 0, 3), (1, 1, 1), (3, 7), (2, 1, 3, 2)),
)


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor argument: its values, exact in `dtype`; float32 where numpy has no such type."""

    values: Array
    dtype: str
    has_gradient: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        return tuple(self.values.shape)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.values.ndim


def array_type(dtype: str) -> str:
    """The type of arrays that hold values of `dtype`: float32 where numpy has no such type."""
    return "float32" if dtype in ("bfloat16", *NARROW) else dtype


def rounded(values: Array, dtype: str) -> Array:
    """The values as `dtype` has them, to nearest even, in an array of `array_type`.

    >>> rounded(np.array([1.00390625, 3.0]), "bfloat16").tolist()
    [1.0, 3.0]
    >>> rounded(np.array([1.07, 500.0, 0.001]), "fp8e4m3").tolist()
    [1.125, 448.0, 0.001953125]
    """
    with np.errstate(all="ignore"):
        if dtype in NARROW:
            return _rounded_narrow(np.asarray(values).astype(np.float32), dtype)
        if dtype != "bfloat16":
            return np.asarray(values).astype(dtype)
        bits = np.asarray(values).astype(np.float32).view(np.uint32)
        kept = (bits + (0x7FFF + (bits >> 16 & 1))) & np.uint32(0xFFFF0000)
        single = kept.astype(np.uint32).view(np.float32)
        return np.where(np.isnan(values), np.float32(np.nan), single)


def _rounded_narrow(values: Array, dtype: str) -> Array:
    """Multiples of the last digit: of the number's, or of the least normal number's below it."""
    digits, lowest = (3, -6) if dtype == "fp8e4m3" else (2, -14)
    _, exponent = np.frexp(values)
    last = np.ldexp(np.float32(1), np.maximum(exponent - 1, lowest) - digits)
    found = np.where(np.isfinite(values), np.round(values / last) * last, values)
    greatest = np.float32(GREATEST[dtype])
    # The one has no infinity.
    beyond = greatest if dtype == "fp8e4m3" else np.float32(np.inf)
    return np.where(np.abs(found) > greatest, np.copysign(beyond, values), found)


class Draw:
    """Draws the arguments of one call."""

    def __init__(
        self, seed: Sequence[int], dtype: str, edges: bool = False, special: bool = True
    ) -> None:
        self.random = np.random.default_rng(seed)
        self.dtype = dtype
        self.edges = edges
        self.special = special

    @property
    def is_float(self) -> bool:
        """Whether the sample has floats."""
        return self.dtype in FLOATS

    def pick(self, *choices: ChoiceT) -> ChoiceT:
        """One of the choices."""
        return choices[int(self.random.integers(len(choices)))]

    def integer(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return int(self.random.integers(low, high + 1))

    def number(self, low: float = -4.0, high: float = 4.0) -> float:
        """A number between low and high."""
        return float(self.random.uniform(low, high))

    def scalar(self) -> float | int | bool:
        """A Python number of the sample's kind."""
        if self.dtype == "bool":
            return self.pick(True, False)
        if self.is_float:
            # A number takes the tensor's type, which is coarse where it has 8 bits.
            drawn = self.number()
            number = float(rounded(np.array(drawn), self.dtype)) if self.dtype in NARROW else drawn
            return self.pick(number, 2, -1.5)
        return self.integer(0 if self.dtype in UNSIGNED else -5, 5)

    # ---- shapes ----

    def shape(self, least: int = 0, most: int = 4, empty: bool = True) -> tuple[int, ...]:
        """A shape with `least` to `most` axes; with no axis of size 0 unless `empty`."""
        fit = [shape for shape in SHAPES if least <= len(shape) <= most]
        return self.pick(*[shape for shape in fit if empty or 0 not in shape])

    def broadcast(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts to `shape`."""
        cut = shape[self.integer(0, len(shape)) :]
        return tuple(self.pick(dim, dim, 1) for dim in cut)

    def axis(self, value: Operand | tuple[int, ...]) -> int:
        """An axis, from the front or the back."""
        ndim = max(len(value.shape if isinstance(value, Operand) else value), 1)
        return self.integer(-ndim, ndim - 1)

    def axes(self, value: Operand) -> int | tuple[int, ...] | None:
        """One axis, several, or None for all."""
        if value.ndim == 0:
            return None
        count = self.integer(1, value.ndim)
        several = tuple(int(each) for each in self.random.permutation(value.ndim)[:count])
        return self.pick(None, self.axis(value), several)

    # ---- operands ----

    def tensor(
        self,
        shape: tuple[int, ...] | None = None,
        low: float = -4.0,
        high: float = 4.0,
        dtype: str | None = None,
        extremes: bool = True,
    ) -> Operand:
        """Numbers from low to high; with edge values in half of the arrays, if the sample has any.

        Without `extremes` these are NaN, infinities, zeros and ties, but no great numbers.
        """
        size = self.shape() if shape is None else shape
        kind = dtype or self.dtype
        if kind == "bool":
            return Operand(self.random.random(size) < 0.5, kind)
        if kind in UNSIGNED:
            low, high = max(low, 0), max(high, 5)
        values: Array
        if kind not in FLOATS:
            low = math.ceil(low)
            values = self.random.integers(low, max(math.floor(high), low) + 1, size)
        else:
            values = self.random.uniform(low, high, size)
        if self.edges and dtype is None and self.pick(True, False):
            values = self._with_edges(
                np.asarray(values), kind, low, high, extremes and self.special
            )
        return Operand(rounded(np.asarray(values), kind), kind)

    def _with_edges(
        self, values: Array, kind: str, low: float, high: float, extremes: bool
    ) -> Array:
        special: list[Any] = [edge for edge in (0, 1, -1, 2, -3, 0.5) if low <= edge <= high]
        if kind not in FLOATS:
            special = [int(edge) for edge in special if edge != 0.5]
            if extremes:
                limits = np.iinfo(kind)
                special += [int(limits.min), int(limits.max)]
            values = values.astype(object)
        else:
            special += [-0.0, *((math.nan, math.inf, -math.inf) if self.special else ())]
            if extremes:
                special += [GREATEST[kind], -GREATEST[kind], EPSILON[kind]]
        changed = np.array(values, copy=True).reshape(-1)
        for place in np.flatnonzero(self.random.random(changed.shape) < 0.5):
            changed[place] = self.pick(*special)
        return changed.reshape(values.shape)

    def plain(
        self,
        shape: tuple[int, ...] | None = None,
        low: float = -4.0,
        high: float = 4.0,
        dtype: str | None = None,
    ) -> Operand:
        """As `tensor`, without edge values."""
        edges, self.edges = self.edges, False
        made = self.tensor(shape, low, high, dtype)
        self.edges = edges
        return made

    def form(self, shape: tuple[int, ...]) -> Operand:
        """An operand of which the shape alone counts."""
        made = self.plain(shape)
        return Operand(made.values, made.dtype, has_gradient=False)

    def mask(self, shape: tuple[int, ...]) -> Operand:
        """Bools."""
        return self.tensor(shape, dtype="bool")

    def indices(self, shape: tuple[int, ...], limit: int, negative: bool = False) -> Operand:
        """Whole numbers from 0, or from -limit, up to but without limit."""
        kind = self.pick("int32", "int64")
        low = -limit if negative else 0
        return Operand(self.random.integers(low, max(limit, 1), shape).astype(kind), kind)

    def pair(self, extremes: bool = True) -> tuple[Operand, Any]:
        """Two operands that broadcast together; now and then the second is a Python number."""
        shape = self.shape()
        first = self.tensor(shape, extremes=extremes)
        if self.pick(False, False, False, True):
            return first, self.scalar()
        second = self.tensor(self.broadcast(shape), extremes=extremes)
        return self.pick((first, second), (second, first))
