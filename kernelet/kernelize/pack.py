"""Lay out an operand of a contraction so that lanes read it in order.

In:  a graph whose stored values are marked.
Out: the same graph; an operand that no loop reads contiguously is stored once more, transposed.

In the gradient of a convolution's weights, for one, the output channels of dy are far apart and
the pixels of a row are few: with the channels last, one load fills a vector. The copy costs each
element once, the contraction reads it many times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelet.base.dtype import dtypes
from kernelet.graph.division import ZERO, index_const, terms_of
from kernelet.graph.movement import movement_index
from kernelet.graph.ops import MOVEMENT, Op
from kernelet.graph.uop import RangeArg, UOp
from kernelet.graph.walk import rebuild
from kernelet.kernelize.boundaries import numel
from kernelet.kernelize.normalize import base_of, is_memory

LEAST_LANES = 16  # a shorter axis does not fill a vector
SHORT_LANES = 8  # neighbours in memory are worth more than full vectors from this many on
LONG_DOT = 64  # along an axis this long, dot products are as good
LEAST_REUSE = 64  # how often each element of the copy is read, at least
LEAST_WORK = 1 << 20


def pack_operands(sink: UOp) -> UOp:
    """sum_k a[k, m] * b[n, k]  ->  sum_k a[k, m] * CONTIGUOUS(b transposed)[k, n], if it pays."""
    return rebuild(sink, lambda _, made: _packed(made) if made.op is Op.REDUCE else made)


@dataclass(frozen=True, slots=True)
class _Operand:
    """A view of memory, and how far it moves along each axis of the product."""

    view: UOp
    base: UOp
    strides: tuple[int, ...]


def _packed(node: UOp) -> UOp:
    product = node.src[0]
    if node.arg.op is not Op.ADD or product.op is not Op.MUL:
        return node
    shape = product.shape
    if not all(isinstance(dim, int) for dim in shape) or numel(shape) < LEAST_WORK:
        return node
    operands = [_operand(source) for source in product.src]
    if None in operands:
        return node
    known = [operand for operand in operands if operand is not None]
    axis = _far_axis(node, known)
    if axis is None:
        return node
    sources = [
        _transposed(operand, operand.strides[axis]) if operand.strides[axis] else operand.view
        for operand in known
    ]
    return node.replace(src=(product.replace(src=tuple(sources)),))


def _operand(view: UOp) -> _Operand | None:
    """How an operand moves, if it is a view of memory along straight lines."""
    if not is_memory(base_of(view)):
        return None
    base = view
    # Memory has one axis; the reshape right above it says what it holds.
    while base.op in MOVEMENT and not (base.op is Op.RESHAPE and base.src[0].op is Op.PARAM):
        base = base.src[0]
    index: tuple[UOp, ...] = tuple(
        ZERO
        if dim == 1
        else UOp(Op.RANGE, dtypes.index, (index_const(_size(dim)),), RangeArg(axis, "loop"))
        for axis, dim in enumerate(view.shape)
    )
    variables = index
    node = view
    while node is not base:
        index, _ = movement_index(node, index)
        node = node.src[0]
    strides = dict.fromkeys(variables, 0)
    scale = 1
    for position, dim in zip(reversed(index), reversed(base.shape), strict=True):
        for atom, factor in terms_of(position).coefficients.items():
            if atom not in strides:
                return None
            strides[atom] += factor * scale
        scale *= _size(dim)
    return _Operand(view, base, tuple(0 if v is ZERO else strides[v] for v in variables))


def _size(dim: object) -> int:
    assert isinstance(dim, int)
    return dim


def _far_axis(node: UOp, operands: Sequence[_Operand]) -> int | None:
    """The output axis to be made contiguous; None when some loop is contiguous already."""
    shape = node.src[0].shape
    best: int | None = None
    for axis, dim in enumerate(shape):
        strides = [operand.strides[axis] for operand in operands]
        size = _size(dim)
        if axis in node.arg.axes:
            if strides == [1, 1] and size >= LONG_DOT:
                return None
        elif size >= SHORT_LANES and any(strides):
            if set(strides) <= {0, 1}:
                return None
            if size < LEAST_LANES:
                continue
            moved = [o for o in operands if o.strides[axis]]
            reused = len(moved) == 1 and numel(shape) >= LEAST_REUSE * numel(moved[0].base.shape)
            if reused and _base_axis(moved[0], moved[0].strides[axis], size) is not None:
                best = axis if best is None or size > _size(shape[best]) else best
    return best


def _base_axis(operand: _Operand, stride: int, size: int) -> int | None:
    """The axis of the memory that has this stride and size."""
    scale = 1
    shape = operand.base.shape
    for axis in reversed(range(len(shape))):
        if scale == stride and shape[axis] == size:
            return axis
        scale *= _size(shape[axis])
    return None


def _transposed(operand: _Operand, stride: int) -> UOp:
    """The same view, of a copy whose axis with `stride` is the last one."""
    base = operand.base
    count = len(base.shape)
    size = next(d for d, s in zip(operand.view.shape, operand.strides, strict=True) if s == stride)
    axis = _base_axis(operand, stride, _size(size))
    assert axis is not None
    order = (*(other for other in range(count) if other != axis), axis)
    moved = UOp(Op.PERMUTE, base.dtype, (base,), order)
    stored = UOp(Op.CONTIGUOUS, base.dtype, (moved,))
    back = tuple(order.index(axis) for axis in range(count))
    result = UOp(Op.PERMUTE, base.dtype, (stored,), back)
    chain = []
    node = operand.view
    while node is not base:
        chain.append(node)
        node = node.src[0]
    for step in reversed(chain):
        result = step.replace(src=(result,))
    return result
