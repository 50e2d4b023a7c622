"""Spread a graph over several devices: a graph for each, and no op that knows of two but COPY.

In:  a node with MULTI nodes, or copies to several devices, below it.
Out: the same value with MULTI at the top alone; a node of one device without any.

A value of several devices is either whole on each, or cut into parts along one axis. Operands that
are cut alike meet part by part; a whole one is cut first. What cannot be done by parts is done on
every device with the parts joined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import accumulate, pairwise

from kernelet.base.dtype import dtypes
from kernelet.graph.infer import Dim, Shape, max_dim
from kernelet.graph.movement import product_of
from kernelet.graph.ops import MOVEMENT, Op
from kernelet.graph.uop import CutArg, UOp

Parts = tuple[UOp, ...]

_CACHE = "spread"
# What a movement says of an axis that it leaves alone.
_WHOLE: dict[Op, Callable[[Dim], object]] = {
    Op.EXPAND: lambda size: size,
    Op.PAD: lambda size: (0, 0),
    Op.SHRINK: lambda size: (0, size),
}
_STORED = frozenset({Op.REDUCE, Op.GATHER, Op.CONTIGUOUS})


def spread(root: UOp) -> UOp:
    """The same value as MULTI over nodes of one device each, or as one such node."""
    done: dict[UOp, UOp] = {}
    known: UOp | None = root if root.op is Op.MULTI else root.cache.get(_CACHE)
    for node in root.toposort() if known is None else ():
        found = node.cache.get(_CACHE)
        if found is None:
            found = _spread(node, tuple([done[source] for source in node.src]))
            if found is not node:
                node.cache[_CACHE] = found
        done[node] = found
    return done[root] if known is None else known


def _spread(node: UOp, src: Parts) -> UOp:
    if node.op is Op.COPY:
        return _copied(node, src[0])
    if node.op is Op.MULTI or not isinstance(node.device, tuple):
        return node if src == node.src else node.replace(src=src)
    if node.op is Op.REDUCE and src[0].arg in node.arg.axes:
        return _reduced(node, src[0])
    if node.op is Op.GATHER:
        src = tuple([_uncut(value, node.arg) for value in src])
    if node.op in MOVEMENT:
        return _moved(node, src[0])
    return _aligned(node, src)


def _multi(parts: Sequence[UOp], axis: int | None) -> UOp:
    return UOp(Op.MULTI, parts[0].dtype, tuple(parts), axis)


# ---- parts and wholes ----


def _sizes(value: UOp) -> list[int]:
    sizes = [part.shape[value.arg] for part in value.src]
    return [size for size in sizes if isinstance(size, int)]


def _ends(sizes: Sequence[int]) -> list[int]:
    return list(accumulate(sizes, initial=0))


def _with(shape: Shape, axis: int, size: Dim) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _cut(whole: UOp, axis: int, begin: int, end: int) -> UOp:
    if (begin, end) == (0, whole.shape[axis]):
        return whole
    bounds = ((begin, end) if n == axis else (0, dim) for n, dim in enumerate(whole.shape))
    return UOp(Op.SHRINK, whole.dtype, (whole,), tuple(bounds))


def _on(node: UOp, device: str) -> UOp:
    return node if node.device == device else UOp(Op.COPY, node.dtype, (node,), device)


def _joined(parts: Sequence[UOp], axis: int, device: str) -> UOp:
    """All parts in a row on one device."""
    ends = _ends(_sizes(_multi(parts, axis)))
    shape = _with(parts[0].shape, axis, ends[-1])
    column = UOp(Op.ARANGE, dtypes.int32, (), (ends[-1],))
    ones = _with((1,) * len(shape), axis, ends[-1])
    column = UOp(Op.RESHAPE, dtypes.int32, (column,), ones)
    index = UOp(Op.EXPAND, dtypes.int32, (column,), shape)
    found = UOp.const(0, parts[0].dtype).broadcast_to(shape)
    for part, (begin, end) in reversed(list(zip(parts, pairwise(ends), strict=True))):
        pads = ((begin, ends[-1] - end) if n == axis else (0, 0) for n in range(len(shape)))
        padded = UOp(Op.PAD, part.dtype, (_on(part, device),), tuple(pads))
        found = (index < end).where(padded, found)
    return found


def _whole_on(value: UOp, devices: Sequence[str]) -> Parts:
    """The whole of a value on each of `devices`."""
    if value.op is not Op.MULTI:
        return tuple([_on(value, device) for device in devices])
    if value.arg is not None:
        return tuple([_joined(value.src, value.arg, device) for device in devices])
    near = {part.device: part for part in value.src}
    return tuple([_on(near.get(device, value.src[0]), device) for device in devices])


def _devices(value: UOp) -> tuple[str, ...]:
    return tuple([str(part.device) for part in value.src])


def _on_wholes(node: UOp, value: UOp) -> UOp:
    """A node of one source, computed on every device from the joined parts."""
    return _multi([node.replace(src=(part,)) for part in _whole_on(value, _devices(value))], None)


# ---- several operands ----


def _aligned(node: UOp, src: Parts) -> UOp:
    """x + y  ->  part of x + part of y, cut as the first operand that is cut"""
    pattern = max((value for value in src if value.op is Op.MULTI), key=_is_cut)
    columns = [_like(value, pattern) for value in src]
    parts = [node.replace(src=row) for row in zip(*columns, strict=True)]
    return _multi(parts, pattern.arg)


def _is_cut(value: UOp) -> bool:
    return value.op is Op.MULTI and value.arg is not None


def _like(value: UOp, pattern: UOp) -> Parts:
    """The parts of a value, cut as `pattern` is."""
    axis = pattern.arg
    if _is_cut(value) and axis == value.arg and _sizes(value) == _sizes(pattern):
        return value.src
    if value.op is Op.MULTI or any(node.op in _STORED for node in value.toposort()):
        wholes = _whole_on(value, _devices(pattern))
    else:  # a value of no device is found on each
        wholes = (value,) * len(pattern.src)
    if axis is None:
        return wholes
    rows = zip(wholes, pairwise(_ends(_sizes(pattern))), strict=True)
    return tuple([_cut(whole, axis, begin, end) for whole, (begin, end) in rows])


def cut_like(value: UOp, pattern: UOp) -> Parts:
    """The parts of a value, cut as the MULTI node `pattern`: what is written to its parts."""
    return _like(spread(value), pattern)


def _uncut(value: UOp, axis: int) -> UOp:
    if _is_cut(value) and value.arg == axis:
        return _multi(_whole_on(value, _devices(value)), None)
    return value


# ---- one operand ----


def _copied(node: UOp, value: UOp) -> UOp:
    arg = node.arg
    if isinstance(arg, tuple):
        return _multi(_whole_on(value, arg), None)
    if isinstance(arg, CutArg):
        # What one device has is cut before it is copied.
        count = len(arg.devices)
        wholes = _whole_on(value, arg.devices) if value.op is Op.MULTI else (value,) * count
        size = max_dim(node.shape[arg.axis])
        ends = [place * size // count for place in range(count + 1)]
        rows = zip(wholes, pairwise(ends), arg.devices, strict=True)
        return _multi([_on(_cut(w, arg.axis, *bounds), name) for w, bounds, name in rows], arg.axis)
    if value.op is not Op.MULTI:
        return node if value is node.src[0] else node.replace(src=(value,))
    return UOp(Op.COPY, node.dtype, _whole_on(value, (arg,)), arg)


def _reduced(node: UOp, value: UOp) -> UOp:
    """sum(x)  ->  sum(part 0) + sum(part 1) on every device, in the same order on each"""
    parts = [node.replace(src=(part,)) for part in value.src]
    rows = [[_on(part, device) for part in parts] for device in _devices(value)]
    return _multi([reduce(lambda x, y: x.alu(node.arg.op, y), row) for row in rows], None)


def _moved(node: UOp, value: UOp) -> UOp:
    """The parts move alone as long as the axis that is cut stays whole."""
    axis, arg = value.arg, node.arg
    if axis is None:
        return _on_wholes(node, value)
    sizes, place = _sizes(value), axis
    args = [arg] * len(sizes)
    if node.op is Op.PERMUTE:
        place = arg.index(axis)
    elif node.op is Op.RESHAPE:
        place, args = _reshaped(value.shape, arg, axis, sizes)
    elif node.op is not Op.FLIP:
        whole = _WHOLE[node.op]
        place = axis if arg[axis] == whole(value.shape[axis]) else None
        args = [(*arg[:axis], whole(size), *arg[axis + 1 :]) for size in sizes]
    if place is None or (node.op is Op.FLIP and axis in arg):
        return _on_wholes(node, value)
    rows = zip(value.src, args, strict=True)
    return _multi([node.replace(src=(part,), arg=each) for part, each in rows], place)


def _reshaped(
    old: Shape, new: Shape, axis: int, sizes: list[int]
) -> tuple[int | None, list[Shape]]:
    """Where the cut is in the new shape, and the shapes of the parts; None if rows are torn."""
    lead, inner = product_of(old[:axis]), product_of(old[axis + 1 :])
    for place in range(len(new)):
        if product_of(new[:place]) != lead or 0 in old:
            continue
        rows = product_of(new[place + 1 :])
        if rows == inner:
            return place, [_with(new, place, size) for size in sizes]
        if not isinstance(rows, int) or not isinstance(inner, int):
            continue
        if all(size * inner % rows == 0 for size in sizes):
            return place, [_with(new, place, size * inner // rows) for size in sizes]
    return None, []
