"""Tensors cut into sliding windows, and pools over each window.

In:  tensors (batch, channels, *space) and the windows' sizes, strides, dilations, paddings.
Out: `Pooling`: the movement that convolution is built on, and the pools.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Self, TypeVar

from kernelet.base.dtype import Scalar
from kernelet.base.errors import ShapeError
from kernelet.frontend.primitives import known, show_shape
from kernelet.frontend.reduction import Reduction
from kernelet.frontend.windows import Padding, PerAxis, Slide, Window, window_list
from kernelet.graph.ops import Op

OutputSize = int | Sequence[int | None]
_Item = TypeVar("_Item")


class Pooling(Reduction):
    """Windows, and pools over the last axes of (batch, channels, *space)."""

    __slots__ = ()

    def _windows(self, windows: Sequence[Window]) -> Self:
        """The last axes cut into windows: (*batch, *counts, *sizes)."""
        keep = self.ndim - len(windows)
        batch = self.shape[:keep]
        slides = [
            Slide.of(window, known(length))
            for window, length in zip(windows, self.shape[keep:], strict=True)
        ]
        zeros = ((0, 0),) * keep
        whole = tuple((0, dim) for dim in batch)
        result = self._pad((*zeros, *(slide.pads for slide in slides)))
        if any(slide.repeats for slide in slides):
            ones = [(*(1 for _ in slide.repeats), slide.whole) for slide in slides]
            many = [(*slide.repeats, slide.whole) for slide in slides]
            result = result._reshape((*batch, *_joined(ones)))._expand((*batch, *_joined(many)))
            result = result._reshape((*batch, *(math.prod(each) for each in many)))
        result = result._shrink((*whole, *(slide.cut for slide in slides)))
        result = result._reshape((*batch, *_joined([slide.rows for slide in slides])))
        result = result._shrink((*whole, *_joined([slide.row_cut for slide in slides])))
        overlapping = [place for place, slide in enumerate(slides) if slide.repeats]
        result = result._flip(tuple(keep + 2 * place for place in overlapping))
        for place in overlapping:
            if slides[place].window.stride > 1:
                result = result._every(keep + 2 * place + 1, slides[place].window.stride)
        return result._gathered(slides, keep)

    def _gathered(self, slides: Sequence[Slide], keep: int) -> Self:
        """(*batch, *pairs) with the counts before the sizes."""
        sides = [keep + 2 * place for place in range(len(slides))]
        turned = [1 if slide.repeats else 0 for slide in slides]
        counts = [side + turn for side, turn in zip(sides, turned, strict=True)]
        sizes = [side + 1 - turn for side, turn in zip(sides, turned, strict=True)]
        return self._permute((*range(keep), *counts, *sizes))

    def unfold(self, dim: int, size: int, step: int) -> Self:
        """Windows of `size` elements at every `step`-th place, as a new last axis."""
        axis = self.axis(dim)
        length = self._known_size(axis, "unfold")
        if not 0 < size <= length or step < 1:
            raise ShapeError(
                f"unfold: windows of {size} with step {step} do not fit an axis of {length}. "
                "Give 0 < size <= length and step > 0."
            )
        return self.movedim(axis, -1)._windows([Window(size, step)]).movedim(-2, axis)

    # ---- pools ----

    def avg_pool2d(
        self,
        kernel_size: PerAxis = (2, 2),
        stride: PerAxis | None = None,
        dilation: PerAxis = 1,
        padding: Padding = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Self:
        """The mean of each window; zeros of the padding count if `count_include_pad`.

        A window that `ceil_mode` adds never counts what lies behind the padding.
        """
        windows = self._pool_windows("avg_pool2d", kernel_size, stride, dilation, padding)
        exact = self._rounded_up(windows) if ceil_mode else windows
        axes = tuple(range(-len(windows), 0))
        padded = any(window.before or window.after for window in windows)
        if exact == windows and (count_include_pad or not padded):
            return self._windows(windows).mean(axes)
        # How many elements each window has is the same for all images.
        ones = self._full(1, self._space(windows), self.dtype)
        counted = ones._padded_windows(exact, windows if count_include_pad else (), 1)
        return self._windows(exact).sum(axes) / counted.sum(axes)

    def max_pool2d(
        self,
        kernel_size: PerAxis = (2, 2),
        stride: PerAxis | None = None,
        dilation: PerAxis = 1,
        padding: Padding = 0,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Self | tuple[Self, Self]:
        """The greatest element of each window; padding never wins.

        With `return_indices` also where it lies in the flattened space, the first of equals.
        """
        windows = self._pool_windows("max_pool2d", kernel_size, stride, dilation, padding)
        windows = self._rounded_up(windows) if ceil_mode else windows
        axes = tuple(range(-len(windows), 0))
        values = self._padded_windows(windows, windows, self.dtype.min)
        found = values.max(axes)
        if not return_indices:
            return found
        lengths = self._space(windows)
        size = math.prod(lengths)
        places = self._arange(size)._reshape(lengths)._padded_windows(windows, windows, size)
        best = values._is_best(found._reshape((*found.shape, *(1 for _ in axes))))
        return found, best.where(places, size).min(axes)

    def _space(self, windows: Sequence[Window]) -> tuple[int, ...]:
        return tuple(known(dim) for dim in self.shape[self.ndim - len(windows) :])

    def _rounded_up(self, windows: Sequence[Window]) -> list[Window]:
        lengths = self._space(windows)
        return [each.rounded_up(length) for each, length in zip(windows, lengths, strict=True)]

    def _padded_windows(
        self, windows: Sequence[Window], filled: Sequence[Window], fill: Scalar
    ) -> Self:
        """`windows` over the axes, with `fill` instead of the zeros that `filled` add."""
        pads = [(max(each.before, 0), max(each.after, 0)) for each in filled]
        if not any(map(any, pads)):
            return self._windows(windows)
        padded = self.pad([*[None] * (self.ndim - len(windows)), *pads], value=fill)
        bare = [
            replace(window, before=window.before - before, after=window.after - after)
            for window, (before, after) in zip(windows, pads, strict=True)
        ]
        return padded._windows(bare)

    def _pool_windows(
        self, call: str, size: PerAxis, stride: PerAxis | None, dilation: PerAxis, padding: Padding
    ) -> list[Window]:
        sizes = (size,) * 2 if isinstance(size, int) else tuple(size)
        step = sizes if stride is None else stride
        return self._checked_room(call, window_list(call, sizes, step, dilation, padding))

    def _checked_room(self, call: str, windows: list[Window]) -> list[Window]:
        """The windows, once it is known that the last axes have room for each."""
        if self.ndim < len(windows):
            raise ShapeError(
                f"{call}: {len(windows)} window sizes for a tensor of shape "
                f"{show_shape(self.shape)}. Give one for each of its last axes."
            )
        for window, length in zip(windows, self._space(windows), strict=True):
            if length + window.before + window.after < window.reach:
                raise ShapeError(
                    f"{call}: a window that reaches over {window.reach} elements does not fit an "
                    f"axis of {length} with padding {window.before} and {window.after}; the tensor "
                    f"has shape {show_shape(self.shape)}. Make the window smaller or pad more."
                )
        return windows

    # ---- pools of a given output size ----

    def adaptive_avg_pool2d(self, output_size: OutputSize) -> Self:
        """The mean of each of `output_size` pieces, as equal as they can be; None keeps an axis.

        Piece i of n goes from ``floor(i * length / n)`` up to ``ceil((i + 1) * length / n)``.
        """
        result = self._widened()
        for axis, size in self._piece_counts("adaptive_avg_pool2d", output_size):
            inside = result._pieces(axis, size)
            total = inside.where(result._piece_rows(axis), 0.0)._fold(Op.ADD, (self.ndim,), False)
            result = (total / inside.sum(-1).cast(result.dtype)).movedim(-1, axis)
        return result.cast(self._floating().dtype)

    def adaptive_max_pool2d(self, output_size: OutputSize) -> Self:
        """The greatest element of each of `output_size` pieces; None keeps an axis."""
        result = self
        for axis, size in self._piece_counts("adaptive_max_pool2d", output_size):
            rows = result._pieces(axis, size).where(result._piece_rows(axis), self.dtype.min)
            result = rows.max(-1).movedim(-1, axis)
        return result

    def _piece_counts(self, call: str, output_size: OutputSize) -> list[tuple[int, int]]:
        sizes = (output_size,) * 2 if isinstance(output_size, int) else tuple(output_size)
        windows = self._checked_room(call, [Window(1) for _ in sizes])
        lengths = self._space(windows)
        first = self.ndim - len(sizes)
        wanted = enumerate(zip(sizes, lengths, strict=True), first)
        return [(axis, size) for axis, (size, old) in wanted if size is not None and size != old]

    def _pieces(self, axis: int, size: int) -> Self:
        """(size, length): whether an element of the axis is in a piece."""
        length = known(self.shape[axis])
        piece = self._arange(size)._reshape((size, 1))
        begin, end = piece * length // size, ((piece + 1) * length + (size - 1)) // size
        place = self._arange(length)
        return (place < end) & ~(place < begin)

    def _piece_rows(self, axis: int) -> Self:
        """The axis moved to the end, behind a new axis of size 1."""
        return self.movedim(axis, -1).unsqueeze(-2)


def _joined(parts: Sequence[Sequence[_Item]]) -> tuple[_Item, ...]:
    return tuple(item for part in parts for item in part)
