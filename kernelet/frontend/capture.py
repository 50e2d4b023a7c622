"""The launches of one call, ready to run again with other memory.

In:  a function and the inputs of a call.
Out: `Capture`: its `replay` does what the function does, without building graphs.

Memory that a launch uses is an input's, or made for the results, or stays the same: parameters,
intermediate values, what the function keeps. What the function leaves behind in tensors of its own
is computed by every replay.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Collection, Sequence
from typing import final

from kernelet import holdings
from kernelet.base.errors import JitError
from kernelet.frontend import live, random
from kernelet.frontend.results import (
    Argument,
    Result,
    exchanged,
    held_elsewhere,
    mapped,
    node_of_result,
    tensors_in,
)
from kernelet.frontend.signature import Inputs, binds_in_dim, binds_of, form_of_tensor
from kernelet.frontend.tensor import Tensor
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.graph.walk import split_view, substitute
from kernelet.launches import Place, Replay, memory_of, outputs_of
from kernelet.runtime.buffer import Buffer

Places = list[tuple[Place | None, ...]]


def finish(result: object, mark: int, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Compute the results of a function and what it left behind since `mark`; returns the latter.

    What did not exist before carries no history for gradients, in this call or in a replay.
    """
    results = tensors_in(result)
    known = {id(tensor) for tensor in (*results, *inputs)}
    left = [
        tensor
        for tensor in live.changed_since(mark, threading.get_ident())
        if isinstance(tensor, Tensor) and id(tensor) not in known and tensor.owner is None
    ]
    live.realize([*results, *inputs, *left])
    for tensor in (*results, *left):
        if tensor.born > mark:
            live.cut_history(tensor)
    return left


class FirstCall:
    """What the first call with a signature shows of a function: what it writes.

    `inputs_written` are numbers of inputs, `written` memory from before the call, which is no
    input's where it is `written_elsewhere`; `writers` are the tensors that show what is written.
    A function that uses tensors of several devices is not captured: it runs at every call.
    """

    def __init__(self, call: Callable[[], object], inputs: Inputs) -> None:
        before = [tensor.uop for tensor in inputs.tensors]
        blocks = {id(buffer.whole) for buffer in holdings.buffer_nodes().values()}
        recorder, mark = holdings.Recorder(is_strict=False), live.now()
        with holdings.recording(recorder):
            self.result = call()
            left = finish(self.result, mark, inputs.tensors)
        rows = enumerate(zip(inputs.tensors, before, strict=True))
        self.inputs_written = {n for n, (tensor, node) in rows if tensor.uop is not node}
        changed = [*left, *[inputs.tensors[n] for n in self.inputs_written]]
        self.writers = weakref.WeakValueDictionary({id(tensor): tensor for tensor in changed})
        given = {id(buffer) for buffer, _ in inputs.given}
        written = {id(buffer): buffer for buffer in _written_by(recorder)}
        self.written = [buffer for number, buffer in written.items() if number in blocks]
        self.written_elsewhere = written.keys() & blocks - given
        used = UOp.sink(*recorder.roots).toposort()
        nodes = (*used, *[tensor.uop for tensor in tensors_in(self.result)])
        is_spread = any(isinstance(node.device, tuple) for node in nodes)
        self.can_be_captured = not (inputs.is_spread or is_spread)
        # A parameter that was never computed would be computed anew by every replay.
        live.realize([t for t in live.live_tensors() if t.born < mark and _is_lazy_part(t, used)])

    def protect_values(self, inputs: Inputs) -> list[Tensor]:
        """Let nobody but those who shall follow stand for what the next call writes.

        Returns copies that must live until the call is over.
        """
        live.run_pending_writes()
        numbers = [n for n, (b, _) in enumerate(inputs.given) if id(b) in self.written_elsewhere]
        apart = [_set_apart(inputs, number) for number in numbers]
        blocks = {id(buffer) for buffer in self.written}
        blocks |= {id(inputs.given[n][0]) for n in self.inputs_written}
        writers = {*self.writers, *_ids_of_written(inputs, self.inputs_written)}
        live.before_replay(blocks, blocks, writers)
        inputs.forms = [form_of_tensor(tensor) for tensor in inputs.tensors]
        return apart


