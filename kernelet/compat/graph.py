"""The graph as tinygrad programs write it: `UOp`, `UPat`, `PatternMatcher`, symbolic numbers.

In:  tinygrad's constructors and the former ones, which have other orders of arguments.
Out: kernelet's nodes, patterns and rule sets.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kernelet import holdings
from kernelet.base.dtype import DType, Scalar, dtypes
from kernelet.base.errors import ArgumentError
from kernelet.frontend.promotion import scalar_dtype
from kernelet.graph import pattern, rewrite
from kernelet.graph.algebra import simplify
from kernelet.graph.ops import COMMUTATIVE, COMPARISONS, ELEMENTWISE, MOVEMENT, OP_TABLE, Op
from kernelet.graph.show import show_expression
from kernelet.graph.uop import UOp as Node
from kernelet.graph.walk import base_of, substitute

Value = Any  # a number, a node, or the payload of one
Ops = Op

# Present and former names of ops that are called otherwise here.
OPS_MEMBERS: dict[str, object] = {
    "CDIV": Op.TRUNCDIV,
    "CMOD": Op.TRUNCMOD,
    "DEFINE_GLOBAL": Op.PARAM,
    "DEFINE_LOCAL": Op.SCRATCH,
    "DEFINE_REG": Op.SCRATCH,
    "DEFINE_VAR": Op.VARIABLE,
    "FLOORDIV": Op.IDIV,
    "FLOORMOD": Op.MOD,
    "GEP": Op.EXTRACT,
    "REDUCE_AXIS": Op.REDUCE,
    "STACK": Op.VECTORIZE,
    "UNSHARD": Op.MULTI,
}


def show_op(op: Op) -> str:
    """An op as programs print it."""
    return f"Ops.{op.name}"


class GroupOp:
    """Kinds of ops by what they have in common."""

    Unary, Binary, Ternary = (
        {op for op, info in OP_TABLE.items() if info.arity == arity} for arity in (1, 2, 3)
    )
    ALU = Elementwise = set(ELEMENTWISE)
    Commutative, Comparison, Movement = set(COMMUTATIVE), set(COMPARISONS), set(MOVEMENT)
    Associative = {op for op, info in OP_TABLE.items() if info.associative}
    Idempotent = {Op.OR, Op.AND, Op.MAX}
    All = set(Op)


# ---- nodes ----


class _NodeType(type):
    """Makes a class of `Node`s that has constructors of its own."""

    def __call__(
        cls,
        op: Op,
        dtype: DType | None = None,
        src: tuple[Node, ...] = (),
        arg: Value = None,
        tag: object = None,
    ) -> Node:
        """The node; without a dtype it has that of its sources."""
        if dtype is None:
            dtype = src[-1].dtype if src else dtypes.void
            dtype = dtypes.bool if op in COMPARISONS else dtype
        return Node(op, dtype, src, arg)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Node)

    def __getattr__(cls, name: str) -> Value:
        return getattr(Node, name)


class UOp(metaclass=_NodeType):
    """`kernelet.UOp` with tinygrad's constructors."""

    @staticmethod
    def const(first: Scalar | DType, second: DType | Scalar | None = None) -> Node:
        """A number of a dtype; both come in either order, and an integer is an index."""
        value, dtype = (second, first) if isinstance(first, DType) else (first, second)
        if isinstance(value, DType) or value is None or isinstance(dtype, bool | int | float):
            raise ArgumentError(f"UOp.const({first!r}, {second!r}): give a number and a dtype.")
        return Node.const(value, dtype or scalar_dtype(value))

    @staticmethod
    def variable(name: str, min_val: int, max_val: int, dtype: DType | None = None) -> Node:
        """An integer that is known when a kernel is launched."""
        return Node.variable(name, min_val, max_val)


def _number(node: Node) -> Scalar:
    if node.op is Op.CONST:
        value: Scalar = node.arg
        return value
    return node.unbind()[1]


def _render(node: Node, simplified: bool = True) -> str:
    """The expression in one line, with brackets around each operation."""
    text = show_expression(simplify(node) if simplified else node)
    return (
        text.replace(" ", "")
        if node.op in (Op.VARIABLE, Op.CONST)
        else f"({text})".replace(" ", "")
    )


def _variables(node: Node) -> list[Node]:
    found = [each for each in node.toposort() if each.op is Op.VARIABLE]
    return sorted(found, key=lambda variable: str(variable.arg.name))


