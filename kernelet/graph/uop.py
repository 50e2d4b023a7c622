"""The node: immutable and hash-consed, so equality is identity and common work is shared.

In:  an op, a dtype, source nodes and a payload.
Out: the one `UOp` with those four fields.
"""

from __future__ import annotations

import itertools
import math
import threading
import weakref
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, final

from kernelet.base.dtype import DType, Scalar, dtypes, round_to
from kernelet.base.errors import ArgumentError
from kernelet.graph.bounds import Bounds, bounds_of
from kernelet.graph.infer import Placement, Shape, device_of
from kernelet.graph.ops import COMPARISONS, Op
from kernelet.graph.show import show, show_expression


@dataclass(frozen=True, slots=True)
class BufferArg:
    """Memory on `device` with room for `size` elements; `number` tells buffers apart."""

    number: int
    size: int
    device: str

    def __hash__(self) -> int:
        return self.number


@dataclass(frozen=True, slots=True)
class ParamArg:
    """The `slot`-th memory argument: `size` elements on `device`."""

    slot: int
    size: int
    device: str


@dataclass(frozen=True, slots=True)
class CutArg:
    """A copy to several devices, to each its part along `axis`."""

    devices: tuple[str, ...]
    axis: int


@dataclass(frozen=True, slots=True)
class VariableArg:
    """An integer from `min` to `max`, both included."""

    name: str
    min: int
    max: int


@dataclass(frozen=True, slots=True)
class ReduceArg:
    """Combine the elements along `axes` with `op` (ADD, MUL or MAX)."""

    op: Op
    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RangeArg:
    """A loop variable; `kind` is loop, thread, reduce, unroll or vector."""

    number: int
    kind: str


@dataclass(frozen=True, slots=True)
class ScratchArg:
    """`size` elements inside a kernel; `register` says every address is a constant."""

    number: int
    size: int
    register: bool = False


# What is found out by modules above this one, which compute with nodes.
facts: dict[str, Callable[[UOp], object]] = {}

# A name of this module is found several times faster than a member of an enum.
_CONST = Op.CONST
_new_object = object.__new__
_set_field = object.__setattr__


class _Entry(weakref.ref["_Fields"]):
    """A weak reference that knows its key in the table."""

    __slots__ = ("key",)
    key: tuple[object, ...]


_table: dict[tuple[object, ...], _Entry] = {}
# Adding a key is one atomic step; replacing or removing one takes two.
_table_lock = threading.RLock()


def _forget(entry: _Entry) -> None:
    with _table_lock:
        # A new node with the same key may have taken the place already.
        if _table.get(entry.key) is entry:
            del _table[entry.key]


_buffer_numbers = itertools.count()


class _Fields:
    """Where a node keeps its fields; plain and quick to fill, for nobody has seen the node yet."""

    __slots__ = (
        "__weakref__",
        "_bounds",
        "_cache",
        "_device",
        "_shape",
        "arg",
        "dtype",
        "op",
        "src",
    )
    op: Op
    dtype: DType
    src: tuple[UOp, ...]
    arg: Any
    _bounds: Bounds
    _cache: dict[str, Any]
    _device: Placement
    _shape: Shape


class _Draft(_Fields):
    __slots__ = ()


def _binary(op: Op) -> Callable[[UOp, UOp | Scalar], UOp]:
    """The operator that makes a node of kind `op`."""
    return lambda node, other: node.alu(op, node._operand(other))


def _reflected(op: Op) -> Callable[[UOp, Scalar], UOp]:
    """The same, of a number and a node."""
    return lambda node, other: node.const_like(other).alu(op, node)


