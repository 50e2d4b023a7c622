"""What nodes of each kind look like: their sources, dtype and payload, and what else must hold.

In:  a node and its `Form`.
Out: claims, in words, and whether each holds; a claim may rest on those before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import NoneType, UnionType

from kernelet.base.dtype import DType, dtypes, round_to
from kernelet.graph.infer import Dim
from kernelet.graph.movement import normal_shape, product_of, subtract_dims
from kernelet.graph.ops import COMPARISONS, MOVEMENT, OP_TABLE, Op
from kernelet.graph.uop import UOp
from kernelet.graph.walk import base_of

Claims = Iterator[tuple[bool, str]]


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """The number of sources (None: any), the class of the payload, the dtype, and more claims.

    The dtype is a given one, that of source number `like`, or any.
    """

    sources: int | None
    payload: type | UnionType = NoneType
    more: Callable[[UOp], Claims] | None = None
    dtype: DType | None = None
    like: int | None = None

    def broken(self, node: UOp) -> str | None:
        """The first claim that does not hold for a node."""
        if self.sources is not None and len(node.src) != self.sources:
            return f"its sources are {self.sources}"
        if not isinstance(node.arg, self.payload):
            return f"its payload is {getattr(self.payload, '__name__', self.payload)}"
        wanted = self.dtype if self.like is None else node.src[self.like].dtype
        if wanted is not None and node.dtype is not wanted:
            return f"it is {wanted}"
        claims = () if self.more is None else self.more(node)
        return next((claim for holds, claim in claims if not holds), None)


# ---- leaves ----


def check_constant(node: UOp) -> Claims:
    """A number of the Python type, and in the range, of its dtype."""
    value, dtype = node.arg, node.dtype
    kind = bool if dtype.is_bool else float if dtype.is_float else int
    yield type(value) is kind, "it holds a Python number of its dtype"
    yield value != value or round_to(dtype, value) == value, "its dtype can hold its number"


def check_memory(node: UOp) -> Claims:
    """Elements of some dtype; inside a kernel there is at least one."""
    yield node.arg.size >= (node.op is Op.SCRATCH), "it has room for elements"
    yield node.dtype.kind != "void", "its elements have a dtype"


def check_variable(node: UOp) -> Claims:
    """A minimum and a maximum."""
    yield node.arg.min <= node.arg.max, "its minimum is at most its maximum"


def check_bind(node: UOp) -> Claims:
    """A variable and a value in its range."""
    variable, value = node.src
    yield (variable.op, value.op) == (Op.VARIABLE, Op.CONST), "it binds a VARIABLE to a CONST"
    yield variable.arg.min <= value.arg <= variable.arg.max, "its value is in range"


def check_arange(node: UOp) -> Claims:
    """Integers along one axis."""
    yield len(node.shape) == 1 and node.dtype.is_integer, "it is integers along one axis"


# ---- elementwise ----

_FLOAT_ONLY = frozenset({Op.EXP2, Op.LOG2, Op.SIN, Op.SQRT, Op.RECIPROCAL, Op.FDIV})
_WHOLE_ONLY = frozenset({Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR, Op.TRUNCDIV, Op.TRUNCMOD})


def _elementwise(node: UOp) -> Claims:
    op, dtype, values = node.op, node.dtype, node.src
    yield all(each.dtype.lanes == dtype.lanes for each in values), "its sources have its lanes"
    if op is Op.BITCAST:
        yield values[0].dtype.itemsize == dtype.itemsize, "its source is of the same width"
    if op in (Op.CAST, Op.BITCAST):
        yield dtype.kind != "void", "it has a dtype"
        return
    if op is Op.WHERE:
        yield values[0].dtype.is_bool, "its condition is bool"
        values = values[1:]
    common = values[0].dtype
    yield all(each.dtype is common for each in values), "its sources are of one dtype"
    expected = dtypes.bool.vec(dtype.lanes) if op in COMPARISONS else common
    yield dtype is expected, "it is what its sources make"
    yield op not in _FLOAT_ONLY or dtype.is_float, "its op is for floats"
    yield op not in _WHOLE_ONLY or not dtype.is_float, "its op is not for floats"


def _over_tensors(node: UOp) -> Claims:
    """An elementwise op on tensors of one shape on one device."""
    if any(source.shape != node.shape for source in node.src):
        shapes = {normal_shape(source.shape) for source in node.src}
        yield len(shapes) == 1, "its sources are of one shape"
    yield len({source.device for source in node.src} - {None}) < 2, "its sources are on one device"
    yield from _elementwise(node)


def _in_a_kernel(node: UOp) -> Claims:
    """An elementwise op on scalars or vectors."""
    yield not node.shape, "in a kernel it has no shape"
    yield from _elementwise(node)


def elementwise_forms(ops: Iterable[Op], *, over_tensors: bool) -> dict[Op, Form]:
    """How elementwise ops look over tensors, or inside kernels."""
    claims = _over_tensors if over_tensors else _in_a_kernel
    return {op: Form(OP_TABLE[op].arity, more=claims) for op in ops}


# ---- movement ----


def _bounds(dim: Dim) -> tuple[int, int]:
    return (dim, dim) if isinstance(dim, int) else (int(dim.bounds.min), int(dim.bounds.max))


def _may_equal(left: Dim, right: Dim) -> bool:
    low, high = _bounds(subtract_dims(left, right))
    return low <= 0 <= high


def check_reshape(node: UOp) -> Claims:
    """The same elements in another shape."""
    counts = product_of(node.src[0].shape), product_of(node.arg)
    yield _may_equal(*counts), "it has as many elements as its source"


def check_permute(node: UOp) -> Claims:
    """The axes in another order."""
    yield sorted(node.arg) == list(range(len(node.src[0].shape))), "it names each axis once"


def check_flip(node: UOp) -> Claims:
    """Some axes, each once."""
    yield len(set(node.arg)) == len(node.arg), "it names no axis twice"
    yield set(node.arg) <= set(range(len(node.src[0].shape))), "it names axes of its source"


def check_resize(node: UOp) -> Claims:
    """EXPAND, PAD or SHRINK, which say something of every axis."""
    shape = node.src[0].shape
    yield len(node.arg) == len(shape), "it has one part for each axis of its source"
    for size, part in zip(shape, node.arg, strict=True):
        if node.op is Op.EXPAND:
            yield size == 1 or _may_equal(size, part), "only axes of size 1 are repeated"
        elif node.op is Op.PAD:
            yield all(_bounds(amount)[0] >= 0 for amount in part), "it pads by no negative number"
        else:
            begin, end = part
            room = (begin, subtract_dims(end, begin), subtract_dims(size, end))
            yield all(_bounds(amount)[1] >= 0 for amount in room), "its part is inside its source"


MOVEMENT_FORMS = {
    **dict.fromkeys((Op.EXPAND, Op.PAD, Op.SHRINK), Form(1, tuple, check_resize, like=0)),
    Op.RESHAPE: Form(1, tuple, check_reshape, like=0),
    Op.PERMUTE: Form(1, tuple, check_permute, like=0),
    Op.FLIP: Form(1, tuple, check_flip, like=0),
}


# ---- values over whole tensors ----


def check_gather(node: UOp) -> Claims:
    """GATHER: an index for each result, one long along the axis that it picks from."""
    values, picks = node.src
    yield picks.dtype.is_integer, "it picks at integers"
    yield 0 <= node.arg < len(values.shape), "it picks along an axis"
    shape = tuple(1 if axis == node.arg else dim for axis, dim in enumerate(values.shape))
    yield picks.shape == shape, "its index has the shape of its values but for that axis"


def check_reduce(node: UOp) -> Claims:
    """A reduction over axes that are there."""
    axes = node.arg.axes
    yield node.arg.op in (Op.ADD, Op.MUL, Op.MAX), "it combines by ADD, MUL or MAX"
    yield list(axes) == sorted(set(axes)), "its axes are in order"
    yield set(axes) <= set(range(len(node.src[0].shape))), "its axes are those of its source"


def check_function(node: UOp) -> Claims:
    """A value beside the argument that it is a function of."""
    value, argument = node.src
    yield value.shape == argument.shape, "it has the shape of its argument"


_WRITABLE_VIEWS = MOVEMENT - {Op.PAD, Op.EXPAND}
_WRITTEN = frozenset({Op.AFTER})
_STORAGE = frozenset({Op.BUFFER, Op.PARAM, Op.CONTIGUOUS, Op.COPY, Op.AFTER})


def check_write(node: UOp) -> Claims:
    """A value written over a view of memory: in a kernel, of a memory argument."""
    target, value = node.src
    kinds = _STORAGE if node.op is Op.ASSIGN else {Op.PARAM}
    below = base_of(target, _WRITABLE_VIEWS)
    yield below.op in kinds, "its target is a view of memory without padding and repetition"
    yield target.dtype is value.dtype, "it writes a value of the target's dtype"
    shapes = normal_shape(target.shape), normal_shape(value.shape)
    yield shapes[0] == shapes[1], "it writes a value of the target's shape"


def check_after(node: UOp) -> Claims:
    """Memory after writes to it."""
    storage, *writes = node.src
    yield storage.op in _STORAGE, "it is of memory"
    for one in writes:
        yield one.op is Op.ASSIGN, "it waits for ASSIGN"
        below = base_of(one.src[0], _WRITABLE_VIEWS)
        same = base_of(below, _WRITTEN) is base_of(storage, _WRITTEN)
        yield below.op in _STORAGE and same, "it waits for writes to its own memory"


def check_kernel(node: UOp) -> Claims:
    """The stores of a kernel, or its parts, each a SINK of stores."""
    kinds = {source.op for source in node.src}
    yield kinds in ({Op.STORE}, {Op.SINK}), "a kernel is stores, or parts"
    yield len(set(node.src)) == len(node.src), "none of its stores is there twice"


# ---- inside kernels ----

STATEMENTS = frozenset({Op.STORE, Op.LOOP, Op.BLOCK, Op.BARRIER})


def check_range(node: UOp) -> Claims:
    """A loop variable."""
    yield node.src[0].dtype is dtypes.index, "its size is an index"


def check_end(node: UOp) -> Claims:
    """The end of one loop."""
    yield node.src[0].op is Op.RANGE, "it closes a RANGE"


def check_index(node: UOp) -> Claims:
    """The address of one element."""
    memory, offset = node.src
    yield memory.op in (Op.PARAM, Op.SCRATCH), "it is in PARAM or SCRATCH"
    yield offset.dtype is dtypes.index, "its offset is an index"
    yield offset.op is Op.CONST or not is_register(memory), "the address in a register is constant"


def is_register(memory: UOp) -> bool:
    """Whether memory is a register, all of whose addresses are constants."""
    return memory.op is Op.SCRATCH and bool(memory.arg.register)


def access_of(node: UOp) -> tuple[UOp, DType, tuple[UOp, ...]]:
    """The address, the dtype and the gates of a LOAD or STORE."""
    if node.op is Op.LOAD:
        return node.src[0], node.dtype, node.src[1:]
    return node.src[0], node.src[1].dtype, node.src[2:]


def check_access(node: UOp) -> Claims:
    """A scalar or a vector from memory or to memory."""
    address, dtype, gates = access_of(node)
    yield address.op is Op.INDEX, "its address is an INDEX"
    memory = address.src[0]
    if is_register(memory):
        yield not gates and dtype is memory.dtype, "it moves all of a register"
        return
    yield dtype.scalar is memory.dtype.scalar, "it moves elements of the memory's dtype"
    yield len(gates) < 2, "it has one gate at most"
    for gate in gates:
        fits = gate.dtype.is_bool and gate.dtype.lanes in (1, dtype.lanes)
        yield fits, "its gate is one bool, or one for each lane"


def check_vectorize(node: UOp) -> Claims:
    """One scalar for each lane."""
    yield len(node.src) == node.dtype.lanes > 1, "it has one source for each lane"
    yield all(each.dtype is node.dtype.scalar for each in node.src), "its sources are its lanes"


def check_extract(node: UOp) -> Claims:
    """One lane of a vector."""
    dtype = node.src[0].dtype
    yield 0 <= node.arg < dtype.lanes, "its source has that lane"
    yield node.dtype is dtype.scalar, "it is a scalar of its source"


def check_statements(node: UOp) -> Claims:
    """Statements in order, of a LOOP below its variable."""
    body = node.src[1:] if node.op is Op.LOOP else node.src
    yield body is node.src or node.src[0].op is Op.RANGE, "it is over a RANGE"
    yield all(part.op in STATEMENTS for part in body), "only statements are in it"
