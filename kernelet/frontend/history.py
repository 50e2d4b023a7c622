"""What realized values were computed from, for gradients that are asked for afterwards.

In:  nodes that stand for memory, and the expressions whose values that memory holds.
Out: derivatives, through graphs in which memory is replaced by the expression it came from.

An expression is kept as long as its memory's node is used. From a tensor with
``requires_grad=True`` on it is always kept; from other leaves only while it is small, so that
values fed back again and again do not hold everything that came before them.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary

from kernelet.base.dtype import DType
from kernelet.frontend.gradient import gradients
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.graph.walk import reachable, substitute

NODES_KEPT = 1000
OWN_NODES_KEPT = 20_000
BYTES_KEPT = 1 << 24


@dataclass(frozen=True, slots=True)
class _Expression:
    """The fields of a node. The node itself would keep alive the memory that holds its value."""

    op: Op
    dtype: DType
    src: tuple[UOp, ...]
    arg: Any

    def node(self) -> UOp:
        """The node with these fields."""
        return UOp(self.op, self.dtype, self.src, self.arg)


_histories: WeakKeyDictionary[UOp, _Expression] = WeakKeyDictionary()


def remember(memory: UOp, computed: UOp) -> None:
    """Note that the view `memory` holds the value of `computed`."""
    _histories[memory] = _Expression(computed.op, computed.dtype, computed.src, computed.arg)


def forget(memory: UOp) -> None:
    """Let gradients end at `memory`."""
    _histories.pop(memory, None)


def computed_from(memory: UOp) -> UOp | None:
    """The expression whose value `memory` holds, where that is still known."""
    known = _histories.get(memory)
    return None if known is None else known.node()


def restored(root: UOp) -> tuple[UOp, dict[UOp, UOp]]:
    """The graph of `root` with all memory linked to what it was computed from, and the links.

    memory -> FUNCTION(memory, expression): values are read, gradients pass on to the expression.
    """
    links: dict[UOp, UOp] = {}
    if not _histories:
        return root, links
    for memory in _in_order(root):
        computed = substitute(_histories[memory].node(), links)
        links[memory] = UOp(Op.FUNCTION, memory.dtype, (memory, computed), "identity")
    return (substitute(root, links) if links else root), links


def derivatives(root: UOp, seed: UOp, targets: Sequence[Collection[UOp]]) -> list[UOp | None]:
    """The gradient of each target, which some nodes stand for; None where none flows to it.

    `seed` is the gradient of `root` itself.
    """
    graph, links = restored(root)
    names = [[substitute(node, links) for node in set(nodes)] for nodes in targets]
    found = gradients(graph, seed, [node for nodes in names for node in nodes])
    memory = {link: node for node, link in links.items()}
    results: list[UOp | None] = []
    for nodes in names:
        parts = [found[node] for node in nodes if node in found]
        # Values are read from memory, so what they were computed from is not needed any more.
        results.append(substitute(reduce(operator.add, parts), memory) if parts else None)
    return results


def depends_on(root: UOp, target: Collection[UOp]) -> bool:
    """Whether `root` was computed from a tensor at all, differentiably or not."""
    graph, links = restored(root)
    below = graph.toposort()
    return any(substitute(node, links) in below for node in target)


def sources_of(root: UOp) -> list[UOp]:
    """What the expressions read that the memory below `root` came from."""
    return [s for m in _in_order(root) for s in _histories[m].src] if _histories else []


def all_sources() -> list[UOp]:
    """What all expressions read that memory came from."""
    found = [
        _histories.get(memory) for ref in _histories.keyrefs() if (memory := ref()) is not None
    ]
    return [source for known in found if known is not None for source in known.src]


def _in_order(root: UOp) -> list[UOp]:
    """All memory below `root` with a history, also inside histories, each after what it needs."""
    order: dict[UOp, None] = {}
    stack = [(root, False)]
    while stack:
        node, done = stack.pop()
        if done:
            order[node] = None
            continue
        inner = [part for part in node.toposort() if part in _histories and part not in order]
        for part in inner:
            stack += [(part, True), (_histories[part].node(), False)]
    return list(order)


def _passes_to(node: UOp) -> list[UOp]:
    """What gradients pass on to: the sources of a node, or of the expression in its history."""
    if node.op is Op.DETACH:
        return []
    known = _histories.get(node)
    sources = node.src if known is None else known.src
    return [source for source in sources if source.dtype.is_float]


def _passes_and_memory(node: UOp) -> list[UOp]:
    return [*_passes_to(node), *(node.src if node in _histories else ())]


def reaches(root: UOp, targets: Collection[UOp]) -> bool:
    """Whether a gradient can flow from `root` to one of `targets`, also through histories."""
    return bool(targets) and any(node in targets for node in reachable([root], _passes_to))


def is_worth_keeping(root: UOp, held: Collection[UOp]) -> bool:
    """Whether gradients can flow to one of the nodes `held` by tensors, and the way is short.

    Where histories of histories grow beyond the limits, the older ones are let go.
    """
    order = reachable(
        [root], lambda node: [] if node in held or node in _histories else _passes_to(node)
    )
    way = [node for node in islice(order, OWN_NODES_KEPT + 1) if node.op is not Op.DETACH]
    ends = [node for node in way if node in _histories]
    own = [node for node in way if node not in held and node not in _histories]
    reached = any(node in held for node in way)
    if not (reached or ends) or len(way) > OWN_NODES_KEPT or _bytes_of(own) > BYTES_KEPT:
        return False
    older = list(islice(reachable(ends, _passes_and_memory), NODES_KEPT + 1))
    if len(older) > NODES_KEPT or _bytes_of(older) > BYTES_KEPT:
        for memory in ends:
            forget(memory)
    return reached or any(memory in _histories for memory in ends)


def _bytes_of(nodes: Collection[UOp]) -> int:
    return sum(node.arg.size * node.dtype.itemsize for node in nodes if node.op is Op.BUFFER)
