"""Run graphs: which memory holds which value, and the launches that compute it.

In:  nodes to realize.
Out: `realized(node)`, a view of a BUFFER whose memory holds the value.

The graph does not know that memory exists: this module keeps a weak map from nodes to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary, WeakSet, ref

from kernelet import backends, pipeline, programs
from kernelet.base.dtype import DType
from kernelet.base.errors import ArgumentError, JitError
from kernelet.graph.movement import rows_of
from kernelet.graph.ops import MOVEMENT, Op
from kernelet.graph.uop import ParamArg, UOp
from kernelet.graph.view import tracker_of
from kernelet.graph.walk import sizes_of, substitute, with_bound_values
from kernelet.kernelize.multi import spread
from kernelet.kernelize.normalize import KEPT_VIEWS
from kernelet.kernelize.schedule import CopyCall, KernelCall, Schedule
from kernelet.launches import Launch, Step, Transfer, allocate, execute, memory_of
from kernelet.programs import Runner
from kernelet.runtime import device
from kernelet.runtime.buffer import Buffer

SCHEDULES_KEPT = 1024


class _Values:
    """Which view of memory holds the value of a node.

    Caches of the compiler keep graphs that read no memory: what such a node computed is known only
    while somebody stands for the memory, or its memory would never be free again.
    """

    def __init__(self) -> None:
        self._views: WeakKeyDictionary[UOp, UOp | ref[UOp]] = WeakKeyDictionary()

    def get(self, node: UOp) -> UOp | None:
        """The view that holds the value of `node`."""
        found = self._views.get(node)
        recorder = None if found is None else _recorder.get()
        if recorder is not None and node in recorder.outdated:
            return None
        return found() if isinstance(found, ref) else found

    def __contains__(self, node: UOp) -> bool:
        return self.get(node) is not None

    def __setitem__(self, node: UOp, view: UOp) -> None:
        self._views[node] = view if _reads_any_memory(node) else ref(view)
        recorder = _recorder.get()
        if recorder is not None:
            recorder.outdated.discard(node)

    def __iter__(self) -> Iterator[UOp]:
        return iter(list(self._views))


_memory: WeakKeyDictionary[UOp, Buffer] = WeakKeyDictionary()
_realized = _Values()
_stale: WeakSet[UOp] = WeakSet()
_schedules: dict[tuple[UOp, str], Schedule] = {}


def default_device() -> str:
    """The device of tensors for which none is named."""
    return backends.default_device()


# ---- memory ----


def new_buffer(data: bytes | memoryview | None, size: int, dtype: DType, name: str) -> UOp:
    """A BUFFER node with memory on device `name`, holding a copy of `data`."""
    node = UOp.buffer(size, dtype, device.canonical(name))
    buffer = Buffer(node.arg.device, size * dtype.itemsize)
    if data is not None:
        buffer.copy_in(data)
    _memory[node] = buffer
    return node


def adopt(buffer: Buffer, size: int, dtype: DType) -> UOp:
    """A BUFFER node for memory that is there already."""
    node = UOp.buffer(size, dtype, buffer.device)
    _memory[node] = buffer
    return node


def node_over(buffer: Buffer, size: int, dtype: DType) -> UOp:
    """The BUFFER node that stands for memory now; a new one when there is none."""
    for node, other in _memory.items():
        same = other.whole is buffer.whole and other.offset == buffer.offset
        if same and node.arg.size == size and node.dtype is dtype:
            return node
    return adopt(buffer, size, dtype)


def memory(node: UOp) -> Buffer:
    """The memory of a BUFFER."""
    return _memory[node]


def memory_if_current(node: UOp) -> Buffer | None:
    """The memory of a BUFFER; None once that was overwritten, for it stands for none then."""
    return _memory.get(node)


def realized(node: UOp) -> UOp | None:
    """`node` as a view of memory that holds its value; None when it was not computed."""
    chain = []
    base = node
    while (base.op in MOVEMENT or base.op is Op.DETACH) and base not in _realized:
        chain.append(base)
        base = base.src[0]
    if base.op is Op.BUFFER:
        return None if base in _stale else node
    found = _realized.get(base)
    if found is None and isinstance(node.device, tuple):
        views = [realized(part) for part in parts_of(node)]
        known = tuple([view for view in views if view is not None])
        return spread(node).replace(src=known) if len(known) == len(views) else None
    if found is None or _base(found) in _stale or _is_elsewhere(base, found):
        return None
    for step in reversed(chain):
        if step.op is not Op.DETACH:
            found = step.replace(src=(found,))
    return found


def parts_of(node: UOp) -> tuple[UOp, ...]:
    """The nodes of one device each that make up a value."""
    return spread(node).src if isinstance(node.device, tuple) else (node,)


def _base(node: UOp) -> UOp:
    while node.op in MOVEMENT or node.op is Op.DETACH:
        node = node.src[0]
    return node


def read_bytes(node: UOp) -> bytes:
    """The elements of a realized node in row-major order, as a copy."""
    if isinstance(node.device, tuple):
        (node,) = realize([UOp(Op.COPY, node.dtype, (node,), node.device[0])])
    plain = with_bound_values(node)
    base, tracker = tracker_of(plain)
    view = tracker.strided_view()
    if view is None or not view.is_row_major:
        # With the sizes of this moment, so that the rows of the copy follow each other.
        (found,) = realize([UOp(Op.CONTIGUOUS, node.dtype, (plain,))])
        base, tracker = tracker_of(found)
        view = tracker.strided_view()
    recorder = _recorder.get()
    if recorder is not None and recorder.is_strict and recorder.changes(_memory[base]):
        raise JitError(
            "TinyJit (jit): the captured function asks for a value (item, numpy, tolist, print), "
            "which would be the same in every replay. Return the tensor and read it outside."
        )
    assert view is not None and isinstance(view.size, int) and isinstance(view.offset, int)
    itemsize = node.dtype.itemsize
    part = _memory[base].view(view.offset * itemsize, view.size * itemsize)
    return bytes(part.copy_out())


# ---- what a graph needs ----


def _is_elsewhere(node: UOp, view: UOp) -> bool:
    """Whether a value of no device is in the memory of another than the one it is wanted on."""
    return node.device is None and _base(view).device != default_device()


def _stored(node: UOp) -> UOp | None:
    """The memory to read `node` from: a number is written into the code, though it be stored too."""
    known = None if node.op is Op.CONST else _realized.get(node)
    if known is not None and node.op is not Op.AFTER and _base(known) in _stale:
        return None  # overwritten since: computed again; a write does not run twice
    return None if known is None or _is_elsewhere(node, known) else known


@dataclass(slots=True)
class Prepared:
    """A graph in the form that schedules are kept by, and what was taken out of it."""

    sink: UOp
    buffers: list[UOp]
    values: dict[str, int]
    binds: dict[UOp, UOp]
    writes: list[UOp]


def prepare(nodes: Sequence[UOp]) -> Prepared:
    """Computed nodes and memory become PARAMs in order, bound variables become VARIABLEs."""
    buffers: dict[UOp, UOp] = {}
    mapping: dict[UOp, UOp] = {}
    values: dict[str, int] = {}
    binds: dict[UOp, UOp] = {}
    writes: list[UOp] = []
    written = overwritten(nodes)
    recorder = _recorder.get()
    # A capture tells the parts of its arguments by their own memory.
    is_captured = recorder is not None and recorder.is_strict
    seen: set[UOp] = set()
    stack = list(reversed(nodes))
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op is Op.MULTI or (node.op is Op.COPY and not isinstance(node.arg, str)):
            return prepare([spread(each) for each in nodes])
        if node.op is Op.BIND:
            _note_bind(node, values, binds, mapping)
            continue
        known = _stored(node)
        if known is not None:
            mapping[node] = known
            _note_buffer(_base(known), buffers)
            stack.extend(size for step in known.toposort() for size in sizes_of(step))
            continue
        if node.op is Op.BUFFER:
            _note_buffer(node, buffers)
            continue
        part = None if is_captured else _part_of_memory(node)
        if part is not None and part[0] not in written:
            # Kernels for one batch of a data set are those for all: they do not know its place.
            _note_buffer(part[0], {})
            flat = UOp(Op.RESHAPE, node.dtype, (node,), (part[2],))
            mapping[node] = UOp(Op.RESHAPE, node.dtype, (flat,), node.shape)
            _note_memory(flat, part[2], part[0].arg.device, buffers)
            continue
        if node.op is Op.AFTER:
            writes.append(node)
        stack.extend(sizes_of(node))
        stack.extend(reversed(node.src))
    leaves = {**buffers, **mapping}
    plain = {node: other for node, other in mapping.items() if node.op is Op.BIND}
    inner = {**buffers, **plain}
    for node, known in mapping.items():
        if node.op is not Op.BIND:
            leaves[node] = substitute(known, inner)
    sink = _without_leaf_numbers(substitute(UOp.sink(*nodes), leaves))
    return Prepared(sink, list(buffers), values, binds, writes)


def _without_leaf_numbers(root: UOp) -> UOp:
    """The graph without the numbers that keep equal leaves apart: they are nothing to a kernel."""
    plain: dict[UOp, UOp] = {}
    for node in root.toposort():
        if node.op is Op.DETACH and node.arg is not None:
            plain[node] = substitute(node.src[0], plain)
    return substitute(root, plain) if plain else root


def _note_bind(
    node: UOp, values: dict[str, int], binds: dict[UOp, UOp], mapping: dict[UOp, UOp]
) -> None:
    variable, value = node.unbind()
    name = variable.arg.name
    if values.setdefault(name, value) != value:
        raise ArgumentError(
            f"Variable({name!r}) is bound to {values[name]} and to {value} in one computation. "
            "Use two names, or realize the first part before."
        )
    binds[variable] = node
    mapping[node] = variable


def _note_buffer(node: UOp, buffers: dict[UOp, UOp]) -> None:
    if node in _stale or node not in _memory:
        raise ArgumentError(
            "realize: the tensor reads memory that was overwritten since. Realize it before the "
            "write."
        )
    _note_memory(node, node.arg.size, node.arg.device, buffers)


def _note_memory(node: UOp, size: int, name: str, buffers: dict[UOp, UOp]) -> None:
    if node not in buffers:
        buffers[node] = UOp(Op.PARAM, node.dtype, (), ParamArg(len(buffers), size, name))


def _part_of_memory(node: UOp) -> tuple[UOp, int, int] | None:
    """The BUFFER that some neighbouring rows are a part of, where they begin in it, their size."""
    found = rows_of(node) if node.op in MOVEMENT else None
    if found is None or found[0].op is not Op.BUFFER:
        return None
    size = math.prod(dim for dim in node.shape if isinstance(dim, int))
    return (*found, size) if 0 < size < found[0].arg.size else None


def _given_memory(node: UOp) -> Buffer:
    """The memory of a BUFFER, or of neighbouring rows in it."""
    part = None if node.op is Op.BUFFER else _part_of_memory(node)
    if part is None:
        return _memory[node]
    itemsize = node.dtype.itemsize
    return _memory[part[0]].view(part[1] * itemsize, part[2] * itemsize)


def overwritten(nodes: Iterable[UOp]) -> set[UOp]:
    """The BUFFER nodes that realizing `nodes` writes to."""
    found: set[UOp] = set()
    seen: set[UOp] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node in seen or node in _realized:
            continue
        seen.add(node)
        if node.op is Op.AFTER:
            storage = _storage_of(node)
            if storage.op is Op.BUFFER:
                found.add(storage)
        stack.extend(node.src)
    return found


def _storage_of(write: UOp) -> UOp:
    """What an AFTER writes to: a BUFFER, or a value that gets memory in the same schedule."""
    storage = write.src[0]
    # An earlier write that is done already has memory of its own.
    while storage not in _realized and (storage.op is Op.AFTER or storage.op in MOVEMENT):
        storage = storage.src[0]
    known = _realized.get(storage)
    return storage if known is None else _base(known)


def readers_of(blocks: set[int], roots: Iterable[UOp]) -> list[UOp]:
    """BUFFER nodes over the given memory (ids of whole buffers) that something is computed from:
    `roots`, or a value that is known.

    Their values are about to change, so the nodes must not stand for them any longer.
    """
    nodes = {n for n, b in _memory.items() if id(b.whole) in blocks}
    if not nodes:
        return []
    return [node for node in UOp.sink(*_realized, *roots).toposort() if node in nodes]


def _reads_any_memory(root: UOp) -> bool:
    seen: set[UOp] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node.op is Op.BUFFER:
            return True
        if node not in seen:
            seen.add(node)
            stack.extend(node.src)
    return False


def lies_in(node: UOp, blocks: set[int]) -> bool:
    """Whether `node` is memory in one of the blocks."""
    buffer = _memory.get(node)
    return buffer is not None and id(buffer.whole) in blocks


def concerns(root: UOp, written: set[int], used: set[int]) -> bool:
    """Whether a graph has to do with `written` memory, or has a pending write to `used` memory."""
    seen: set[UOp] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op is Op.BUFFER:
            if lies_in(node, written):
                return True
            continue
        known = _realized.get(node)
        if known is not None:
            stack.append(_base(known))
        elif node.op is Op.AFTER and any(lies_in(each, used) for each in overwritten([node])):
            return True
        stack.extend(node.src)
    return False


def buffer_nodes() -> dict[UOp, Buffer]:
    """All BUFFER nodes that stand for memory now."""
    return dict(_memory)


def reads_memory(root: UOp, blocks: set[int]) -> bool:
    """Whether computing `root` would read one of the memory blocks."""
    seen: set[UOp] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        known = _realized.get(node)
        if known is not None:
            stack.append(_base(known))
        elif node.op is Op.BUFFER:
            buffer = _memory.get(node)
            if buffer is not None and id(buffer.whole) in blocks:
                return True
        else:
            stack.extend(node.src)
    return False


def rename(node: UOp) -> UOp:
    """A new BUFFER node for the memory of `node`, which is stale from now on."""
    buffer = _memory.pop(node)
    _stale.add(node)
    return adopt(buffer, node.arg.size, node.dtype)


def schedule(nodes: Sequence[UOp]) -> Schedule:
    """The kernels that realizing `nodes` would run."""
    wanted = _wanted(nodes)
    return _schedule(prepare(wanted)) if wanted else Schedule((), (), 0, (), frozenset())


def _schedule(prepared: Prepared) -> Schedule:
    key = (prepared.sink, default_device())
    found = _schedules.get(key)
    if found is None:
        found = pipeline.schedule(*key)
        while len(_schedules) >= SCHEDULES_KEPT:
            del _schedules[next(iter(_schedules))]
        _schedules[key] = found
    return found


# ---- running ----


@dataclass(slots=True)
class Recorder:
    """Keeps what is run, in order, so that it can be run again.

    A strict one lets nobody read values that would be others when it is run again; one that is not
    keeps the nodes too that were asked for. `outdated` are nodes whose value is known and computed
    anew all the same, as the memory that they read may have changed when it is run again.
    """

    steps: list[Step] = field(default_factory=list)
    inputs: list[Buffer] = field(default_factory=list)
    roots: list[UOp] = field(default_factory=list)
    is_strict: bool = True
    outdated: WeakSet[UOp] = field(default_factory=WeakSet)

    def changes(self, buffer: Buffer) -> bool:
        """Whether the contents of a buffer differ from replay to replay."""
        written = [memory_of(step)[0] for step in self.steps]
        return any(buffer.whole is each.whole for each in (*written, *self.inputs))

    def forget_values(self) -> None:
        """Let what was computed from memory before be computed again, where that is possible."""
        known = list(_realized)
        reading: set[UOp] = set()
        lost: set[UOp] = set()
        for node in UOp.sink(*known).toposort():
            if node.op is Op.BUFFER or not reading.isdisjoint(node.src):
                reading.add(node)
            if node in _stale or not lost.isdisjoint(node.src):
                lost.add(node)
        self.outdated.update(
            n for n in known if n.op is not Op.AFTER and n in reading and n not in lost
        )


def is_recording() -> bool:
    """Whether launches are being handed to a recorder."""
    return _recorder.get() is not None


_recorder: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Hand all launches inside the block to `recorder` too."""
    token = _recorder.set(recorder)
    try:
        yield
    finally:
        _recorder.reset(token)


