"""Put the calls of a schedule in an order that respects what each needs.

In:  calls and the stored nodes that each reads.
Out: the calls in order; reads of old contents that cannot come first are reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.graph.walk import reachable
from kernelet.kernelize.cut import Pieces


def order_calls(pieces: Pieces) -> tuple[list[UOp], bool]:
    """The called nodes, each after those it needs; otherwise as the program built them.

    Beside them whether that is so: calls that need each other have no such order.
    """
    found: dict[UOp, None] = {}
    is_right = True
    open_nodes: set[UOp] = set()
    # Sets have no order that is the same in every process.
    place = {node: (pieces.slot_of[node], at) for at, node in enumerate(pieces.calls)}
    for root in pieces.calls:
        stack = [root]
        while stack:
            node = stack[-1]
            if node in found:
                stack.pop()
                continue
            open_nodes.add(node)
            needed = (other for other in pieces.needs[node] if other in pieces.calls)
            missing = [other for other in needed if other not in found and other is not node]
            waiting = [other for other in missing if other not in open_nodes]
            if waiting:
                stack += sorted(waiting, key=place.__getitem__, reverse=True)
                continue
            stack.pop()
            is_right = is_right and not missing
            found[node] = None
    return list(found), is_right


def hold_less(pieces: Pieces, order: Sequence[UOp], kept: frozenset[int]) -> list[UOp]:
    """The order in which less memory is held at a time.

    What is `kept` is computed as soon as it can be, for then what it reads may go. Other values
    wait until they are read, where that holds nothing longer: what is computed again for a
    gradient is not in memory before the gradient comes to it.
    """
    early: list[UOp] = []
    for node in order:
        at = len(early)
        if pieces.slot_of[node] in kept and not kept.issuperset(pieces.calls[node].slots):
            needed = [place for place, other in enumerate(early) if other in pieces.needs[node]]
            at = max(needed, default=-1) + 1
            while at < len(early) and pieces.slot_of[early[at]] in kept:
                at += 1  # what may come at once stays as the program built it
        early.insert(at, node)
    late: list[UOp] = []  # from the last call to the first
    for node in reversed(early):
        at = len(late)
        if node.op is Op.CONTIGUOUS and pieces.slot_of[node] not in kept:
            readers = [place for place, other in enumerate(late) if node in pieces.needs[other]]
            first = max(readers, default=-1) + 1
            later = {slot for other in late[:first] for slot in pieces.calls[other].slots}
            if later >= set(pieces.calls[node].slots) - kept:
                at = first
        late.insert(at, node)
    return late[::-1]


def lost_states(pieces: Pieces, graph: Iterable[UOp]) -> set[UOp]:
    """The states of memory that a call reads though it also needs the write that ends them.

    y = x + 1; x = 2 * x; z = y + x  ->  the first x, which z needs a copy of
    """
    found = set()
    for after in graph:
        if after.op is not Op.AFTER:
            continue
        state, *writes = after.src
        readers = [reader for reader, needed in pieces.needs.items() if state in needed]
        for reader in readers:
            is_copy = reader.op is Op.CONTIGUOUS and reader.src[0] is state
            if reader not in writes and not is_copy and _needs_any(pieces, reader, writes):
                found.add(state)
    return found


def _needs_any(pieces: Pieces, node: UOp, wanted: list[UOp]) -> bool:
    needed = reachable(pieces.needs[node], lambda other: pieces.needs.get(other, ()))
    return any(other in wanted for other in needed)
