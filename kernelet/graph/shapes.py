"""The shape of a node, from its op, its payload and its sources.

In:  a node; importing `kernelet.graph` lets nodes ask for it.
Out: a size for each axis, in normal form, so that equal ones compare equal.
"""

from __future__ import annotations

from kernelet.graph.infer import Shape
from kernelet.graph.movement import add_dims, subtract_dims
from kernelet.graph.ops import ELEMENTWISE, Op
from kernelet.graph.uop import UOp, facts

_SAME_SHAPE = frozenset(
    {Op.FLIP, Op.CONTIGUOUS, Op.DETACH, Op.FUNCTION, Op.COPY, Op.ASSIGN, Op.AFTER}
)


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
    if op is Op.PAD:
        pads = zip(node.src[0].shape, node.arg, strict=True)
        return tuple(add_dims(dim, add_dims(before, after)) for dim, (before, after) in pads)
    if op is Op.SHRINK:
        return tuple(subtract_dims(end, begin) for begin, end in node.arg)
    if op is Op.GATHER:
        return node.src[1].shape
    if op is Op.MULTI:
        rows = enumerate(zip(*[source.shape for source in node.src], strict=True))
        return tuple(sum(dims) if axis == node.arg else dims[0] for axis, dims in rows)
    if op is Op.REDUCE:
        axes = node.arg.axes
        return tuple(1 if axis in axes else dim for axis, dim in enumerate(node.src[0].shape))
    if op in (Op.BUFFER, Op.PARAM):
        return (node.arg.size,)
    return ()


facts["shape"] = shape_of
