"""The derivatives of one tensor's node with respect to other tensors, realized ones included.

In:  a node, its own gradient, and the tensors whose gradients are wanted.
Out: a node for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelet.frontend.gradient import gradients
from kernelet.frontend.history import restored
from kernelet.frontend.live import Handle, nodes_of
from kernelet.graph.uop import UOp
from kernelet.graph.walk import substitute


def derivatives(root: UOp, seed: UOp, targets: Sequence[Handle]) -> list[UOp | None]:
    """The gradient of each target; None where no gradient flows to it."""
    graph, links = restored(root)
    names = [[substitute(node, links) for node in set(nodes_of(target))] for target in targets]
    found = gradients(graph, seed, [node for nodes in names for node in nodes])
    memory = {link: node for node, link in links.items()}
    results: list[UOp | None] = []
    for nodes in names:
        parts = [found[node] for node in nodes if node in found]
        total = parts[0] if parts else None
        for part in parts[1:]:
            total = part if total is None else total + part
        # Values are read from memory, so what they were computed from is not needed any more.
        results.append(None if total is None else substitute(total, memory))
    return results


def depends_on(root: UOp, target: Handle) -> bool:
    """Whether `root` was computed from a tensor at all, differentiably or not."""
    graph, links = restored(root)
    below = graph.toposort()
    return any(substitute(node, links) in below for node in nodes_of(target))
