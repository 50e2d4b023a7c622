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
from kernelet.base.places import replaced, ways_from
from kernelet.frontend import live, random
from kernelet.frontend.results import Kept, Result, Slot, exchanged, filled, tensors_in
from kernelet.frontend.signature import Inputs, realized
from kernelet.frontend.tensor import Tensor
from kernelet.graph.ops import Op
from kernelet.graph.uop import ParamArg, UOp
from kernelet.graph.walk import split_view, substitute, with_free_variables
from kernelet.launches import Place, Replay
from kernelet.runtime.buffer import Buffer

Places = list[tuple[Place | None, ...]]
# Is given the tensors in place of the inputs, by the ids of those.
Call = Callable[[dict[int, Tensor]], object]


def first_call(call: Callable[[], object], inputs: Inputs) -> object:
    """What a function returns, once all that it leaves behind is computed."""
    recorder = holdings.Recorder(live.now(), is_strict=False)
    with holdings.recording(recorder):
        result = call()
        finish(result, recorder.mark, inputs.tensors)
    live.realize(_lazy_parts(recorder, {}))
    return result


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


def _lazy_parts(recorder: holdings.Recorder, before: dict[int, UOp]) -> list[live.Handle]:
    """Tensors from before that a call used and that had no memory: each replay would compute them.

    `before` has the nodes, by ids, of those that a call may have computed or written itself.
    """
    used = UOp.sink(*recorder.roots).toposort()
    recorder.roots.clear()
    found = []
    for tensor in live.live_tensors():
        node = before.get(id(tensor), tensor.uop)
        base = split_view(node)[1]
        is_same = node is tensor.uop and holdings.realized(node) is not None
        if tensor.born < recorder.mark and base in used and not is_same:
            found.append(tensor)
    return found