def sym_infer(value: int | Node, var_vals: Mapping[Value, int]) -> int:
    """The number that an expression is for these values of variables, which may be given by name."""
    if isinstance(value, int):
        return value
    named = {
        getattr(getattr(key, "arg", None), "name", key): each for key, each in var_vals.items()
    }
    known = {each: each.const_like(named[each.arg.name]) for each in _variables(value)}
    return int(_number(simplify(substitute(value, known))))


def resolve(value: bool | Node, default: bool = True) -> bool:
    """A truth value where it is known, else the default."""
    if not isinstance(value, Node):
        return bool(value)
    low, high = value.bounds
    return bool(low) if low == high else default


def ssimplify(value: int | Node) -> int | Node:
    """The expression in its shortest form, as a number where it is one."""
    if isinstance(value, int):
        return value
    found = simplify(value)
    return int(found.arg) if found.op is Op.CONST else found


def _extreme(values: Sequence[Value], choose: Callable[[Value, Value], Value]) -> Value:
    items = values[0] if len(values) == 1 and isinstance(values[0], Iterable) else values
    return ssimplify(functools.reduce(choose, items))


def smax(*values: Value) -> int | Node:
    """The greatest of numbers and expressions."""
    found: int | Node = _extreme(values, _greater)
    return found


def smin(*values: Value) -> int | Node:
    """The least of numbers and expressions."""
    found: int | Node = _extreme(values, _less)
    return found


def _greater(left: Value, right: Value) -> Value:
    if isinstance(left, int):
        return max(left, right) if isinstance(right, int) else right.maximum(left)
    return left.maximum(right)


def _less(left: Value, right: Value) -> Value:
    return -_greater(-left, -right)


def _operation(op: Op) -> Callable[..., Node]:
    return lambda node, *others: node.alu(op, *map(node._operand, others))


NODE_MEMBERS: dict[str, object] = {
    **{op.name.lower(): _operation(op) for op in GroupOp.Unary | GroupOp.Binary},
    "base": property(base_of),
    "eq": lambda node, other: node.not_equal(other).logical_not(),
    "expr": property(lambda node: node.arg.name),
    "is_realized": property(lambda node: holdings.realized(node) is not None),
    "minimum": _less,
    "ne": Node.not_equal,
    "realized": property(lambda node: holdings.realized(base_of(node))),
    "render": _render,
    "simplify": simplify,
    "ssimplify": ssimplify,
    "sub": Node.__sub__,
    "substitute": substitute,
    "sym_infer": sym_infer,
    "val": property(_number),
    "variables": _variables,
    "vmax": property(lambda node: node.bounds.max),
    "vmin": property(lambda node: node.bounds.min),
}


Variable = UOp

# ---- patterns and rules ----


