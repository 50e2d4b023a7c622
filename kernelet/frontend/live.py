"""The tensors that exist now, and what must happen to them when memory is written.

In:  tensors to realize.
Out: calls of the engine, and tensors whose node is a view of memory.

A value never changes: an expression that was built before a write sees what was there before. So
whenever a schedule overwrites memory, the lazy tensors that still read its old contents are
realized in that same schedule, before the write. What nobody holds is not kept.
"""

from __future__ import annotations

import itertools
import operator
import threading
import weakref
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from kernelet import engine, holdings
from kernelet.base.dtype import DType
from kernelet.frontend import history
from kernelet.graph.ops import MOVEMENT, Op
from kernelet.graph.uop import UOp
from kernelet.graph.walk import apply_view, binds_in, reachable, split_view, substitute

Change = tuple[int, int]  # when, and in which thread


class Handle(Protocol):
    """What this module needs to know of a tensor.

    `required` is what the user said about gradients, `former` the lazy node that `uop` replaces,
    `is_leaf` says that gradients end here. `owner` is the tensor whose unasked gradient this is: it
    outlives a write only if that tensor is itself written, and `is_lost` says that it did not.
    `born` is when it was made, to be compared with `now()`, `changed` when and in which thread it
    was made or given another value last.
    """

    uop: UOp
    required: bool | None
    former: weakref.ref[UOp] | None
    is_leaf: bool
    is_lost: bool
    owner: weakref.ref[Handle] | None
    born: int
    changed: Change

    @property
    def dtype(self) -> DType:
        """The element type."""


_MEMORY = frozenset({Op.BUFFER, Op.AFTER, Op.MULTI})
_numbers = itertools.count(1)
# The tensors that exist, by when each was made or changed last.
_live: weakref.WeakValueDictionary[Change, Handle] = weakref.WeakValueDictionary()


def register(tensor: Handle) -> None:
    """Note that a tensor exists, and since when."""
    tensor.changed = next(_numbers), threading.get_ident()
    tensor.born = tensor.changed[0]
    _live[tensor.changed] = tensor


def live_tensors() -> list[Handle]:
    """All tensors that exist now."""
    return [tensor for ref in _live.valuerefs() if (tensor := ref()) is not None]


def note_change(tensor: Handle) -> None:
    """Note that a tensor stands for another value than before."""
    before, tensor.changed = tensor.changed, (next(_numbers), threading.get_ident())
    # In this order, so that another thread finds the tensor at every moment.
    _live[tensor.changed] = tensor
    _live.pop(before, None)


def now() -> int:
    """The moment up to which everything has happened."""
    return next(_numbers)


def changed_since(mark: int, thread: int | None = None) -> list[Handle]:
    """The tensors that were made or given another value after `mark = now()`, in one thread or any."""
    alive = (tensor for ref in reversed(_live.valuerefs()) if (tensor := ref()) is not None)
    recent = itertools.takewhile(lambda tensor: tensor.changed[0] >= mark, alive)
    return [tensor for tensor in recent if thread in (None, tensor.changed[1])]


# ---- views ----


def repeats(chain: Sequence[UOp]) -> bool:
    """Whether a view shows an element twice or shows padding, so that it cannot be written."""
    return any(step.op in (Op.EXPAND, Op.PAD) for step in chain)


def bases_of(node: UOp) -> list[UOp]:
    """What is below a view, on each of its devices."""
    base = split_view(node)[1]
    if base.op is not Op.MULTI:
        return [base]
    return [split_view(part)[1] for part in base.src]


def without_detach(node: UOp) -> UOp:
    """A view of memory without the DETACH nodes in it; any other node as it is."""
    chain, base = split_view(node)
    return apply_view(chain, base) if base.op in _MEMORY else node


# ---- realizing ----


@holdings.exclusively
def realize(tensors: Iterable[Handle]) -> None:
    """Compute the tensors, and first whatever reads memory that this overwrites."""
    wanted = list(tensors)
    # The views hold the values until the tensors do.
    views = [holdings.realized(tensor.uop) for tensor in wanted]
    pending = [tensor for tensor, view in zip(wanted, views, strict=True) if view is None]
    if pending:
        given = {id(tensor) for tensor in pending}
        readers, last = _keep_readers([tensor.uop for tensor in pending], given)
        recorder = holdings.current_recorder.get()
        is_own = [recorder is None or recorder.has_seen(reader.changed) for reader in readers]
        _copy_views(readers)
        with holdings.recording(None):
            # What is not the work of a function is no part of what is run again.
            realize(itertools.compress(readers, map(operator.not_, is_own)))
        readers = list(itertools.compress(readers, is_own))
        readers += _stored_on_the_way([tensor.uop for tensor in pending], given)
        for tensor in (*pending, *readers):
            if any(_is_between_writes(base, last) for base in bases_of(tensor.uop)):
                _let_copy(tensor)
        nodes = [tensor.uop for tensor in pending]
        kept = [reader.uop for reader in readers]
        if kept and _bind_differently([*kept, *nodes]):
            for node in kept:
                views += engine.realize([node])
            kept = []
        views += engine.realize([*kept, *nodes])
        wanted.extend(readers)
    settle(*wanted)


