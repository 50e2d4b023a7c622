"""What a captured function was called with: a key to compare calls by, and the parts that differ.

In:  positional and named arguments.
Out: `Inputs`: equal keys mean that the same launches do the work, with other memory and numbers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kernelet import holdings
from kernelet.base import config
from kernelet.base.errors import JitError
from kernelet.frontend import live
from kernelet.frontend.host import known_shape
from kernelet.frontend.tensor import Tensor
from kernelet.graph.movement import rows_of
from kernelet.graph.ops import Op
from kernelet.graph.uop import ParamArg, UOp
from kernelet.graph.walk import split_view, substitute, toposort_with_sizes
from kernelet.launches import Given

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

    def memory_node(self, node: UOp) -> UOp:
        """The memory as a flat node; `node` is the one that has this form."""
        if self.size == self.base.arg.size:
            return self.base
        return UOp(Op.RESHAPE, node.dtype, (live.without_detach(node),), (self.size,))


@dataclass(slots=True)
class Inputs:
    """What one call was given. `given[n]` is the memory of the n-th tensor, and where it begins.

    `overlapping` are the numbers of tensors that share a part of their memory with another,
    `is_spread` says that there are tensors of several devices too, which are not listed.
    """

    key: tuple[object, ...] = ()
    tensors: list[Tensor] = field(default_factory=list)
    forms: list[Form] = field(default_factory=list)
    given: list[Given] = field(default_factory=list)
    variables: dict[UOp, int] = field(default_factory=dict)
    objects: list[object] = field(default_factory=list)
    overlapping: set[int] = field(default_factory=set)
    is_spread: bool = False

    @property
    def binds(self) -> dict[UOp, UOp]:
        """The variables with their values."""
        return {variable: variable.bind(number) for variable, number in self.variables.items()}


def read_inputs(
    instance: object, arguments: Sequence[object], named: Mapping[str, object]
) -> Inputs:
    """The signature of a call; realizes the tensors in it."""
    reader = _Reader()
    if instance is not None:
        reader.note_object(instance)
    for number, value in enumerate(arguments):
        reader.read(value, number)
    for name in sorted(named):
        reader.key.append(name)
        reader.read(named[name], name)
    settings = config.current()
    reader.key += (settings.training, settings.device)
    return reader.finish()


class _Reader:
    """Reads the arguments of a call."""

    def __init__(self) -> None:
        self.key: list[object] = []
        self.inputs = Inputs()

    def read(self, value: object, name: object) -> None:
        """Add an argument, and all inside it, to the signature."""
        key = self.key
        if isinstance(value, Tensor) and isinstance(value.device, tuple):
            self.inputs.is_spread = True
            key += (Tensor, value.required, value.device, value.shape, value.dtype)
        elif isinstance(value, Tensor):
            self.inputs.tensors.append(value)
            key += (Tensor, value.required)
        elif isinstance(value, _PLAIN):
            key += (type(value), value)
        elif isinstance(value, float | complex):
            # As text, 0.0 differs from -0.0 and NaN equals itself.
            key += (type(value), repr(value))
        elif isinstance(value, list | tuple):
            key += (type(value), len(value))
            for part in value:
                self.read(part, name)
        elif isinstance(value, dict):
            key += (type(value), len(value))
            for part_name, part in value.items():
                key += (type(part_name), part_name)
                self.read(part, name)
        elif isinstance(value, UOp):
            self._variable(value, name)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            key.append(type(value))
            for each in dataclasses.fields(value):
                self.read(getattr(value, each.name), name)
        else:
            self._object(value, name)

    def _object(self, value: object, name: object) -> None:
        if isinstance(value, bytearray | memoryview | set) or hasattr(value, "__array_interface__"):
            if getattr(value, "shape", None) == () and hasattr(value, "item"):
                self.key += (type(value), repr(value))
                return
            raise JitError(
                f"TinyJit (jit): argument {name} is or holds a {type(value).__name__}, whose "
                "contents a replay would not see. Give it as a Tensor."
            )
        self.note_object(value)

    def note_object(self, value: object) -> None:
        """An object that is known by its identity."""
        self.key += (object, id(value))
        self.inputs.objects.append(value)

    def _variable(self, value: UOp, name: object) -> None:
        binds = binds_in_dim(value)
        if not binds:
            raise JitError(
                f"TinyJit (jit): argument {name} is or holds a Variable without a value. Bind it "
                "first: variable.bind(3)."
            )
        for bind in binds:
            self._note(bind)
        self.key.append(substitute(value, {bind: bind.src[0] for bind in binds}))

    def _note(self, bind: UOp) -> None:
        variable, number = bind.unbind()
        known = self.inputs.variables.setdefault(variable, number)
        if known != number:
            raise JitError(
                f"TinyJit (jit): Variable({variable.arg.name!r}) is bound to {known} and to "
                f"{number} in one call. Use two variables."
            )

    def finish(self) -> Inputs:
        """Realize the tensors and add their form to the signature."""
        inputs = self.inputs
        if not all(self._add(tensor.uop) for tensor in inputs.tensors):
            inputs.forms, inputs.given = [], []
            live.realize(inputs.tensors)
            for tensor in inputs.tensors:
                node = holdings.realized(tensor.uop)
                assert node is not None
                form_of(node)
                self._add(node)
        self.key += [form.view for form in inputs.forms]
        if len({id(buffer) for buffer, _ in inputs.given}) < len(inputs.tensors):
            self._compare_places()
        inputs.key = tuple(self.key)
        return inputs

    def _add(self, node: UOp) -> bool:
        """Note how a view of memory lies in it; False for any other node."""
        form = node.cache.get("form")
        if form is None:
            if split_view(node)[1].op is not Op.BUFFER:
                return False
            form = form_of(node)
        memory = holdings.memory_if_current(form.base)
        if memory is None:
            return False
        for bind in form.binds:
            self._note(bind)
        self.inputs.forms.append(form)
        self.inputs.given.append((memory.whole, memory.offset + form.start))
        return True

    def _compare_places(self) -> None:
        """Memory given twice is another function than two memories."""
        inputs = self.inputs
        places = [
            (id(buffer), start, start + form.nbytes)
            for (buffer, start), form in zip(inputs.given, inputs.forms, strict=True)
        ]
        self.key.append(tuple([places.index(place) for place in places]))
        for number, (buffer, begin, end) in enumerate(places):
            for other, (same, first, last) in enumerate(places[:number]):
                meet = buffer == same and begin < last and first < end
                if meet and (begin, end) != (first, last):
                    inputs.overlapping |= {number, other}
        self.key.append(tuple(sorted(inputs.overlapping)))


def form_of_tensor(tensor: Tensor) -> Form:
    """How a computed tensor lies in memory."""
    node = holdings.realized(tensor.uop)
    assert node is not None
    return form_of(node)


def form_of(node: UOp) -> Form:
    """How a view of memory lies in it; kept on the node."""
    found: Form | None = node.cache.get("form")
    if found is None:
        found = node.cache["form"] = _form_of(node)
    return found


def _form_of(node: UOp) -> Form:
    found = rows_of(live.without_detach(node))
    if found is not None:
        return _flat_form(node, *found)
    binds = binds_of(node)
    plain = substitute(node, {bind: bind.src[0] for bind in binds}) if binds else node
    base = split_view(plain)[1]
    param = UOp(Op.PARAM, base.dtype, (), ParamArg(0, base.arg.size, base.arg.device))
    form = substitute(live.without_detach(plain), {base: param})
    return Form(base, 0, base.arg.size * node.dtype.itemsize, form, binds)


def _flat_form(node: UOp, base: UOp, start: int) -> Form:
    size, itemsize = math.prod(known_shape(node.shape)), node.dtype.itemsize
    param = UOp(Op.PARAM, base.dtype, (), ParamArg(0, size, base.arg.device))
    view = UOp(Op.RESHAPE, node.dtype, (param,), node.shape)
    return Form(base, start * itemsize, size * itemsize, view, ())


def binds_of(node: UOp) -> tuple[UOp, ...]:
    """The bound variables in the sizes of a node and of all below it."""
    return tuple(part for part in toposort_with_sizes(node) if part.op is Op.BIND)


def binds_in_dim(dim: UOp) -> list[UOp]:
    """The bound variables in a size or another number."""
    return [node for node in dim.toposort() if node.op is Op.BIND]
