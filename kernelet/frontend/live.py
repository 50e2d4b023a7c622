"""The tensors that exist now, and what must happen to them when memory is written.

In:  tensors to realize.
Out: calls of the engine, and tensors whose node is a view of memory.

A value never changes: an expression that was built before a write sees what was there before. So
whenever a schedule overwrites memory, the lazy tensors that still read its old contents are
realized in that same schedule, before the write. What nobody holds is not kept.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from kernelet import engine
from kernelet.base.dtype import DType
from kernelet.graph.ops import MOVEMENT, Op
from kernelet.graph.uop import UOp
from kernelet.graph.walk import toposort_with_sizes


class Handle(Protocol):
    """What this module needs to know of a tensor.

    `required` is what the user said about gradients, `former` the lazy node that `uop` replaces,
    `is_leaf` says that gradients end here, `is_target` that `gradient` was asked for it. `owner` is
    the tensor whose unasked gradient this is: it outlives a write only if that tensor is itself
    written, and `is_lost` says that it did not.
    """

    uop: UOp
    required: bool | None
    former: weakref.ref[UOp] | None
    is_leaf: bool
    is_lost: bool
    is_target: bool
    owner: weakref.ref[Handle] | None

    @property
    def dtype(self) -> DType:
        """The element type."""


# Keyed by identity, because == of tensors compares their elements.
_live: weakref.WeakValueDictionary[int, Handle] = weakref.WeakValueDictionary()


def register(tensor: Handle) -> None:
    """Note that a tensor exists."""
    _live[id(tensor)] = tensor


def live_tensors() -> list[Handle]:
    """All tensors that exist now."""
    return list(_live.values())


# ---- views ----


def split_view(node: UOp) -> tuple[list[UOp], UOp]:
    """The movement nodes from the top down, and the node below them; DETACH is passed over."""
    chain = []
    while node.op in MOVEMENT or node.op is Op.DETACH:
        if node.op is not Op.DETACH:
            chain.append(node)
        node = node.src[0]
    return chain, node


def apply_view(chain: Sequence[UOp], base: UOp) -> UOp:
    """The movements of `split_view` on another node of the same shape."""
    for step in reversed(chain):
        base = UOp(step.op, base.dtype, (base,), step.arg)
    return base


def without_detach(node: UOp) -> UOp:
    """A view of memory without the DETACH nodes in it; any other node as it is."""
    chain, base = split_view(node)
    return apply_view(chain, base) if base.op in (Op.BUFFER, Op.AFTER) else node


# ---- realizing ----


def realize(tensors: Iterable[Handle]) -> None:
    """Compute the tensors, and first whatever reads memory that this overwrites."""
    wanted = list(tensors)
    for tensor in wanted:
        tensor.uop = without_detach(tensor.uop)
    pending = [tensor for tensor in wanted if engine.realized(tensor.uop) is None]
    if pending:
        nodes = [tensor.uop for tensor in pending]
        readers = _keep_readers(nodes, {id(tensor) for tensor in pending})
        kept = [reader.uop for reader in readers]
        if kept and _bind_differently([*kept, *nodes]):
            for node in kept:
                engine.realize([node])
            kept = []
        engine.realize([*kept, *nodes])
        wanted.extend(readers)
    leaves = _required_nodes()
    for tensor in wanted:
        settle(tensor, leaves)


def _bind_differently(nodes: Iterable[UOp]) -> bool:
    """Whether some Variable has several values in these graphs, so that they run apart."""
    found: dict[UOp, UOp] = {}
    order = toposort_with_sizes(UOp.sink(*nodes))
    return any(found.setdefault(n.src[0], n) is not n for n in order if n.op is Op.BIND)


def settle(tensor: Handle, leaves: Collection[UOp] | None = None) -> None:
    """Let a computed tensor stand for its memory, unless gradients need its history."""
    found = engine.realized(tensor.uop)
    if found is None or found is tensor.uop:
        return
    if tensor.required is None and tensor.dtype.is_float:
        leaves = set(_required_nodes() if leaves is None else leaves)
        leaves.difference_update(nodes_of(tensor))
        if leaves and reaches(tensor.uop, leaves):
            return
    tensor.former = weakref.ref(tensor.uop)
    tensor.uop = found
    tensor.is_leaf = True


def _keep_readers(nodes: list[UOp], given: set[int]) -> list[Handle]:
    """Tensors that read memory which realizing `nodes` overwrites."""
    readers: list[Handle] = []
    written = engine.overwritten(nodes)
    seen_written: set[UOp] = set()
    while written != seen_written:
        seen_written = written
        search = _OldReaders(written, _last_writes([*nodes, *[reader.uop for reader in readers]]))
        for tensor in live_tensors():
            if id(tensor) in given or not search.reads(tensor.uop):
                continue
            if _is_spare(tensor, written):
                tensor.is_lost = True
                continue
            given.add(id(tensor))
            tensor.uop = without_detach(tensor.uop)
            if engine.realized(tensor.uop) is not None:
                # A view of the memory itself: only a copy outlives the write.
                tensor.uop = UOp(Op.CONTIGUOUS, tensor.dtype, (tensor.uop,))
            readers.append(tensor)
        written = engine.overwritten([*nodes, *[reader.uop for reader in readers]])
    return readers


def _is_spare(tensor: Handle, written: set[UOp]) -> bool:
    """Whether this is a gradient that nobody asked for, of a tensor that is not updated."""
    owner = None if tensor.owner is None else tensor.owner()
    if tensor.owner is None or owner is None:
        return False
    _, storage = split_view(owner.uop)
    while storage.op is Op.AFTER:
        storage = storage.src[0]
    return storage not in written


def _last_writes(nodes: Iterable[UOp]) -> set[UOp]:
    """The AFTER nodes whose storage is not written again: their values will be in memory."""
    found: set[UOp] = set()
    inner: set[UOp] = set()
    for node in UOp.sink(*nodes).toposort():
        if node.op is Op.AFTER:
            found.add(node)
            inner.add(node.src[0])
    return found - inner


class _OldReaders:
    """Finds graphs that read old contents of `written`; remembers what it saw."""

    def __init__(self, written: set[UOp], last_writes: set[UOp]) -> None:
        self._found: dict[UOp, bool] = dict.fromkeys(written, True)
        self._found.update(dict.fromkeys(last_writes, False))

    def reads(self, root: UOp) -> bool:
        """Whether the value of `root` needs the old contents."""
        found = self._found
        stack = [root]
        while stack:
            node = stack[-1]
            if node in found:
                stack.pop()
                continue
            sources = _what_is_read(node)
            missing = [source for source in sources if source not in found]
            if missing:
                stack.extend(missing)
                continue
            found[node] = any(found[source] for source in sources)
            stack.pop()
        return found[root]


def _what_is_read(node: UOp) -> tuple[UOp, ...]:
    """The sources of a node; of a computed one the memory that holds it."""
    if node.op is Op.BUFFER or node.op in MOVEMENT:
        return node.src
    computed = engine.realized(node)
    return node.src if computed is None or computed is node else (computed,)


# ---- writes by a replay ----


def before_write(blocks: set[int]) -> None:
    """Get ready for a replay that writes to memory blocks, given by the ids of their buffers.

    Lazy tensors that read them are computed first; tensors that stand for them get new nodes where
    a value computed from the old ones is still known.
    """
    waiting = [t for t in live_tensors() if t.owner is None and not _stands_for_memory(t.uop)]
    readers = [t for t in waiting if engine.reads_memory(t.uop, blocks)]
    if readers:
        realize(readers)
    renamed = {node: engine.rename(node) for node in engine.readers_of(blocks)}
    if not renamed:
        return
    for tensor in live_tensors():
        chain, base = split_view(tensor.uop)
        if base in renamed:
            tensor.uop = apply_view(chain, renamed[base])


def _stands_for_memory(node: UOp) -> bool:
    return split_view(node)[1].op is Op.BUFFER


# ---- gradients ----


def _required_nodes() -> set[UOp]:
    """The nodes of all tensors that the user wants gradients of."""
    found: set[UOp] = set()
    for tensor in live_tensors():
        if tensor.required or tensor.is_target:
            found.update(nodes_of(tensor))
    return found


def requires_history(node: UOp) -> bool:
    """Whether `node` was computed from a tensor that requires a gradient."""
    leaves = _required_nodes()
    return bool(leaves) and reaches(node, leaves)


def nodes_of(tensor: Handle) -> tuple[UOp, ...]:
    """The nodes that stand for a tensor in graphs: today's, and the lazy one it was before."""
    former = None if tensor.former is None else tensor.former()
    return (tensor.uop,) if former is None else (tensor.uop, former)


def reaches(root: UOp, targets: Collection[UOp]) -> bool:
    """Whether a gradient can flow from `root` to one of `targets`."""
    seen: set[UOp] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node in targets:
            return True
        if node in seen or node.op is Op.DETACH or not (node.dtype.is_float or node.src):
            continue
        seen.add(node)
        stack.extend(source for source in node.src if source.dtype.is_float)
    return False