@final
class UOp(_Fields):
    """One node of the graph: `op, dtype, src, arg`."""

    __slots__ = ()

    def __new__(
        cls,
        op: Op,
        dtype: DType = dtypes.void,
        src: tuple[UOp, ...] = (),
        arg: Any = None,  # noqa: ANN401 - a payload has its op's own type
    ) -> UOp:
        key: tuple[object, ...] = (op, dtype, src, arg)
        if op is _CONST:
            # 1, 1.0 and True are equal in Python, as are 0.0 and -0.0, but not the same constant.
            if arg == 0 and arg.__class__ is float:
                key = (op, dtype, src, arg, math.copysign(1.0, arg))
            else:
                if arg != arg:
                    # Python tells NaN objects apart by identity: there must be one.
                    arg = math.nan
                key = (op, dtype, src, arg, arg.__class__)
        entry = _table.get(key)
        if entry is not None:
            found = entry()
            if found is not None:
                return found  # type: ignore[return-value]
        node = _new_object(_Draft)
        node.op = op
        node.dtype = dtype
        node.src = src
        node.arg = arg
        node.__class__ = cls  # type: ignore[assignment]  # immutable from here on
        entry = _Entry(node, _forget)
        entry.key = key
        if _table.setdefault(key, entry) is not entry:
            return _settle(key, entry, node)  # type: ignore[arg-type]
        return node  # type: ignore[return-value]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"UOp.{name} cannot be set: nodes are immutable; use replace()")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"UOp.{name} cannot be deleted: nodes are immutable")

    def __reduce__(self) -> tuple[object, ...]:
        # As a flat list: pickling node by node would recurse as deep as the graph.
        numbers: dict[UOp, int] = {}
        for node in self.toposort():
            numbers[node] = len(numbers)
        return _from_rows, (
            [(n.op, n.dtype, tuple([numbers[s] for s in n.src]), n.arg) for n in numbers],
        )

    def __repr__(self) -> str:
        return show(self)

    def __bool__(self) -> bool:
        low, high = self.bounds
        if low > 0 or high < 0 or low == high:
            return bool(low)
        raise ArgumentError(
            f"bool({show_expression(self)}): the value is not known while the graph is built. "
            "Compare with `is None`, ask .bounds, or use where()."
        )

    # ---- facts, computed once ----

    @property
    def shape(self) -> Shape:
        """The sizes of the axes; () for scalars and for nodes inside kernels."""
        try:
            return self._shape
        except AttributeError:
            _find_fact(self, "_shape", facts["shape"])
            return self._shape

    @property
    def device(self) -> Placement:
        """The device the value lives on, several if it is spread; None for constants."""
        try:
            return self._device
        except AttributeError:
            _find_fact(self, "_device", device_of)
            return self._device

    @property
    def bounds(self) -> Bounds:
        """The least and the greatest value that any element can have."""
        try:
            return self._bounds
        except AttributeError:
            _find_fact(self, "_bounds", bounds_of)
            return self._bounds

    @property
    def cache(self) -> dict[str, Any]:
        """Room for facts that analyses keep on the node; keyed by the analysis."""
        try:
            return self._cache
        except AttributeError:
            _set_field(self, "_cache", {})
            return self._cache

    # ---- construction ----

    @staticmethod
    def const(value: Scalar, dtype: DType) -> UOp:
        """A number, rounded or wrapped to what `dtype` holds."""
        # Most constants are indices inside kernels, which nothing wraps.
        if not (dtype is dtypes.index and type(value) is int) and dtype.kind != "void":
            value = round_to(dtype, value)
        return UOp(_CONST, dtype, (), value)

    @staticmethod
    def buffer(size: int, dtype: DType, device: str) -> UOp:
        """A node for memory that no other node names."""
        return UOp(Op.BUFFER, dtype, (), BufferArg(next(_buffer_numbers), size, device))

    @staticmethod
    def variable(name: str, min: int, max: int) -> UOp:
        """An integer from `min` to `max` that is given when the kernel is launched."""
        if min > max:
            raise ArgumentError(
                f"Variable({name!r}, {min}, {max}): the minimum is above the maximum; swap them."
            )
        return UOp(Op.VARIABLE, dtypes.index, (), VariableArg(name, min, max))

    @staticmethod
    def sink(*nodes: UOp) -> UOp:
        """Several nodes as one root."""
        return UOp(Op.SINK, dtypes.void, nodes)

    def const_like(self, value: Scalar) -> UOp:
        """A number of this node's dtype, broadcast to its shape."""
        node, shape = UOp.const(value, self.dtype), self.shape
        return node.broadcast_to(shape) if shape else node

    def broadcast_to(self, shape: Shape) -> UOp:
        """A scalar repeated over `shape`."""
        ones = UOp(Op.RESHAPE, self.dtype, (self,), (1,) * len(shape))
        if all(isinstance(dim, int) and dim == 1 for dim in shape):
            return ones
        return UOp(Op.EXPAND, self.dtype, (ones,), shape)

    def replace(self, **fields: Any) -> UOp:  # noqa: ANN401 - each field has its own type
        """The node with some of `op, dtype, src, arg` changed."""
        return UOp(
            fields.get("op", self.op),
            fields.get("dtype", self.dtype),
            fields.get("src", self.src),
            fields.get("arg", self.arg),
        )

    def alu(self, op: Op, *others: UOp) -> UOp:
        """An elementwise op on this node and `others`, in this order."""
        dtype = self.dtype
        if op in COMPARISONS:
            dtype = dtypes.bool.vec(dtype.lanes)
        elif op is Op.WHERE:
            dtype = others[0].dtype
        return UOp(op, dtype, (self, *others))

    def cast(self, dtype: DType) -> UOp:
        """The value converted to `dtype`; itself when that changes nothing."""
        return self if self.dtype is dtype else UOp(Op.CAST, dtype, (self,))

    def bitcast(self, dtype: DType) -> UOp:
        """The bits reinterpreted as `dtype`, which must be as wide."""
        return self if self.dtype is dtype else UOp(Op.BITCAST, dtype, (self,))

    # ---- bound variables ----

    def bind(self, value: int) -> UOp:
        """The variable with its value for now; ArgumentError when it is out of range."""
        if self.op is not Op.VARIABLE:
            raise ArgumentError(f"bind({value}): {self.op.name} is not a Variable")
        arg = self.arg
        if not arg.min <= value <= arg.max:
            raise ArgumentError(
                f"Variable({arg.name!r}).bind({value}): the value must be in {arg.min}..{arg.max}."
            )
        return UOp(Op.BIND, self.dtype, (self, UOp.const(value, self.dtype)))

    def unbind(self) -> tuple[UOp, int]:
        """The variable and its value."""
        if self.op is not Op.BIND:
            raise ArgumentError(f"unbind(): {self.op.name} is not a bound Variable; bind it first.")
        return self.src[0], self.src[1].arg

    # ---- walking ----

    def toposort(self, leaves: Collection[UOp] = ()) -> dict[UOp, None]:
        """This node and all below it, but for what is below `leaves`, each after its sources."""
        order: dict[UOp, None] = {}
        stack: list[UOp | None] = [self]
        while stack:
            node = stack.pop()
            if node is None:  # all below the next one is done
                order[stack.pop()] = None  # type: ignore[index]
            elif node not in order:
                if not node.src or node in leaves:
                    order[node] = None
                    continue
                stack += (node, None)
                for source in reversed(node.src):
                    if source not in order:
                        stack.append(source)
        return order

    # ---- arithmetic: raw nodes, simplified by rewriting ----

    def _operand(self, value: UOp | Scalar) -> UOp:
        return value if isinstance(value, UOp) else self.const_like(value)

    def __sub__(self, other: UOp | Scalar) -> UOp:
        return self + -self._operand(other)

    def __rsub__(self, other: Scalar) -> UOp:
        return self.const_like(other) + -self

    def __neg__(self) -> UOp:
        if self.op is _CONST:
            return self.const_like(-self.arg)
        return self.alu(Op.NEG)

    __add__, __mul__ = _binary(Op.ADD), _binary(Op.MUL)
    __radd__, __rmul__ = _reflected(Op.ADD), _reflected(Op.MUL)
    __floordiv__, __mod__, __lt__ = _binary(Op.IDIV), _binary(Op.MOD), _binary(Op.CMPLT)
    __and__, __or__, __xor__ = _binary(Op.AND), _binary(Op.OR), _binary(Op.XOR)
    __lshift__, __rshift__ = _binary(Op.SHL), _binary(Op.SHR)

    def __gt__(self, other: UOp | Scalar) -> UOp:
        return self._operand(other).alu(Op.CMPLT, self)

    def __ge__(self, other: UOp | Scalar) -> UOp:
        return (self < other).logical_not()

    def __le__(self, other: UOp | Scalar) -> UOp:
        return (self > other).logical_not()

    def not_equal(self, other: UOp | Scalar) -> UOp:
        """Whether the values differ, element by element (== compares the nodes)."""
        return self.alu(Op.CMPNE, self._operand(other))

    def logical_not(self) -> UOp:
        """The other truth value."""
        return self.alu(Op.CMPNE, self.const_like(True))

    def maximum(self, other: UOp | Scalar) -> UOp:
        """The greater value; NaN wins."""
        return self.alu(Op.MAX, self._operand(other))

    def where(self, if_true: UOp | Scalar, if_false: UOp | Scalar) -> UOp:
        """`if_true` where this holds, else `if_false`; one of them is a node."""
        if isinstance(if_true, UOp):
            return self.alu(Op.WHERE, if_true, if_true._operand(if_false))
        if isinstance(if_false, UOp):
            return self.alu(Op.WHERE, if_false.const_like(if_true), if_false)
        raise ArgumentError("where: both branches are numbers; give at least one node.")


def _settle(key: tuple[object, ...], entry: _Entry, node: UOp) -> UOp:
    """The node that keeps `key`: another thread, or one about to be forgotten, had it."""
    with _table_lock:
        rival = _table.setdefault(key, entry)()
        if rival is not None:
            return rival  # type: ignore[return-value]
        _table[key] = entry
        return node


def _find_fact(root: UOp, slot: str, compute: Callable[[UOp], object]) -> None:
    """Fill `slot` of a node after those of its sources; on a stack, for graphs may be deep."""
    stack = [root]
    while stack:
        node = stack[-1]
        missing = [source for source in node.src if not hasattr(source, slot)]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        _set_field(node, slot, compute(node))


def _from_rows(rows: list[tuple[Op, DType, tuple[int, ...], object]]) -> UOp:
    """The last node of a pickled graph."""
    nodes: list[UOp] = []
    for op, dtype, sources, arg in rows:
        nodes.append(UOp(op, dtype, tuple([nodes[number] for number in sources]), arg))
    return nodes[-1]