def realize(nodes: Sequence[UOp]) -> list[UOp]:
    """Compute `nodes` where needed; the views that hold them.

    Readers of overwritten memory see its old contents.
    """
    known = _views_of(nodes)
    wanted = _wanted(nodes)
    if not wanted:
        return known
    recorder = _recorder.get()
    if recorder is not None and not recorder.is_strict:
        recorder.roots += [node for node in nodes if realized(node) is None]
    prepared = prepare(wanted)
    plan = _schedule(prepared)
    buffers = allocate(plan, [_given_memory(node) for node in prepared.buffers])
    run(plan, buffers, prepared.values)
    kept = _settle(wanted, prepared, plan, buffers)
    found = _views_of(nodes)
    del kept
    return found


def _wanted(nodes: Iterable[UOp]) -> list[UOp]:
    """What is to be computed, each on one device."""
    parts = dict.fromkeys(part for node in nodes for part in parts_of(node))
    return [part for part in parts if realized(part) is None]


def _views_of(nodes: Sequence[UOp]) -> list[UOp]:
    views = [realized(node) for node in nodes]
    return [view for view in views if view is not None]


def run(plan: Schedule, buffers: Sequence[Buffer], values: dict[str, int]) -> None:
    """Launch all calls of a schedule."""
    wanted: dict[str, list[UOp]] = {}
    for call in plan.calls:
        if isinstance(call, KernelCall):
            wanted.setdefault(plan.slots[call.slots[0]].device, []).append(call.kernel)
    loaded = {name: programs.runners(kernels, name) for name, kernels in wanted.items()}
    recorder = _recorder.get()
    for call in plan.calls:
        step = _step(call, plan, buffers, values, loaded)
        if recorder is not None:
            recorder.steps.append(step)
        execute(step)