@final
class Capture:
    """What a function launches and returns when it is called once more, with tensors of its own in
    place of the inputs: `call` is given them by the ids of the inputs. `result` is the caller's.
    One that is not `is_whole` used tensors without memory and is not to be run again.
    """

    def __init__(self, call: Call, inputs: Inputs, function: object) -> None:
        self._function = function
        work = _Capturing(inputs, (function, *inputs.objects))
        self._draws = work.recorder.draws
        with holdings.recording(work.recorder):
            self._structure = work.finish(
                call({id(t): own for t, own in zip(inputs.tensors, work.tensors, strict=True)})
            )
        # A tensor that was put in the place of another one since the first call.
        lazy = _lazy_parts(work.recorder, work.lazy)
        self.is_whole = not lazy
        live.realize(lazy)
        owners = {id(t.grad): weakref.ref(t) for t in live.live_tensors() if isinstance(t, Tensor)}
        # The gradients that the function keeps, with those that they belong to.
        self._gradients = [(owners[id(t)], t) for t in work.left() if id(t) in owners]
        mine = {id(tensor) for tensor in work.results}
        others = [tensor for tensor in live.live_tensors() if id(tensor) not in mine]
        work.find_fresh(others)
        places = [tuple(map(work.place_of, step.buffers)) for step in work.recorder.steps]
        # Ids of whole buffers that stay the same; the launches keep them alive.
        self._written = {id(memory.whole) for memory, _ in self._draws}
        self._used = set(self._written)
        for step, row in zip(work.recorder.steps, places, strict=True):
            same = [b for b, place in zip(step.buffers, row, strict=True) if place is None]
            self._used |= {id(buffer.whole) for buffer in same}
            self._written |= {id(buffer.whole) for buffer in same if buffer in step.written}
        # What was there before and is written: the function's own state.
        self._state = self._written.intersection(map(id, work.before))
        work.check_state(places, self._used)
        self._inputs_written = work.written()
        self._check_inputs(inputs)
        if any(id(part.given[0]) in self._written for part in inputs.parts):
            raise JitError(
                "TinyJit (jit): the function writes to memory that is an argument and also part of "
                "a tensor that it knows otherwise. Give the argument as a copy: x.clone()."
            )
        work.write_back()
        self._launches = Replay(work.recorder.steps, places)
        self._results = [work.result_of(tensor) for tensor in work.results]
        memory = [place for each in self._results for _, place in each.memory]
        self._used |= {id(place.buffer.whole) for place in memory if isinstance(place, Kept)}
        self._fresh = [Buffer(each.device, each.nbytes) for each in work.fresh]
        # The tensors that stand for such memory, and which blocks of it.
        standing = [(t, blocks) for t in others if (blocks := _blocks_of(t)) & self._used]
        self._blocks = {id(tensor): blocks for tensor, blocks in standing}
        self._standing = weakref.WeakValueDictionary({id(tensor): tensor for tensor, _ in standing})
        self._ways = ways_from(work.roots, lambda part: id(part) in self._blocks, {})
        # The memory of written inputs in the last call: who read it then was looked at.
        self._seen: list[weakref.ref[Buffer]] = []
        self._mark = 0
        self.result = filled(self._structure, [*inputs.tensors, *work.results], inputs)

    def _check_inputs(self, inputs: Inputs) -> None:
        """Refuse to write to memory that the function knows otherwise too."""
        for number in self._inputs_written:
            part = inputs.parts[number]
            if number in inputs.overlapping or id(part.given[0]) in self._used:
                raise JitError(
                    f"TinyJit (jit): the function writes to tensor {part.tensor} of its arguments, "
                    "which lies in the memory of another one, or of a tensor that it keeps. Give "
                    "it a copy: x.clone()."
                )

    # ---- replaying ----

    def updates(self, inputs: Inputs) -> bool:
        """Whether an argument is state that the launches write: they would not read what they wrote."""
        return not self._state.isdisjoint([id(part.given[0]) for part in inputs.parts])

    def is_valid(self, inputs: Inputs) -> bool:
        """Get ready for a replay; False when a tensor that it uses or updates is another now."""
        moved = replaced((self._function, *inputs.objects), self._ways)
        if self._lost_parameter() or any(True for _ in moved):
            return False  # another tensor has been put in its place
        changed, self._mark = live.changed_since(self._mark), live.now()
        own, written = set[int](), self._written
        given = [inputs.parts[number].given[0] for number in self._inputs_written]
        is_known = [ref() for ref in self._seen] == given
        if given:
            own = _ids_of_written(inputs, self._inputs_written)
            written = written.union(map(id, given))
            self._seen = [weakref.ref(buffer) for buffer in given]
        if is_known and not any(id(t) not in own and self._needs_care(t, written) for t in changed):
            return True
        # Those that stand for what replays write follow them.
        rows = [(tensor, self._blocks[number]) for number, tensor in self._standing.items()]
        followers = own | {id(tensor) for tensor, blocks in rows if blocks & self._written}
        live.before_replay(written, self._used | written, followers)
        return all(_blocks_of(tensor) == blocks for tensor, blocks in rows)

    def _lost_parameter(self) -> bool:
        """Whether nobody stands any longer for memory for which some tensor stood."""
        if len(self._blocks) == len(self._standing):
            return False
        standing = {number: self._blocks[number] for number in self._standing}
        lost = set().union(*self._blocks.values()).difference(*standing.values())
        self._blocks = standing
        return not lost.isdisjoint(self._used)

    def _needs_care(self, tensor: live.Handle, written: set[int]) -> bool:
        if self._standing.get(id(tensor)) is tensor:
            return _blocks_of(tensor) != self._blocks[id(tensor)]
        return live.needs_care(tensor, written, self._used)

    def replay(self, inputs: Inputs) -> object:
        """Run the launches on the memory of this call."""
        self._check_inputs(inputs)
        # What the launches write for another reason is read from a copy.
        given = [
            (part.copy(), 0) if id(part.given[0]) in self._written else part.given
            for part in inputs.parts
        ]
        given += [(Buffer(each.device, each.nbytes), 0) for each in self._fresh]
        if self._draws:
            random.refill(self._draws)
        values = {variable.arg.name: number for variable, number in inputs.variables.items()}
        self._launches.run(given, values)
        for ref, gradient in self._gradients:
            if (owner := ref()) is not None:
                owner.grad = gradient
        leaves: dict[Place, UOp] = {}
        results = [Tensor(each.node(inputs, given, leaves)) for each in self._results]
        return filled(self._structure, [*inputs.tensors, *results], inputs)


