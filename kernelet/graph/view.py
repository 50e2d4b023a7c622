"""Movement ops as strides: which part of memory a moved tensor shows, and in which order.

In:  chains of RESHAPE, PERMUTE, EXPAND, PAD, SHRINK and FLIP whose sizes are numbers.
Out: `ShapeTracker`s, which say what memory a tensor shares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

from kernelet.graph.division import TRUE, and_gates, index_const, less_index
from kernelet.graph.infer import Shape
from kernelet.graph.movement import (
    flatten_index,
    reshape_groups,
    row_major_strides,
    unflatten_index,
)
from kernelet.graph.ops import MOVEMENT, Op
from kernelet.graph.uop import UOp

Numbers = tuple[int, ...]
Box = tuple[tuple[int, int], ...]


# ---- one view ----


@final
@dataclass(frozen=True, slots=True)
class View:
    """Element x of the result is element offset + sum(x * strides) of what is below.

    Outside of `mask`, which holds (begin, end) for each axis, the result is 0.
    """

    shape: Numbers
    strides: Numbers
    offset: int = 0
    mask: Box | None = None

    @staticmethod
    @lru_cache(maxsize=1 << 14)
    def create(
        shape: Numbers, strides: Numbers | None = None, offset: int = 0, mask: Box | None = None
    ) -> View:
        """The view in normal form: row major by default, equal views are equal values."""
        if 0 in shape:
            return View(shape, (0,) * len(shape))
        steps = list(numbers(row_major_strides(shape)) if strides is None else strides)
        if mask is not None:
            sides = zip(mask, shape, strict=True)
            mask = tuple((max(begin, 0), min(end, size)) for (begin, end), size in sides)
            if any(end <= begin for begin, end in mask):
                return View(shape, (0,) * len(shape), 0, ((0, 0),) * len(shape))
            for axis, (begin, end) in enumerate(mask):
                if end - begin == 1:
                    offset += steps[axis] * begin
                    steps[axis] = 0
            if mask == tuple((0, size) for size in shape):
                mask = None
        steps = [0 if size == 1 else step for size, step in zip(shape, steps, strict=True)]
        return View(shape, tuple(steps), offset, mask)

    @staticmethod
    def of_movement(op: Op, arg: Any, shape: Numbers) -> View:  # noqa: ANN401 - as the op has it
        """What one movement op sees of row-major elements of this shape."""
        steps = numbers(row_major_strides(shape))
        rows = list(zip(shape, steps, strict=True))
        if op is Op.RESHAPE:
            reshape_groups(shape, arg)  # refuses another number of elements
            return View.create(arg)
        if op is Op.PERMUTE:
            return View.create(tuple(shape[a] for a in arg), tuple(steps[a] for a in arg))
        if op is Op.EXPAND:
            return View.create(arg, tuple(0 if size == 1 else step for size, step in rows))
        if op is Op.FLIP:
            turned = tuple(-step if axis in arg else step for axis, step in enumerate(steps))
            return View.create(shape, turned, sum(steps[a] * (shape[a] - 1) for a in arg))
        mask = None
        bounds = arg
        if op is Op.PAD:
            bounds = [
                (-before, size + after) for size, (before, after) in zip(shape, arg, strict=True)
            ]
            mask = tuple(
                (-begin, size - begin) for size, (begin, _) in zip(shape, bounds, strict=True)
            )
        offset = sum(step * begin for step, (begin, _) in zip(steps, bounds, strict=True))
        return View.create(tuple(end - begin for begin, end in bounds), steps, offset, mask)

    @property
    def size(self) -> int:
        """The number of elements seen."""
        return math.prod(self.shape)

    @property
    def is_row_major(self) -> bool:
        """Whether neighbours lie as in a fresh tensor, at whatever offset."""
        return self.mask is None and self.strides == View.create(self.shape).strides

    @property
    def is_contiguous(self) -> bool:
        """Whether element number n of the result is element n of what is below."""
        return self.is_row_major and self.offset == 0

    @property
    def is_blank(self) -> bool:
        """Whether all elements are padding."""
        return self.mask is not None and (0, 0) in self.mask

    @property
    def box(self) -> Box:
        """The (begin, end) of each axis outside of which the result is 0."""
        return tuple((0, size) for size in self.shape) if self.mask is None else self.mask

    def index(self, indices: Sequence[UOp]) -> tuple[UOp, UOp]:
        """The flat index of an element, and the gate that is false in the padding."""
        flat, gates = flatten_index(indices, self.strides, self.offset), [TRUE]
        for index, size, (begin, end) in zip(indices, self.shape, self.box, strict=True):
            if begin:
                gates.append(less_index(index_const(begin - 1), index))
            if end != size:
                gates.append(less_index(index, index_const(end)))
        return flat, and_gates(*gates)


def numbers(shape: Shape) -> Numbers:
    """The sizes of a shape, none of which is a variable."""
    found = tuple(size for size in shape if isinstance(size, int))
    assert len(found) == len(shape), f"a size of {shape} is a variable"
    return found


# ---- a view of a view ----


@lru_cache(maxsize=1 << 13)
def merge_views(inner: View, outer: View) -> View | None:
    """One view that sees what `outer` sees of what `inner` sees; None when there is none.

    A point x of `outer` has number n(x) in `inner`, whose digits in the mixed radix of the inner
    shape are the inner coordinates. If they are linear in x on the box of `outer`, a step along an
    axis changes them as it does at the corner of the box; and linear coordinates that stay inside
    the inner shape are the digits, since digits are unique. So reading the digits at the corner
    and one step away from it, then checking the range, finds every merge there is.
    """
    if outer.is_blank or 0 in outer.shape:
        return outer
    if inner.is_blank:
        return View.create(outer.shape, mask=((0, 0),) * len(outer.shape))
    if inner.is_row_major:
        return View.create(outer.shape, outer.strides, inner.offset + outer.offset, outer.mask)
    inner = _join_axes(inner)
    box, seen = outer.box, outer.box
    corner = outer.offset + _dot(outer.strides, [begin for begin, _ in box])
    start = _digits(corner, inner.shape)
    moves: list[list[int]] = []  # for each outer axis, how a step changes each inner coordinate
    for step, (begin, end) in zip(outer.strides, box, strict=True):
        moved = _digits(corner + step, inner.shape) if end - begin > 1 else start
        moves.append([after - before for before, after in zip(start, moved, strict=True)])
    offset = inner.offset
    strides = [0] * len(moves)
    inner_axes = zip(inner.shape, inner.strides, inner.box, strict=True)
    for axis, (size, pitch, wanted) in enumerate(inner_axes):
        factors = [move[axis] for move in moves]
        origin = start[axis] - _dot(factors, [begin for begin, _ in box])
        low, high = _range_of(origin, factors, box)
        if low < 0 or high >= size:
            return None
        offset += pitch * origin
        strides = [total + pitch * factor for total, factor in zip(strides, factors, strict=True)]
        narrowed = _narrow(seen, origin, factors, wanted)
        if narrowed is None:
            return None
        seen = narrowed
    return View.create(outer.shape, tuple(strides), offset, seen)


def _join_axes(view: View) -> View:
    """The same flat elements with as few axes as can be, none of size 1."""
    joined: list[tuple[int, int, int, int]] = []
    offset = view.offset
    for size, stride, (begin, end) in zip(view.shape, view.strides, view.box, strict=True):
        if size == 1:
            continue
        if joined:
            above, step, first, last = joined[-1]
            if last - first == 1:
                # One row is seen: its own stride is free, so let it continue the inner one.
                offset += first * (step - size * stride)
                joined[-1] = (above * size, stride, first * size + begin, first * size + end)
                continue
            if (begin, end) == (0, size) and step == size * stride:
                joined[-1] = (above * size, stride, first * size, last * size)
                continue
        joined.append((size, stride, begin, end))
    shape, strides = tuple(row[0] for row in joined), tuple(row[1] for row in joined)
    return View(shape, strides, offset, tuple((begin, end) for _, _, begin, end in joined))


def _dot(factors: Sequence[int], values: Sequence[int]) -> int:
    return sum(factor * value for factor, value in zip(factors, values, strict=True))


def _digits(number: int, sizes: Numbers) -> list[int]:
    digits = []
    for size in reversed(sizes):
        digits.append(number % size)
        number //= size
    return digits[::-1]


def _range_of(origin: int, factors: Sequence[int], box: Box) -> tuple[int, int]:
    """The least and the greatest origin + sum(factors * x) for x in the box."""
    low = high = origin
    for factor, (begin, end) in zip(factors, box, strict=True):
        ends = factor * begin, factor * (end - 1)
        low, high = low + min(ends), high + max(ends)
    return low, high


def _narrow(box: Box, origin: int, factors: Sequence[int], wanted: tuple[int, int]) -> Box | None:
    """The points of the box with origin + sum(factors * x) in `wanted`; None if they are no box."""
    parts, rest = list(box), list(factors)
    for axis in sorted(range(len(rest)), key=lambda axis: -abs(factors[axis])):
        low, high = _range_of(origin, rest, tuple(parts))
        if wanted[0] <= low and high < wanted[1]:
            break
        factor, rest[axis] = rest[axis], 0
        low, high = _range_of(origin, rest, tuple(parts))
        # x for which the smaller terms never matter, and x for which they may fit.
        every = _solve(factor, wanted[0] - low, wanted[1] - 1 - high, parts[axis])
        some = _solve(factor, wanted[0] - high, wanted[1] - 1 - low, parts[axis])
        parts[axis] = some
        if some[0] >= some[1] or every == some:
            break
        if some[1] - some[0] > 1:
            return None
        origin += factor * some[0]
    return tuple(parts)


def _solve(factor: int, low: int, high: int, bounds: tuple[int, int]) -> tuple[int, int]:
    """The x within bounds with low <= factor * x <= high."""
    if factor == 0:
        return bounds if low <= 0 <= high else (0, 0)
    if factor < 0:
        factor, low, high = -factor, -high, -low
    return max(bounds[0], -(-low // factor)), min(bounds[1], high // factor + 1)


# ---- a stack of views ----


@final
@dataclass(frozen=True, slots=True)
class ShapeTracker:
    """Views over one memory; the last is what is seen, the first reads the memory."""

    views: tuple[View, ...]

    @staticmethod
    def from_shape(shape: Shape) -> ShapeTracker:
        """Memory as it is, row major."""
        return ShapeTracker((View.create(numbers(shape)),))

    @property
    def shape(self) -> Numbers:
        """The sizes of the axes seen."""
        return self.views[-1].shape

    @property
    def size(self) -> int:
        """The number of elements seen."""
        return self.views[-1].size

    @property
    def is_contiguous(self) -> bool:
        """Whether element number n seen is element n of the memory."""
        return len(self.views) == 1 and self.views[0].is_contiguous

    def move(self, op: Op, arg: object) -> ShapeTracker:
        """What a movement op sees of this."""
        stack = [*self.views, View.of_movement(op, arg, self.shape)]
        while len(stack) > 1:
            merged = merge_views(stack[-2], stack[-1])
            if merged is None:
                break
            stack[-2:] = [merged]
        return ShapeTracker(tuple(stack))

    def reshape(self, shape: Numbers) -> ShapeTracker:
        """The same elements in order under other sizes."""
        return self.move(Op.RESHAPE, shape)

    def permute(self, order: Numbers) -> ShapeTracker:
        """Axis i of the result is axis order[i]."""
        return self.move(Op.PERMUTE, order)

    def expand(self, shape: Numbers) -> ShapeTracker:
        """Repeat axes of size 1."""
        return self.move(Op.EXPAND, shape)

    def pad(self, padding: Box) -> ShapeTracker:
        """Add (before, after) zeros along each axis."""
        return self.move(Op.PAD, padding)

    def shrink(self, bounds: Box) -> ShapeTracker:
        """Keep the elements from begin to end along each axis."""
        return self.move(Op.SHRINK, bounds)

    def flip(self, axes: Numbers) -> ShapeTracker:
        """Run backwards along `axes`."""
        return self.move(Op.FLIP, axes)

    def index(self, indices: Sequence[UOp]) -> tuple[UOp, UOp]:
        """The element of the memory behind an index, and the gate that is false in padding."""
        flat, gate = self.views[-1].index(indices)
        gates = [gate]
        for view in reversed(self.views[:-1]):
            flat, gate = view.index(unflatten_index(flat, view.shape))
            gates.append(gate)
        return flat, and_gates(*gates)

    def strided_view(self) -> View | None:
        """The one view (shape, strides, offset) that shows this without a copy.

        None when there is padding, or more than one view.
        """
        return self.views[0] if len(self.views) == 1 and self.views[0].mask is None else None


def tracker_of(node: UOp) -> tuple[UOp, ShapeTracker]:
    """The first node below that is no movement op, and how `node` sees it; no size is a variable."""
    chain = []
    while node.op in MOVEMENT and "tracker" not in node.cache:
        chain.append(node)
        node = node.src[0]
    found: tuple[UOp, ShapeTracker] = (
        node.cache["tracker"]
        if node.op in MOVEMENT
        else (node, ShapeTracker.from_shape(node.shape))
    )
    for moved in reversed(chain):
        found = found[0], found[1].move(moved.op, moved.arg)
        moved.cache["tracker"] = found
    return found