class UPat:
    """`kernelet.graph.pattern.UPat` as tinygrad programs build it; several where it says `any`."""

    def __init__(
        self,
        op: Op | Iterable[Op] | None = None,
        dtype: DType | Iterable[DType] | None = None,
        src: UPat | Sequence[UPat] | None = None,
        arg: object = None,
        name: str | None = None,
        allow_any_len: bool = False,
        custom_early_reject: object = None,
        location: object = None,
        is_any: bool = False,
        tag: object = None,
    ) -> None:
        self.op = op if op is None or isinstance(op, Op) else tuple(op)
        self.dtype = dtype if dtype is None or isinstance(dtype, DType) else tuple(dtype)
        self.src, self.arg, self.name = src, arg, name
        self.is_open, self.is_any = allow_any_len, is_any

    @staticmethod
    def any(*options: UPat) -> UPat:
        """Whichever of these fits."""
        return UPat(src=options, is_any=True)

    @staticmethod
    def var(name: str | None = None, dtype: DType | Iterable[DType] | None = None) -> UPat:
        """Any node."""
        return UPat(dtype=dtype, name=name)

    @staticmethod
    def cvar(
        name: str | None = None,
        dtype: DType | Iterable[DType] | None = None,
        arg: object = None,
        vec: bool = True,
    ) -> UPat:
        """Any CONST node."""
        return UPat(Op.CONST, dtype, arg=arg, name=name)

    @staticmethod
    def const(first: Value, second: Value = None) -> UPat:
        """The CONST node of a number; a dtype may stand before or after it."""
        dtype_first = first is None or isinstance(first, DType | tuple)
        value, dtype = (second, first) if dtype_first else (first, second)
        return UPat(Op.CONST, dtype, arg=value)

    def named(self, name: str) -> UPat:
        """The same pattern under a name."""
        return UPat(self.op, self.dtype, self.src, self.arg, name, self.is_open, is_any=self.is_any)

    def or_casted(self, name: str | None = None) -> UPat:
        """What fits, or a cast of it."""
        return UPat.any(self.named(name) if name else self, self.cast(name=name))

    def f(self, op: Op, **fields: Value) -> UPat:
        """An op on this one alone."""
        return UPat(op, src=(self,), **fields)

    def cast(self, dtype: DType | None = None, **fields: Value) -> UPat:
        """A cast of what fits."""
        return UPat(Op.CAST, dtype, (self,), **fields)

    def alu(self, op: Op, *others: UPat | Scalar) -> UPat:
        """An elementwise op; in any order where it is commutative."""
        sources = [self, *[each if isinstance(each, UPat) else UPat.const(each) for each in others]]
        return UPat(op, src=sources if op in COMMUTATIVE else tuple(sources))

    def where(self, if_true: UPat | Scalar, if_false: UPat | Scalar) -> UPat:
        """A WHERE with this condition."""
        return self.alu(Op.WHERE, if_true, if_false)

    def __neg__(self) -> UPat:
        return self.alu(Op.NEG)

    def __sub__(self, other: UPat | Scalar) -> UPat:
        return self.alu(Op.ADD, -other)

    def patterns(self) -> list[pattern.UPat]:
        """Kernelet's patterns, one of which fits where this one does."""
        if self.is_any:
            return [found for each in self._sources() for found in each.patterns()]
        arg = pattern.ANYTHING if self.arg is None else self.arg
        if isinstance(self.src, UPat):
            every = self.src.patterns()
            return [pattern.UPat(self.op, self.dtype, each, arg, self.name) for each in every]
        if self.src is None:
            return [pattern.UPat(self.op, self.dtype, None, arg, self.name)]
        kind = list if isinstance(self.src, list) else tuple
        choices = itertools.product(*[each.patterns() for each in self._sources()])
        return [
            pattern.UPat(self.op, self.dtype, kind(row), arg, self.name, is_open=self.is_open)
            for row in choices
        ]

    def _sources(self) -> Sequence[UPat]:
        return self.src if isinstance(self.src, Sequence) else ()


def _pattern_operation(op: Op) -> Callable[..., UPat]:
    return lambda left, *others: left.alu(op, *others)


_OPERATORS = {
    **{op.name.lower(): op for op in (GroupOp.Unary | GroupOp.Binary) - {Op.CAST}},
    **dict.fromkeys(("__add__", "__radd__"), Op.ADD),
    **dict.fromkeys(("__mul__", "__rmul__"), Op.MUL),
    **dict(zip(("__floordiv__", "__mod__", "__lt__"), (Op.IDIV, Op.MOD, Op.CMPLT), strict=True)),
    **dict(zip(("__and__", "__or__", "__xor__"), (Op.AND, Op.OR, Op.XOR), strict=True)),
    **dict(zip(("__lshift__", "__rshift__", "ne"), (Op.SHL, Op.SHR, Op.CMPNE), strict=True)),
}
for _name, _op in _OPERATORS.items():
    setattr(UPat, _name, _pattern_operation(_op))


def PatternMatcher(
    patterns: Iterable[tuple[UPat | pattern.UPat, Callable[..., Node | None]]],
    compiled: bool = True,
) -> rewrite.RuleSet:
    """A rule set from pairs of pattern and function."""
    pairs = []
    for looked_for, made in patterns:
        found = looked_for.patterns() if isinstance(looked_for, UPat) else [looked_for]
        pairs += [(each, made) for each in found]
    return rewrite.PatternMatcher(pairs)


def graph_rewrite(
    sink: Node,
    pm: rewrite.RuleSet,
    ctx: object = None,
    bottom_up: bool = False,
    name: str | None = None,
) -> Node:
    """The graph after the rules were applied until none fits.

    With `bottom_up` a node is rewritten before its sources, and what comes of it after them too.
    """
    return (
        _outermost(sink, pm, ctx, {})
        if bottom_up
        else rewrite.graph_rewrite(sink, pm, ctx, name=name)
    )


def _outermost(node: Node, rules: rewrite.RuleSet, ctx: object, done: dict[Node, Node]) -> Node:
    if node not in done:
        found = node
        while (after := rules.rewrite(found, ctx)) is not None:
            found = after
        sources = tuple([_outermost(each, rules, ctx, done) for each in found.src])
        done[node] = found if sources == found.src else found.replace(src=sources)
    return done[node]
