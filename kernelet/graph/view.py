"""Movement ops as arithmetic: where each element of a moved tensor lies.

In:  chains of RESHAPE, PERMUTE, EXPAND, PAD, SHRINK and FLIP.
Out: `ShapeTracker`s, which say what memory a tensor shares, and index expressions for lowering.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import final

from kernelet.graph.division import (
    TRUE,
    ZERO,
    and_gates,
    index_of,
    less_index,
    maximum_index,
    minimum_index,
)
from kernelet.graph.infer import Dim, Shape
from kernelet.graph.movement import (
    add_dims,
    all_numbers,
    as_dim,
    flatten_index,
    is_at_most,
    multiply_dims,
    normal_shape,
    product_of,
    reshape_groups,
    row_major_strides,
    subtract_dims,
    unflatten_index,
)
from kernelet.graph.ops import MOVEMENT
from kernelet.graph.uop import UOp

Box = tuple[tuple[Dim, Dim], ...]
NumberBox = tuple[tuple[int, int], ...]


# ---- one view ----


@final
@dataclass(frozen=True, slots=True)
class View:
    """Element x of the result is element offset + sum(x * strides) of what is below.

    Outside of `mask`, which holds (begin, end) for each axis, the result is 0.
    """

    shape: Shape
    strides: Shape
    offset: Dim = 0
    mask: Box | None = None

    @staticmethod
    @lru_cache(maxsize=1 << 14)
    def create(
        shape: Shape, strides: Shape | None = None, offset: Dim = 0, mask: Box | None = None
    ) -> View:
        """The view in normal form: row major by default, equal views are equal values."""
        shape = normal_shape(shape)
        if 0 in shape:
            return View(shape, (0,) * len(shape))
        steps = list(row_major_strides(shape) if strides is None else strides)
        if mask is not None:
            mask = tuple(_clip(bounds, dim) for bounds, dim in zip(mask, shape, strict=True))
            if any(is_at_most(end, begin) for begin, end in mask):
                return View(shape, (0,) * len(shape), 0, ((0, 0),) * len(shape))
            for axis, (begin, end) in enumerate(mask):
                if subtract_dims(end, begin) == 1:
                    offset = add_dims(offset, multiply_dims(steps[axis], begin))
                    steps[axis] = 0
            if mask == tuple((0, dim) for dim in shape):
                mask = None
        steps = [0 if dim == 1 else step for dim, step in zip(shape, steps, strict=True)]
        return View(shape, tuple(steps), offset, mask)

    @property
    def size(self) -> Dim:
        """The number of elements seen."""
        return product_of(self.shape)

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
        return tuple((0, dim) for dim in self.shape) if self.mask is None else self.mask

    def permute(self, order: tuple[int, ...]) -> View:
        """Axis i of the result is axis order[i]."""
        shape = tuple(self.shape[axis] for axis in order)
        strides = tuple(self.strides[axis] for axis in order)
        mask = None if self.mask is None else tuple(self.mask[axis] for axis in order)
        return View.create(shape, strides, self.offset, mask)

    def expand(self, shape: Shape) -> View:
        """Repeat axes of size 1 (their stride is 0)."""
        mask = None
        if self.mask is not None:
            sizes = zip(self.mask, self.shape, normal_shape(shape), strict=True)
            mask = tuple(
                (0, new) if old == 1 and bounds != (0, 0) else bounds for bounds, old, new in sizes
            )
        return View.create(shape, self.strides, self.offset, mask)

    def pad(self, padding: Box) -> View:
        """Add (before, after) zeros along each axis."""
        offset, mask, shape = self.offset, [], []
        axes = zip(self.shape, self.strides, self.box, padding, strict=True)
        for dim, stride, (begin, end), (before, after) in axes:
            offset = subtract_dims(offset, multiply_dims(stride, before))
            mask.append((add_dims(begin, before), add_dims(end, before)))
            shape.append(add_dims(dim, add_dims(before, after)))
        return View.create(tuple(shape), self.strides, offset, tuple(mask))

    def shrink(self, bounds: Box) -> View:
        """Keep the elements from begin to end along each axis."""
        offset, mask, shape = self.offset, [], []
        axes = zip(self.strides, self.box, bounds, strict=True)
        for stride, valid, (begin, end) in axes:
            offset = add_dims(offset, multiply_dims(stride, begin))
            mask.append((subtract_dims(valid[0], begin), subtract_dims(valid[1], begin)))
            shape.append(subtract_dims(end, begin))
        return View.create(
            tuple(shape), self.strides, offset, None if self.mask is None else tuple(mask)
        )

    def flip(self, axes: tuple[int, ...]) -> View:
        """Run backwards along `axes`."""
        offset, strides, mask = self.offset, list(self.strides), list(self.box)
        for axis in axes:
            dim, (begin, end) = self.shape[axis], mask[axis]
            last = subtract_dims(dim, 1)
            offset = add_dims(offset, multiply_dims(strides[axis], last))
            strides[axis] = multiply_dims(strides[axis], -1)
            mask[axis] = (subtract_dims(dim, end), subtract_dims(dim, begin))
        return View.create(self.shape, tuple(strides), offset, tuple(mask))

    def reshape(self, shape: Shape) -> View | None:
        """The same elements in order under other sizes; None when that is not one view."""
        return _reshape_view(self, normal_shape(shape))

    def index(self, indices: Sequence[UOp]) -> tuple[UOp, UOp]:
        """The flat index of an element, and the gate that is false in the padding."""
        flat = flatten_index(indices, self.strides, self.offset)
        if self.mask is None:
            return flat, TRUE
        gates = []
        for index, dim, (begin, end) in zip(indices, self.shape, self.mask, strict=True):
            if begin != 0:
                gates.append(less_index(index_of(add_dims(begin, -1)), index))
            if end != dim:
                gates.append(less_index(index, index_of(end)))
        return flat, and_gates(*gates)


def _clip(bounds: tuple[Dim, Dim], dim: Dim) -> tuple[Dim, Dim]:
    begin, end = bounds
    if isinstance(begin, int) and isinstance(end, int) and isinstance(dim, int):
        return max(begin, 0), min(end, dim)
    # Later pads move the mask, so it must not reach beyond the axis for any value of a variable.
    clipped = minimum_index(index_of(end), index_of(dim))
    return as_dim(maximum_index(index_of(begin), ZERO)), as_dim(clipped)


@lru_cache(maxsize=1 << 13)
def _reshape_view(view: View, shape: Shape) -> View | None:
    if view.shape == shape:
        return view
    if 0 in shape:
        return View.create(shape)
    if view.is_blank:
        return View.create(shape, mask=((0, 0),) * len(shape))
    offset = view.offset
    strides: list[Dim] = [0] * len(shape)
    mask: list[tuple[Dim, Dim]] = [(0, dim) for dim in shape]
    for group in reshape_groups(view.shape, shape):
        part = View(
            group.old_shape,
            tuple(view.strides[axis] for axis in group.old_axes),
            0,
            tuple(view.box[axis] for axis in group.old_axes),
        )
        moved: View | None = part
        if group.old_shape != group.new_shape:
            moved = _split_axes(part, group.new_shape)
        if moved is None:
            return None
        offset = add_dims(offset, moved.offset)
        for axis, stride, bounds in zip(group.new_axes, moved.strides, moved.box, strict=True):
            strides[axis], mask[axis] = stride, bounds
    return View.create(shape, tuple(strides), offset, tuple(mask))


def _split_axes(part: View, shape: Shape) -> View | None:
    if all_numbers(part.shape, part.strides, shape, *part.box):
        return _compose(part, View.create(shape))
    joined = _join_axes(part)
    if len(joined.shape) != 1 or joined.box[0] != (0, joined.shape[0]):
        return None
    strides = tuple(multiply_dims(joined.strides[0], step) for step in row_major_strides(shape))
    return View.create(shape, strides, joined.offset)


# ---- a view of a view ----


@lru_cache(maxsize=1 << 13)
def merge_views(inner: View, outer: View) -> View | None:
    """One view that sees what `outer` sees of what `inner` sees; None when there is none."""
    if outer.is_blank or 0 in outer.shape:
        return outer
    if inner.is_blank:
        return View.create(outer.shape, mask=((0, 0),) * len(outer.shape))
    if inner.is_row_major:
        offset = add_dims(inner.offset, outer.offset)
        return View.create(outer.shape, outer.strides, offset, outer.mask)
    if outer.is_contiguous and outer.size == inner.size:
        return inner.reshape(outer.shape)
    for view in (inner, outer):
        if not all_numbers(view.shape, view.strides, (view.offset,), *view.box):
            return None
    return _compose(inner, outer)


def _join_axes(view: View) -> View:
    """The same flat elements with as few axes as can be; at least one."""
    joined: list[tuple[Dim, Dim, Dim, Dim]] = []
    offset = view.offset
    for size, stride, (begin, end) in zip(view.shape, view.strides, view.box, strict=True):
        axis = (size, stride, begin, end)
        if joined:
            outer_size, outer_stride, outer_begin, outer_end = joined[-1]
            total = multiply_dims(outer_size, size)
            first = multiply_dims(outer_begin, size)
            if subtract_dims(outer_end, outer_begin) == 1:
                # One row is seen: its own stride is free, so let it continue the inner one.
                jump = subtract_dims(outer_stride, multiply_dims(size, stride))
                offset = add_dims(offset, multiply_dims(outer_begin, jump))
                joined[-1] = (total, stride, add_dims(first, begin), add_dims(first, end))
                continue
            if (begin, end) == (0, size) and outer_stride == multiply_dims(size, stride):
                joined[-1] = (total, stride, first, multiply_dims(outer_end, size))
                continue
        joined.append(axis)
    shape = tuple(axis[0] for axis in joined)
    strides = tuple(axis[1] for axis in joined)
    return View(shape, strides, offset, tuple((axis[2], axis[3]) for axis in joined))


def _compose(inner: View, outer: View) -> View | None:
    """`merge_views` for numbers.

    A point x of `outer` has number n(x) in `inner`, whose digits in the mixed radix of the inner
    shape are the inner coordinates. If they are linear in x on the box of `outer`, a step along an
    axis changes them as it does at the corner of the box; and linear coordinates that stay inside
    the inner shape are the digits, since digits are unique. So reading the digits at the corner
    and one step away from it, then checking the range, finds every merge there is.
    """
    inner = _join_axes(inner)
    sizes, outer_strides, box = _numbers(inner.shape), _numbers(outer.strides), _number_box(outer)
    (corner,) = _numbers((outer.offset,))
    corner += sum(step * begin for step, (begin, _) in zip(outer_strides, box, strict=True))
    start = _digits(corner, sizes)
    moves: list[list[int]] = []  # for each outer axis, how a step changes each inner coordinate
    for step, (begin, end) in zip(outer_strides, box, strict=True):
        moved = _digits(corner + step, sizes) if end - begin > 1 else start
        moves.append([after - before for before, after in zip(start, moved, strict=True)])
    (offset,) = _numbers((inner.offset,))
    strides = [0] * len(moves)
    seen = box
    inner_axes = zip(sizes, _numbers(inner.strides), _number_box(inner), strict=True)
    for axis, (size, pitch, wanted) in enumerate(inner_axes):
        factors = [move[axis] for move in moves]
        origin = start[axis] - sum(f * begin for f, (begin, _) in zip(factors, box, strict=True))
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


def _numbers(dims: Shape) -> tuple[int, ...]:
    return tuple(dim for dim in dims if isinstance(dim, int))


def _number_box(view: View) -> NumberBox:
    return tuple(
        (begin, end) for begin, end in view.box if isinstance(begin, int) and isinstance(end, int)
    )


def _digits(number: int, sizes: tuple[int, ...]) -> list[int]:
    digits = []
    for size in reversed(sizes):
        digits.append(number % size)
        number //= size
    return digits[::-1]


def _range_of(origin: int, factors: Sequence[int], box: NumberBox) -> tuple[int, int]:
    """The least and the greatest origin + sum(factors * x) for x in the box."""
    low = high = origin
    for factor, (begin, end) in zip(factors, box, strict=True):
        ends = factor * begin, factor * (end - 1)
        low, high = low + min(ends), high + max(ends)
    return low, high


def _narrow(
    box: NumberBox, origin: int, factors: Sequence[int], wanted: tuple[int, int]
) -> NumberBox | None:
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
        return ShapeTracker((View.create(shape),))

    @property
    def shape(self) -> Shape:
        """The sizes of the axes seen."""
        return self.views[-1].shape

    @property
    def size(self) -> Dim:
        """The number of elements seen."""
        return self.views[-1].size

    @property
    def is_contiguous(self) -> bool:
        """Whether element number n seen is element n of the memory."""
        return len(self.views) == 1 and self.views[0].is_contiguous

    def _replace_last(self, *views: View) -> ShapeTracker:
        stack = [*self.views[:-1], *views]
        while len(stack) > 1:
            merged = merge_views(stack[-2], stack[-1])
            if merged is None:
                break
            stack[-2:] = [merged]
        return ShapeTracker(tuple(stack))

    def reshape(self, shape: Shape) -> ShapeTracker:
        """The same elements in order under other sizes."""
        reshaped = self.views[-1].reshape(shape)
        if reshaped is None:
            return self._replace_last(self.views[-1], View.create(shape))
        return self._replace_last(reshaped)

    def permute(self, order: tuple[int, ...]) -> ShapeTracker:
        """Axis i of the result is axis order[i]."""
        return self._replace_last(self.views[-1].permute(order))

    def expand(self, shape: Shape) -> ShapeTracker:
        """Repeat axes of size 1."""
        return self._replace_last(self.views[-1].expand(shape))

    def pad(self, padding: Box) -> ShapeTracker:
        """Add (before, after) zeros along each axis."""
        return self._replace_last(self.views[-1].pad(padding))

    def shrink(self, bounds: Box) -> ShapeTracker:
        """Keep the elements from begin to end along each axis."""
        return self._replace_last(self.views[-1].shrink(bounds))

    def flip(self, axes: tuple[int, ...]) -> ShapeTracker:
        """Run backwards along `axes`."""
        return self._replace_last(self.views[-1].flip(axes))

    def move(self, node: UOp) -> ShapeTracker:
        """What the movement op of `node` sees of this."""
        moved: ShapeTracker = getattr(self, node.op.name.lower())(node.arg)
        return moved

    def index(self, indices: Sequence[UOp]) -> tuple[UOp, UOp]:
        """The element of the memory behind an index, and the gate that is false in padding."""
        flat, gate = self.views[-1].index(indices)
        gates = [gate]
        for view in reversed(self.views[:-1]):
            flat, gate = view.index(unflatten_index(flat, view.shape))
            gates.append(gate)
        return flat, and_gates(*gates)

    def strided_view(self) -> View | None:
        """The view by numbers alone (shape, strides, offset) that shows this without a copy.

        None when there is padding, a variable, or more than one view.
        """
        view = self.views[0]
        if len(self.views) > 1 or view.mask is not None:
            return None
        return view if all_numbers(view.shape, view.strides, (view.offset,)) else None


def tracker_of(node: UOp) -> tuple[UOp, ShapeTracker]:
    """The first node below that is no movement op, and how `node` sees it."""
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
        found = found[0], found[1].move(moved)
        moved.cache["tracker"] = found
    return found
