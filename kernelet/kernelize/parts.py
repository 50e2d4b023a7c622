"""Reductions with few loops and enough work for all threads.

In:  a REDUCE.
Out: the same value: axes that lie one after the other in memory are one, and a big reduction to
     few results is done in two steps.
"""

from __future__ import annotations

import math

from kernelet.graph.division import terms_of
from kernelet.graph.infer import Shape
from kernelet.graph.movement import all_numbers, flatten_index, places_below, row_major_strides
from kernelet.graph.ops import ELEMENTWISE, MOVEMENT, Op
from kernelet.graph.placement import loop_over, ranges_in
from kernelet.graph.reuse import is_contraction, numel
from kernelet.graph.uop import ReduceArg, UOp
from kernelet.graph.walk import reachable

SPLIT_SIZE = 1 << 18  # reductions of fewer elements stay whole
SPLIT_PARTS = 64
LEAST_PARTS = 8
FEW_RESULTS = 16
FEW_COLUMNS = 512  # results side by side in memory take little of the work of their rows
SERIAL_ELEMENTS = 1 << 12  # work up to this size needs no threads
_MOST_PLACES = 64


def in_parts(node: UOp) -> UOp:
    """A reduction over as few axes as possible, in two steps where it has few results."""
    if not all_numbers(node.src[0].shape) or math.prod(node.src[0].shape) < SERIAL_ELEMENTS:
        return node
    merged = node if is_contraction(node) else _with_merged_axes(node)
    return reshaped(_split(merged), node.shape)


def reshaped(node: UOp, shape: Shape) -> UOp:
    """The value in another shape."""
    return node if node.shape == shape else UOp(Op.RESHAPE, node.dtype, (node,), shape)


# ---- axes one after the other ----


def _with_merged_axes(node: UOp) -> UOp:
    """sum over y, x of v[n, c, y, x]  ->  sum over yx of reshape(v)[n, c, yx]

    if every element lies where one loop over both axes would find it.
    """
    source = node.src[0]
    shape, axes = source.shape, node.arg.axes
    inner = [axis for axis in axes if axis - 1 in axes and _is_one_loop(source, axis)]
    if not inner:
        return node
    merged: list[int] = []
    reduced: list[int] = []
    for axis, size in enumerate(shape):
        assert isinstance(size, int)
        if axis in inner:
            merged[-1] *= size
            continue
        if axis in axes:
            reduced.append(len(merged))
        merged.append(size)
    value = UOp(Op.RESHAPE, source.dtype, (source,), tuple(merged))
    return UOp(Op.REDUCE, node.dtype, (value,), ReduceArg(node.arg.op, tuple(reduced)))


def _is_one_loop(source: UOp, axis: int) -> bool:
    """Whether all memory below runs through an axis and the one before as through one axis."""
    size = source.shape[axis]
    index = tuple(loop_over(dim, number) for number, dim in enumerate(source.shape))
    pair = {index[axis - 1], index[axis]}
    places = places_below(source, index, _MOST_PLACES)
    for node, at, gate in places or ():
        # How far into a dense value of that shape each loop moves.
        coefficients = terms_of(flatten_index(at, row_major_strides(node.shape))).coefficients
        far, near = (coefficients.get(variable, 0) for variable in index[axis - 1 : axis + 1])
        atoms = [gate, *(atom for atom in coefficients if atom not in pair)]
        mixed = any(not pair.isdisjoint(ranges_in(atom)) for atom in atoms)
        if node.op is Op.GATHER or mixed or far != near * size:
            return False
    return places is not None


# ---- reductions to few results ----


def _split(node: UOp) -> UOp:
    """Add up parts side by side, then the parts.

    sum(x)  ->  sum(CONTIGUOUS(sum of 64 pieces of x)), a piece for each thread to work on
    """
    source = node.src[0]
    shape = tuple(dim for dim in source.shape if isinstance(dim, int))
    total = math.prod(shape)
    results = total // math.prod(shape[axis] for axis in node.arg.axes)
    wide = [axis for axis, size in enumerate(shape) if size > 1]
    by_rows = bool(wide) and wide[-1] not in node.arg.axes
    if results > (FEW_COLUMNS if by_rows else FEW_RESULTS) or total < SPLIT_SIZE:
        return node
    if _has_reduction(source):
        return node
    for axis in node.arg.axes:
        parts = next((p for p in range(SPLIT_PARTS, 1, -1) if shape[axis] % p == 0), 1)
        if parts >= LEAST_PARTS:
            return _pieces(node, axis, parts)
    for axis in node.arg.axes:
        rest = shape[axis] % SPLIT_PARTS
        if rest * (total // shape[axis]) <= SERIAL_ELEMENTS:
            cut = shape[axis] - rest
            whole = _reduced(node, _between(source, axis, 0, cut))
            return _pieces(whole, axis, SPLIT_PARTS).alu(
                node.arg.op, _reduced(node, _between(source, axis, cut, shape[axis]))
            )
    return node


def _reduced(node: UOp, source: UOp) -> UOp:
    return UOp(Op.REDUCE, node.dtype, (source,), node.arg)


def _between(source: UOp, axis: int, begin: int, end: int) -> UOp:
    bounds = tuple((begin, end) if a == axis else (0, size) for a, size in enumerate(source.shape))
    return UOp(Op.SHRINK, source.dtype, (source,), bounds)


def _has_reduction(source: UOp) -> bool:
    """Whether a value has a reduction inside that is worth no repetition for each part."""
    passed = ELEMENTWISE | MOVEMENT | {Op.REDUCE}
    inside = reachable([source], lambda node: node.src if node.op in passed else ())
    reductions = (node for node in inside if node.op is Op.REDUCE)
    return any(numel(node.src[0].shape) > SERIAL_ELEMENTS for node in reductions)


def _pieces(node: UOp, axis: int, parts: int) -> UOp:
    source, arg = node.src[0], node.arg
    shape = source.shape
    split: Shape = (*shape[:axis], parts, shape[axis] // parts, *shape[axis + 1 :])
    pieces = UOp(Op.RESHAPE, node.dtype, (source,), split)
    axes = tuple(a if a < axis else a + 1 for a in arg.axes)
    inner = UOp(Op.REDUCE, node.dtype, (pieces,), ReduceArg(arg.op, axes))
    kept = UOp(Op.CONTIGUOUS, node.dtype, (inner,))
    outer = UOp(Op.REDUCE, node.dtype, (kept,), ReduceArg(arg.op, (axis,)))
    return reshaped(outer, node.shape)
