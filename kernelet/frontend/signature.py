"""What a captured function was called with: a key to compare calls by, and the parts that differ.

In:  positional and named arguments.
Out: `Inputs`: equal keys mean that the same launches do the work, with other memory and numbers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kernelet import holdings
from kernelet.base import config
from kernelet.base.errors import JitError
from kernelet.frontend import live
from kernelet.frontend.host import known_shape
from kernelet.frontend.tensor import Tensor
from kernelet.graph.movement import rows_of
from kernelet.graph.ops import Op
from kernelet.graph.uop import ParamArg, UOp
from kernelet.graph.walk import binds_in, split_view, substitute, with_free_variables
from kernelet.launches import Given
from kernelet.runtime.buffer import Buffer

_PLAIN = (int, str, bytes, bool, type(None), range)


@dataclass(frozen=True, slots=True)
class Form:
    """How a tensor lies in memory: `view` is its node over a PARAM in place of `base`.

    A row-major tensor is a view of its own part of the memory, `nbytes` from `start` on; any other
    is a view of the whole memory.
    """

    base: UOp
    start: int
    nbytes: int
    view: UOp
    binds: tuple[UOp, ...]

    @property
    def size(self) -> int:
        """The elements of the memory."""
        return self.nbytes // self.base.dtype.itemsize

    def over(self, leaf: UOp) -> UOp:
        """The view on other memory."""
        param = next(node for node in self.view.toposort() if node.op is Op.PARAM)
        return substitute(self.view, {param: leaf})


class Part(NamedTuple):
    """The memory of a tensor, the n-th of the inputs, on one of its devices."""

    tensor: int
    form: Form
    given: Given

    def copy(self) -> Buffer:
        """The same contents in other memory."""
        buffer, start = self.given
        found = Buffer(buffer.device, self.form.nbytes)
        found.copy_from(buffer.view(start, found.nbytes))
        return found


@dataclass(slots=True)
class Inputs:
    """What one call was given: tensors, and the memory that each has on each of its devices.

    Equal keys mean equal launches, and are made of `notes`. `overlapping` are the numbers of parts
    that share some of their memory with another.
    """

    key: tuple[object, ...] = ()
    notes: list[object] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    variables: dict[UOp, int] = field(default_factory=dict)
    objects: list[object] = field(default_factory=list)
    overlapping: set[int] = field(default_factory=set)

    @property
    def binds(self) -> dict[UOp, UOp]:
        """The variables with their values."""
        return {variable: variable.bind(number) for variable, number in self.variables.items()}

    def memory_node(self, number: int) -> UOp:
        """The memory of a part as a flat node, as it is now."""
        node = [view for tensor in self.tensors for view in views_of(tensor)][number]
        form = form_of(node)
        if form.size == form.base.arg.size:
            return form.base
        return UOp(Op.RESHAPE, node.dtype, (live.without_detach(node),), (form.size,))

    def read(self, value: object, name: object) -> None:
        """Add an argument, and all inside it, to the signature."""
        key = self.notes
        if isinstance(value, Tensor):
            self.tensors.append(value)
            key += (Tensor, value.required)
        elif isinstance(value, _PLAIN):
            key += (type(value), value)
        elif isinstance(value, float | complex):
            # As text, 0.0 differs from -0.0 and NaN equals itself.
            key += (type(value), repr(value))
        elif isinstance(value, UOp):
            self._variable(value, name)
        elif (parts := parts_of(value)) is not None:
            key += (type(value), len(parts))
            for place, part in parts.items():
                key += (type(place), place)
                self.read(part, name)
        else:
            self._object(value, name)

    def _object(self, value: object, name: object) -> None:
        if isinstance(value, bytearray | memoryview | set) or hasattr(value, "__array_interface__"):
            if getattr(value, "shape", None) == () and hasattr(value, "item"):
                self.notes += (type(value), repr(value))
                return
            raise JitError(
                f"TinyJit (jit): argument {name} is or holds a {type(value).__name__}, whose "
                "contents a replay would not see. Give it as a Tensor."
            )
        self.note_object(value)

    def note_object(self, value: object) -> None:
        """An object that is known by its identity."""
        self.notes += (object, id(value))
        self.objects.append(value)

    def _variable(self, value: UOp, name: object) -> None:
        binds = binds_in(value)
        if not binds:
            raise JitError(
                f"TinyJit (jit): argument {name} is or holds a Variable without a value. Bind it "
                "first: variable.bind(3)."
            )
        for bind in binds:
            self._note(bind)
        self.notes.append(with_free_variables(value))

    def _note(self, bind: UOp) -> None:
        variable, number = bind.unbind()
        known = self.variables.setdefault(variable, number)
        if known != number:
            raise JitError(
                f"TinyJit (jit): Variable({variable.arg.name!r}) is bound to {known} and to "
                f"{number} in one call. Use two variables."
            )

    def finish(self) -> None:
        """Realize the tensors and add their form to the signature."""
        if not all(self._add(number, tensor.uop) for number, tensor in enumerate(self.tensors)):
            self.parts = []
            live.realize(self.tensors)
            for number, tensor in enumerate(self.tensors):
                self._add(number, realized(tensor))
        self.notes += [part.form.view for part in self.parts]
        if len(self.parts) > len(self.tensors):
            self.notes += [realized(t).arg for t in self.tensors if isinstance(t.device, tuple)]
        if len({id(part.given[0]) for part in self.parts}) < len(self.parts):
            self._compare_places()
        self.key = tuple(self.notes)

    def _add(self, number: int, node: UOp) -> bool:
        """Note how views of memory lie in it; False for any other node."""
        for view in node.src if node.op is Op.MULTI else (node,):
            form = view.cache.get("form")
            if form is None:
                if split_view(view)[1].op is not Op.BUFFER:
                    return False
                form = form_of(view)
            memory = holdings.memories.get(form.base)
            if memory is None:
                return False
            for bind in form.binds:
                self._note(bind)
            given = memory.whole, memory.offset + form.start
            self.parts.append(Part(number, form, given))
        return True

    def _compare_places(self) -> None:
        """Memory given twice is another function than two memories."""
        places = [
            (id(part.given[0]), part.given[1], part.given[1] + part.form.nbytes)
            for part in self.parts
        ]
        self.notes.append(tuple([places.index(place) for place in places]))
        for number, (buffer, begin, end) in enumerate(places):
            for other, (same, first, last) in enumerate(places[:number]):
                meet = buffer == same and begin < last and first < end
                if meet and (begin, end) != (first, last):
                    self.overlapping |= {number, other}
        self.notes.append(tuple(sorted(self.overlapping)))


def parts_of(value: object) -> dict[object, object] | None:
    """What is in a list, tuple, dict or dataclass, by place or name; None for anything else."""
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    if isinstance(value, dict):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    return None


def read_inputs(
    instance: object, arguments: Sequence[object], named: Mapping[str, object]
) -> Inputs:
    """The signature of a call; realizes the tensors in it."""
    inputs = Inputs()
    if instance is not None:
        inputs.note_object(instance)
    for number, value in enumerate(arguments):
        inputs.read(value, number)
    for name in sorted(named):
        inputs.notes.append(name)
        inputs.read(named[name], name)
    settings = config.current()
    inputs.notes += (settings.training, settings.device)
    inputs.finish()
    return inputs


def realized(tensor: Tensor) -> UOp:
    """The node of a computed tensor: a view of memory, or MULTI over one on each device."""
    node = holdings.realized(tensor.uop)
    assert node is not None
    return node


def views_of(tensor: Tensor) -> tuple[UOp, ...]:
    """The views of memory that a computed tensor is, one for each of its devices."""
    node = realized(tensor)
    return node.src if node.op is Op.MULTI else (node,)


def form_of(node: UOp) -> Form:
    """How a view of memory lies in it; kept on the node."""
    if "form" not in node.cache:
        node.cache["form"] = _form_of(node)
    found: Form = node.cache["form"]
    return found


def _form_of(node: UOp) -> Form:
    plain, itemsize = live.without_detach(node), node.dtype.itemsize
    rows = rows_of(plain)
    base, start = rows or (split_view(node)[1], 0)
    size = base.arg.size if rows is None else math.prod(known_shape(node.shape))
    param = UOp(Op.PARAM, base.dtype, (), ParamArg(0, size, base.arg.device))
    if rows is None:
        view = with_free_variables(substitute(plain, {base: param}))
    else:
        view = UOp(Op.RESHAPE, node.dtype, (param,), node.shape)
    return Form(base, start * itemsize, size * itemsize, view, tuple(binds_in(plain)))