def _ids_of_written(inputs: Inputs, numbers: Collection[int]) -> set[int]:
    """The tensors that show what is written to inputs: these, and what they are views of."""
    tensors = [inputs.tensors[n] for n in numbers]
    views = [(tensor, *[view for view, _ in tensor.views_above()]) for tensor in tensors]
    return {id(each) for row in views for each in row}


def _set_apart(inputs: Inputs, number: int) -> Tensor:
    """Let an input stand for a copy: its memory is written for another reason."""
    node = inputs.forms[number].memory_node(inputs.tensors[number].uop)
    apart = Tensor(UOp(Op.CONTIGUOUS, node.dtype, (node,)))
    live.realize([apart])
    memory = holdings.memory(split_view(apart.uop)[1])
    inputs.given[number] = (memory.whole, memory.offset)
    return apart


def _is_lazy_part(tensor: live.Handle, used: Collection[UOp]) -> bool:
    base = split_view(tensor.uop)[1]
    return base.op is not Op.BUFFER and base in used and holdings.realized(tensor.uop) is None


def _written_by(recorder: holdings.Recorder) -> list[Buffer]:
    rows = [memory_of(step)[: outputs_of(step)] for step in recorder.steps]
    return [buffer.whole for row in rows for buffer in row]


@final
class Capture:
    """What a function launched, and what it returned."""

    def __init__(self) -> None:
        self._draws: list[random.Draw] = []
        self._inputs_written: set[int] = set()
        self._fresh: list[Buffer] = []
        self._structure: object = None
        # Ids of whole buffers that stay the same; the launches keep them alive.
        self._used: set[int] = set()
        self._written: set[int] = set()
        # The tensors that stand for such memory, and which block of it.
        self._standing: dict[int, tuple[weakref.ref[Tensor], int]] = {}
        # What the function keeps: tensors, and gradients with those that they belong to.
        self._left: list[weakref.ref[Tensor]] = []
        self._gradients: list[tuple[weakref.ref[Tensor], Tensor]] = []
        # The memory of written inputs in the last call: who read it then was looked at.
        self._seen: list[weakref.ref[Buffer]] = []
        self._mark = 0
        self._launches = Replay((), ())

    # ---- replaying ----

    def is_valid(self, inputs: Inputs) -> bool:
        """Get ready for a replay; False when a tensor that it uses or updates is another now."""
        if any(ref() is None for ref in self._left):
            return False  # another call has put a tensor in its place
        changed = live.changed_since(self._mark)
        self._mark = live.now()
        written, own = self._written, set()
        if self._inputs_written:
            given = [inputs.given[n][0] for n in sorted(self._inputs_written)]
            if [ref() for ref in self._seen] != given:
                # What reads this memory was never looked at.
                self._seen = [weakref.ref(buffer) for buffer in given]
                return self._take_care(inputs)
            written = written | {id(buffer) for buffer in given}
            own = _ids_of_written(inputs, self._inputs_written)
        for tensor in changed:
            known = self._standing.get(id(tensor))
            if known is not None and known[0]() is tensor:
                if _has_moved(tensor, known[1]):
                    return self._take_care(inputs)
            elif id(tensor) not in own and live.needs_care(tensor, written, self._used):
                return self._take_care(inputs)
        return True

    def _take_care(self, inputs: Inputs) -> bool:
        """Keep the values of tensors that the launches would change; see whether all moved."""
        numbers = self._inputs_written
        written = self._written | {id(inputs.given[n][0]) for n in numbers}
        # Those that stand for what replays write follow them.
        rows = [(ref(), block) for ref, block in self._standing.values()]
        followers = {id(t) for t, block in rows if t is not None and block in self._written}
        followers |= _ids_of_written(inputs, numbers)
        live.before_replay(written, self._used | written, followers)
        # The nodes of the inputs may be others now.
        inputs.forms = [form_of_tensor(tensor) for tensor in inputs.tensors]
        for number, (ref, block) in list(self._standing.items()):
            tensor = ref()
            if tensor is None:
                del self._standing[number]
            elif _has_moved(tensor, block):
                return False
        return True

    def replay(self, inputs: Inputs) -> object:
        """Run the launches on the memory of this call."""
        apart = self._resolve_conflicts(inputs)
        given = inputs.given
        if self._fresh:
            given = [*given, *[(Buffer(each.device, each.nbytes), 0) for each in self._fresh]]
        if self._draws:
            random.refill(self._draws)
        values = {variable.arg.name: number for variable, number in inputs.variables.items()}
        self._launches.run(given, values)
        del apart
        for ref, gradient in self._gradients:
            owner = ref()
            if owner is not None and owner.grad is not gradient:
                owner.grad = gradient
        return _filled(self._structure, inputs, [buffer for buffer, _ in given], {})

    def _resolve_conflicts(self, inputs: Inputs) -> list[Tensor]:
        """Set inputs apart that lie in memory which the launches write for another reason."""
        apart = []
        for number, (buffer, _) in enumerate(inputs.given):
            if id(buffer) in self._used and number in self._inputs_written:
                raise JitError(
                    f"TinyJit (jit): the function writes to tensor {number} of its arguments, "
                    "which is also a tensor that it keeps. Give it another one."
                )
            if id(buffer) in self._written:
                apart.append(_set_apart(inputs, number))
        return apart

    # ---- capturing ----

    def capture(
        self, call: Callable[[dict[int, Tensor]], object], inputs: Inputs, first: FirstCall
    ) -> object:
        """Call the function once more, with other tensors for the ids of the inputs, and keep what
        it launches.
        """
        apart = first.protect_values(inputs)
        work = _Capturing(inputs)
        with holdings.recording(work.recorder), random.recording(self._draws):
            result = call({id(t): own for t, own in zip(inputs.tensors, work.tensors, strict=True)})
            work.finish(result)
        self._inputs_written = work.written()
        del apart
        results = [t for t in tensors_in(result) if not any(t is own for own in work.tensors)]
        shared = held_elsewhere(results)
        shared -= {id(tensor) for tensor in results if tensor.born < work.mark}
        work.find_fresh(results, shared)
        places = self._places(work)
        self._check(work, places, first.inputs_written)
        self._launches = Replay(work.recorder.steps, places)
        self._structure, fixed = _structure_of(result, work)
        self._used |= {id(buffer.whole) for buffer in fixed}
        self._fresh = [Buffer(each.device, each.nbytes) for each in work.fresh]
        own = {id(tensor) for tensor in results if tensor.born > work.mark}
        self._note_standing(own - shared)
        self._note_left(work, [tensor for tensor in results if id(tensor) in shared])
        # A tensor that the function keeps will change; the caller gets one of his own.
        others = {id(t): own for t, own in zip(work.tensors, inputs.tensors, strict=True)}
        others |= {id(tensor): Tensor(tensor.uop) for tensor in results if id(tensor) in shared}
        return exchanged(result, others)

    def _places(self, work: _Capturing) -> Places:
        places = []
        for step in work.recorder.steps:
            memory = memory_of(step)
            row = tuple([work.place_of(buffer) for buffer in memory])
            places.append(row)
            for number, (buffer, place) in enumerate(zip(memory, row, strict=True)):
                if place is None:
                    self._used.add(id(buffer.whole))
                    if number < outputs_of(step):
                        self._written.add(id(buffer.whole))
        drawn = {id(draw.memory.whole) for draw in self._draws}
        self._written |= drawn
        self._used |= drawn
        return places

    def _check(self, work: _Capturing, places: Places, writes: set[int]) -> None:
        """Refuse what a replay would do otherwise than the function."""
        blocks = [id(buffer) for buffer, _ in work.inputs.given]
        known = {n for n, block in enumerate(blocks) if block in self._used}
        if any(n in self._inputs_written or blocks[n] in self._written for n in known):
            raise JitError(
                "TinyJit (jit): the function writes to memory that is an argument and also part of "
                "a tensor that it knows otherwise. Give the argument as a copy: x.clone()."
            )
        if self._inputs_written & work.inputs.overlapping or not self._inputs_written <= writes:
            raise JitError(
                "TinyJit (jit): the function writes to an argument that overlaps another one, or "
                "that it did not write to in the first call. Give a copy: x.clone()."
            )
        if work.loses_memory(places):
            raise JitError(
                "TinyJit (jit): the function reads a tensor and then puts another one in its "
                "place, as in self.state = f(self.state): every replay would read the same old "
                "values. Write in place: self.state.assign(f(self.state))."
            )

    def _note_left(self, work: _Capturing, shared: Sequence[Tensor]) -> None:
        owners = {id(t.grad): t for t in live.live_tensors() if isinstance(t, Tensor)}
        for tensor in (*work.left(), *shared):
            owner = owners.get(id(tensor))
            if owner is None:
                self._left.append(weakref.ref(tensor))
            else:
                self._gradients.append((weakref.ref(owner), tensor))

    def _note_standing(self, returned: set[int]) -> None:
        for tensor in live.live_tensors():
            base = _base_in_memory(tensor)
            if base is None or id(tensor) in returned or not holdings.lies_in(base, self._used):
                continue
            assert isinstance(tensor, Tensor)
            self._standing[id(tensor)] = (weakref.ref(tensor), id(holdings.memory(base).whole))