class _Capturing:
    """The captured call: tensors of its own in place of the inputs, and what it launched.

    `tensors` are copies of the inputs, `results` those that the caller gets.
    """

    def __init__(self, inputs: Inputs, roots: tuple[object, ...]) -> None:
        self.inputs, self.roots = inputs, roots
        self._ways = ways_from(roots, lambda part: type(part) is Tensor, {})
        self.recorder = holdings.Recorder(live.now())
        self.fresh: list[Buffer] = []
        self.tensors: list[Tensor] = []
        self.results: list[Tensor] = []
        self._made: list[weakref.ref[Tensor]] = []
        nodes: dict[tuple[int, int, int], UOp] = {}
        views: list[list[UOp]] = [[] for _ in inputs.tensors]
        for part in inputs.parts:
            place = (id(part.given[0]), part.given[1], part.form.nbytes)
            if place not in nodes:
                nodes[place] = holdings.adopt(part.copy(), part.form.size, part.form.base.dtype)
            views[part.tensor].append(substitute(part.form.over(nodes[place]), inputs.binds))
            self.recorder.inputs.append(holdings.memories[nodes[place]])
        made: dict[int, Tensor] = {}
        for tensor, own in zip(inputs.tensors, views, strict=True):
            if id(tensor) not in made:
                node = realized(tensor)
                node = node.replace(src=tuple(own)) if node.op is Op.MULTI else own[0]
                made[id(tensor)] = Tensor(node, requires_grad=tensor.required)
            self.tensors.append(made[id(tensor)])
        live.run_pending_writes()
        self._placed = [tensor.uop for tensor in self.tensors]
        tensors = live.live_tensors()
        self.lazy = {id(t): t.uop for t in tensors if holdings.realized(t.uop) is None}
        # Not by ids: what is made in the call may have the id of what has gone meanwhile.
        self.before = weakref.WeakSet(buffer.whole for buffer in holdings.buffer_nodes().values())
        self.recorder.forget_values()

    def finish(self, result: object) -> object:
        """Compute what the function returns and leaves behind, the latter in memory of its own.

        Returns the result with slots in place of tensors: of the inputs, and of `results`.
        """
        for tensor in live.changed_since(self.recorder.mark, threading.get_ident()):
            owner = None if tensor.owner is None else tensor.owner()
            if isinstance(owner, Tensor) and owner.grad is tensor:
                # Nobody asked for this gradient, and no replay will compute it.
                owner.grad = None
        left = finish(result, self.recorder.mark, self.tensors)
        leaves = self.recorder.inputs
        copied = [t for t in left if any(memory in leaves for memory in _memory_of(t))]
        for tensor in copied:
            tensor.uop = UOp(Op.CONTIGUOUS, tensor.dtype, (tensor.uop,))
        live.realize(copied)
        slots = {id(tensor): Slot(number) for number, tensor in enumerate(self.tensors)}
        for tensor in tensors_in(result):
            if tensor.born > self.recorder.mark and id(tensor) not in slots:
                slots[id(tensor)] = Slot(len(self.tensors) + len(self.results))
                self.results.append(Tensor(tensor.uop))
                left.append(tensor)
        self._made = [weakref.ref(t) for t in left if t.born > self.recorder.mark]
        return exchanged(result, slots)

    def left(self) -> list[Tensor]:
        """The tensors that the function made and keeps."""
        if any(ref() is not None for ref in self._made):
            gc.collect()  # those that are garbage are not kept
        return [tensor for ref in self._made if (tensor := ref()) is not None]

    def written(self) -> list[int]:
        """The numbers of the inputs that were written."""
        found = []
        for number, part in enumerate(self.inputs.parts):
            tensor = self.tensors[part.tensor]
            if tensor.uop is self._placed[part.tensor]:
                continue
            if self.recorder.inputs[number] not in _memory_of(tensor):
                raise JitError(
                    f"TinyJit (jit): the function replaces tensor {part.tensor} of its arguments, "
                    "which cannot be written in place, as it repeats elements. Return the new value."
                )
            found.append(number)
        return found

    def write_back(self) -> None:
        """Give the caller's tensors what the function wrote to them."""
        rows = zip(self.inputs.tensors, self.tensors, self._placed, strict=True)
        for tensor, own, placed in rows:
            if own.uop is not placed:
                tensor.assign(own).realize()

    def find_fresh(self, others: Sequence[live.Handle]) -> None:
        """Note the memory of results that the call made and that no other tensor stands for."""
        written = {buffer.whole for step in self.recorder.steps for buffer in step.written}
        made = {id(buffer) for buffer in written.difference(self.before)}
        made = made.difference(*map(_blocks_of, others))
        found = [memory.whole for tensor in self.results for memory in _memory_of(tensor)]
        self.fresh = [whole for whole in dict.fromkeys(found) if id(whole) in made]

    def place_of(self, buffer: Buffer) -> Place | None:
        """Where a replay finds this memory."""
        for number, leaf in enumerate(self.recorder.inputs):
            if buffer is leaf:
                return Place(number, 0, buffer.nbytes)
        for number, whole in enumerate(self.fresh, len(self.recorder.inputs)):
            if buffer.whole is whole:
                return Place(number, buffer.offset, buffer.nbytes)
        return None

    def check_state(self, places: Places, used: set[int]) -> None:
        """Refuse to capture what reads a tensor and puts one with other memory in its place."""
        lost = self._loses_memory(places)
        for old, new in replaced(self.roots, self._ways):
            stays = _blocks_of(new) if isinstance(new, Tensor) else set()
            lost |= old is not None and not used.isdisjoint(_blocks_of(old) - stays)
        if lost:
            raise JitError(
                "TinyJit (jit): the function reads a tensor and then puts another one in its place, "
                "as self.state = f(self.state) and gradients that add up do: every replay would read "
                "the same old values. Write in place, self.state.assign(f(self.state)), or zero_grad()."
            )

    def _loses_memory(self, places: Places) -> bool:
        """Whether a launch reads a value from before the call that nothing stands for after it."""
        alive = {buffer.whole for buffer in holdings.buffer_nodes().values()}
        written: set[Buffer] = set()
        for step, row in zip(self.recorder.steps, places, strict=True):
            memory = [buffer.whole for buffer in step.buffers]
            for block, place in list(zip(memory, row, strict=True))[step.outputs :]:
                before = place is None and block in self.before and block not in written
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
            if place is not None and place.number < len(self.recorder.inputs):
                # The leaf of an input was for the captured call alone.
                own[base] = self.inputs.memory_node(place.number)
        view = with_free_variables(substitute(tensor.uop, params))
        tensor.uop = substitute(tensor.uop, own)
        return Result(view, tuple(rows))


def _ids_of_written(inputs: Inputs, numbers: Collection[int]) -> set[int]:
    """The tensors that show what is written to inputs: these, and what they are views of."""
    tensors = [inputs.tensors[inputs.parts[n].tensor] for n in numbers]
    views = [(tensor, *[view for view, _ in tensor.views_above()]) for tensor in tensors]
    return {id(each) for row in views for each in row}


def _memory_of(tensor: live.Handle) -> list[Buffer]:
    """The memory that holds the value of a tensor, on each of its devices; none when there is none."""
    node = holdings.realized(tensor.uop)
    return [] if node is None else [holdings.memories[base] for base in live.bases_of(node)]


def _blocks_of(tensor: live.Handle) -> set[int]:
    """The ids of the whole buffers that hold the value of a tensor."""
    return {id(memory.whole) for memory in _memory_of(tensor)}
