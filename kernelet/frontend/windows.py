"""Windows that slide along axes, and the arguments that describe them.

In:  sizes, strides, dilations, paddings as users give them.
Out: `Window`, and `Slide`, the movements that cut one axis into windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kernelet.base.errors import ArgumentError

PerAxis = int | Sequence[int]
Padding = int | Sequence[int] | Sequence[Sequence[int]] | Literal["same", "valid"]


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


@dataclass(frozen=True, slots=True)
class Slide:
    """The movements that turn one axis of `length` elements into (size, count) or (count, size).

    Windows that overlap: repeat the axis `size` times and read the repeats with a row pitch that
    is `dilation` shorter than the axis, so that each row is shifted against the one before. The
    zeros around the axis are wide enough that no row runs into the next one, neither here nor in
    the gradient, which needs no division by the pitch then.
    """

    window: Window
    count: int  # how many windows there are
    pads: tuple[int, int]  # zeros before and after the axis; negative crops are left to the cuts
    whole: int  # the length of the padded axis
    repeats: tuple[int, ...]  # how often it is repeated, as axes: none without overlap
    cut: tuple[int, int]  # the part of all that which the rows cover
    rows: tuple[int, int]  # the two axes that the part becomes
    row_cut: tuple[tuple[int, int], tuple[int, int]]  # what is kept of them

    @staticmethod
    def of(window: Window, length: int) -> Slide:
        """How `window` slides along an axis of `length` elements."""
        count, size, dilation = window.count(length), window.size, window.dilation
        used = count * window.stride
        room = used - window.before - length
        before = max(window.before, 0 if window.is_block else window.reach - 1)
        end = room - window.stride + window.reach  # of the last window
        after = max(room, 0) if window.is_block else max(room + dilation, dilation, end)
        whole = before + length + after
        seen = (before - window.before, before - window.before + used)
        pads = (before, after)
        if window.is_block:
            kept = ((0, count), (0, size))
            return Slide(window, count, pads, whole, (), seen, (count, window.stride), kept)
        cut = (window.reach - 1, size * whole - dilation)
        return Slide(
            window, count, pads, whole, (size,), cut, (size, whole - dilation), ((0, size), seen)
        )


def per_axis(call: str, name: str, value: PerAxis, count: int) -> tuple[int, ...]:
    """One number for each of `count` axes; a single number stands for all of them.

    >>> per_axis("conv2d", "stride", 2, 3)
    (2, 2, 2)
    """
    found = (value,) * count if isinstance(value, int) else tuple(value)
    if len(found) != count:
        raise ArgumentError(
            f"{call}: {name}={value} has {len(found)} numbers and there are {count} axes to slide "
            "along. Give one number, or one for each axis."
        )
    return found


def paddings(call: str, padding: Padding, windows: Sequence[Window]) -> tuple[tuple[int, int], ...]:
    """(before, after) for each axis.

    `padding` is one number, one for each axis, a (before, after) pair for each axis, "same" or
    "valid", or flat pairs from the last axis to the first: (left, right, top, bottom).
    """
    count = len(windows)
    if padding == "same":
        if any(window.stride != 1 for window in windows):
            raise ArgumentError(
                f'{call}: padding="same" with a stride of '
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
        f"{call}: padding={padding!r} for {count} axes. Use a number, {count} numbers, {count} "
        f'pairs (before, after), {2 * count} numbers from the last axis to the first, "same" or '
        '"valid".'
    )


def window_list(
    call: str, sizes: Sequence[int], stride: PerAxis, dilation: PerAxis, padding: Padding
) -> list[Window]:
    """One window for each axis, from the arguments of a convolution or a pool."""
    count = len(sizes)
    steps = per_axis(call, "stride", stride, count)
    gaps = per_axis(call, "dilation", dilation, count)
    if min((*sizes, *steps, *gaps), default=1) < 1:
        raise ArgumentError(
            f"{call}: window {tuple(sizes)}, stride {steps}, dilation {gaps}. "
            "Each of these numbers must be at least 1."
        )
    bare = [Window(*numbers) for numbers in zip(sizes, steps, gaps, strict=True)]
    sides = zip(bare, paddings(call, padding, bare), strict=True)
    return [replace(window, before=before, after=after) for window, (before, after) in sides]
