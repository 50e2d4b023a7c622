"""Read one element instead of searching for it.

In:  a reduction, as indexing by tensors, gather and one-hot products build it.
Out: the same value with GATHER in place of the sum, where the sum has at most one term.

sum_k where(k != index, 0, values[k])  ->  values[index], 0 where there is no such element;
the sum of the negatives is the negative of that
"""

from __future__ import annotations

from kernelet.graph.fold import constant_value
from kernelet.graph.masks import index_value
from kernelet.graph.movement import Index, movement_index
from kernelet.graph.ops import Op
from kernelet.graph.placement import loops_over, ranges_in
from kernelet.graph.uop import ReduceArg, UOp
from kernelet.graph.walk import split_view


def search_is_gather(node: UOp) -> UOp | None:
    """The reduction without the axis that is searched; None when none is."""
    choice = node.src[0]
    if node.arg.op is Op.ADD and choice.op is Op.NEG:
        positive = search_is_gather(node.replace(src=choice.src))
        return None if positive is None else -positive
    if node.arg.op is not Op.ADD or choice.op is not Op.WHERE:
        return None
    condition, skipped, values = choice.src
    if constant_value(skipped) != 0:
        return None
    steps, compare = split_view(condition)
    if compare.op is not Op.CMPNE or any(step.op is Op.PAD for step in steps):
        return None
    index = loops_over(choice.shape)
    for step in steps:
        index, _ = movement_index(step, index)
    for position, wanted in (compare.src, compare.src[::-1]):
        counter = index_value(position, index)
        if counter is None or counter.op is not Op.RANGE or not wanted.dtype.is_integer:
            continue
        axis = counter.arg.number
        if axis not in node.arg.axes or _moves_along(wanted, index, axis):
            continue
        for step in reversed(steps):
            wanted = step.replace(dtype=wanted.dtype, src=(wanted,))
        bounds = tuple((0, 1 if a == axis else dim) for a, dim in enumerate(choice.shape))
        picks = UOp(Op.SHRINK, wanted.dtype, (wanted,), bounds)
        found = UOp(Op.GATHER, node.dtype, (values, picks), axis)
        rest = tuple(other for other in node.arg.axes if other != axis)
        return UOp(Op.REDUCE, node.dtype, (found,), ReduceArg(Op.ADD, rest)) if rest else found
    return None


def _moves_along(wanted: UOp, index: Index, axis: int) -> bool:
    """Whether the wanted position may differ from element to element of the searched axis."""
    steps, _ = split_view(wanted)
    for step in steps:
        index, _ = movement_index(step, index)
    return any(part.arg.number == axis for position in index for part in ranges_in(position))
