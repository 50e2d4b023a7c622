"""Shape and device of a node, from its op, its payload and its sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Union

from kernelet.graph.ops import ELEMENTWISE, Op

if TYPE_CHECKING:
    from kernelet.graph.uop import UOp

Dim = Union[int, "UOp"]
Shape = tuple[Dim, ...]

_SAME_SHAPE = frozenset({Op.CONTIGUOUS, Op.DETACH, Op.COPY, Op.ASSIGN, Op.AFTER})


def shape_of(node: UOp) -> Shape:
    """The sizes of the axes of a tensor-level node; () for all others."""
    op = node.op
    if op in ELEMENTWISE:
        # A kernel-level scalar has shape (): the longest shape among the sources is the shape.
        return max((source.shape for source in node.src), key=len)
    if op in (Op.RESHAPE, Op.EXPAND, Op.ARANGE):
        return node.arg  # type: ignore[no-any-return]
    if op in _SAME_SHAPE:
        return node.src[0].shape
    if op is Op.PERMUTE:
        shape = node.src[0].shape
        return tuple(shape[axis] for axis in node.arg)
    if op is Op.FLIP:
        return node.src[0].shape
    if op is Op.PAD:
        pads = zip(node.src[0].shape, node.arg, strict=True)
        return tuple(grow_dim(dim, before + after) for dim, (before, after) in pads)
    if op is Op.SHRINK:
        return tuple(grow_dim(end, 0 if begin == 0 else -begin) for begin, end in node.arg)
    if op is Op.REDUCE:
        axes = node.arg.axes
        return tuple(1 if axis in axes else dim for axis, dim in enumerate(node.src[0].shape))
    if op in (Op.BUFFER, Op.PARAM):
        return (node.arg.size,)
    return ()


def grow_dim(dim: Dim, amount: Dim) -> Dim:
    """`dim + amount`, a number where that is known."""
    if isinstance(dim, int) and isinstance(amount, int):
        return dim + amount
    if isinstance(amount, int) and amount == 0:
        return dim
    total = dim + amount
    low, high = total.bounds  # type: ignore[union-attr]
    return int(low) if low == high else total


def max_dim(dim: Dim) -> int:
    """The greatest value that a size can have."""
    return dim if isinstance(dim, int) else int(dim.bounds.max)


def device_of(node: UOp) -> str | None:
    """The device that holds the value; None where only constants are below."""
    op = node.op
    if op in (Op.BUFFER, Op.PARAM):
        return node.arg.device  # type: ignore[no-any-return]
    if op is Op.COPY:
        return node.arg  # type: ignore[no-any-return]
    for source in node.src:
        found = source.device
        if found is not None:
            return found
    return None