def _stored_on_the_way(nodes: list[UOp], given: set[int]) -> list[Handle]:
    """Tensors that were asked to be `contiguous` and are computed now: they keep their value."""
    asked = {
        tensor.uop: tensor
        for tensor in live_tensors()
        if tensor.uop.op is Op.CONTIGUOUS and id(tensor) not in given
    }
    if not asked:
        return []
    order = reachable(nodes, lambda node: () if holdings.realized(node) is not None else node.src)
    return [asked[node] for node in order if node in asked and holdings.realized(node) is None]


def _is_between_writes(base: UOp, last: Collection[UOp]) -> bool:
    """Whether a view shows memory between two writes, of which only a copy outlives the second."""
    return base.op is Op.AFTER and base not in last and holdings.realized(base) is None


def _bind_differently(nodes: Iterable[UOp]) -> bool:
    """Whether some Variable has several values in these graphs, so that they run apart."""
    found: dict[UOp, UOp] = {}
    binds = binds_in(UOp.sink(*nodes))
    return any(found.setdefault(bind.src[0], bind) is not bind for bind in binds)


def settle(*tensors: Handle) -> None:
    """Let computed tensors stand for their memory; keep what gradients need to know of them."""
    held: tuple[set[UOp], set[UOp]] | None = None
    for tensor in tensors:
        computed, found = tensor.uop, holdings.realized(tensor.uop)
        if found is None or found is computed:
            continue
        tensor.is_leaf = True
        if tensor.required is None and tensor.dtype.is_float:
            held = _held_nodes() if held is None else held
            own = (computed, *nodes_of(tensor))
            required, others = (nodes.difference(own) for nodes in held)
            if history.reaches(computed, required) or history.is_worth_keeping(computed, others):
                # What a write to computed memory comes from is known already.
                history.remember(found, own[1])
                tensor.is_leaf = False
        tensor.former = weakref.ref(computed)
        cut = without_detach(computed) is not computed
        tensor.uop = UOp(Op.DETACH, tensor.dtype, (found,)) if cut else found


def _keep_readers(nodes: list[UOp], given: set[int]) -> tuple[list[Handle], set[UOp]]:
    """Tensors that read memory which realizing `nodes` overwrites, and the last writes of all."""
    readers: list[Handle] = []
    while True:
        # A reader may hold more writes, before which others read.
        graphs = [*nodes, *[reader.uop for reader in readers]]
        last = _last_writes(graphs)
        found = _readers_of(holdings.overwritten(graphs), last, given) if last else []
        if not found:
            return readers, last
        readers += found


def _readers_of(written: set[UOp], last_writes: set[UOp], given: set[int]) -> list[Handle]:
    """Tensors, but those whose ids are `given`, that read old contents."""
    search = _OldReaders(written, last_writes)
    others = [tensor for tensor in live_tensors() if id(tensor) not in given]
    readers = []
    for tensor in [tensor for tensor in others if search.reads(tensor.uop)]:
        given.add(id(tensor))
        if _is_spare(tensor, written):
            tensor.is_lost = True
            continue
        readers.append(tensor)
    return readers


def _copy_views(readers: Iterable[Handle]) -> None:
    """Let those that stand for memory itself become copies, which outlive a write to it."""
    for tensor in readers:
        if holdings.realized(tensor.uop) is not None:
            _let_copy(tensor)


def _let_copy(tensor: Handle) -> None:
    tensor.uop = UOp(Op.CONTIGUOUS, tensor.dtype, (tensor.uop,))
    note_change(tensor)


def _is_spare(tensor: Handle, written: set[UOp]) -> bool:
    """Whether this is a gradient that nobody asked for, of a tensor that is not updated."""
    owner = None if tensor.owner is None else tensor.owner()
    if owner is None:
        return False
    bases = bases_of(owner.uop)
    storages = [holdings.storage_of(each) if each.op is Op.AFTER else each for each in bases]
    return written.isdisjoint(storages)


def _last_writes(nodes: Iterable[UOp]) -> set[UOp]:
    """The AFTER nodes whose storage is not written again: their values will be in memory."""

    def is_known(node: UOp) -> bool:
        return node.op not in MOVEMENT and holdings.realized(node) is not None

    order = reachable(nodes, lambda node: () if is_known(node) else node.src)
    found = {node for node in order if node.op is Op.AFTER and not is_known(node)}
    return found - {node.src[0] for node in found}