def _step(
    call: KernelCall | CopyCall,
    plan: Schedule,
    buffers: Sequence[Buffer],
    values: dict[str, int],
    loaded: dict[str, dict[UOp, Runner]],
) -> Step:
    if isinstance(call, CopyCall):
        return Transfer(buffers[call.target], buffers[call.source])
    runner = loaded[plan.slots[call.slots[0]].device][call.kernel]
    given = tuple(values[name] for name in runner.program.variables)
    return Launch(runner, tuple(buffers[slot] for slot in call.slots), given)


def _settle(
    wanted: Sequence[UOp], prepared: Prepared, plan: Schedule, buffers: Sequence[Buffer]
) -> list[UOp]:
    """Note where the values are; written memory gets a node of its own, the old one is stale."""
    leaves: dict[int, UOp] = {}
    views = []

    def leaf(slot: int) -> UOp:
        if slot not in leaves:
            if slot < plan.given and slot not in plan.written:
                leaves[slot] = prepared.buffers[slot]
            else:
                info = plan.slots[slot]
                leaves[slot] = adopt(buffers[slot], info.size, info.dtype)
        return leaves[slot]

    for node, result in zip(wanted, plan.results, strict=True):
        # What a view is of has the memory: other views of it are then known too.
        while node.op is Op.DETACH or _is_same_view(node, result):
            result = result if node.op is Op.DETACH else result.src[0]
            node = node.src[0]
        param = _base(result)
        views.append(substitute(result, {param: leaf(param.arg.slot), **prepared.binds}))
        _realized[node] = views[-1]
    inner = {write.src[0] for write in prepared.writes}
    for write in prepared.writes:
        if write in inner or write in _realized:
            continue
        storage = _storage_of(write)
        if storage in prepared.buffers:
            _realized[write] = leaf(prepared.buffers.index(storage))
    for slot in plan.written:
        _stale.add(prepared.buffers[slot])
        _memory.pop(prepared.buffers[slot], None)
    return views


def _is_same_view(node: UOp, result: UOp) -> bool:
    """Whether a result is the movement that was asked for, and not one that replaced it."""
    if node.op not in KEPT_VIEWS or node.op is not result.op or node.arg != result.arg:
        return False
    return node.src[0].shape == result.src[0].shape
