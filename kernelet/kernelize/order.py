"""Put the calls of a schedule in an order that respects what each needs.

In:  calls and the stored nodes that each reads.
Out: the calls in order; reads of old contents that cannot come first are reported.
"""

from __future__ import annotations

from kernelet.graph.uop import UOp
from kernelet.kernelize.cut import Pieces


def order_calls(pieces: Pieces) -> list[UOp]:
    """The called nodes, each after those it needs; otherwise as the program built them."""
    found: dict[UOp, None] = {}
    open_nodes: set[UOp] = set()
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
                stack += sorted(waiting, key=lambda other: pieces.slot_of[other], reverse=True)
                continue
            stack.pop()
            found[node] = None
    return list(found)


def cycle_members(pieces: Pieces, order: list[UOp]) -> list[UOp]:
    """The calls that come before something they need: their reads need a copy of the memory."""
    position = {node: number for number, node in enumerate(order)}
    return [
        node
        for node in order
        if any(position[o] > position[node] for o in pieces.needs[node] if o in pieces.calls)
    ]