class _OldReaders:
    """Finds graphs that read old contents of `written`; remembers what it saw."""

    def __init__(self, written: set[UOp], last_writes: set[UOp]) -> None:
        self._readers, self._others = set(written), last_writes - written

    def reads(self, root: UOp) -> bool:
        """Whether the value of `root` needs the old contents."""
        seen = []
        for node in reachable([root], self._below):
            if node in self._readers:
                self._readers.add(root)
                return True
            seen.append(node)
        self._others.update(seen)
        return False

    def _below(self, node: UOp) -> tuple[UOp, ...]:
        return () if node in self._others else holdings.what_is_read(node)


# ---- writes by a replay ----


def needs_care(tensor: Handle, written: set[int], used: set[int]) -> bool:
    """Whether launches that use and write this memory (ids of whole buffers) concern a tensor."""
    base = split_view(tensor.uop)[1]
    if base.op is Op.BUFFER and (tensor.is_leaf or holdings.lies_in(base, written)):
        return holdings.lies_in(base, written)
    # Gradients read again what memory was computed from.
    roots = (
        history.sources_of(tensor.uop)
        if base.op is Op.BUFFER
        else [base, *history.sources_of(base)]
    )
    return any(holdings.concerns(root, written, used) for root in roots)


@holdings.exclusively
def before_replay(written: set[int], used: set[int], followers: Collection[int]) -> None:
    """Get ready for launches behind the graph's back, which write to memory and use more of it.

    Memory is named by the ids of whole buffers. Pending writes to it run first. Whoever stands for
    written memory gets a copy, except `followers` (ids of tensors), which show what the launches
    write; lazy tensors that read it are computed. Nodes from which a value was computed that is
    still known do not stand for the memory any longer.
    """
    run_pending_writes(used)
    nodes = {node for node in holdings.buffer_nodes() if holdings.lies_in(node, written)}
    readers = _readers_of(nodes, set(), set(followers))
    _copy_views(readers)
    realize(readers)
    lazy = [t.uop for t in live_tensors() if split_view(t.uop)[1].op is not Op.BUFFER]
    rename(holdings.read_by(nodes, [*lazy, *history.all_sources()]))


def run_pending_writes(blocks: set[int] | None = None) -> None:
    """Run the writes that wait, all or those to memory in these blocks."""

    def is_meant(node: UOp) -> bool:
        return blocks is None or holdings.lies_in(node, blocks)

    mine = holdings.current_recorder.get()
    others = [each for each in holdings.recorders if each is not mine]
    # What other threads are recording they run themselves.
    found = [t for t in live_tensors() if not any(each.has_seen(t.changed) for each in others)]
    realize([t for t in found if any(map(is_meant, holdings.overwritten([t.uop])))])


@holdings.exclusively
def rename(nodes: Iterable[UOp]) -> None:
    """Give these BUFFERs new nodes, and the tensors that stand for them."""
    renamed = {node: holdings.rename(node) for node in nodes}
    if not renamed:
        return
    for tensor in live_tensors():
        if not renamed.keys().isdisjoint(bases_of(tensor.uop)):
            tensor.uop = substitute(without_detach(tensor.uop), renamed)


def cut_history(tensor: Handle) -> None:
    """Let a computed tensor stand for its memory alone: gradients end there."""
    found = holdings.realized(tensor.uop)
    if found is not None:
        history.forget(found)
        tensor.uop, tensor.former, tensor.is_leaf = found, None, True


# ---- gradients ----


def _held_nodes() -> tuple[set[UOp], set[UOp]]:
    """The nodes of tensors that the user wants gradients of, and of those that may have some."""
    required: set[UOp] = set()
    others: set[UOp] = set()
    for tensor in live_tensors():
        if not tensor.dtype.is_float:
            continue
        if tensor.required:
            required.update(nodes_of(tensor))
        elif tensor.required is None:
            others.update((tensor.uop, *nodes_of(tensor)))
    return required, others


def requires_history(node: UOp) -> bool:
    """Whether `node` was computed from a tensor that requires a gradient."""
    return history.reaches(node, _held_nodes()[0])


def nodes_of(tensor: Handle) -> tuple[UOp, ...]:
    """The nodes that stand for a tensor in graphs: today's, and the lazy one it was before."""
    computed = history.computed_from(tensor.uop)
    if computed is not None:
        return (computed,)
    former = None if tensor.former is None else tensor.former()
    return (tensor.uop,) if former is None else (tensor.uop, former)
