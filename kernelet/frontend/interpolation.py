"""Resizing: values between the elements of an axis.

In:  tensors (batch, channels, *space) and the size wanted.
Out: `Interpolation`, one axis after the other, from whole-number positions, so that no place is
     off by a rounding error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from kernelet.base.dtype import dtypes
from kernelet.base.errors import ArgumentError
from kernelet.frontend.indexing import Indexing
from kernelet.frontend.primitives import show_shape
from kernelet.frontend.reduction import Reduction
from kernelet.frontend.windows import known

_LINEAR = ("linear", "bilinear", "trilinear")
_NEAREST = ("nearest", "nearest-exact")


class Interpolation(Reduction, Indexing):
    """Images and signals in another size."""

    __slots__ = ()

    def interpolate(
        self,
        size: int | Sequence[int] | None = None,
        mode: str = "linear",
        align_corners: bool = False,
        scale_factor: float | Sequence[float] | None = None,
    ) -> Self:
        """The last axes resized to `size`, or by `scale_factor`.

        "linear" is the same as "bilinear" and "trilinear": straight lines along each axis. With
        `align_corners` the first and last elements stay where they are; without, the edges do.
        "nearest" takes the element at or below a place, "nearest-exact" the one with the closest
        centre.
        """
        if mode not in (*_LINEAR, *_NEAREST):
            raise ArgumentError(
                f"interpolate: mode={mode!r} is not known. Use one of {(*_LINEAR, *_NEAREST)}."
            )
        if align_corners and mode in _NEAREST:
            raise ArgumentError(
                f'interpolate: align_corners with mode="{mode}": only linear modes have corners '
                "to align. Leave it out, or use another mode."
            )
        result = self
        for axis, wanted in self._wanted_sizes(size, scale_factor):
            if mode in _LINEAR:
                result = result._resized_linear(axis, wanted, align_corners)
            else:
                result = result._resized_nearest(axis, wanted, mode == "nearest-exact")
        return result

    def _wanted_sizes(
        self, size: int | Sequence[int] | None, scale: float | Sequence[float] | None
    ) -> list[tuple[int, int]]:
        """(axis, size) for each axis that changes."""
        given = scale if size is None else size
        space = self.ndim - 2
        count = space if isinstance(given, int | float) or given is None else len(given)
        if given is None or (size is not None and scale is not None) or not 0 < count <= self.ndim:
            raise ArgumentError(
                f"interpolate: size={size}, scale_factor={scale} for a tensor of shape "
                f"{show_shape(self.shape)}. Give one of the two, with a number for each axis."
            )
        first = self.ndim - count
        lengths = [known(dim) for dim in self.shape[first:]]
        numbers = (given,) * count if isinstance(given, int | float) else tuple(given)
        if size is None:
            numbers = tuple(
                int(length * number) for length, number in zip(lengths, numbers, strict=True)
            )
        if min(numbers) < 1:
            raise ArgumentError(
                f"interpolate: the size would be {numbers}. Each axis needs at least 1 element."
            )
        pairs = enumerate(zip(lengths, numbers, strict=True))
        return [(first + place, int(new)) for place, (old, new) in pairs if old != new]

    def _resized_nearest(self, axis: int, size: int, exact: bool) -> Self:
        length = known(self.shape[axis])
        if size % length == 0:
            return self.repeat_interleave(size // length, axis)
        place = self._arange(size, dtypes.int64)
        index = (place * 2 + 1) * length // (2 * size) if exact else place * length // size
        return self.index_select(axis, index)

    def _resized_linear(self, axis: int, size: int, align_corners: bool) -> Self:
        length = known(self.shape[axis])
        place = self._arange(size, dtypes.int64)
        # The place of each new element among the old ones is top / bottom.
        if align_corners:
            top, bottom = place * (length - 1), max(size - 1, 1)
        else:
            top, bottom = ((place * 2 + 1) * length - size).maximum(0), 2 * size
        low = top // bottom
        high = (low + 1).minimum(length - 1)
        wide = self._widened()
        share = (top - low * bottom).cast(wide.dtype) / bottom
        share = share._reshape((size, *(1,) * (self.ndim - axis - 1)))
        first, second = wide.index_select(axis, low), wide.index_select(axis, high)
        result = first * (1 - share) + second * share
        return result.cast(self._floating().dtype)
