"""Keep writes from changing what is still to be read.

In:  a graph whose stored values are marked.
Out: the same graph; a written value that reads its own target elsewhere is computed first, and
     readers that cannot run before a write get a copy of the old contents.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from kernelet.graph.division import ZERO
from kernelet.graph.movement import Index
from kernelet.graph.ops import MOVEMENT, Op
from kernelet.graph.placement import loops_over, source_index
from kernelet.graph.uop import UOp
from kernelet.graph.walk import reachable, rebuild
from kernelet.kernelize.normalize import is_memory, storage_of

MOST_PLACES = 1000


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
    """Whether each result reads of the memory of a target, also in its sums, its own element alone.

    y = sum_k x[i, k];  z = sum_k (x[i, k] - y[i])**2
    """
    storage = storage_of(target)
    numbers = itertools.count()
    own = loops_over(value.shape, numbers)
    long = [at for at in own if at is not ZERO]

    def is_own(node: UOp, index: Index) -> bool:
        # Axes of one element come and go.
        return node is target and [at for at in index if at is not ZERO] == long

    def below(place: tuple[UOp, Index]) -> list[tuple[UOp, Index]]:
        node, index = place
        if is_memory(node) or is_own(node, index):
            return []
        return [(source, source_index(node, source, index, numbers)) for source in node.src]

    for count, (node, index) in enumerate(reachable([(value, own)], below)):
        is_read = is_memory(node) and storage_of(node) is storage
        if count > MOST_PLACES or (is_read and not is_own(node, index)):
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
        memory[node] = values[node] = node.replace(src=tuple(sources))
        if node.op in MOVEMENT:
            memory[node] = node.replace(src=tuple(targets))
        if node in copied:
            values[node] = UOp(Op.CONTIGUOUS, node.dtype, (memory[node],))
    return values[sink]