class _Capturing:
    """The captured call: tensors of its own in place of the inputs, and what it launched."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs
        self.recorder = holdings.Recorder()
        self.blocks = {id(buffer.whole): buffer for buffer in holdings.buffer_nodes().values()}
        self.fresh: list[Buffer] = []
        self.tensors: list[Tensor] = []
        self.mark = live.now()
        self._leaves: list[Buffer] = []
        self._left: list[weakref.ref[Tensor]] = []
        nodes: dict[tuple[int, int, int], UOp] = {}
        made: dict[int, Tensor] = {}
        rows = zip(inputs.tensors, inputs.given, inputs.forms, strict=True)
        for tensor, (buffer, start), form in rows:
            place = (id(buffer), start, form.nbytes)
            if place not in nodes:
                part = buffer.view(start, form.nbytes)
                nodes[place] = holdings.adopt(part, form.size, form.base.dtype)
            if id(tensor) not in made:
                node = substitute(form.over(nodes[place]), inputs.binds)
                made[id(tensor)] = Tensor(node, requires_grad=tensor.required)
            self.tensors.append(made[id(tensor)])
            self._leaves.append(holdings.memory(nodes[place]))
        self._placed = [tensor.uop for tensor in self.tensors]
        self.recorder.forget_values()
        self.recorder.inputs = self._leaves

    def finish(self, result: object) -> None:
        """Compute what the function leaves behind, in memory that is not an input's."""
        for tensor in live.changed_since(self.mark, threading.get_ident()):
            owner = None if tensor.owner is None else tensor.owner()
            if isinstance(owner, Tensor) and owner.grad is tensor:
                # Nobody asked for this gradient, and no replay will compute it.
                owner.grad = None
        left = finish(result, self.mark, self.tensors)
        self._left = [weakref.ref(tensor) for tensor in left if tensor.born > self.mark]
        copied = []
        for tensor in left:
            base = _base_in_memory(tensor)
            if base is not None and holdings.memory(base) in self._leaves:
                tensor.uop = UOp(Op.CONTIGUOUS, tensor.dtype, (tensor.uop,))
                copied.append(tensor)
        live.realize(copied)

    def left(self) -> list[Tensor]:
        """The tensors that the function made and keeps."""
        if any(ref() is not None for ref in self._left):
            gc.collect()  # those that are garbage are not kept
        return [tensor for ref in self._left if (tensor := ref()) is not None]

    def written(self) -> set[int]:
        """The numbers of the inputs that were written; the caller's tensors show it."""
        found = set()
        for number, tensor in enumerate(self.tensors):
            if tensor.uop is self._placed[number]:
                continue
            base = _base_in_memory(tensor)
            if base is None or holdings.memory(base) is not self._leaves[number]:
                raise JitError(
                    f"TinyJit (jit): the function replaces tensor {number} of its arguments, which "
                    "cannot be written in place, as it repeats elements. Return the new value."
                )
            found.add(number)
        live.rename({self.inputs.forms[number].base for number in found})
        self.inputs.forms = [form_of_tensor(tensor) for tensor in self.inputs.tensors]
        return found

    def find_fresh(self, results: Sequence[Tensor], shared: set[int]) -> None:
        """Note the memory of results that the call made and that no other tensor stands for."""
        made = {id(buffer) for buffer in _written_by(self.recorder)} - self.blocks.keys()
        own = {id(tensor) for tensor in results if tensor.born > self.mark} - shared
        for tensor in live.live_tensors():
            base = _base_in_memory(tensor)
            if base is not None and id(tensor) not in own:
                made.discard(id(holdings.memory(base).whole))
        found = [holdings.memory(split_view(tensor.uop)[1]).whole for tensor in results]
        self.fresh = [whole for whole in dict.fromkeys(found) if id(whole) in made]

    def place_of(self, buffer: Buffer) -> Place | None:
        """Where a replay finds this memory."""
        for number, leaf in enumerate(self._leaves):
            if buffer is leaf:
                return Place(number, 0, buffer.nbytes)
        for number, whole in enumerate(self.fresh, len(self._leaves)):
            if buffer.whole is whole:
                return Place(number, buffer.offset, buffer.nbytes)
        return None

    def loses_memory(self, places: Places) -> bool:
        """Whether a launch reads a value from before the call that nothing stands for after it."""
        alive = {id(buffer.whole) for buffer in holdings.buffer_nodes().values()}
        written: set[int] = set()
        for step, row in zip(self.recorder.steps, places, strict=True):
            memory = [id(buffer.whole) for buffer in memory_of(step)]
            outputs = outputs_of(step)
            for block, place in list(zip(memory, row, strict=True))[outputs:]:
                before = place is None and block in self.blocks and block not in written
                if before and block not in alive:
                    return True
            written.update(memory[:outputs])
        return False

    def result_of(self, tensor: Tensor) -> Result:
        """How a replay makes a returned tensor."""
        binds = {bind: bind.src[0] for bind in binds_of(tensor.uop)}
        views, base = split_view(substitute(tensor.uop, binds) if binds else tensor.uop)
        buffer = holdings.memory(base)
        place = self.place_of(buffer)
        if place is None:
            return Result(None, (*views,), base, buffer, base.arg.size, base.dtype)
        found = Result(place, (*views,), None, None, base.arg.size, base.dtype)
        if place.number < len(self._leaves):
            # The leaf was for the captured call alone.
            tensor.uop = node_of_result(found, self.inputs, (), {})
        return found


