"""Which memory holds which value, and what is being recorded.

In:  nodes and the memory that the engine computes them to.
Out: `realized(node)`, a view of a BUFFER whose memory holds the value.

The graph does not know that memory exists: here is a weak map from nodes to it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar
from weakref import WeakKeyDictionary, WeakSet, ref

from kernelet import backends
from kernelet.base.dtype import DType
from kernelet.graph.ops import MOVEMENT, Op
from kernelet.graph.uop import UOp
from kernelet.graph.walk import VIEWS, apply_view, base_of, reachable
from kernelet.kernelize.multi import spread
from kernelet.launches import Launch
from kernelet.runtime import device
from kernelet.runtime.buffer import Buffer

P = ParamSpec("P")
R = TypeVar("R")


class Values:
    """Which view of memory holds the value of a node.

    Caches of the compiler keep graphs that read no memory: what such a node computed is known only
    while somebody stands for the memory, or its memory would never be free again.
    """

    def __init__(self) -> None:
        self._views: WeakKeyDictionary[UOp, UOp | ref[UOp]] = WeakKeyDictionary()

    def get(self, node: UOp) -> UOp | None:
        """The view that holds the value of `node`."""
        found = self._views.get(node)
        recorder = None if found is None else current_recorder.get()
        if recorder is not None and node in recorder.outdated:
            return None
        return found() if isinstance(found, ref) else found

    def __contains__(self, node: UOp) -> bool:
        return self.get(node) is not None

    def __setitem__(self, node: UOp, view: UOp) -> None:
        reads_memory = any(each.op is Op.BUFFER for each in reachable([node]))
        self._views[node] = view if reads_memory else ref(view)
        recorder = current_recorder.get()
        if recorder is not None:
            recorder.outdated.discard(node)

    def __iter__(self) -> Iterator[UOp]:
        return iter([node for ref in self._views.keyrefs() if (node := ref()) is not None])


# Which memory stands for what changes in one thread at a time.
lock = threading.RLock()
memories: WeakKeyDictionary[UOp, Buffer] = WeakKeyDictionary()
values = Values()
stale: WeakSet[UOp] = WeakSet()


def exclusively(function: Callable[P, R]) -> Callable[P, R]:
    """`function` under the lock: no other thread runs or writes graphs meanwhile."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with lock:
            return function(*args, **kwargs)

    return run


def new_buffer(data: bytes | memoryview | None, size: int, dtype: DType, name: str) -> UOp:
    """A BUFFER node with memory on device `name`, holding a copy of `data`."""
    buffer = Buffer(device.canonical(name), size * dtype.itemsize)
    if data is not None:
        buffer.copy_in(data)
    return adopt(buffer, size, dtype)


def adopt(buffer: Buffer, size: int, dtype: DType) -> UOp:
    """A BUFFER node for memory that is there already."""
    node = UOp.buffer(size, dtype, buffer.device)
    memories[node] = buffer
    return node


def node_over(buffer: Buffer, size: int, dtype: DType) -> UOp:
    """The BUFFER node that stands for memory now; a new one when there is none."""
    for node, other in buffer_nodes().items():
        same = other.whole is buffer.whole and other.offset == buffer.offset
        if same and node.arg.size == size and node.dtype is dtype:
            return node
    return adopt(buffer, size, dtype)


def buffer_nodes() -> dict[UOp, Buffer]:
    """All BUFFER nodes that stand for memory now."""
    # Other threads make buffers meanwhile: a list of the keys is taken at once.
    nodes = [ref() for ref in memories.keyrefs()]
    found = {node: memories.get(node) for node in nodes if node is not None}
    return {node: buffer for node, buffer in found.items() if buffer is not None}


def parts_of(node: UOp) -> tuple[UOp, ...]:
    """The nodes of one device each that make up a value."""
    return spread(node).src if isinstance(node.device, tuple) else (node,)


def realized(node: UOp) -> UOp | None:
    """`node` as a view of memory that holds its value; None when it was not computed."""
    chain = []
    base = node
    while (base.op in MOVEMENT or base.op is Op.DETACH) and base not in values:
        if base.op is not Op.DETACH:
            chain.append(base)
        base = base.src[0]
    if base.op is Op.BUFFER:
        return node if base in memories and base not in stale else None
    found = values.get(base)
    if found is None and isinstance(node.device, tuple):
        views = [realized(part) for part in parts_of(node)]
        known = tuple([view for view in views if view is not None])
        return spread(node).replace(src=known) if len(known) == len(views) else None
    if found is None or base_of_view(found) in stale or is_elsewhere(base, found):
        return None
    return apply_view(chain, found)


def is_elsewhere(node: UOp, view: UOp) -> bool:
    """Whether a value of no device is in the memory of another than the one it is wanted on."""
    return node.device is None and base_of_view(view).device != backends.default_device()


