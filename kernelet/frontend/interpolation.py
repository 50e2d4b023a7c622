"""Resizing: values between the elements of an axis.

In:  tensors (batch, channels, *space) and the size wanted.
Out: `Interpolation`, one axis after the other, from whole-number positions, so that no place is
     off by a rounding error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Self

from kernelet.base.dtype import dtypes
from kernelet.base.errors import ArgumentError
from kernelet.frontend.indexing import Indexing
from kernelet.frontend.primitives import check_choice, known, show_shape

_LINEAR = ("linear", "bilinear", "trilinear")
_NEAREST = ("nearest", "nearest-exact")
_FINEST = 10000  # of the denominators of scales


class Interpolation(Indexing):
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
        check_choice("interpolate: mode", mode, (*_LINEAR, *_NEAREST))
        if align_corners and mode in _NEAREST:
            raise ArgumentError(
                f'interpolate: align_corners with mode="{mode}": only linear modes have corners '
                "to align. Leave it out, or use another mode."
            )
        result = self
        for axis, wanted, pace in self._wanted_sizes(size, scale_factor):
            if mode in _LINEAR:
                result = result._resized_linear(axis, wanted, pace, align_corners)
            else:
                result = result._resized_nearest(axis, wanted, pace, mode == "nearest-exact")
        return result

    def _wanted_sizes(
        self, size: int | Sequence[int] | None, scale: float | Sequence[float] | None
    ) -> list[tuple[int, int, Fraction]]:
        """(axis, size, old elements for each new one) for each axis that changes."""
        given = scale if size is None else size
        space = self.ndim - 2
        numbers = (given,) * space if isinstance(given, int | float) else tuple(given or ())
        if (size is None) == (scale is None) or not 0 < len(numbers) <= self.ndim:
            raise ArgumentError(
                f"interpolate: size={size}, scale_factor={scale} for a tensor of shape "
                f"{show_shape(self.shape)}. Give one of the two, with a number for each axis."
            )
        wanted = []
        for axis, number in enumerate(numbers, self.ndim - len(numbers)):
            old, by = known(self.shape[axis]), Fraction(number).limit_denominator(_FINEST)
            new = int(number) if scale is None else math.floor(old * by)
            if new < 1:
                raise ArgumentError(
                    f"interpolate: axis {axis} would have size {new}. Give at least 1."
                )
            pace = Fraction(old, new) if scale is None else 1 / by
            if pace != 1:
                wanted.append((axis, new, pace))
        return wanted

    def _resized_nearest(self, axis: int, size: int, pace: Fraction, exact: bool) -> Self:
        if pace.numerator == 1:
            return self.repeat_interleave(pace.denominator, axis)
        place = self._arange(size, dtypes.int64)
        old, new = pace.numerator, pace.denominator
        index = (place * 2 + 1) * old // (2 * new) if exact else place * old // new
        return self.index_select(axis, index)

    def _resized_linear(self, axis: int, size: int, pace: Fraction, align_corners: bool) -> Self:
        length = known(self.shape[axis])
        place = self._arange(size, dtypes.int64)
        # The place of each new element among the old ones is top / bottom.
        if align_corners:
            top, bottom = place * (length - 1), max(size - 1, 1)
        else:
            old, new = pace.numerator, pace.denominator
            top, bottom = ((place * 2 + 1) * old - new).maximum(0), 2 * new
        low = top // bottom
        high = (low + 1).minimum(length - 1)
        wide = self._widened()
        share = (top - low * bottom).cast(wide.dtype) / bottom
        share = share._reshape((size, *(1,) * (self.ndim - axis - 1)))
        first, second = wide.index_select(axis, low), wide.index_select(axis, high)
        result = first * (1 - share) + second * share
        return result.cast(self._floating().dtype)
