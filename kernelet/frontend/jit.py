"""Capture a function's kernels once and run them again without building graphs.

In:  a function of tensors, bound variables, plain values, and lists and dicts of them.
Out: `TinyJit`: the first call with a signature runs the function, the second captures what it
     launches, later ones replay.

Every call is compared with what was captured; one that differs in shape, type, device, structure,
plain value or instance has a capture of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from kernelet import engine
from kernelet.base import config
from kernelet.base.errors import JitError
from kernelet.engine import Recorder
from kernelet.frontend import live, random
from kernelet.frontend.tensor import Tensor
from kernelet.graph.ops import Op
from kernelet.graph.uop import ParamArg, UOp
from kernelet.graph.view import tracker_of
from kernelet.graph.walk import sizes_of, substitute
from kernelet.launches import Launch, Step, Transfer, execute
from kernelet.runtime.buffer import Buffer

MOST_CAPTURES = 64


@dataclass(slots=True)
class Inputs:
    """What one call was given: its signature, and the parts that a replay replaces.

    `views[n]` is input n over a PARAM in place of its memory, `variables` are the bound values.
    """

    key: list[object] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    views: list[UOp] = field(default_factory=list)
    variables: dict[UOp, int] = field(default_factory=dict)
    kept: list[object] = field(default_factory=list)


class _Collector:
    """Reads the arguments of a call."""

    def __init__(self) -> None:
        self.inputs = Inputs()
        self.found: list[Tensor] = []

    def read(self, value: object, name: str) -> None:
        """Add one argument, and all inside it, to the signature."""
        key = self.inputs.key
        if isinstance(value, Tensor):
            self.found.append(value)
            key.append("tensor")
        elif isinstance(value, UOp):
            self._bind(value, name)
        elif isinstance(value, list | tuple):
            key.append((type(value).__name__, len(value)))
            for number, part in enumerate(value):
                self.read(part, f"{name}[{number}]")
        elif isinstance(value, dict):
            key.append(("dict", len(value)))
            for name_of_part, part in value.items():
                key.append(name_of_part)
                self.read(part, f"{name}[{name_of_part!r}]")
        elif value is None or isinstance(value, bool | int | float | str | bytes):
            key.append((type(value).__name__, repr(value)))
        else:
            self._object(value, name)

    def _object(self, value: object, name: str) -> None:
        if hasattr(value, "__array_interface__"):
            raise JitError(
                f"TinyJit (jit): argument {name} is a {type(value).__name__}, whose contents a "
                "replay would not see. Give it as a Tensor."
            )
        self.inputs.key.append(("object", id(value)))
        # An identity is only worth something while the object lives.
        self.inputs.kept.append(value)

    def _bind(self, value: UOp, name: str) -> None:
        if value.op is not Op.BIND:
            raise JitError(
                f"TinyJit (jit): argument {name} is a Variable without a value. Bind it first: "
                "variable.bind(3)."
            )
        variable, number = value.unbind()
        self.inputs.key.append(variable)
        self._note(variable, number)

    def _note(self, variable: UOp, number: int) -> None:
        known = self.inputs.variables.setdefault(variable, number)
        if known != number:
            raise JitError(
                f"TinyJit (jit): Variable({variable.arg.name!r}) is bound to {known} and to "
                f"{number} in one call. Use two variables."
            )

    def finish(self) -> Inputs:
        """Realize the input tensors and add their form to the signature."""
        if self.found:
            live.realize(self.found)
        for tensor in self.found:
            self._tensor(tensor)
        places = [(buffer.base or buffer, buffer.offset) for buffer in self.inputs.buffers]
        # The same memory given twice is another function than two memories.
        self.inputs.key.append(tuple(places.index(place) for place in places))
        return self.inputs

    def _tensor(self, tensor: Tensor) -> None:
        node = engine.realized(tensor.uop)
        assert node is not None
        binds = _binds_in(node)
        for bind in binds:
            self._note(*bind.unbind())
        plain = substitute(node, {bind: bind.src[0] for bind in binds}) if binds else node
        base, tracker = tracker_of(plain)
        memory = engine.memory(base)
        view = tracker.strided_view()
        itemsize = node.dtype.itemsize
        if view is not None and view.is_row_major and isinstance(view.size, int):
            assert isinstance(view.offset, int)
            memory = memory.view(view.offset * itemsize, view.size * itemsize)
            form = UOp(Op.PARAM, node.dtype, (), ParamArg(0, view.size, base.arg.device))
            form = UOp(Op.RESHAPE, node.dtype, (form,), plain.shape)
        else:
            arg = ParamArg(0, base.arg.size, base.arg.device)
            form = substitute(plain, {base: UOp(Op.PARAM, base.dtype, (), arg)})
        self.inputs.key.append(form)
        self.inputs.key.append(tensor.required)
        self.inputs.tensors.append(tensor)
        self.inputs.buffers.append(memory)
        self.inputs.views.append(form)


def _binds_in(node: UOp) -> list[UOp]:
    found: dict[UOp, None] = {}
    for step in node.toposort():
        for size in sizes_of(step):
            found |= {part: None for part in size.toposort() if part.op is Op.BIND}
    return list(found)


def _over(view: UOp, leaf: UOp) -> UOp:
    """An input's view over other memory."""
    return substitute(view, {next(n for n in view.toposort() if n.op is Op.PARAM): leaf})


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a replay finds a piece of memory: an input, a fresh result, or fixed memory."""

    kind: str
    number: int = 0
    offset: int = 0
    nbytes: int = 0
    buffer: Buffer | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """One returned tensor: its memory, and its view of it."""

    slot: Slot
    view: UOp


class Captured:
    """The launches of one call, ready to be run with other memory."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs
        self.recorder = Recorder()
        self.draws: list[random.Draw] = []
        self.fresh: list[Buffer] = []
        self.steps: list[tuple[Step, tuple[Slot, ...]]] = []
        self.structure: object = None
        self.written: list[Slot] = []

    # ---- capturing ----

    def capture(self, call: Callable[[], object]) -> object:
        """Run the function once more and keep what it launches."""
        binds = {variable: variable.bind(n) for variable, n in self.inputs.variables.items()}
        for tensor, buffer, view in zip(
            self.inputs.tensors, self.inputs.buffers, self.inputs.views, strict=True
        ):
            leaf = engine.adopt(buffer, buffer.nbytes // tensor.dtype.itemsize, tensor.dtype)
            tensor.uop = substitute(_over(view, leaf), binds) if binds else _over(view, leaf)
        self.recorder.inputs = self.inputs.buffers
        with engine.recording(self.recorder), random.recording(self.draws):
            result = call()
            live.realize(_tensors_in(result))
        self._find_fresh(result)
        self.structure = self._structure(result)
        for step in self.recorder.steps:
            buffers = (step.target, step.source) if isinstance(step, Transfer) else step.buffers
            self.steps.append((step, tuple(self._slot(buffer) for buffer in buffers)))
        outputs = {_slot_key(slots[0]): slots[0] for _, slots in self.steps}
        self.written = [slot for slot in outputs.values() if slot.kind != "fresh"]
        self.recorder = Recorder()
        # The caller owns what the call was given and what it returned.
        self.inputs.tensors, self.inputs.buffers = [], []
        self.fresh = [Buffer(buffer.device, buffer.nbytes) for buffer in self.fresh]
        return result

    def _find_fresh(self, result: object) -> None:
        """The memory of results that the captured call itself made."""
        made = {
            id((step.target if isinstance(step, Transfer) else step.buffers[0]).whole)
            for step in self.recorder.steps
        }
        given = {id(buffer.whole) for buffer in self.inputs.buffers}
        before = self._older_memory(result)
        for tensor in _tensors_in(result):
            buffer = engine.memory(_base_of(tensor)).whole
            if id(buffer) in made - given - before and buffer not in self.fresh:
                self.fresh.append(buffer)

    def _older_memory(self, result: object) -> set[int]:
        """Memory that tensors outside of the results stand on: what the function keeps."""
        returned = {id(tensor) for tensor in _tensors_in(result)}
        found = set()
        for tensor in live.live_tensors():
            node = engine.realized(tensor.uop)
            if id(tensor) not in returned and node is not None:
                base = tracker_of(node)[0]
                found.add(id(engine.memory(base).whole))
        return found

    def _slot(self, buffer: Buffer) -> Slot:
        whole = buffer.whole
        for number, given in enumerate(self.inputs.buffers):
            if given.whole is whole and _inside(buffer, given):
                return Slot("input", number, buffer.offset - given.offset, buffer.nbytes)
        if whole in self.fresh:
            return Slot("fresh", self.fresh.index(whole), buffer.offset, buffer.nbytes)
        return Slot("fixed", buffer=buffer)

    def _structure(self, value: object) -> object:
        """The returned value with `Result`s in place of tensors."""
        if isinstance(value, Tensor):
            node = engine.realized(value.uop)
            assert node is not None
            base = tracker_of(node)[0]
            slot = self._slot(engine.memory(base))
            if slot.kind == "fixed":
                # What the function keeps is returned as it is: it is updated in place.
                return value
            arg = ParamArg(0, base.arg.size, base.arg.device)
            mapping = {base: UOp(Op.PARAM, base.dtype, (), arg)}
            mapping |= {bind: bind.src[0] for bind in _binds_in(node)}
            return Result(slot, substitute(node, mapping))
        return _mapped(value, self._structure)

    # ---- replaying ----

    def replay(self, inputs: Inputs) -> object:
        """Run the captured launches on the memory of this call."""
        self._keep_readers(inputs)
        random.refill(self.draws)
        fresh = [Buffer(buffer.device, buffer.nbytes) for buffer in self.fresh]
        values = {variable.arg.name: n for variable, n in inputs.variables.items()}
        for step, slots in self.steps:
            buffers = tuple(_buffer_of(slot, inputs.buffers, fresh) for slot in slots)
            if isinstance(step, Transfer):
                execute(Transfer(*buffers))
                continue
            names = step.runner.program.variables
            pairs = zip(names, step.values, strict=True)
            given = tuple(values.get(name, known) for name, known in pairs)
            execute(Launch(step.runner, buffers, given))
        binds = {variable: variable.bind(n) for variable, n in inputs.variables.items()}
        leaves: dict[tuple[object, ...], UOp] = {}

        def tensor_of(value: object) -> object:
            if isinstance(value, Result):
                buffer = _buffer_of(value.slot, inputs.buffers, fresh)
                memory = next(n for n in value.view.toposort() if n.op is Op.PARAM)
                key = (*_slot_key(value.slot), memory.dtype)
                if key not in leaves:
                    leaves[key] = engine.adopt(buffer, memory.arg.size, memory.dtype)
                node = substitute(value.view, {memory: leaves[key], **binds})
                return live_leaf(node)
            return value if isinstance(value, Tensor) else _mapped(value, tensor_of)

        return tensor_of(self.structure)

    def _keep_readers(self, inputs: Inputs) -> None:
        """Lazy tensors that read what a replay writes are computed before."""
        written = [_buffer_of(slot, inputs.buffers, []) for slot in self.written]
        if written:
            live.before_write({id(buffer.whole) for buffer in written})


def live_leaf(node: UOp) -> Tensor:
    """A tensor for memory that holds its value."""
    tensor = Tensor(node)
    tensor.is_leaf = True
    return tensor


def _inside(part: Buffer, given: Buffer) -> bool:
    return given.offset <= part.offset and part.offset + part.nbytes <= given.offset + given.nbytes


def _slot_key(slot: Slot) -> tuple[object, ...]:
    return slot.kind, slot.number, slot.offset, slot.nbytes, id(slot.buffer)


def _buffer_of(slot: Slot, inputs: Sequence[Buffer], fresh: Sequence[Buffer]) -> Buffer:
    if slot.kind == "fixed":
        assert slot.buffer is not None
        return slot.buffer
    whole = inputs[slot.number] if slot.kind == "input" else fresh[slot.number]
    if slot.offset == 0 and slot.nbytes == whole.nbytes:
        return whole
    return whole.view(slot.offset, slot.nbytes)


def _base_of(tensor: Tensor) -> UOp:
    node = engine.realized(tensor.uop)
    assert node is not None
    return tracker_of(node)[0]


def _mapped(value: object, function: Callable[[object], object]) -> object:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[function(part) for part in value])
    if isinstance(value, list | tuple):
        return type(value)([function(part) for part in value])
    if isinstance(value, dict):
        return {name: function(part) for name, part in value.items()}
    return value


