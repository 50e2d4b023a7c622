"""Whole-graph helpers, each on a stack of its own: a graph may be deeper than Python recurses.

In:  a root.
Out: another graph, or facts about this one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TypeVar

from kernelet.graph.infer import Dim, as_dim
from kernelet.graph.ops import MOVEMENT, Op
from kernelet.graph.uop import UOp

Node = TypeVar("Node")  # a UOp, or a UOp with what is known of the way to it
VIEWS = MOVEMENT | {Op.DETACH}
_SIZED = frozenset({Op.ARANGE, Op.RESHAPE, Op.EXPAND, Op.PAD, Op.SHRINK})


def reachable(
    roots: Iterable[Node], below: Callable[[Node], Iterable[Node]] = attrgetter("src")
) -> Iterator[Node]:
    """The nodes that one comes to from `roots`, each once; `below` says where to go on from one."""
    seen: set[Node] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            yield node
            stack.extend(below(node))


def base_of(node: UOp, passed: Collection[Op] = MOVEMENT) -> UOp:
    """What a chain of nodes of the kinds `passed`, movement ops by default, is over."""
    while node.op in passed:
        node = node.src[0]
    return node


def split_view(node: UOp) -> tuple[list[UOp], UOp]:
    """The movement nodes from the top down, and the node below them; DETACH is passed over."""
    chain = []
    while node.op in VIEWS:
        if node.op is not Op.DETACH:
            chain.append(node)
        node = node.src[0]
    return chain, node


def apply_view(chain: Sequence[UOp], base: UOp) -> UOp:
    """The movements of `split_view` on another node of the same shape."""
    for step in reversed(chain):
        base = UOp(step.op, base.dtype, (base,), step.arg)
    return base


def substitute(root: UOp, mapping: Mapping[UOp, UOp]) -> UOp:
    """The graph with each node of `mapping` replaced, also inside symbolic sizes.

    A replacement is taken as it is: nothing is replaced inside it.
    """
    in_sizes: dict[UOp, Dim] = {}

    def change(node: UOp, made: UOp) -> UOp:
        if node in mapping:
            return mapping[node]
        if next(sizes_of(node), None) is None:
            return made
        return made.replace(arg=_replaced(node.arg, mapping, in_sizes))

    return rebuild(root, change, mapping)


def _replaced(part: object, mapping: Mapping[UOp, UOp], known: dict[UOp, Dim]) -> object:
    """A payload, or a part of one, with its sizes after `mapping`."""
    if isinstance(part, tuple):
        return tuple([_replaced(inner, mapping, known) for inner in part])
    if not isinstance(part, UOp):
        return part
    if part not in known:
        # A size whose value became known is a plain number again.
        known[part] = as_dim(substitute(part, mapping))
    return known[part]


def sizes_of(node: UOp) -> Iterator[UOp]:
    """The symbolic sizes in the payload of a movement node."""
    if node.op not in _SIZED or not isinstance(node.arg, tuple):
        return
    for part in node.arg:
        for dim in part if isinstance(part, tuple) else (part,):
            if isinstance(dim, UOp):
                yield dim


def toposort_with_sizes(root: UOp) -> dict[UOp, None]:
    """`root` and all below it with the nodes of symbolic sizes, each after what it needs."""
    order: dict[UOp, None] = {}
    for node in root.toposort():
        for size in sizes_of(node):
            order |= size.toposort()
        order[node] = None
    return order


def consumers_of(root: UOp) -> dict[UOp, list[UOp]]:
    """For each node, those that have it as a source, each once, in topological order."""
    found: dict[UOp, list[UOp]] = {}
    for node in root.toposort():
        found[node] = []
        for source in dict.fromkeys(node.src):
            found[source].append(node)
    return found


def only_below(node: UOp, consumers: Mapping[UOp, Sequence[UOp]]) -> UOp | None:
    """What a node reads through movements that copy nothing; None where other nodes read it too."""
    node = node.src[0]
    while len(consumers[node]) == 1:
        if node.op not in MOVEMENT or node.op is Op.EXPAND:
            return node
        node = node.src[0]
    return None


def rebuild(root: UOp, change: Callable[[UOp, UOp], UOp], leaves: Collection[UOp] = ()) -> UOp:
    """The graph with `change(node, made)` in place of each node, none below `leaves`.

    `made` is the node over its sources as they are after the change.
    """
    done: dict[UOp, UOp] = {}
    for node in root.toposort(leaves):
        sources = tuple([done.get(source, source) for source in node.src])
        done[node] = change(node, node if sources == node.src else node.replace(src=sources))
    return done[root]


def binds_in(root: UOp) -> list[UOp]:
    """The bound variables in a graph and in its sizes."""
    return [node for node in toposort_with_sizes(root) if node.op is Op.BIND]


def with_bound_values(root: UOp) -> UOp:
    """The graph with the values of bound variables in place of them, also in sizes."""
    return _with_parts(root, 1)


def with_free_variables(root: UOp) -> UOp:
    """The graph with variables in place of bound ones, also in sizes."""
    return _with_parts(root, 0)


def _with_parts(root: UOp, part: int) -> UOp:
    binds = binds_in(root)
    return substitute(root, {bind: bind.src[part] for bind in binds}) if binds else root
