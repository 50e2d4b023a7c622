"""Movement ops as index arithmetic: from the index of a result to the index of its source.

In:  one RESHAPE, PERMUTE, EXPAND, PAD, SHRINK or FLIP and an index for each axis of its result.
Out: an index for each axis of its source, and the gate that is false in padding.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from itertools import accumulate, islice
from typing import NamedTuple

from kernelet.base.errors import ShapeError
from kernelet.graph import division
from kernelet.graph.infer import Dim, Shape, as_dim
from kernelet.graph.ops import ELEMENTWISE, MOVEMENT, Op
from kernelet.graph.uop import UOp
from kernelet.graph.walk import reachable, split_view

Index = tuple[UOp, ...]
_ONE: Dim = 1


# ---- sizes: numbers where they are known, index expressions where not ----


def normal_shape(shape: Shape) -> Shape:
    """The sizes in normal form, so that equal ones compare equal."""
    if all(type(dim) is int for dim in shape):
        return shape
    return tuple(as_dim(division.index_of(dim)) for dim in shape)


def _for_dims(
    on_numbers: Callable[[int, int], int], on_indices: Callable[[UOp, UOp], UOp]
) -> Callable[[Dim, Dim], Dim]:
    """Arithmetic of sizes, from that of numbers and that of indices."""

    def compute(left: Dim, right: Dim) -> Dim:
        if isinstance(left, int) and isinstance(right, int):
            return on_numbers(left, right)
        return as_dim(on_indices(division.index_of(left), division.index_of(right)))

    return compute


add_dims = _for_dims(operator.add, division.add_index)
multiply_dims = _for_dims(operator.mul, division.scale_index)
subtract_dims = _for_dims(operator.sub, division.subtract_index)


def product_of(shape: Shape) -> Dim:
    """The number of elements of a shape."""
    return reduce(multiply_dims, shape, _ONE)


@lru_cache(maxsize=1 << 12)
def row_major_strides(shape: Shape) -> Shape:
    """How far apart neighbours along each axis are when the last axis is dense."""
    steps: list[Dim] = [_ONE, *accumulate(reversed(shape[1:]), multiply_dims)]
    return tuple(reversed(steps[: len(shape)]))


def all_numbers(*tuples: Sequence[Dim]) -> bool:
    """Whether no size is variable."""
    return all(isinstance(dim, int) for dims in tuples for dim in dims)


def rows_of(node: UOp) -> tuple[UOp, int] | None:
    """The node below, of which a view shows neighbouring elements in order, and where they begin.

    None for other views, and where the beginning is known at each launch only.
    """
    chain, node = split_view(node)
    start = 0
    for step in reversed(chain):
        old, shape = step.src[0].shape, step.shape
        if not all_numbers(old, shape):
            return None
        if step.op is Op.SHRINK:
            cut = [axis for axis, size in enumerate(old) if shape[axis] != size]
            if not all_numbers(*[step.arg[axis] for axis in cut]):
                return None
            if any(size != 1 for axis in cut[-1:] for size in shape[:axis]):
                return None
            start += sum(step.arg[axis][0] * math.prod(old[axis + 1 :]) for axis in cut)
        elif step.op is Op.PERMUTE:
            long = [axis for axis in step.arg if old[axis] != 1]
            if long != sorted(long):
                return None
        elif step.op is not Op.RESHAPE:
            return None
    return node, start


# ---- flat indices ----


def flatten_index(indices: Sequence[UOp], factors: Shape, offset: Dim = 0) -> UOp:
    """offset + the sum of indices[i] * factors[i]."""
    parts = [] if isinstance(offset, int) else [(division.index_of(offset), 1)]
    for index, factor in zip(indices, factors, strict=True):
        parts.append(
            (index, factor) if isinstance(factor, int) else (division.scale_index(index, factor), 1)
        )
    return division.combination(parts, offset if isinstance(offset, int) else 0)


def unflatten_index(flat: UOp, shape: Shape) -> tuple[UOp, ...]:
    """The coordinates in `shape` of its element number `flat`, which is in range."""
    if len(shape) == 1:
        return (flat,)
    coordinates = []
    for axis, (dim, stride) in enumerate(zip(shape, row_major_strides(shape), strict=True)):
        digit = division.divide_index(flat, stride)
        coordinates.append(digit if axis == 0 else division.modulo_index(digit, dim))
    return tuple(coordinates)


class AxisGroup(NamedTuple):
    """Axes that a RESHAPE turns into other axes with the same number of elements."""

    old_axes: tuple[int, ...]
    new_axes: tuple[int, ...]
    old_shape: Shape
    new_shape: Shape


@lru_cache(maxsize=1 << 13)
def reshape_groups(old: Shape, new: Shape) -> tuple[AxisGroup, ...]:
    """Split two shapes of one size into the smallest groups of axes with equal products.

    Axes of size 1 are in no group.

    >>> [(group.old_axes, group.new_axes) for group in reshape_groups((4, 6, 5), (4, 1, 2, 3, 5))]
    [((0,), (0,)), ((1,), (2, 3)), ((2,), (4,))]
    """
    old, new = normal_shape(old), normal_shape(new)
    if 0 in old or 0 in new:
        return ()
    old_ends, new_ends = _prefix_products(old), _prefix_products(new)
    if _last(old_ends) != _last(new_ends) and all_numbers(old, new):
        raise ShapeError(
            f"reshape: cannot turn {old} into {new}: {_last(old_ends)} elements are not "
            f"{_last(new_ends)}. Give sizes with the same product."
        )
    positions = {end: count for count, (_, end) in enumerate(new_ends, 1)}
    groups = []
    old_start = new_start = 0
    for count, (_, end) in enumerate(old_ends, 1):
        new_count = positions.get(end, 0)
        if count == len(old_ends):
            new_count = len(new_ends)
        if new_count > new_start:
            old_axes = tuple(axis for axis, _ in old_ends[old_start:count])
            new_axes = tuple(axis for axis, _ in new_ends[new_start:new_count])
            shapes = tuple(old[axis] for axis in old_axes), tuple(new[axis] for axis in new_axes)
            groups.append(AxisGroup(old_axes, new_axes, *shapes))
            old_start, new_start = count, new_count
    return tuple(groups)


def _prefix_products(shape: Shape) -> list[tuple[int, Dim]]:
    axes = [axis for axis, dim in enumerate(shape) if dim != 1]
    return list(zip(axes, accumulate([shape[axis] for axis in axes], multiply_dims), strict=True))


def _last(products: list[tuple[int, Dim]]) -> Dim:
    return products[-1][1] if products else 1


# ---- what is below ----


class Place(NamedTuple):
    """A node at an index, read only where the gate holds."""

    node: UOp
    index: Index  # type: ignore[assignment]  # takes the place of tuple.index
    gate: UOp


def places_below(node: UOp, index: Index, most: int) -> list[Place] | None:
    """What the value at an index is computed from, through arithmetic and movement.

    None where more than `most` places are on the way.
    """
    passed = ELEMENTWISE | MOVEMENT

    def sources(place: Place) -> list[Place]:
        node, index, gate = place
        if node.op in MOVEMENT:
            index, inside = movement_index(node, index)
            gate = division.and_gates(gate, inside)
        return [Place(source, index, gate) for source in node.src if node.op in passed]

    places = list(islice(reachable([Place(node, index, division.TRUE)], sources), most + 1))
    if len(places) > most:
        return None
    return [place for place in places if place.node.op not in passed]


# ---- one movement op ----


def movement_index(node: UOp, index: Index) -> tuple[Index, UOp]:
    """The index into the source of a movement node that `index` into its result reads.

    The gate is false where the result is padding; there the index may be out of range.
    """
    return _MOVES[node.op](node, index)


def _reshape_index(node: UOp, index: Index) -> tuple[Index, UOp]:
    old = node.src[0].shape
    result = [division.ZERO] * len(old)
    for old_axes, new_axes, old_shape, new_shape in reshape_groups(old, node.arg):
        parts: Sequence[UOp] = [index[axis] for axis in new_axes]
        if old_shape != new_shape:
            flat = flatten_index(parts, row_major_strides(new_shape))
            parts = unflatten_index(flat, old_shape)
        for axis, part in zip(old_axes, parts, strict=True):
            result[axis] = part
    return tuple(result), division.TRUE


def _permute_index(node: UOp, index: Index) -> tuple[Index, UOp]:
    result = list(index)
    for axis, source_axis in enumerate(node.arg):
        result[source_axis] = index[axis]
    return tuple(result), division.TRUE


def _expand_index(node: UOp, index: Index) -> tuple[Index, UOp]:
    sizes = zip(node.src[0].shape, index, strict=True)
    return tuple(division.ZERO if old == 1 else part for old, part in sizes), division.TRUE


def _pad_index(node: UOp, index: Index) -> tuple[Index, UOp]:
    result, gates = [], []
    for dim, part, (before, after) in zip(node.src[0].shape, index, node.arg, strict=True):
        if before == after == 0:
            result.append(part)
            continue
        shifted = division.subtract_index(part, division.index_of(before))
        gates.append(division.bounds_gate(shifted, dim))
        result.append(shifted)
    return tuple(result), division.and_gates(*gates)


def _shrink_index(node: UOp, index: Index) -> tuple[Index, UOp]:
    begins = zip(index, node.arg, strict=True)
    moved = [division.add_index(part, division.index_of(begin)) for part, (begin, _) in begins]
    return tuple(moved), division.TRUE


def _flip_index(node: UOp, index: Index) -> tuple[Index, UOp]:
    result = list(index)
    for axis in node.arg:
        last = division.index_of(add_dims(node.src[0].shape[axis], -1))
        result[axis] = division.subtract_index(last, index[axis])
    return tuple(result), division.TRUE


_MOVES: dict[Op, Callable[[UOp, Index], tuple[Index, UOp]]] = {
    Op.RESHAPE: _reshape_index,
    Op.PERMUTE: _permute_index,
    Op.EXPAND: _expand_index,
    Op.PAD: _pad_index,
    Op.SHRINK: _shrink_index,
    Op.FLIP: _flip_index,
}
