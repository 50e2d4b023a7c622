"""Writes that read each other's old contents happen at once.

In:  the calls of a schedule that no order respects, and an order that respects all but some.
Out: the same calls, those of a cycle one call with several stores where that says the same.

    m = f(m, p); p = h(m, p), both of the old m and p  ->  one kernel: m, p = f(m, p), h(m, p)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.graph.walk import reachable
from kernelet.kernelize.cut import Pieces, numbered, reductions_of
from kernelet.kernelize.overlap import reads_in_place

MOST_WRITES = 8  # of one cycle


def join_cycles(pieces: Pieces, order: Sequence[UOp]) -> None:
    """Make one call of each cycle of elementwise writes to the same elements."""
    for cycle in _cycles(pieces, order):
        if len(cycle) < 2 or len(cycle) > MOST_WRITES or not _is_at_once(pieces, cycle):
            continue
        first, *others = cycle
        stores = pieces.stores[first] = _stores(pieces, cycle)
        pieces.calls[first] = numbered(stores, [pieces.slot_of[node] for node in cycle])
        pieces.needs[first] = set().union(*[pieces.needs[node] for node in cycle]) - set(cycle)
        for node in others:
            del pieces.calls[node], pieces.needs[node]
        for needed in pieces.needs.values():
            if not needed.isdisjoint(others):
                needed.difference_update(others)
                needed.add(first)


def _cycles(pieces: Pieces, order: Sequence[UOp]) -> Iterable[list[UOp]]:
    """The calls that need each other, in the order in which they are searched: Kosaraju's way."""
    needing: dict[UOp, list[UOp]] = {node: [] for node in pieces.calls}
    for node in pieces.calls:
        for other in pieces.needs[node]:
            if other in needing:
                needing[other].append(node)
    place = {node: at for at, node in enumerate(pieces.calls)}
    seen: set[UOp] = set()
    for root in reversed(order):
        if root not in seen:
            found = set(reachable([root], lambda node: set(needing[node]) - seen))
            seen.update(found)
            yield sorted(found, key=place.__getitem__)


def _stores(pieces: Pieces, cycle: Sequence[UOp]) -> tuple[UOp, ...]:
    return tuple([store for node in cycle for store in pieces.stores[node]])


def _is_at_once(pieces: Pieces, cycle: Sequence[UOp]) -> bool:
    """Whether calls write to the same elements, and read what was there before only there."""
    if any(node.op is not Op.ASSIGN or not pieces.reads[node].isdisjoint(cycle) for node in cycle):
        return False
    stores = _stores(pieces, cycle)
    same = len({store.src[0].shape for store in stores}) == 1
    apart = len({pieces.slot_of[node] for node in cycle}) == len(cycle)
    if not (same and apart) or reductions_of(stores) != []:
        return False
    return all(reads_in_place(one.src[1], other.src[0]) for one in stores for other in stores)
