"""Trees of loops: their statements, and loops that run as one.

In:  a kernel, or a BLOCK of loops over scalar expressions.
Out: the same with fewer loops.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from kernelet.base.dtype import dtypes
from kernelet.graph.division import ZERO, replace_ranges, terms_of
from kernelet.graph.infer import Dim
from kernelet.graph.movement import product_of
from kernelet.graph.ops import Op
from kernelet.graph.placement import TILE_KINDS, Chain, loop_over, ranges_in
from kernelet.graph.uop import ReduceArg, UOp
from kernelet.graph.walk import rebuild


def statements_of(statement: UOp, loops: Chain = ()) -> Iterator[tuple[UOp, Chain]]:
    """All stores, with the loops around them from the outermost."""
    if statement.op not in (Op.LOOP, Op.BLOCK):
        yield statement, loops
        return
    if statement.op is Op.LOOP:
        loops = (*loops, statement.src[0])
    for part in body_of(statement):
        yield from statements_of(part, loops)


def body_of(statement: UOp) -> tuple[UOp, ...]:
    """The statements in a LOOP or a BLOCK."""
    return statement.src[1:] if statement.op is Op.LOOP else statement.src


def with_body(statement: UOp, body: Iterable[UOp]) -> UOp:
    """A LOOP or a BLOCK with other statements in it."""
    head = statement.src[: len(statement.src) - len(body_of(statement))]
    return statement.replace(src=(*head, *body))


def stride_of(index: UOp, variable: UOp) -> int | None:
    """How far an index moves with a loop; None when not by a constant amount."""
    found = 0
    for atom, factor in terms_of(index).coefficients.items():
        if atom is variable:
            found = factor
        elif variable in ranges_in(atom):
            return None
    return found


def fresh_numbers(block: UOp, op: Op) -> Iterator[int]:
    """Numbers that no RANGE, or no SCRATCH, of a program has."""
    known = (node.arg.number for node in block.toposort() if node.op is op)
    return itertools.count(1 + max(known, default=0))


def merge_sum_axes(kernel: UOp, merged: Sequence[Sequence[int]]) -> UOp:
    """Sums over the axes of the output have one axis where the output's loops are one.

    merged ((0,), (1, 2)): sum_k x[n, y, x, k]  ->  reshape(sum_k reshape(x)[n, yx, k])

    So 32 neighbouring pixels are a box of the sum also where they belong to two rows.
    """
    shape = kernel.src[0].src[1].shape
    groups = [[shape[axis] for axis in axes if shape[axis] != 1] for axes in merged]
    groups = [group for group in groups if group]
    if all(len(group) == 1 for group in groups):
        return kernel

    def change(_: UOp, made: UOp) -> UOp:
        return _merged_sum(made, groups) if made.op is Op.REDUCE else made

    return rebuild(rebuild(kernel, lambda _, made: _sum_of_part(made)), change)


def _sum_of_part(node: UOp) -> UOp:
    """shrink(sum_k x)  ->  sum_k shrink(x)"""
    if node.op is not Op.SHRINK:
        return node
    total = node.src[0]
    shape = _long_axes(total.shape)
    while total.op is Op.RESHAPE and _long_axes(total.src[0].shape) == shape:
        total = total.src[0]
    if total.op is not Op.REDUCE or _long_axes(total.shape) != shape:
        return node
    kept = [part for part, dim in zip(node.arg, node.src[0].shape, strict=True) if dim != 1]
    parts = tuple(
        (0, whole) if dim == 1 else kept.pop(0)
        for dim, whole in zip(total.shape, total.src[0].shape, strict=True)
    )
    part = UOp(Op.REDUCE, total.dtype, (UOp(Op.SHRINK, total.dtype, total.src, parts),), total.arg)
    return UOp(Op.RESHAPE, node.dtype, (part,), node.shape)


def _long_axes(shape: Sequence[Dim]) -> list[Dim]:
    return [dim for dim in shape if dim != 1]


def _merged_sum(node: UOp, groups: Sequence[Sequence[Dim]]) -> UOp:
    """The sum over joined axes, where its own axes are those of the groups; summed axes last."""
    if _long_axes(node.shape) != [dim for group in groups for dim in group]:
        return node
    source = node.src[0]
    kept = [axis for axis, dim in enumerate(node.shape) if dim != 1]
    summed = [axis for axis in node.arg.axes if axis not in kept]
    rest = [axis for axis in range(len(source.shape)) if axis not in (*kept, *summed)]
    moved = UOp(Op.PERMUTE, node.dtype, (source,), (*rest, *kept, *summed))
    sizes = [product_of(tuple(group)) for group in groups]
    shape = (*sizes, *(source.shape[axis] for axis in summed))
    joined = UOp(Op.RESHAPE, node.dtype, (moved,), shape)
    axes = tuple(range(len(sizes), len(shape)))
    total = UOp(Op.REDUCE, node.dtype, (joined,), ReduceArg(node.arg.op, axes))
    return UOp(Op.RESHAPE, node.dtype, (total,), node.shape)


def join_loops(statement: UOp) -> UOp:
    """Two loops become one where every address runs through both as if they were.

    for c in 64: for t in 9: acc += w[c * 9 + t]  ->  for k in 576: acc += w[k]
    """
    if statement.op not in (Op.LOOP, Op.BLOCK):
        return statement
    body = [join_loops(part) for part in body_of(statement)]
    if statement.op is Op.LOOP and len(body) == 1 and body[0].op is Op.LOOP:
        outer, (inner, *parts) = statement.src[0], body[0].src
        in_tile = {outer.arg.kind, inner.arg.kind} & TILE_KINDS
        if not in_tile and indices_run_as_one(outer, inner, _indices(parts)):
            size = outer.src[0].arg * inner.src[0].arg
            joined = loop_over(size, inner.arg.number, outer.arg.kind)
            mapping = {outer: ZERO, inner: joined}
            parts = [replace_ranges(part, mapping) for part in parts]
            return UOp(Op.LOOP, dtypes.void, (joined, *parts))
    return with_body(statement, body)


def indices_run_as_one(outer: UOp, inner: UOp, indices: Iterable[UOp]) -> bool:
    """Whether each index moves `size` times as far with the outer loop as with the inner one."""
    if not inner.src[0].op is outer.src[0].op is Op.CONST:
        return False
    for index in indices:
        far, near = stride_of(index, outer), stride_of(index, inner)
        if far is None or near is None or far != near * inner.src[0].arg:
            return False
    return True


def _indices(statements: Iterable[UOp]) -> Iterable[UOp]:
    """The indices in all addresses, conditions, sizes and numbers computed from loops."""
    for node in dict.fromkeys(n for statement in statements for n in statement.toposort()):
        if node.op is Op.RANGE:
            yield node.src[0]  # a loop may end where another one says
        if node.dtype is dtypes.index and node.op is not Op.INDEX:
            continue
        for source in node.src:
            if source.dtype is dtypes.index and source.op is not Op.INDEX:
                yield source
