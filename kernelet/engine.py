"""Run graphs: which memory holds which value, and the launches that compute it.

In:  nodes to realize.
Out: `realized(node)`, a view of a BUFFER whose memory holds the value.

The graph does not know that memory exists: this module keeps a weak map from nodes to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernelet import backends, holdings, pipeline, programs
from kernelet.base.errors import ArgumentError, JitError
from kernelet.graph.movement import rows_of
from kernelet.graph.ops import MOVEMENT, Op
from kernelet.graph.uop import ParamArg, UOp
from kernelet.graph.walk import sizes_of, substitute, with_bound_values
from kernelet.kernelize.multi import spread
from kernelet.kernelize.normalize import KEPT_VIEWS
from kernelet.kernelize.schedule import Schedule
from kernelet.launches import Launch, allocate, execute
from kernelet.runtime.buffer import Buffer

SCHEDULES_KEPT = 1024


_schedules: dict[tuple[UOp, str], Schedule] = {}


# ---- memory ----


def contents(node: UOp) -> memoryview:
    """The elements of a realized node in row-major order, read-only.

    On a host device this is the memory itself: later writes in place show.
    """
    if isinstance(node.device, tuple):
        (node,) = realize([UOp(Op.COPY, node.dtype, (node,), node.device[0])])
    plain = with_bound_values(node)
    found = rows_of(plain)
    if found is None:
        # With the sizes of this moment, so that the rows of the copy follow each other.
        (copied,) = realize([UOp(Op.CONTIGUOUS, node.dtype, (plain,))])
        found = rows_of(copied)
    assert found is not None
    base, start = found
    itemsize = node.dtype.itemsize
    size = math.prod(dim for dim in plain.shape if isinstance(dim, int))
    return memory_to_read(base).view(start * itemsize, size * itemsize).contents()


def memory_to_read(base: UOp) -> Buffer:
    """The memory of a BUFFER; JitError if a function is captured and replays change it."""
    recorder = holdings.current_recorder.get()
    if recorder is not None and recorder.is_strict and recorder.changes(holdings.memories[base]):
        raise JitError(
            "TinyJit (jit): the captured function asks for a value (item, numpy, tolist, print), "
            "which would be the same in every replay. Return the tensor and read it outside."
        )
    return holdings.memories[base]


# ---- what a graph needs ----


def _stored(node: UOp) -> UOp | None:
    """The memory to read `node` from: a number is written into the code, though it be stored too."""
    known = None if node.op is Op.CONST else holdings.values.get(node)
    if (
        known is not None
        and node.op is not Op.AFTER
        and holdings.base_of_view(known) in holdings.stale
    ):
        return None  # overwritten since: computed again; a write does not run twice
    return None if known is None or holdings.is_elsewhere(node, known) else known


@dataclass(slots=True)
class Prepared:
    """A graph in the form that schedules are kept by, and what was taken out of it.

    `writes` are computed too: what reads one of them may turn out not to need it.
    """

    sink: UOp
    buffers: list[UOp]
    values: dict[str, int]
    binds: dict[UOp, UOp]
    writes: list[UOp]


def prepare(nodes: Sequence[UOp]) -> Prepared:
    """Computed nodes and memory become PARAMs in order, bound variables become VARIABLEs."""
    buffers: dict[UOp, UOp] = {}
    views: dict[UOp, UOp] = {}
    values: dict[str, int] = {}
    binds: dict[UOp, UOp] = {}
    writes: list[UOp] = []
    written: set[UOp] | None = None
    is_captured = _is_captured()
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
            _note_bind(node, values, binds)
            continue
        known = _stored(node)
        if known is not None:
            views[node] = known
            _note_buffer(holdings.base_of_view(known), buffers)
            stack.extend(size for step in known.toposort() for size in sizes_of(step))
            continue
        if node.op is Op.BUFFER:
            _note_buffer(node, buffers)
            continue
        part = None if is_captured else _part_of_memory(node)
        if part is not None and written is None:
            written = holdings.overwritten(nodes)
        if part is not None and part[0] not in (written or ()):
            # Kernels for one batch of a data set are those for all: they do not know its place.
            _note_buffer(part[0], {})
            flat = UOp(Op.RESHAPE, node.dtype, (node,), (part[2],))
            views[node] = UOp(Op.RESHAPE, node.dtype, (flat,), node.shape)
            _note_memory(flat, part[2], part[0].arg.device, buffers)
            continue
        if node.op is Op.AFTER and len(node.src) > 1:
            writes.append(node)
        stack.extend(sizes_of(node))
        stack.extend(reversed(node.src))
    leaves = {**buffers, **{bind: variable for variable, bind in binds.items()}}
    leaves |= {node: substitute(view, leaves) for node, view in views.items()}
    sink = _without_leaf_numbers(substitute(UOp.sink(*nodes, *writes), leaves))
    return Prepared(sink, list(buffers), values, binds, writes)


def _is_captured() -> bool:
    """Whether a capture is made, which tells the parts of its arguments by their own memory."""
    recorder = holdings.current_recorder.get()
    return recorder is not None and recorder.is_strict


def _without_leaf_numbers(root: UOp) -> UOp:
    """The graph without the numbers that keep equal leaves apart: they are nothing to a kernel."""
    plain: dict[UOp, UOp] = {}
    for node in root.toposort():
        if node.op is Op.DETACH and node.arg is not None:
            plain[node] = substitute(node.src[0], plain)
    return substitute(root, plain) if plain else root


def _note_bind(node: UOp, values: dict[str, int], binds: dict[UOp, UOp]) -> None:
    variable, value = node.unbind()
    name = variable.arg.name
    if values.setdefault(name, value) != value:
        raise ArgumentError(
            f"Variable({name!r}) is bound to {values[name]} and to {value} in one computation. "
            "Use two names, or realize the first part before."
        )
    binds[variable] = node


def _note_buffer(node: UOp, buffers: dict[UOp, UOp]) -> None:
    if node not in holdings.stale and node not in holdings.memories:
        raise ArgumentError(
            "realize: inside vmap a tensor stands for every element of a batch and has no value "
            "yet. Return it and look at it outside; use where() instead of if."
        )
    if node in holdings.stale:
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
        return holdings.memories[node]
    itemsize = node.dtype.itemsize
    return holdings.memories[part[0]].view(part[1] * itemsize, part[2] * itemsize)


@holdings.exclusively
def schedule(nodes: Sequence[UOp]) -> Schedule:
    """The kernels that realizing `nodes` would run."""
    wanted = _wanted(nodes)
    return _schedule(prepare(wanted)) if wanted else Schedule((), (), 0, (), frozenset())


def _schedule(prepared: Prepared) -> Schedule:
    key = (prepared.sink, backends.default_device())
    found = _schedules.get(key)
    if found is None:
        found = pipeline.schedule(*key)
        while len(_schedules) >= SCHEDULES_KEPT:
            del _schedules[next(iter(_schedules))]
        _schedules[key] = found
    return found


# ---- running ----


@holdings.exclusively
def realize(nodes: Sequence[UOp]) -> list[UOp]:
    """Compute `nodes` where needed; the views that hold them.

    Readers of overwritten memory see its old contents.
    """
    known = _views_of(nodes)
    wanted = _wanted(nodes)
    if not wanted:
        return known
    recorder = holdings.current_recorder.get()
    if recorder is not None:
        recorder.roots += [node for node in nodes if holdings.realized(node) is None]
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
    parts = dict.fromkeys(part for node in nodes for part in holdings.parts_of(node))
    return [part for part in parts if holdings.realized(part) is None]


def _views_of(nodes: Sequence[UOp]) -> list[UOp]:
    views = [holdings.realized(node) for node in nodes]
    return [view for view in views if view is not None]


def run(plan: Schedule, buffers: Sequence[Buffer], values: dict[str, int]) -> None:
    """Launch all calls of a schedule."""
    devices = [plan.slots[call.slots[0]].device for call in plan.calls]
    wanted: dict[str, list[UOp]] = {}
    for call, name in zip(plan.calls, devices, strict=True):
        if call.kernel is not None:
            wanted.setdefault(name, []).append(call.kernel)
    loaded = {name: programs.runners(kernels, name) for name, kernels in wanted.items()}
    recorder = holdings.current_recorder.get()
    for call, name in zip(plan.calls, devices, strict=True):
        runner = None if call.kernel is None else loaded[name][call.kernel]
        memory = tuple(buffers[slot] for slot in call.slots)
        names = () if runner is None else runner.program.variables
        step = Launch(runner, memory, tuple(values[name] for name in names), call.outputs)
        if recorder is not None:
            recorder.steps.append(step)
        execute(step)


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
                leaves[slot] = holdings.adopt(buffers[slot], info.size, info.dtype)
        return leaves[slot]

    for node, result in zip([*wanted, *prepared.writes], plan.results, strict=True):
        # What a view is of has the memory: other views of it are then known too.
        while node.op is Op.DETACH or _is_same_view(node, result):
            result = result if node.op is Op.DETACH else result.src[0]
            node = node.src[0]
        param = holdings.base_of_view(result)
        views.append(substitute(result, {param: leaf(param.arg.slot), **prepared.binds}))
        holdings.values[node] = views[-1]
    for slot in plan.written:
        holdings.stale.add(prepared.buffers[slot])
        holdings.memories.pop(prepared.buffers[slot], None)
    return views


def _is_same_view(node: UOp, result: UOp) -> bool:
    """Whether a result is the movement that was asked for, and not one that replaced it."""
    if node.op not in KEPT_VIEWS or node.op is not result.op or node.arg != result.arg:
        return False
    return node.src[0].shape == result.src[0].shape