def _filled(
    value: object, inputs: Inputs, memory: Sequence[Buffer], leaves: dict[Place, UOp]
) -> object:
    """A returned value with the tensors of one call.

    Not a function inside of a function: one that calls itself is a cycle, and would keep the memory
    of each call until the garbage collector comes by.
    """
    if isinstance(value, Result):
        return Tensor(node_of_result(value, inputs, memory, leaves))
    if isinstance(value, Argument):
        return inputs.tensors[value.number]
    if isinstance(value, UOp):
        return substitute(value, inputs.binds)
    return mapped(value, lambda part: _filled(part, inputs, memory, leaves))


def _structure_of(result: object, work: _Capturing) -> tuple[object, list[Buffer]]:
    """The returned value with `Argument`s and `Result`s in place of tensors.

    Beside it the memory of results that stays the same.
    """
    arguments = {id(tensor): n for n, tensor in enumerate(work.tensors)}
    found: dict[int, Result] = {}

    def visit(value: object) -> object:
        if isinstance(value, UOp):
            return substitute(value, {bind: bind.src[0] for bind in binds_in_dim(value)})
        if not isinstance(value, Tensor):
            return mapped(value, visit)
        if id(value) in arguments:
            return Argument(arguments[id(value)])
        if value.born < work.mark:
            return value
        if id(value) not in found:
            found[id(value)] = work.result_of(value)
        return found[id(value)]

    structure = visit(result)
    return structure, [each.buffer for each in found.values() if each.buffer is not None]


def _base_in_memory(tensor: live.Handle) -> UOp | None:
    """The BUFFER that holds the value of a tensor; None when there is none."""
    node = holdings.realized(tensor.uop)
    return None if node is None else split_view(node)[1]


def _has_moved(tensor: Tensor, block: int) -> bool:
    base = _base_in_memory(tensor)
    return base is None or not holdings.lies_in(base, {block})