def _tensors_in(value: object) -> list[Tensor]:
    found: list[Tensor] = []

    def visit(part: object) -> object:
        if isinstance(part, Tensor):
            found.append(part)
            return part
        return _mapped(part, visit)

    visit(value)
    return found


@final
class TinyJit:
    """A function that is captured when it is called for the second time, and replayed after.

    >>> double = TinyJit(lambda x: x * 2)
    >>> [double(Tensor([n])).item() for n in range(4)]
    [0, 2, 4, 6]
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.captures: dict[tuple[object, ...], Captured | Inputs] = {}
        functools.update_wrapper(self, function, updated=())

    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., Any]:
        return self if instance is None else functools.partial(self, instance)

    def reset(self) -> None:
        """Forget all captures."""
        self.captures.clear()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the function has it
        if not config.current().jit or engine.is_recording():
            return self.function(*args, **kwargs)
        inputs = self._inputs(args, kwargs)
        key = tuple(inputs.key)
        known = self.captures.get(key)
        if isinstance(known, Captured):
            return known.replay(inputs)
        if known is None:
            if len(self.captures) >= MOST_CAPTURES:
                raise JitError(
                    f"TinyJit (jit): a call with signature number {MOST_CAPTURES + 1}; each shape, "
                    "type or plain value is captured anew. Give numbers that change as tensors or "
                    "bound variables, or call reset()."
                )
            result = self.function(*args, **kwargs)
            live.realize(_tensors_in(result))
            self.captures[key] = Inputs(kept=inputs.kept)
            return result
        captured = Captured(inputs)
        result = captured.capture(lambda: self.function(*args, **kwargs))
        self.captures[key] = captured
        return result

    def _inputs(self, args: Sequence[object], kwargs: dict[str, object]) -> Inputs:
        collector = _Collector()
        for number, value in enumerate(args):
            collector.read(value, str(number))
        for name in sorted(kwargs):
            collector.inputs.key.append(name)
            collector.read(kwargs[name], name)
        collector.inputs.key.append(config.current().training)
        return collector.finish()
