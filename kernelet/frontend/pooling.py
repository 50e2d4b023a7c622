"""Windows that slide along axes, and pools over each window.

In:  tensors (batch, channels, *space) and the windows' sizes, strides, dilations, paddings.
Out: `Window`s, the movements that cut tensors into them, and `Pooling`, the pools.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal, NamedTuple, Self

from kernelet.base.dtype import Scalar
from kernelet.base.errors import ArgumentError
from kernelet.frontend.arguments import Count, Positive
from kernelet.frontend.gradient import inverse_view
from kernelet.frontend.indexing import Indexing
from kernelet.frontend.primitives import known, show_shape
from kernelet.graph.ops import Op

PerAxis = Count | Sequence[Count]
Padding = int | Sequence[int] | Sequence[Sequence[int]] | Literal["same", "valid"]
OutputSize = Count | Sequence[Count | None]
Bounds = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Window:
    """`size` elements, `dilation` apart, at every `stride`-th place of an axis.

    The axis has `before` and `after` zeros around it; a negative number crops it.
    """

    size: int
    stride: int = 1
    dilation: int = 1
    before: int = 0
    after: int = 0

    @property
    def reach(self) -> int:
        """The distance from the first element of a window to just behind its last."""
        return self.dilation * (self.size - 1) + 1

    @property
    def is_block(self) -> bool:
        """Whether a window is a piece of consecutive elements that no other window shares."""
        return self.stride >= self.size and (self.dilation == 1 or self.size == 1)

    def count(self, length: int) -> int:
        """How many windows fit an axis of `length` elements."""
        return (length + self.before + self.after - self.reach) // self.stride + 1

    def turned(self, more: int) -> Window:
        """The window of the convolution that goes back; `more` zeros are added at the end."""
        edge = self.reach - 1
        return replace(self, stride=1, before=edge - self.before, after=edge - self.after + more)

    def rounded_up(self, length: int) -> Window:
        """With room for one more window that starts inside the axis or the zeros before it."""
        missing = -(length + self.before + self.after - self.reach) % self.stride
        wider = replace(self, after=self.after + missing)
        starts_inside = (wider.count(length) - 1) * self.stride < length + self.before
        return wider if starts_inside else self


class Slide(NamedTuple):
    """The movements that turn axes into pairs: (size, count), of blocks (count, size).

    Windows that overlap: repeat the axis `size` times and read the repeats with a row pitch that
    is `dilation` shorter than the axis, so that each row is shifted against the one before. The
    zeros around the axis are wide enough that no row runs into the next one, neither here nor in
    the gradient, which needs no division by the pitch then.
    """

    pads: Bounds = ()  # zeros before and after an axis; negative crops are left to the cuts
    single: tuple[int, ...] = ()  # the padded axis, below an axis that is repeated
    repeated: tuple[int, ...] = ()  # both, when it is; blocks are not
    merged: tuple[int, ...] = ()  # both as one axis
    cut: Bounds = ()  # the part of it which the rows cover
    rows: tuple[int, ...] = ()  # the two axes that the part becomes
    row_cut: Bounds = ()  # what is kept of them

    @staticmethod
    def of(window: Window, length: int) -> Slide:
        """How `window` slides along an axis of `length` elements."""
        count, size, dilation = window.count(length), window.size, window.dilation
        used = count * window.stride
        room = used - window.before - length
        before = max(window.before, 0 if window.is_block else window.reach - 1)
        end = room - window.stride + window.reach  # of the last window
        after = max(room, 0) if window.is_block else max(room + dilation, dilation, end)
        whole, pads = before + length + after, ((before, after),)
        seen = (before - window.before, before - window.before + used)
        if window.is_block:
            axis, kept = (whole,), ((0, count), (0, size))
            return Slide(pads, axis, axis, axis, (seen,), (count, window.stride), kept)
        pair, cut = (size, whole), (window.reach - 1, size * whole - dilation)
        rows, kept = (size, whole - dilation), ((0, size), seen)
        return Slide(pads, (1, whole), pair, (size * whole,), (cut,), rows, kept)


class Pooling(Indexing):
    """Windows, and pools over the last axes of (batch, channels, *space)."""

    __slots__ = ()

    def _windows(self, windows: Sequence[Window]) -> Self:
        """The last axes cut into windows: (*batch, *counts, *sizes)."""
        keep = self.ndim - len(windows)
        batch = self.shape[:keep]
        whole = tuple((0, dim) for dim in batch)
        slides = map(Slide.of, windows, self._space(windows))
        slide = Slide(*(tuple(chain(*parts)) for parts in zip(*slides, strict=True)))
        result = self._pad((*((0, 0),) * keep, *slide.pads))
        result = result._reshape((*batch, *slide.single))._expand((*batch, *slide.repeated))
        result = result._reshape((*batch, *slide.merged))._shrink((*whole, *slide.cut))
        result = result._reshape((*batch, *slide.rows))._shrink((*whole, *slide.row_cut))
        pairs = list(zip(range(keep, result.ndim, 2), windows, strict=True))
        # The rows of windows that overlap are their elements, the last one first.
        result = result._flip(tuple(axis for axis, window in pairs if not window.is_block))
        for axis, window in pairs:
            if window.stride > 1 and not window.is_block:
                result = result._every(axis + 1, window.stride)
        counts = [axis if window.is_block else axis + 1 for axis, window in pairs]
        sizes = [axis + 1 if window.is_block else axis for axis, window in pairs]
        return result._permute((*range(keep), *counts, *sizes))

    def unfold(self, dim: int, size: int, step: int) -> Self:
        """Windows of `size` elements at every `step`-th place, as a new last axis."""
        axis = self.axis(dim)
        length = self._known_size(axis)
        fits = 0 <= size <= length and step > 0
        self._need(fits, f"windows from 0 to {length} and steps above 0, not {size} and {step}")
        if size == 0:
            counts = (*self.shape[:axis], length // step + 1, *self.shape[axis + 1 :])
            return self._full(0, (*counts, 0), self.dtype)
        return self.movedim(axis, -1)._windows([Window(size, step)]).movedim(-2, axis)

    def fold(
        self,
        output_size: Sequence[int],
        kernel_size: PerAxis,
        dilation: PerAxis = 1,
        padding: Padding = 0,
        stride: PerAxis = 1,
    ) -> Self:
        """Windows added up where they overlap: (batch, channels * window, places) -> images.

        The inverse of cutting an image of `output_size` into windows, as PyTorch's ``fold``.
        """
        sizes = per_axis("kernel_size", kernel_size, len(output_size))
        windows = window_list(sizes, stride, dilation, padding)
        counts = [each.count(size) for each, size in zip(windows, output_size, strict=True)]
        channels, places = math.prod(sizes), math.prod(counts)
        fits = self.ndim > 1 and (known(self.shape[-2]) % channels, self.shape[-1]) == (0, places)
        self._need(fits, f"(batch, a multiple of {channels}, {places} places of windows {sizes})")
        *batch, depth, _ = self.shape
        lead = (*batch, known(depth) // channels)
        space = len(sizes)
        cells = self._reshape((*lead, *sizes, *counts))
        cells = cells.movedim(range(-2 * space, -space), range(-space, 0))
        image = self._full(0, (*lead, *output_size), self.dtype)
        return self._wrap(inverse_view(image._windows(windows).uop, image.uop, cells.uop))

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
        windows = window_list(*_pool(kernel_size, stride), dilation, padding)
        exact = self._with_room(windows, ceil_mode)
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

        With `return_indices` also where it lies in the flattened space, the first of equals; of a
        window that has padding alone, the number of places there.
        """
        windows = window_list(*_pool(kernel_size, stride), dilation, padding)
        windows = self._with_room(windows, ceil_mode)
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

    def max_unpool2d(
        self,
        indices: Self,
        kernel_size: PerAxis = (2, 2),
        stride: PerAxis | None = None,
        dilation: PerAxis = 1,
        padding: Padding = 0,
        output_size: Sequence[int] | None = None,
    ) -> Self:
        """Each element where `max_pool2d` found it, 0 elsewhere.

        The last axes have `output_size`, or the least that the windows fit into.
        """
        windows = window_list(*_pool(kernel_size, stride), dilation, padding)
        fits = indices.shape == self.shape and self.ndim >= len(windows)
        indices._need(fits, f"the indices of max_pool2d, of shape {show_shape(self.shape)}")
        lengths = zip(windows, self._space(windows), strict=True)
        least = [(n - 1) * w.stride + w.reach - w.before - w.after for w, n in lengths]
        space = tuple(least if output_size is None else output_size[-len(windows) :])
        keep = self.ndim - len(windows)
        image = self._full(0, (*self.shape[:keep], math.prod(space)), self.dtype)
        spread = image.scatter(-1, indices.flatten(keep), self.flatten(keep))
        return spread.reshape(*self.shape[:keep], *space)

    def lp_pool2d(
        self,
        norm_type: Positive,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        ceil_mode: bool = False,
    ) -> Self:
        """``sum(x ** p) ** (1 / p)`` of each window, p being `norm_type`."""
        sizes, stride = _pool(kernel_size, stride)
        means = self.pow(norm_type).avg_pool2d(sizes, stride, ceil_mode=ceil_mode)
        return (means * math.prod(sizes)).pow(1 / norm_type)

    def _space(self, windows: Sequence[Window]) -> tuple[int, ...]:
        return tuple(known(dim) for dim in self.shape[self.ndim - len(windows) :])

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

    def _with_room(self, windows: Sequence[Window], ceil_mode: bool = False) -> list[Window]:
        """The windows, once it is known that the last axes have room for each."""
        self._need_ndim(len(windows))
        lengths = self._space(windows)
        if ceil_mode:
            windows = [each.rounded_up(size) for each, size in zip(windows, lengths, strict=True)]
        for window, length in zip(windows, lengths, strict=True):
            have = length + window.before + window.after
            self._need(
                have >= window.reach, f"smaller windows than {window.reach} of {have} or pad more"
            )
        return list(windows)

    # ---- pools of a given output size ----

    def adaptive_avg_pool2d(self, output_size: OutputSize) -> Self:
        """The mean of each of `output_size` pieces, as equal as they can be; None keeps an axis.

        Piece i of n goes from ``floor(i * length / n)`` up to ``ceil((i + 1) * length / n)``.
        """
        result = self._widened()
        for axis, size in self._piece_counts(output_size):
            inside, rows = result._pieces(axis, size)
            total = inside.where(rows, 0.0)._fold(Op.ADD, (self.ndim,), False)
            result = (total / inside.sum(-1).cast(result.dtype)).movedim(-1, axis)
        return result.cast(self._floating().dtype)

    def adaptive_max_pool2d(self, output_size: OutputSize) -> Self:
        """The greatest element of each of `output_size` pieces; None keeps an axis."""
        result = self
        for axis, size in self._piece_counts(output_size):
            inside, rows = result._pieces(axis, size)
            result = inside.where(rows, self.dtype.min).max(-1).movedim(-1, axis)
        return result

    def _piece_counts(self, output_size: OutputSize) -> list[tuple[int, int]]:
        sizes = (output_size,) * 2 if isinstance(output_size, int) else tuple(output_size)
        windows = self._with_room([Window(1) for _ in sizes])
        lengths = self._space(windows)
        first = self.ndim - len(sizes)
        wanted = enumerate(zip(sizes, lengths, strict=True), first)
        return [(axis, size) for axis, (size, old) in wanted if size is not None and size != old]

    def _pieces(self, axis: int, size: int) -> tuple[Self, Self]:
        """(size, length): whether an element of the axis is in a piece; the axis as the last one."""
        length = known(self.shape[axis])
        piece = self._arange(size)._reshape((size, 1))
        begin, end = piece * length // size, ((piece + 1) * length + (size - 1)) // size
        place = self._arange(length)
        return (place < end) & ~(place < begin), self.movedim(axis, -1).unsqueeze(-2)


