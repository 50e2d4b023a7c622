"""What nodes of each kind look like: their sources, dtype and payload, and what else must hold.

In:  a node and its `Form`.
Out: what is wrong, in words; None when it is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import NoneType, UnionType

from kernelet.base.dtype import DType, dtypes, round_to
from kernelet.graph.infer import Dim
from kernelet.graph.movement import normal_shape, product_of, subtract_dims
from kernelet.graph.ops import COMPARISONS, MOVEMENT, OP_TABLE, Op
from kernelet.graph.uop import UOp
from kernelet.graph.walk import base_of

Check = Callable[[UOp], str | None]


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """The number of sources (None: any), the class of the payload, the dtype, and one more check.

    The dtype is a given one, that of source number `like`, or any.
    """

    sources: int | None
    payload: type | UnionType = NoneType
    more: Check | None = None
    dtype: DType | None = None
    like: int | None = None

    def problem(self, node: UOp) -> str | None:
        """What is wrong with a node."""
        if self.sources is not None and len(node.src) != self.sources:
            return f"it has {len(node.src)} sources, not {self.sources}"
        if not isinstance(node.arg, self.payload):
            name = getattr(self.payload, "__name__", self.payload)
            return f"its payload is {node.arg!r}, not {name}"
        wanted = self.dtype if self.like is None else node.src[self.like].dtype
        if wanted is not None and node.dtype is not wanted:
            return f"it is {node.dtype}, not {wanted}"
        return self.more(node) if self.more is not None else None


# ---- leaves ----


def check_constant(node: UOp) -> str | None:
    """A number of the Python type, and in the range, of its dtype."""
    value, dtype = node.arg, node.dtype
    kind = bool if dtype.is_bool else float if dtype.is_float else int
    if type(value) is not kind:
        return f"a constant of {dtype} holds {value!r}, not a Python {kind.__name__}"
    held = round_to(dtype, value)
    if held != value and value == value:
        return f"{dtype} cannot hold {value!r}; it would be {held!r}"
    return None


def check_memory(node: UOp) -> str | None:
    """Elements of some dtype; inside a kernel there is at least one."""
    size, dtype = node.arg.size, node.dtype
    is_right = size >= (node.op is Op.SCRATCH) and dtype.kind != "void"
    return None if is_right else f"it has {size} elements of {dtype}"


def check_variable(node: UOp) -> str | None:
    """A minimum and a maximum."""
    low, high = node.arg.min, node.arg.max
    return None if low <= high else f"no value is from {low} to {high}"


def check_bind(node: UOp) -> str | None:
    """A variable and a value in its range."""
    variable, value = node.src
    if variable.op is not Op.VARIABLE or value.op is not Op.CONST:
        return f"it binds {variable.op.name} to {value.op.name}, not VARIABLE to CONST"
    low, high = variable.bounds
    return None if low <= value.arg <= high else f"{value.arg} is not in {low}..{high}"


def check_arange(node: UOp) -> str | None:
    """Integers along one axis."""
    if len(node.shape) == 1 and node.dtype.is_integer:
        return None
    return f"it is {node.dtype} of shape {node.shape}, not integers along one axis"


# ---- elementwise ----

_FLOAT_ONLY = frozenset({Op.EXP2, Op.LOG2, Op.SIN, Op.SQRT, Op.RECIPROCAL, Op.FDIV})
_WHOLE_ONLY = frozenset({Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR, Op.TRUNCDIV, Op.TRUNCMOD})


def _elementwise(node: UOp) -> str | None:
    op, dtype, values = node.op, node.dtype, node.src
    if any(source.dtype.lanes != dtype.lanes for source in values):
        return f"its lanes are {dtype.lanes}, those of its sources {_dtypes(values)}"
    if op in (Op.CAST, Op.BITCAST):
        old = values[0].dtype
        if op is Op.BITCAST and old.itemsize != dtype.itemsize:
            return f"{old} and {dtype} are not of the same width"
        return "it has no dtype" if dtype.kind == "void" else None
    if op is Op.WHERE:
        if not values[0].dtype.is_bool:
            return f"its condition is {values[0].dtype}, not bool"
        values = values[1:]
    if any(value.dtype is not values[0].dtype for value in values):
        return f"its sources are {_dtypes(values)}, not alike"
    expected = dtypes.bool.vec(dtype.lanes) if op in COMPARISONS else values[0].dtype
    if dtype is not expected:
        return f"it is {dtype}, its sources make {expected}"
    if op in _FLOAT_ONLY and not dtype.is_float:
        return f"{op.name} is for floats, not {dtype}"
    return f"{op.name} is not for floats" if op in _WHOLE_ONLY and dtype.is_float else None


def _dtypes(nodes: Iterable[UOp]) -> str:
    return ", ".join(repr(node.dtype) for node in nodes)


def _over_tensors(node: UOp) -> str | None:
    """An elementwise op on tensors of one shape on one device."""
    if any(source.shape != node.shape for source in node.src):
        shapes = {normal_shape(source.shape) for source in node.src}
        if len(shapes) > 1:
            return f"the shapes of its sources differ: {', '.join(map(str, shapes))}"
    devices = {source.device for source in node.src} - {None}
    if len(devices) > 1:
        return f"its sources are on {sorted(map(str, devices))}"
    return _elementwise(node)


def _in_a_kernel(node: UOp) -> str | None:
    """An elementwise op on scalars or vectors."""
    return f"it has the shape {node.shape} in a kernel" if node.shape else _elementwise(node)


def elementwise_forms(ops: Iterable[Op], *, over_tensors: bool) -> dict[Op, Form]:
    """How elementwise ops look over tensors, or inside kernels."""
    check = _over_tensors if over_tensors else _in_a_kernel
    return {op: Form(OP_TABLE[op].arity, more=check) for op in ops}


# ---- movement ----


def _bounds(dim: Dim) -> tuple[int, int]:
    return (dim, dim) if isinstance(dim, int) else (int(dim.bounds.min), int(dim.bounds.max))


def _may_equal(left: Dim, right: Dim) -> bool:
    low, high = _bounds(subtract_dims(left, right))
    return low <= 0 <= high


def check_movement(node: UOp) -> str | None:
    """A movement op that fits the shape of its source."""
    op, arg, shape = node.op, node.arg, node.src[0].shape
    axes = range(len(shape))
    if op is Op.RESHAPE:
        right = _may_equal(product_of(shape), product_of(arg))
        return None if right else f"{shape} and {arg} do not have the same number of elements"
    if op is Op.PERMUTE:
        right = sorted(arg) == list(axes)
        return None if right else f"{arg} is not an order of {len(shape)} axes"
    if op is Op.FLIP:
        right = set(arg) <= set(axes) and len(set(arg)) == len(arg)
        return None if right else f"{arg} are not different axes of {len(shape)}"
    if len(arg) != len(shape):
        return f"{arg} has not one part for each of the axes of {shape}"
    for size, part in zip(shape, arg, strict=True):
        if op is Op.EXPAND and not (size == 1 or _may_equal(size, part)):
            return f"{shape} does not repeat to {arg}: only axes of size 1 do"
        if op is Op.PAD and any(_bounds(amount)[0] < 0 for amount in part):
            return f"{arg} may be negative"
        if op is Op.SHRINK:
            begin, end = part
            room = [begin, subtract_dims(end, begin), subtract_dims(size, end)]
            if any(_bounds(amount)[1] < 0 for amount in room):
                return f"{begin}..{end} is not inside 0..{size}"
    return None


# ---- values over whole tensors ----


def check_gather(node: UOp) -> str | None:
    """GATHER: an index for each result, one long along the axis that it picks from."""
    values, picks = node.src
    if not picks.dtype.is_integer:
        return f"it picks {values.dtype} at {picks.dtype}"
    shape = tuple(1 if axis == node.arg else dim for axis, dim in enumerate(values.shape))
    if picks.shape != shape or not 0 <= node.arg < len(shape):
        return f"values of shape {values.shape} are picked by an index of shape {picks.shape}"
    return None


def check_reduce(node: UOp) -> str | None:
    """A reduction over axes that are there."""
    op, axes, shape = node.arg.op, node.arg.axes, node.src[0].shape
    if op not in (Op.ADD, Op.MUL, Op.MAX):
        return f"it combines by {op.name}, not by ADD, MUL or MAX"
    if list(axes) != sorted(set(axes)) or any(not 0 <= axis < len(shape) for axis in axes):
        return f"{axes} are not axes of {shape} in order"
    return None


def check_function(node: UOp) -> str | None:
    """A value beside the argument that it is a function of."""
    value, argument = (source.shape for source in node.src)
    return None if value == argument else f"it is of shape {value}, its argument of {argument}"


_WRITABLE_VIEWS = MOVEMENT - {Op.PAD, Op.EXPAND}
_WRITTEN = frozenset({Op.AFTER})
_STORAGE = frozenset({Op.BUFFER, Op.PARAM, Op.CONTIGUOUS, Op.COPY, Op.AFTER})


def check_write(node: UOp) -> str | None:
    """A value written over a view of memory: in a kernel, of a memory argument."""
    target, value = node.src
    kinds = _STORAGE if node.op is Op.ASSIGN else {Op.PARAM}
    if base_of(target, _WRITABLE_VIEWS).op not in kinds:
        return "its target is not a view of memory without padding and repetition"
    if target.dtype is not value.dtype:
        return f"it writes {value.dtype} over {target.dtype}"
    if normal_shape(target.shape) != normal_shape(value.shape):
        return f"it writes {value.shape} over {target.shape}"
    return None


def check_after(node: UOp) -> str | None:
    """Memory after writes to it."""
    storage, *writes = node.src
    if storage.op not in _STORAGE:
        return f"it is of {storage.op.name}, not of memory"
    for write in writes:
        if write.op is not Op.ASSIGN:
            return f"it waits for {write.op.name}, not for ASSIGN"
        below = base_of(write.src[0], _WRITABLE_VIEWS)
        if below.op not in _STORAGE or base_of(below, _WRITTEN) is not base_of(storage, _WRITTEN):
            return "it waits for a write to other memory"
    return None


def check_kernel(node: UOp) -> str | None:
    """The stores of a kernel, or its parts, each a SINK of stores."""
    if {source.op for source in node.src} not in ({Op.STORE}, {Op.SINK}):
        return f"a kernel is stores, not {', '.join(source.op.name for source in node.src)}"
    return "one of its stores is there twice" if len(set(node.src)) < len(node.src) else None


# ---- inside kernels ----

STATEMENTS = frozenset({Op.STORE, Op.LOOP, Op.BLOCK, Op.BARRIER})


def check_range(node: UOp) -> str | None:
    """A loop variable."""
    dtype = node.src[0].dtype
    return None if dtype is dtypes.index else f"its size is {dtype}, not an index"


def check_end(node: UOp) -> str | None:
    """The end of one loop."""
    op = node.src[0].op
    return None if op is Op.RANGE else f"it closes {op.name}, not RANGE"


def check_index(node: UOp) -> str | None:
    """The address of one element."""
    memory, offset = node.src
    if memory.op not in (Op.PARAM, Op.SCRATCH):
        return f"it is in {memory.op.name}, not in PARAM or SCRATCH"
    if offset.dtype is not dtypes.index:
        return f"its offset is {offset.dtype}, not an index"
    if is_register(memory) and offset.op is not Op.CONST:
        return "the address of a register is not a constant"
    return None


def is_register(memory: UOp) -> bool:
    """Whether memory is a register, all of whose addresses are constants."""
    return memory.op is Op.SCRATCH and bool(memory.arg.register)


def access_of(node: UOp) -> tuple[UOp, DType, tuple[UOp, ...]]:
    """The address, the dtype and the gates of a LOAD or STORE."""
    if node.op is Op.LOAD:
        return node.src[0], node.dtype, node.src[1:]
    return node.src[0], node.src[1].dtype, node.src[2:]


def check_access(node: UOp) -> str | None:
    """A scalar or a vector from memory or to memory."""
    address, dtype, gates = access_of(node)
    if address.op is not Op.INDEX:
        return f"its address is {address.op.name}, not INDEX"
    memory = address.src[0]
    if len(gates) > 1:
        return f"it has {len(node.src)} sources"
    if is_register(memory):
        if gates or dtype is not memory.dtype:
            return f"it moves {dtype} with {len(gates)} gates; the register is {memory.dtype}"
        return None
    if dtype.scalar is not memory.dtype.scalar:
        return f"it moves {dtype}; the memory is {memory.dtype}"
    for gate in gates:
        if not gate.dtype.is_bool or gate.dtype.lanes not in (1, dtype.lanes):
            return f"its gate is {gate.dtype}, not bool or one bool for each lane of {dtype}"
    return None


def check_vectorize(node: UOp) -> str | None:
    """One scalar for each lane."""
    if len(node.src) != node.dtype.lanes or node.dtype.lanes < 2:
        return f"it has {len(node.src)} sources for {node.dtype.lanes} lanes"
    if any(source.dtype is not node.dtype.scalar for source in node.src):
        return f"its sources are not all {node.dtype.scalar}"
    return None


def check_extract(node: UOp) -> str | None:
    """One lane of a vector."""
    dtype = node.src[0].dtype
    if not 0 <= node.arg < dtype.lanes:
        return f"there is no lane {node.arg!r} in {dtype}"
    return None if node.dtype is dtype.scalar else f"it is {node.dtype} of {dtype}"


def check_statements(node: UOp) -> str | None:
    """Statements in order, of a LOOP below its variable."""
    body = node.src[1:] if node.op is Op.LOOP else node.src
    if node.op is Op.LOOP and node.src[0].op is not Op.RANGE:
        return f"it is over {node.src[0].op.name}"
    wrong = [part.op.name for part in body if part.op not in STATEMENTS]
    return f"{', '.join(wrong)} among its statements" if wrong else None