def base_of_view(node: UOp) -> UOp:
    return base_of(node, VIEWS)


def overwritten(nodes: Iterable[UOp]) -> set[UOp]:
    """The BUFFER nodes that realizing `nodes` writes to."""
    found: set[UOp] = set()
    for node in reachable(nodes, lambda node: () if node in values else node.src):
        if node.op is Op.AFTER and node not in values:
            storage = storage_of(node)
            if storage.op is Op.BUFFER:
                found.add(storage)
    return found


def storage_of(write: UOp) -> UOp:
    """What an AFTER writes to: a BUFFER, or a value that gets memory in the same schedule."""
    storage = write.src[0]
    # An earlier write that is done already has memory of its own.
    while storage not in values and (storage.op is Op.AFTER or storage.op in MOVEMENT):
        storage = storage.src[0]
    known = values.get(storage)
    return storage if known is None else base_of_view(known)


def read_by(nodes: set[UOp], roots: Iterable[UOp]) -> list[UOp]:
    """Those of some BUFFER nodes that something is computed from: `roots`, or a value that is known.

    When their values are about to change, the nodes must not stand for them any longer.
    """
    return [node for node in UOp.sink(*values, *roots).toposort() if node in nodes] if nodes else []


def lies_in(node: UOp, blocks: set[int]) -> bool:
    """Whether `node` is memory in one of the blocks."""
    buffer = memories.get(node)
    return buffer is not None and id(buffer.whole) in blocks


def what_is_read(node: UOp) -> tuple[UOp, ...]:
    """The sources of a node; of a computed one the memory that holds it."""
    if node.op in MOVEMENT:
        return node.src
    computed = realized(node)
    return node.src if computed is None or computed is node else (computed,)


def concerns(root: UOp, written: set[int], used: set[int]) -> bool:
    """Whether a graph has to do with `written` memory, or has a pending write to `used` memory."""
    below = reachable([root], lambda node: (*node.src, *what_is_read(node)))
    waits = any(lies_in(node, used) for node in overwritten([root]))
    return waits or any(lies_in(node, written) for node in below)


def rename(node: UOp) -> UOp:
    """A new BUFFER node for the memory of `node`, which is stale from now on."""
    buffer = memories.pop(node)
    stale.add(node)
    return adopt(buffer, node.arg.size, node.dtype)


@dataclass(slots=True)
class Recorder:
    """Keeps what is run, in order, so that it can be run again.

    It began at the moment `mark` in a `thread`. A strict one lets nobody read values that would be
    others when it is run again. `roots` are the nodes that were asked for. `outdated`
    are nodes whose value is known and computed anew all the same, as the memory that they read may
    have changed when it is run again. `draws` has the memory of each draw of random numbers, and
    how many words are drawn with it.
    """

    mark: int = 0
    thread: int = field(default_factory=threading.get_ident)
    steps: list[Launch] = field(default_factory=list)
    inputs: list[Buffer] = field(default_factory=list)
    roots: list[UOp] = field(default_factory=list)
    draws: list[tuple[Buffer, int]] = field(default_factory=list)
    is_strict: bool = True
    outdated: WeakSet[UOp] = field(default_factory=WeakSet)

    def has_seen(self, change: tuple[int, int]) -> bool:
        """Whether what changed then, in that thread, is the work of what is recorded."""
        return change[0] >= self.mark and change[1] == self.thread

    def changes(self, buffer: Buffer) -> bool:
        """Whether the contents of a buffer differ from replay to replay."""
        written = (each for step in self.steps for each in step.written)
        return any(buffer.whole is each.whole for each in (*written, *self.inputs))

    def forget_values(self) -> None:
        """Let what was computed from memory before be computed again, where that is possible."""
        known = list(values)
        reading: set[UOp] = set()
        lost: set[UOp] = set()
        for node in UOp.sink(*known).toposort():
            if node.op is Op.BUFFER or not reading.isdisjoint(node.src):
                reading.add(node)
            if node in stale or not lost.isdisjoint(node.src):
                lost.add(node)
        self.outdated.update(
            n for n in known if n.op is not Op.AFTER and n in reading and n not in lost
        )


current_recorder: ContextVar[Recorder | None] = ContextVar("recorder", default=None)
# Those of all threads.
recorders: list[Recorder] = []


@contextmanager
def recording(recorder: Recorder | None) -> Iterator[None]:
    """Hand all launches inside the block to `recorder` too; to nobody for None."""
    token = current_recorder.set(recorder)
    recorders.extend([] if recorder is None else [recorder])
    try:
        yield
    finally:
        current_recorder.reset(token)
        recorders[:] = [each for each in recorders if each is not recorder]
