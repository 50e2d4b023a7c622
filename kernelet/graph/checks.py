"""What is wrong with one node of a tensor graph or of a kernel, if anything is.

In:  a node.
Out: what is wrong, in words; None when it is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kernelet.base.dtype import dtypes, round_to
from kernelet.graph.infer import Dim, Shape
from kernelet.graph.movement import normal_shape, product_of, subtract_dims
from kernelet.graph.ops import COMPARISONS, MOVEMENT, OP_TABLE, Op
from kernelet.graph.uop import BufferArg, ParamArg, ReduceArg, UOp, VariableArg
from kernelet.graph.walk import base_of

Check = Callable[[UOp], str | None]

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
    return check_no_sources(node)


def check_no_sources(node: UOp) -> str | None:
    """A leaf."""
    return f"it has {len(node.src)} sources, not 0" if node.src else None


def check_memory(kind: type[BufferArg] | type[ParamArg]) -> Check:
    """A checker of memory whose payload is a `kind`."""

    def check(node: UOp) -> str | None:
        if not isinstance(node.arg, kind):
            return f"its payload is {node.arg!r}, not {kind.__name__}"
        if node.arg.size < 0 or node.dtype.kind == "void":
            return f"it has {node.arg.size} elements of {node.dtype}"
        return check_no_sources(node)

    return check


def check_variable(node: UOp) -> str | None:
    """An index from a minimum to a maximum."""
    if not isinstance(node.arg, VariableArg) or node.dtype is not dtypes.index:
        return f"it is {node.dtype} with {node.arg!r}, not an index with VariableArg"
    if node.arg.min > node.arg.max:
        return f"no value is from {node.arg.min} to {node.arg.max}"
    return check_no_sources(node)


def check_bind(node: UOp) -> str | None:
    """A variable and a value in its range."""
    variable, value = node.src
    if variable.op is not Op.VARIABLE or value.op is not Op.CONST:
        return f"it binds {variable.op.name} to {value.op.name}, not VARIABLE to CONST"
    low, high = variable.bounds
    return None if low <= value.arg <= high else f"{value.arg} is not in {low}..{high}"


def check_arange(node: UOp) -> str | None:
    """Integers along one axis."""
    if len(node.shape) != 1 or not node.dtype.is_integer:
        return f"it is {node.dtype} of shape {node.shape}, not integers along one axis"
    return check_no_sources(node)


# ---- elementwise ----

_FLOAT_ONLY = frozenset({Op.EXP2, Op.LOG2, Op.SIN, Op.SQRT, Op.RECIPROCAL, Op.FDIV})
_WHOLE_ONLY = frozenset({Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR, Op.TRUNCDIV, Op.TRUNCMOD})


def check_elementwise(node: UOp) -> str | None:
    """Number, dtypes and lanes of the sources."""
    op, dtype = node.op, node.dtype
    arity = OP_TABLE[op].arity
    if len(node.src) != arity:
        return f"it has {len(node.src)} sources, not {arity}"
    if node.arg is not None:
        return f"it has the payload {node.arg!r}"
    if any(source.dtype.lanes != dtype.lanes for source in node.src):
        return f"its lanes are {dtype.lanes}, those of its sources {_dtypes(node.src)}"
    if op in (Op.CAST, Op.BITCAST):
        old = node.src[0].dtype
        if op is Op.BITCAST and old.itemsize != dtype.itemsize:
            return f"{old} and {dtype} are not of the same width"
        return "it has no dtype" if dtype.kind == "void" else None
    values = node.src
    if op is Op.WHERE:
        if not node.src[0].dtype.is_bool:
            return f"its condition is {node.src[0].dtype}, not bool"
        values = node.src[1:]
    if any(value.dtype is not values[0].dtype for value in values):
        return f"its sources are {_dtypes(values)}, not alike"
    expected = dtypes.bool.vec(dtype.lanes) if op in COMPARISONS else values[0].dtype
    if dtype is not expected:
        return f"it is {dtype}, its sources make {expected}"
    if op in _FLOAT_ONLY and not dtype.is_float:
        return f"{op.name} is for floats, not {dtype}"
    if op in _WHOLE_ONLY and dtype.is_float:
        return f"{op.name} is not for floats"
    return None


def _dtypes(nodes: Iterable[UOp]) -> str:
    return ", ".join(repr(node.dtype) for node in nodes)


def check_over_tensors(node: UOp) -> str | None:
    """An elementwise op on tensors of one shape on one device."""
    problem = check_elementwise(node)
    if problem is not None:
        return problem
    if any(source.shape != node.shape for source in node.src):
        shapes = {normal_shape(source.shape) for source in node.src}
        if len(shapes) > 1:
            return f"the shapes of its sources differ: {', '.join(map(str, shapes))}"
    devices = {source.device for source in node.src} - {None}
    return f"its sources are on {sorted(map(str, devices))}" if len(devices) > 1 else None


# ---- movement ----


def check_movement(node: UOp) -> str | None:
    """A movement op that fits the shape of its source."""
    (source,) = node.src
    if source.dtype is not node.dtype:
        return f"it is {node.dtype} of {source.dtype}"
    return _MOVEMENT_CHECKS[node.op](node, source.shape)


def _bounds(dim: Dim) -> tuple[int, int]:
    return (dim, dim) if isinstance(dim, int) else (int(dim.bounds.min), int(dim.bounds.max))


def _may_equal(left: Dim, right: Dim) -> bool:
    low, high = _bounds(subtract_dims(left, right))
    return low <= 0 <= high


def _reshape(node: UOp, shape: Shape) -> str | None:
    if _may_equal(product_of(shape), product_of(node.arg)):
        return None
    return f"{shape} and {node.arg} do not have the same number of elements"


def _permute(node: UOp, shape: Shape) -> str | None:
    if sorted(node.arg) == list(range(len(shape))):
        return None
    return f"{node.arg} is not an order of {len(shape)} axes"


def _expand(node: UOp, shape: Shape) -> str | None:
    if len(node.arg) != len(shape):
        return f"{shape} has not as many axes as {node.arg}"
    pairs = zip(shape, node.arg, strict=True)
    if all(old == 1 or _may_equal(old, size) for old, size in pairs):
        return None
    return f"{shape} does not repeat to {node.arg}: only axes of size 1 do"


def _pad(node: UOp, shape: Shape) -> str | None:
    if len(node.arg) != len(shape):
        return f"{node.arg} is not a pair for each of {len(shape)} axes"
    if any(_bounds(amount)[0] < 0 for pair in node.arg for amount in pair):
        return f"{node.arg} may be negative"
    return None


def _shrink(node: UOp, shape: Shape) -> str | None:
    if len(node.arg) != len(shape):
        return f"{node.arg} is not a pair for each of {len(shape)} axes"
    for (begin, end), size in zip(node.arg, shape, strict=True):
        room = [begin, subtract_dims(end, begin), subtract_dims(size, end)]
        if any(_bounds(amount)[1] < 0 for amount in room):
            return f"{begin}..{end} is not inside 0..{size}"
    return None


def _flip(node: UOp, shape: Shape) -> str | None:
    if set(node.arg) <= set(range(len(shape))) and len(set(node.arg)) == len(node.arg):
        return None
    return f"{node.arg} are not different axes of {len(shape)}"


_MOVEMENT_CHECKS: dict[Op, Callable[[UOp, Shape], str | None]] = {
    Op.RESHAPE: _reshape,
    Op.PERMUTE: _permute,
    Op.EXPAND: _expand,
    Op.PAD: _pad,
    Op.SHRINK: _shrink,
    Op.FLIP: _flip,
}


# ---- values over whole tensors ----


def check_gather(node: UOp) -> str | None:
    """GATHER: an index for each result, one long along the axis that it picks from."""
    values, picks = node.src
    if not picks.dtype.is_integer or values.dtype is not node.dtype:
        return f"it picks {values.dtype} at {picks.dtype}"
    others = [a for a in range(len(values.shape)) if a != node.arg]
    same = all(values.shape[axis] == picks.shape[axis] for axis in others)
    if len(picks.shape) != len(values.shape) or picks.shape[node.arg] != 1 or not same:
        return f"values of shape {values.shape} are picked by an index of shape {picks.shape}"
    return None


def check_reduce(node: UOp) -> str | None:
    """A reduction over axes that are there."""
    (source,) = node.src
    arg = node.arg
    if not isinstance(arg, ReduceArg) or arg.op not in (Op.ADD, Op.MUL, Op.MAX):
        return f"its payload is {arg!r}, not ReduceArg of ADD, MUL or MAX"
    if source.dtype is not node.dtype:
        return f"it is {node.dtype} of {source.dtype}"
    axes = arg.axes
    if list(axes) != sorted(set(axes)) or any(not 0 <= n < len(source.shape) for n in axes):
        return f"{axes} are not axes of {source.shape} in order"
    return None


def check_function(node: UOp) -> str | None:
    """A value beside the argument that it is a function of."""
    value, argument = node.src
    if not isinstance(node.arg, str):
        return f"it is the function {node.arg!r}, which is no name"
    same = value.dtype is node.dtype and value.shape == argument.shape
    return None if same else f"it is {node.dtype} of {value.dtype} with {argument.shape}"


def check_same_value(node: UOp) -> str | None:
    """The same value elsewhere."""
    (source,) = node.src
    if node.op is Op.COPY and not isinstance(node.arg, str):
        return f"it goes to {node.arg!r}, not to a device's name"
    return None if source.dtype is node.dtype else f"it is {node.dtype} of {source.dtype}"


_WRITABLE_VIEWS = MOVEMENT - {Op.PAD, Op.EXPAND}
_WRITTEN = frozenset({Op.AFTER})
_STORAGE = frozenset({Op.BUFFER, Op.PARAM, Op.CONTIGUOUS, Op.COPY, Op.AFTER})


def _write(node: UOp, kinds: frozenset[Op]) -> str | None:
    target, value = node.src
    if base_of(target, _WRITABLE_VIEWS).op not in kinds:
        return "its target is not a view of memory without padding and repetition"
    if target.dtype is not value.dtype:
        return f"it writes {value.dtype} over {target.dtype}"
    if normal_shape(target.shape) != normal_shape(value.shape):
        return f"it writes {value.shape} over {target.shape}"
    return None


def check_assign(node: UOp) -> str | None:
    """A value written over a view of memory."""
    problem = _write(node, _STORAGE)
    return problem if problem or node.dtype is node.src[0].dtype else f"it is {node.dtype}"


def check_after(node: UOp) -> str | None:
    """Memory after writes to it."""
    storage, *writes = node.src
    if storage.op not in _STORAGE or node.dtype is not storage.dtype:
        return f"it is {node.dtype} of {storage.op.name} {storage.dtype}, not of memory"
    for write in writes:
        if write.op is not Op.ASSIGN:
            return f"it waits for {write.op.name}, not for ASSIGN"
        below = base_of(write.src[0], _WRITABLE_VIEWS)
        if below.op not in _STORAGE or base_of(below, _WRITTEN) is not base_of(storage, _WRITTEN):
            return "it waits for a write to other memory"
    return None


def check_sink(node: UOp) -> str | None:
    """Several nodes as one root."""
    return None if node.dtype is dtypes.void else f"it is {node.dtype}"


def check_sink_of_stores(node: UOp) -> str | None:
    """The stores of a kernel, or its parts, each a SINK of stores."""
    found = {source.op for source in node.src}
    if found not in ({Op.STORE}, {Op.SINK}):
        return f"a kernel is stores, not {', '.join(source.op.name for source in node.src)}"
    if len(set(node.src)) < len(node.src):
        return "one of its stores is there twice"
    return check_sink(node)


def check_store_to_view(node: UOp) -> str | None:
    """A value stored over a view of a memory argument."""
    problem = _write(node, frozenset({Op.PARAM}))
    return problem if problem or node.dtype is dtypes.void else f"it is {node.dtype}"