def _pool(size: PerAxis, stride: PerAxis | None) -> tuple[tuple[int, ...], PerAxis]:
    """Sizes and strides of a pool; one number is for two axes, the stride is the size by default."""
    sizes = (size,) * 2 if isinstance(size, int) else tuple(size)
    return sizes, sizes if stride is None else stride


# ---- windows from the arguments of a convolution or a pool ----


def per_axis(name: str, value: PerAxis, count: int) -> tuple[int, ...]:
    """One number for each of `count` axes; a single number stands for all of them.

    >>> per_axis("stride", 2, 3)
    (2, 2, 2)
    """
    found = (value,) * count if isinstance(value, int) else tuple(value)
    if len(found) != count:
        raise ArgumentError(
            f"{name}={value} has {len(found)} numbers and there are {count} axes to slide "
            "along. Give one number, or one for each axis."
        )
    return found


def paddings(padding: Padding, windows: Sequence[Window]) -> tuple[tuple[int, int], ...]:
    """(before, after) for each axis.

    `padding` is one number, one for each axis, a (before, after) pair for each axis, "same" or
    "valid", or flat pairs from the last axis to the first: (left, right, top, bottom).
    """
    count = len(windows)
    if padding == "same":
        if any(window.stride != 1 for window in windows):
            raise ArgumentError(
                f'padding="same" with a stride of '
                f"{tuple(window.stride for window in windows)}: the output would be smaller than "
                "the input. Use stride 1 or give the padding in numbers."
            )
        spare = [window.reach - 1 for window in windows]
        return tuple((each // 2, each - each // 2) for each in spare)
    given = 0 if padding == "valid" else padding
    sides: list[int | Sequence[int]] = [given] * count if isinstance(given, int) else list(given)
    flat = [each for each in sides if isinstance(each, int)]
    if len(flat) == len(sides) == 2 * count:
        return tuple(zip(flat[-2::-2], flat[::-2], strict=True))
    pairs = [(each, each) if isinstance(each, int) else tuple(each) for each in sides]
    alike = len(flat) in (0, count) and all(len(pair) == 2 for pair in pairs)
    if alike and len(pairs) == count:
        return tuple((before, after) for before, after in pairs)
    raise ArgumentError(
        f"padding={padding!r} for {count} axes. Use a number, {count} numbers, {count} "
        f'pairs (before, after), {2 * count} numbers from the last axis to the first, "same" or '
        '"valid".'
    )


def window_list(
    sizes: Sequence[int], stride: PerAxis, dilation: PerAxis, padding: Padding
) -> list[Window]:
    """One window for each axis, from the arguments of a convolution or a pool."""
    count = len(sizes)
    steps = per_axis("stride", stride, count)
    gaps = per_axis("dilation", dilation, count)
    bare = [Window(*numbers) for numbers in zip(sizes, steps, gaps, strict=True)]
    sides = zip(bare, paddings(padding, bare), strict=True)
    return [replace(window, before=before, after=after) for window, (before, after) in sides]
