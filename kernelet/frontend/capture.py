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
    Kept,
    Result,
    exchanged,
    held_elsewhere,
    mapped,
    tensors_in,
)
from kernelet.frontend.signature import Inputs, Part, realized
from kernelet.frontend.tensor import Tensor
from kernelet.graph.ops import Op
from kernelet.graph.uop import ParamArg, UOp
from kernelet.graph.walk import split_view, substitute, with_free_variables
from kernelet.launches import Place, Replay
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

    `inputs_written` are numbers of parts of inputs, `written` memory from before the call, which is
    no input's where it is `written_elsewhere`; `writers` are the tensors that show what is written.
    """

    def __init__(self, call: Callable[[], object], inputs: Inputs) -> None:
        before = [tensor.uop for tensor in inputs.tensors]
        blocks = {id(buffer.whole) for buffer in holdings.buffer_nodes().values()}
        recorder, mark = holdings.Recorder(is_strict=False), live.now()
        with holdings.recording(recorder):
            self.result = call()
            left = finish(self.result, mark, inputs.tensors)
        pairs = zip(inputs.tensors, before, strict=True)
        is_written = [tensor.uop is not node for tensor, node in pairs]
        numbers = enumerate(inputs.parts)
        self.inputs_written = {number for number, part in numbers if is_written[part.tensor]}
        changed = [
            *left,
            *[t for t, is_it in zip(inputs.tensors, is_written, strict=True) if is_it],
        ]
        self.writers = weakref.WeakValueDictionary({id(tensor): tensor for tensor in changed})
        given = {id(part.given[0]) for part in inputs.parts}
        written = {id(buffer): buffer for buffer in _written_by(recorder)}
        self.written = [buffer for number, buffer in written.items() if number in blocks]
        self.written_elsewhere = written.keys() & blocks - given
        used = UOp.sink(*recorder.roots).toposort()
        # A parameter that was never computed would be computed anew by every replay.
        live.realize([t for t in live.live_tensors() if t.born < mark and _is_lazy_part(t, used)])

    def protect_values(self, inputs: Inputs) -> list[Tensor]:
        """Let nobody but those who shall follow stand for what the next call writes.

        Returns copies that must live until the call is over.
        """
        live.run_pending_writes()
        found = [part for part in inputs.parts if id(part.given[0]) in self.written_elsewhere]
        apart = [_set_apart(part) for part in found]
        blocks = {id(buffer) for buffer in self.written}
        blocks |= {id(inputs.parts[n].given[0]) for n in self.inputs_written}
        writers = {*self.writers, *_ids_of_written(inputs, self.inputs_written)}
        live.before_replay(blocks, blocks, writers)
        inputs.see_again()
        return apart


def _ids_of_written(inputs: Inputs, numbers: Collection[int]) -> set[int]:
    """The tensors that show what is written to inputs: these, and what they are views of."""
    tensors = [inputs.tensors[inputs.parts[n].tensor] for n in numbers]
    views = [(tensor, *[view for view, _ in tensor.views_above()]) for tensor in tensors]
    return {id(each) for row in views for each in row}


def _set_apart(part: Part) -> Tensor:
    """Let a part of an input stand for a copy: its memory is written for another reason."""
    apart = Tensor(UOp(Op.CONTIGUOUS, part.node.dtype, (part.memory_node,)))
    live.realize([apart])
    memory = holdings.memories[split_view(apart.uop)[1]]
    part.given = (memory.whole, memory.offset)
    return apart


def _is_lazy_part(tensor: live.Handle, used: Collection[UOp]) -> bool:
    base = split_view(tensor.uop)[1]
    return base.op is not Op.BUFFER and base in used and holdings.realized(tensor.uop) is None


def _written_by(recorder: holdings.Recorder) -> list[Buffer]:
    return [buffer.whole for step in recorder.steps for buffer in step.written]


@final
class Capture:
    """What a function launches and returns when it is called once more, with tensors of its own in
    place of the inputs: `call` is given them by the ids of the inputs. `result` is the caller's.
    """

    def __init__(
        self, call: Callable[[dict[int, Tensor]], object], inputs: Inputs, first: FirstCall
    ) -> None:
        self._draws: list[random.Draw] = []
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
        # Ids of whole buffers that stay the same; the launches keep them alive.
        self._used = {id(draw.memory.whole) for draw in self._draws}
        self._written = set(self._used)
        places = self._places(work)
        self._check(work, places, first.inputs_written)
        self._launches = Replay(work.recorder.steps, places)
        self._structure, fixed = _structure_of(result, work)
        self._used |= {id(buffer.whole) for buffer in fixed}
        self._fresh = [Buffer(each.device, each.nbytes) for each in work.fresh]
        # The tensors that stand for such memory, and which blocks of it.
        own = {id(tensor) for tensor in results if tensor.born > work.mark} - shared
        self._standing = {
            id(tensor): (weakref.ref(tensor), blocks)
            for tensor in live.live_tensors()
            if (blocks := _blocks_of(tensor)) & self._used and id(tensor) not in own
        }
        # What the function keeps: tensors, and gradients with those that they belong to.
        self._left: list[weakref.ref[Tensor]] = []
        self._gradients: list[tuple[weakref.ref[Tensor], Tensor]] = []
        self._note_left(work, [tensor for tensor in results if id(tensor) in shared])
        # The memory of written inputs in the last call: who read it then was looked at.
        self._seen: list[weakref.ref[Buffer]] = []
        self._mark = 0
        # A tensor that the function keeps will change; the caller gets one of his own.
        others = {id(t): own for t, own in zip(work.tensors, inputs.tensors, strict=True)}
        others |= {id(tensor): Tensor(tensor.uop) for tensor in results if id(tensor) in shared}
        self.result: object = exchanged(result, others)

    def _places(self, work: _Capturing) -> Places:
        places = []
        for step in work.recorder.steps:
            row = tuple([work.place_of(buffer) for buffer in step.buffers])
            places.append(row)
            for number, (buffer, place) in enumerate(zip(step.buffers, row, strict=True)):
                if place is None:
                    self._used.add(id(buffer.whole))
                    if number < step.outputs:
                        self._written.add(id(buffer.whole))
        return places

    def _check(self, work: _Capturing, places: Places, writes: set[int]) -> None:
        """Refuse what a replay would do otherwise than the function."""
        blocks = [id(part.given[0]) for part in work.inputs.parts]
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

    # ---- replaying ----

    def is_valid(self, inputs: Inputs) -> bool:
        """Get ready for a replay; False when a tensor that it uses or updates is another now."""
        if any(ref() is None for ref in self._left):
            return False  # another call has put a tensor in its place
        changed = live.changed_since(self._mark)
        self._mark = live.now()
        written, own = self._written, set()
        if self._inputs_written:
            given = [inputs.parts[n].given[0] for n in sorted(self._inputs_written)]
            if [ref() for ref in self._seen] != given:
                # What reads this memory was never looked at.
                self._seen = [weakref.ref(buffer) for buffer in given]
                return self._take_care(inputs)
            written = written | {id(buffer) for buffer in given}
            own = _ids_of_written(inputs, self._inputs_written)
        for tensor in changed:
            known = self._standing.get(id(tensor))
            if known is not None and known[0]() is tensor:
                if _blocks_of(tensor) != known[1]:
                    return self._take_care(inputs)
            elif id(tensor) not in own and live.needs_care(tensor, written, self._used):
                return self._take_care(inputs)
        return True

    def _take_care(self, inputs: Inputs) -> bool:
        """Keep the values of tensors that the launches would change; see whether all moved."""
        numbers = self._inputs_written
        written = self._written | {id(inputs.parts[n].given[0]) for n in numbers}
        # Those that stand for what replays write follow them.
        rows = [(ref(), blocks) for ref, blocks in self._standing.values()]
        followers = {id(t) for t, blocks in rows if t is not None and blocks & self._written}
        followers |= _ids_of_written(inputs, numbers)
        live.before_replay(written, self._used | written, followers)
        inputs.see_again()
        for number, (ref, blocks) in list(self._standing.items()):
            tensor = ref()
            if tensor is None:
                del self._standing[number]
            elif _blocks_of(tensor) != blocks:
                return False
        return True

    def replay(self, inputs: Inputs) -> object:
        """Run the launches on the memory of this call."""
        apart = self._resolve_conflicts(inputs)
        given = [part.given for part in inputs.parts]
        given += [(Buffer(each.device, each.nbytes), 0) for each in self._fresh]
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
        for number, part in enumerate(inputs.parts):
            if id(part.given[0]) in self._used and number in self._inputs_written:
                raise JitError(
                    f"TinyJit (jit): the function writes to tensor {part.tensor} of its arguments, "
                    "which is also a tensor that it keeps. Give it another one."
                )
            if id(part.given[0]) in self._written:
                apart.append(_set_apart(part))
        return apart


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
        views: list[list[UOp]] = [[] for _ in inputs.tensors]
        for part in inputs.parts:
            (buffer, start), form = part.given, part.form
            place = (id(buffer), start, form.nbytes)
            if place not in nodes:
                block = buffer.view(start, form.nbytes)
                nodes[place] = holdings.adopt(block, form.size, form.base.dtype)
            views[part.tensor].append(substitute(form.over(nodes[place]), inputs.binds))
            self._leaves.append(holdings.memories[nodes[place]])
        made: dict[int, Tensor] = {}
        for tensor, own in zip(inputs.tensors, views, strict=True):
            if id(tensor) not in made:
                node = realized(tensor)
                node = node.replace(src=tuple(own)) if node.op is Op.MULTI else own[0]
                made[id(tensor)] = Tensor(node, requires_grad=tensor.required)
            self.tensors.append(made[id(tensor)])
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
            if any(memory in self._leaves for memory in _memory_of(tensor)):
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
        for number, part in enumerate(self.inputs.parts):
            tensor = self.tensors[part.tensor]
            if tensor.uop is self._placed[part.tensor]:
                continue
            if self._leaves[number] not in _memory_of(tensor):
                raise JitError(
                    f"TinyJit (jit): the function replaces tensor {part.tensor} of its arguments, "
                    "which cannot be written in place, as it repeats elements. Return the new value."
                )
            found.add(number)
        live.rename({self.inputs.parts[number].form.base for number in found})
        self.inputs.see_again()
        return found

    def find_fresh(self, results: Sequence[Tensor], shared: set[int]) -> None:
        """Note the memory of results that the call made and that no other tensor stands for."""
        made = {id(buffer) for buffer in _written_by(self.recorder)} - self.blocks.keys()
        own = {id(tensor) for tensor in results if tensor.born > self.mark} - shared
        for tensor in live.live_tensors():
            if id(tensor) not in own:
                made -= _blocks_of(tensor)
        found = [memory.whole for tensor in results for memory in _memory_of(tensor)]
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
            memory = [id(buffer.whole) for buffer in step.buffers]
            for block, place in list(zip(memory, row, strict=True))[step.outputs :]:
                before = place is None and block in self.blocks and block not in written
                if before and block not in alive:
                    return True
            written.update(memory[: step.outputs])
        return False

    def result_of(self, tensor: Tensor) -> Result:
        """How a replay makes a returned tensor."""
        rows, params, own = [], {}, {}
        for slot, base in enumerate(live.bases_of(tensor.uop)):
            buffer = holdings.memories[base]
            place = self.place_of(buffer)
            arg = ParamArg(slot, base.arg.size, base.arg.device)
            params[base] = UOp(Op.PARAM, base.dtype, (), arg)
            rows.append((params[base], place or Kept(buffer, base)))
            if place is not None and place.number < len(self._leaves):
                # The leaf of an input was for the captured call alone.
                own[base] = self.inputs.parts[place.number].memory_node
        view = with_free_variables(substitute(tensor.uop, params))
        tensor.uop = substitute(tensor.uop, own)
        return Result(view, tuple(rows))


def _filled(
    value: object, inputs: Inputs, memory: Sequence[Buffer], leaves: dict[Place, UOp]
) -> object:
    """A returned value with the tensors of one call.

    Not a function inside of a function: one that calls itself is a cycle, and would keep the memory
    of each call until the garbage collector comes by.
    """
    if isinstance(value, Result):
        return Tensor(value.node(inputs, memory, leaves))
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
            return with_free_variables(value)
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
    rows = [row for each in found.values() for row in each.memory]
    return structure, [place.buffer for _, place in rows if isinstance(place, Kept)]


def _memory_of(tensor: live.Handle) -> list[Buffer]:
    """The memory that holds the value of a tensor, on each of its devices; none when there is none."""
    node = holdings.realized(tensor.uop)
    return [] if node is None else [holdings.memories[base] for base in live.bases_of(node)]


def _blocks_of(tensor: live.Handle) -> set[int]:
    """The ids of the whole buffers that hold the value of a tensor."""
    return {id(memory.whole) for memory in _memory_of(tensor)}
