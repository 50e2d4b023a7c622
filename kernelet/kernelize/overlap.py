"""Keep writes from changing what is still to be read.

In:  a graph whose stored values are marked.
Out: the same graph; a written value that reads its own target elsewhere is computed first, and
     readers that cannot run before a write get a copy of the old contents.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from kernelet.graph.division import ZERO
from kernelet.graph.movement import movement_index
from kernelet.graph.ops import ELEMENTWISE, MOVEMENT, Op
from kernelet.graph.placement import loops_over
from kernelet.graph.uop import UOp
from kernelet.graph.walk import rebuild
from kernelet.kernelize.normalize import is_memory, storage_of

MOST_PLACES = 200


def separate_overlaps(sink: UOp) -> UOp:
    """a[1:] = a[:-1]  ->  a[1:] = CONTIGUOUS(a[:-1])

    A value may be written in place when it reads the target at the very elements it writes.
    """

    def separate(_: UOp, made: UOp) -> UOp:
        if made.op is not Op.ASSIGN or reads_in_place(made.src[1], made.src[0]):
            return made
        target, value = made.src
        return made.replace(src=(target, UOp(Op.CONTIGUOUS, value.dtype, (value,))))

    return rebuild(sink, separate)


def reads_in_place(value: UOp, target: UOp) -> bool:
    """Whether a value reads the memory of a target only at the very elements that are written."""
    storage = storage_of(target)
    # A node may be read in place and elsewhere too.
    seen: set[tuple[UOp, bool]] = set()
    stack = [(value, True)]
    while stack:
        node, same_place = stack.pop()
        if same_place and node is target:
            continue
        if (node, same_place) in seen:
            continue
        seen.add((node, same_place))
        if is_memory(node):
            if storage_of(node) is storage:
                return False
            continue
        keeps = same_place and node.op in ELEMENTWISE
        stack += [(source, keeps) for source in node.src]
    return True


def reads_own_result(value: UOp, target: UOp) -> bool:
    """Whether each result reads of a target, also inside its reductions, its own element alone.

    y = sum_k x[i, k];  z = sum_k (x[i, k] - y[i])**2
    """
    storage = storage_of(target)
    numbers = itertools.count()
    own = loops_over(value.shape, numbers)
    long = [at for at in own if at is not ZERO]
    stack = [(value, own)]
    seen = set(stack)
    while stack:
        node, index = stack.pop()
        # Axes of one element come and go.
        if node is target and [at for at in index if at is not ZERO] == long:
            continue
        if is_memory(node) or node.op is Op.GATHER:
            if storage in node.toposort() or storage_of(node) is storage:
                return False
            continue
        if node.op is Op.REDUCE:
            inner = loops_over(node.src[0].shape, numbers)
            axes = node.arg.axes
            index = tuple(inner[n] if n in axes else part for n, part in enumerate(index))
        elif node.op in MOVEMENT:
            index, _ = movement_index(node, index)
        below = [(source, index) for source in node.src if (source, index) not in seen]
        stack += below
        seen.update(below)
        if len(seen) > MOST_PLACES:
            return False
    return True


def read_copies(sink: UOp, states: Iterable[UOp]) -> UOp:
    """The graph with every read of these states of memory turned to a copy made before the write.

    The target of a write stays the memory itself.
    """
    copied = frozenset(states)
    memory: dict[UOp, UOp] = {}
    values: dict[UOp, UOp] = {}
    for node in sink.toposort():
        is_write = node.op in (Op.ASSIGN, Op.AFTER)
        sources = [values[source] for source in node.src]
        targets = [memory[source] for source in node.src]
        if is_write:
            sources[0] = targets[0]
        memory[node] = values[node] = _over(node, sources)
        if node.op in MOVEMENT:
            memory[node] = _over(node, targets)
        if node in copied:
            values[node] = UOp(Op.CONTIGUOUS, node.dtype, (memory[node],))
    return values[sink]


def _over(node: UOp, sources: list[UOp]) -> UOp:
    made = tuple(sources)
    return node if made == node.src else node.replace(src=made)
