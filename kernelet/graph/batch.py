"""Compute a graph for every element of a batch at once, by giving its nodes one more axis.

In:  roots, and for some leaves below them the values for a whole batch, along a first axis.
Out: the roots with that first axis. The graph has as many nodes that compute as before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from kernelet.graph.infer import Dim
from kernelet.graph.ops import ELEMENTWISE, MOVEMENT, Op
from kernelet.graph.uop import UOp
from kernelet.graph.walk import VIEWS, base_of

_WRITTEN = VIEWS | {Op.AFTER}


def with_batch_axis(roots: Sequence[UOp], given: Mapping[UOp, UOp], size: Dim) -> list[UOp]:
    """The roots for a batch of `size`, where `given` has the leaves' values for it.

    sum(x * w)  ->  sum(X * expand(w)), for x: (3,) and X: (size, 3), along axis 1
    """
    order = list(UOp.sink(*roots).toposort())[:-1]
    made = dict(given)
    for storage in _written_for_each(order, given):
        # Each element of the batch writes to a copy of its own.
        made[storage] = _own(made[storage] if storage in made else _repeated(storage, size))
    for node in order:
        if node in made or made.keys().isdisjoint(node.src):
            continue
        sources = [made[each] if each in made else _repeated(each, size) for each in node.src]
        arg = _moved_arg(node, size)
        made[node] = UOp(node.op, node.dtype, tuple(sources), arg)
    return [made[root] if root in made else _repeated(root, size) for root in roots]


def _written_for_each(order: Sequence[UOp], given: Mapping[UOp, UOp]) -> list[UOp]:
    """The memory that is written with values which differ from element to element."""
    writes = [node for node in order if node.op is Op.AFTER]
    found: dict[UOp, None] = {}
    while True:
        differs = {*given, *found}
        for node in order:
            if not differs.isdisjoint(node.src):
                differs.add(node)
        bases = [base_of(node, _WRITTEN) for node in writes if node in differs]
        if found.keys() >= set(bases):
            return list(found)
        found |= dict.fromkeys(bases)


def _own(node: UOp) -> UOp:
    return UOp(Op.CONTIGUOUS, node.dtype, (node,))


def _repeated(node: UOp, size: Dim) -> UOp:
    """The same value for each element of the batch."""
    shape = node.shape
    row = UOp(Op.RESHAPE, node.dtype, (node,), (1, *shape))
    return UOp(Op.EXPAND, node.dtype, (row,), (size, *shape))


def _moved_arg(node: UOp, size: Dim) -> object:
    """The payload of a node once its sources have a first axis more."""
    if node.op in _ARGUMENTS:
        return _ARGUMENTS[node.op](node.arg, size)
    assert node.op in ELEMENTWISE | _SAME, f"{node.op.name} has no form for a batch"
    return node.arg


_SAME = frozenset({Op.CONTIGUOUS, Op.DETACH, Op.FUNCTION, Op.ASSIGN, Op.AFTER})
_ARGUMENTS: dict[Op, Callable[..., object]] = {
    Op.RESHAPE: lambda shape, size: (size, *shape),
    Op.EXPAND: lambda shape, size: (size, *shape),
    Op.PERMUTE: lambda order, size: (0, *(axis + 1 for axis in order)),
    Op.PAD: lambda pads, size: ((0, 0), *pads),
    Op.SHRINK: lambda bounds, size: ((0, size), *bounds),
    Op.FLIP: lambda axes, size: tuple(axis + 1 for axis in axes),
    Op.REDUCE: lambda arg, size: replace(arg, axes=tuple(axis + 1 for axis in arg.axes)),
    Op.MULTI: lambda axis, size: None if axis is None else axis + 1,
    Op.COPY: lambda arg, size: (
        arg if isinstance(arg, str | tuple) else replace(arg, axis=arg.axis + 1)
    ),
}
assert _ARGUMENTS.keys() >= MOVEMENT
