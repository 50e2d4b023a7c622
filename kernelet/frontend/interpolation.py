"""Resizing: values between the elements of an axis.

In:  tensors (batch, channels, *space) and the size wanted.
Out: `Interpolation`, one axis after the other, from whole-number positions, so that no place is
     off by a rounding error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal, Self, TypeVar

from kernelet.base.dtype import dtypes
from kernelet.base.errors import ArgumentError
from kernelet.frontend.pooling import Pooling
from kernelet.frontend.primitives import known

ResizeMode = Literal[
    "linear", "bilinear", "trilinear", "bicubic", "nearest", "nearest-exact", "area"
]
_NEAREST = ("nearest", "nearest-exact")
_CUBIC = -0.75  # the slope that a tap of bicubic weights has at distance 1
_FINEST = 10000  # of the denominators of scales


T = TypeVar("T", bound="Interpolation")


class Interpolation(Pooling):
    """Images and signals in another size."""

    __slots__ = ()

    def interpolate(
        self,
        size: int | Sequence[int] | None = None,
        mode: ResizeMode = "linear",
        align_corners: bool = False,
        scale_factor: float | Sequence[float] | None = None,
    ) -> Self:
        """The last axes resized to `size`, or by `scale_factor`.

        "linear" is the same as "bilinear" and "trilinear": straight lines along each axis. With
        `align_corners` the first and last elements stay where they are; without, the edges do.
        "nearest" takes the element at or below a place, "nearest-exact" the one with the closest
        centre. "bicubic" puts a cubic through four elements along each axis, "area" takes means as
        `adaptive_avg_pool2d` does.
        """
        fits = not align_corners or mode not in (*_NEAREST, "area")
        self._need(fits, f"no align_corners: {mode} has no corners to align", ArgumentError)
        result = self
        for axis, wanted, pace in self._wanted_sizes(size, scale_factor):
            if mode == "area":
                sizes = [wanted, *(None for _ in range(axis + 1, self.ndim))]
                result = result.adaptive_avg_pool2d(sizes)
            elif mode in _NEAREST:
                result = result._resized_nearest(axis, wanted, pace, mode == "nearest-exact")
            else:
                result = result._resized(axis, wanted, pace, align_corners, mode == "bicubic")
        return result

    def _wanted_sizes(
        self, size: int | Sequence[int] | None, scale: float | Sequence[float] | None
    ) -> list[tuple[int, int, Fraction]]:
        """(axis, size, old elements for each new one) for each axis that changes."""
        given = scale if size is None else size
        each = given if isinstance(given, Sequence) else [given or 0] * (self.ndim - 2)
        numbers = list(map(float, each))
        is_one = (size is None) != (scale is None) and 0 < len(numbers) <= self.ndim
        fits = is_one and all(map(math.isfinite, numbers))
        asked = f"{size=} or scale_factor={scale}"
        self._need(fits, f"one of the two, with a number for each axis: {asked}", ArgumentError)
        wanted = []
        for axis, number in enumerate(numbers, self.ndim - len(numbers)):
            old, by = known(self.shape[axis]), Fraction(number).limit_denominator(_FINEST)
            new = int(number) if scale is None else math.floor(old * by)
            self._need(new > 0, f"at least 1, not {new}, as size of axis {axis}", ArgumentError)
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

    def _resized(
        self, axis: int, size: int, pace: Fraction, align_corners: bool, is_cubic: bool
    ) -> Self:
        length = known(self.shape[axis])
        place = self._arange(size, dtypes.int64)
        # The place of each new element among the old ones is top / bottom.
        if align_corners:
            top, bottom = place * (length - 1), max(size - 1, 1)
        else:
            old, new = pace.numerator, pace.denominator
            top, bottom = (place * 2 + 1) * old - new, 2 * new
        if not is_cubic:
            top = top.maximum(0)
        low, wide = top // bottom, self._widened()
        share = (top - low * bottom).cast(wide.dtype) / bottom
        share = share._reshape((size, *(1,) * (self.ndim - axis - 1)))
        weights = _cubic_weights(share) if is_cubic else [(0, 1 - share), (1, share)]
        places = [(low + offset).clamp(0, length - 1) for offset, _ in weights]
        pairs = zip(weights, places, strict=True)
        taps = [weight * wide.index_select(axis, place) for (_, weight), place in pairs]
        return sum(taps[1:], taps[0]).cast(self._floating().dtype)


def _cubic_weights(share: T) -> list[tuple[int, T]]:
    """What elements at offsets from the one below add, at a share of the way to the next."""

    def near(x: T) -> T:
        return ((_CUBIC + 2) * x - (_CUBIC + 3)) * x * x + 1

    def far(x: T) -> T:
        return ((_CUBIC * x - 5 * _CUBIC) * x + 8 * _CUBIC) * x - 4 * _CUBIC

    return [(-1, far(share + 1)), (0, near(share)), (1, near(1 - share)), (2, far(2 - share))]
