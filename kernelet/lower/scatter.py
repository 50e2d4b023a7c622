"""Reductions of elements that name their result: put each where it belongs instead of searching.

In:  a BLOCK of loops over scalar expressions.
Out: the same program in as many steps as there are elements.

for v: acc = 0; for t: acc += where(pick[t] != v, 0, x[t]); y[v] = e[v] + acc
->  for v: y[v] = e[v]
    for t: y[clamp(pick[t])] += where(0 <= pick[t] < V, x[t], 0)

This is the gradient of an embedding, and of every other indexing by a tensor. Products and maxima
are put in place in the same way: writing to places finds the last writer of each as a maximum.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelet.base.dtype import dtypes
from kernelet.graph.division import (
    ZERO,
    index_const,
    maximum_index,
    minimum_index,
    replace_ranges,
    terms_of,
)
from kernelet.graph.ops import Op
from kernelet.graph.placement import TILE_KINDS, ranges_in
from kernelet.graph.scan import identity_of
from kernelet.graph.uop import UOp
from kernelet.graph.walk import substitute
from kernelet.lower.blocking import change_loops
from kernelet.lower.loops import statements_of

_COMBINING = (Op.ADD, Op.MUL, Op.MAX)


@dataclass(frozen=True, slots=True)
class _Addition:
    """What one step adds to an accumulator, and the number of the result that it belongs to.

    `op` says how it is added, and `neutral` changes nothing.
    """

    op: Op
    pick: UOp
    value: UOp
    neutral: UOp


def scatter_sum(block: UOp, depth: int) -> UOp:
    """The program with the search, the loop inside `depth` others, replaced; else unchanged."""
    return change_loops(block, depth, lambda loop: _scattered(loop) or [loop])


def _scattered(loop: UOp) -> list[UOp] | None:
    """The two nests that take the place of a search."""
    result, *body = loop.src
    sums = [part for part in body if part.op is Op.LOOP and part.src[0].arg.kind == "reduce"]
    if len(sums) != 1 or result.src[0].op is not Op.CONST:
        return None
    end = body[body.index(sums[0]) + 1 :]
    (update,), (store,) = _stores(sums[0]), _stores(*end)
    added = _addition(update, result)
    start = None if added is None else _without(store.src[1], added)
    dtype = update.src[1].dtype
    # A sum of narrow floats is kept in float32 until it is whole.
    if added is None or start is None or (dtype.is_float and dtype.itemsize < 4):
        return None
    offset = store.src[0].src[1]
    if any(result in ranges_in(a) and a is not result for a in terms_of(offset).coefficients):
        return None
    tile = _tile_variables(store), _tile_variables(update)
    if len(tile[0]) != len(tile[1]):
        return None
    size = result.src[0].arg
    place = maximum_index(added.pick.cast(dtypes.index), ZERO)
    place = minimum_index(place, index_const(size - 1))
    moved = dict(zip(tile[0], tile[1], strict=True))
    address = replace_ranges(store.src[0], {result: place, **moved})
    old = UOp(Op.LOAD, added.value.dtype, (address,))
    is_inside = (added.pick < size) & (added.pick < 0).logical_not()
    new = old.alu(added.op, is_inside.where(added.value, added.neutral))
    begin = [substitute(one, {store: store.replace(src=(store.src[0], start))}) for one in end]
    adding = substitute(sums[0], {update: update.replace(src=(address, new))})
    return [loop.replace(src=(result, *begin)), adding]


def _stores(*statements: UOp) -> list[UOp]:
    return [store for one in statements for store, _ in statements_of(one)]


def _tile_variables(store: UOp) -> list[UOp]:
    """The loops of the register tile that an address moves with, the lanes last."""
    tile = [v for v in ranges_in(store.src[0].src[1]) if v.arg.kind in TILE_KINDS]
    return sorted(tile, key=lambda v: (v.arg.kind == "vector", v.arg.number))


def _without(value: UOp, added: _Addition) -> UOp | None:
    """What a result is before anything is added to it: neutral, or the other term."""
    if value.op is Op.LOAD and value.src[0].src[0].op is Op.SCRATCH:
        return added.neutral
    if value.op is added.op:
        for total, other in (value.src, value.src[::-1]):
            is_sum = total.op is Op.LOAD and total.src[0].src[0].op is Op.SCRATCH
            if is_sum and not any(n.op is Op.SCRATCH for n in other.toposort()):
                return other
    return None


def _addition(update: UOp, result: UOp) -> _Addition | None:
    """What an update adds, if only the result that a number names gets it."""
    value = update.src[1]
    if value.op not in _COMBINING or value.src[1].op is not Op.WHERE:
        return None
    condition, skipped, added = value.src[1].src
    neutral = identity_of(value.op, value.dtype)
    if condition.op is not Op.CMPNE or skipped.op is not Op.CONST or skipped.arg != neutral:
        return None
    for pick, place in (condition.src, condition.src[::-1]):
        if place.op is Op.CAST and place.src[0] is result and pick.dtype.is_integer:
            free = not any(result in ranges_in(node) for node in _indices(pick, added))
            return _Addition(value.op, pick, added, skipped) if free else None
    return None


def _indices(*values: UOp) -> list[UOp]:
    """The indices that values are read at or made from."""
    nodes = dict.fromkeys(node for value in values for node in value.toposort())
    return [node for node in nodes if node.dtype is dtypes.index and node.op is not Op.INDEX]
