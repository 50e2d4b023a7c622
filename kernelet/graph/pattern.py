"""What a rule looks for, and the two ways to write one: an equation, or a named function.

In:  expressions over placeholders, or patterns and functions.
Out: `Rule` and `Equation` values, which `rewrite` compiles and applies.

    x, y = variables("x", "y")
    equation((x ^ y) ^ y, x, dtypes=dtypes.ints)

    @rule(UPat(Op.RANGE, name="loop"))
    def unit_loop_is_zero(loop: UOp) -> UOp | None: ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kernelet.base.dtype import DType, Scalar, dtypes
from kernelet.base.errors import ArgumentError
from kernelet.graph.ops import COMMUTATIVE, Op
from kernelet.graph.show import show_expression
from kernelet.graph.uop import UOp

DTypes = DType | tuple[DType, ...] | Callable[[DType], bool]

# The dtype of a placeholder: whichever of the equation's dtypes the graph has in that place.
ANY_DTYPE = DType("any", "void", 0, -1, "x")

INTEGERS = (*dtypes.ints, dtypes.index)
NUMBERS = (*INTEGERS, *dtypes.floats)
EVERY = (dtypes.bool, *NUMBERS)


class _Anything:
    """The payload pattern that every payload fits."""


ANYTHING = _Anything()


def _binary(op: Op) -> Callable[[UPat, UPat | Scalar], UPat]:
    """The operator that describes nodes of kind `op`."""
    return lambda left, right: left.alu(op, right)


@dataclass(frozen=True, slots=True, eq=False)
class UPat:
    """A description of nodes: each part that is given must fit.

    `dtype` is a type (its vectors fit too), several, or a predicate. `src` is a tuple for sources
    in this order, a list for any order, one pattern for every source. `arg` is a value or a
    predicate. What fits under `name` is handed to the rule's function; a name that occurs twice
    must be the same node twice.
    """

    op: Op | tuple[Op, ...] | None = None
    dtype: DTypes | None = None
    src: UPat | Sequence[UPat] | None = None
    arg: object = ANYTHING
    name: str | None = None
    constant: bool = False  # a constant seen through views; `arg` and `name` are of its value
    typed: bool = False  # its dtype is the one of all nodes so marked, and `dtype` says which
    is_open: bool = False  # more sources may follow those of `src`

    # ---- short forms ----

    @staticmethod
    def var(name: str | None = None, dtype: DTypes | None = None) -> UPat:
        """Any node."""
        return UPat(dtype=dtype, name=name)

    @staticmethod
    def cvar(name: str | None = None, dtype: DTypes | None = None) -> UPat:
        """Any CONST node."""
        return UPat(Op.CONST, dtype, name=name)

    @staticmethod
    def const(dtype: DTypes | None, value: Scalar) -> UPat:
        """The CONST node of that value."""
        return UPat(Op.CONST, dtype, arg=value)

    def alu(self, op: Op, *others: UPat | Scalar) -> UPat:
        """An elementwise op on nodes that fit; in any order where the op is commutative."""
        sources = [self, *map(_pattern, others)]
        return UPat(op, src=sources if op in COMMUTATIVE else tuple(sources))

    def cast(self, dtype: DTypes | None = None, name: str | None = None) -> UPat:
        """A CAST of a node that fits."""
        return UPat(Op.CAST, dtype, (self,), name=name)

    def where(self, if_true: UPat | Scalar, if_false: UPat | Scalar) -> UPat:
        """A WHERE with this condition."""
        return self.alu(Op.WHERE, if_true, if_false)

    __add__ = __radd__ = _binary(Op.ADD)
    __mul__ = __rmul__ = _binary(Op.MUL)
    __floordiv__, __mod__, __lt__ = _binary(Op.IDIV), _binary(Op.MOD), _binary(Op.CMPLT)
    __and__, __or__, __xor__ = _binary(Op.AND), _binary(Op.OR), _binary(Op.XOR)

    def __neg__(self) -> UPat:
        return self.alu(Op.NEG)

    # ---- what the compiler of rules asks ----

    @property
    def ops(self) -> tuple[Op, ...] | None:
        """The kinds that fit; None for all."""
        return (self.op,) if isinstance(self.op, Op) else self.op

    @property
    def sources(self) -> tuple[UPat, ...]:
        """The patterns of the sources that have one of their own."""
        return tuple(self.src) if isinstance(self.src, Sequence) else ()

    def names(self) -> set[str]:
        """Every name inside."""
        inside = [self.src] if isinstance(self.src, UPat) else self.sources
        found = set().union(*[pattern.names() for pattern in inside])
        return found | {self.name} if self.name else found


def _pattern(value: UPat | Scalar) -> UPat:
    return value if isinstance(value, UPat) else UPat(arg=value, constant=True)


# ---- rules that are functions ----

Function = Callable[..., UOp | None]


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A pattern and the function that gives the replacement, or None to leave the node alone."""

    name: str
    pattern: UPat
    function: Function
    parameters: tuple[str, ...]

    @staticmethod
    def of(pattern: UPat, function: Function) -> Rule:
        """A rule whose function takes names of the pattern, and `ctx` if it wants it."""
        name = getattr(function, "__name__", type(function).__name__)
        names = pattern.names()
        parameters = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name in names or parameter.name == "ctx":
                parameters.append(parameter.name)
            elif parameter.default is parameter.empty:
                raise ArgumentError(
                    f"rule {name}: its function asks for {parameter.name!r}, the pattern names "
                    f"{sorted(names)}; name a part of the pattern so, or use `ctx`."
                )
        return Rule(name, pattern, function, tuple(parameters))

    def __repr__(self) -> str:
        return f"Rule({self.name})"


def rule(pattern: UPat) -> Callable[[Function], Rule]:
    """Make a function the rule for nodes that fit `pattern`; its name is what traces show."""
    return lambda function: Rule.of(pattern, function)


# ---- rules that are equations ----


@dataclass(frozen=True, slots=True)
class PlaceholderArg:
    """Stands for any node, or with `constant` for any constant."""

    name: str
    constant: bool


@dataclass(frozen=True, slots=True, eq=False)
class Equation:
    """`left` may be replaced by `right` where the placeholders are of one of `dtypes`."""

    name: str
    left: UOp
    right: UOp
    dtypes: tuple[DType, ...]
    pattern: UPat

    def __repr__(self) -> str:
        return f"Equation({self.name})"


def variables(*names: str, dtype: DType = ANY_DTYPE) -> tuple[UOp, ...]:
    """Placeholders for any nodes; of the equation's dtype, or of `dtype` if it is given."""
    return tuple(UOp(Op.VARIABLE, dtype, (), PlaceholderArg(name, False)) for name in names)


def constants(*names: str, dtype: DType = ANY_DTYPE) -> tuple[UOp, ...]:
    """Placeholders for constants; what the right side does with constants alone is computed."""
    return tuple(UOp(Op.VARIABLE, dtype, (), PlaceholderArg(name, True)) for name in names)


def equation(left: UOp, right: UOp, *, dtypes: Iterable[DType]) -> Equation:
    """`left` is rewritten to `right`; both are equal, bit by bit, for every value of `dtypes`."""
    name = f"{show_expression(left)} -> {show_expression(right)}"
    missing = set(_placeholder_names(right)) - set(_placeholder_names(left))
    if missing:
        raise ArgumentError(f"equation {name}: {sorted(missing)} occur on the right side only.")
    allowed = tuple(dtypes)
    return Equation(name, left, right, allowed, _to_pattern(left, None, allowed))


def _placeholder_names(side: UOp) -> list[str]:
    return [node.arg.name for node in side.toposort() if isinstance(node.arg, PlaceholderArg)]


def _to_pattern(node: UOp, user: UOp | None, allowed: tuple[DType, ...]) -> UPat:
    typed = node.dtype is ANY_DTYPE and _needs_test(node, user)
    dtype = allowed if typed else None
    if isinstance(node.arg, PlaceholderArg):
        fixed = dtype if node.dtype is ANY_DTYPE else (node.dtype,)
        return UPat(dtype=fixed, name=node.arg.name, constant=node.arg.constant, typed=typed)
    if node.op is Op.CONST:
        return UPat(dtype=dtype, arg=node.arg, constant=True, typed=typed)
    if node.op is Op.CAST and node.dtype is not ANY_DTYPE:
        dtype = (node.dtype,)
    sources = [_to_pattern(source, node, allowed) for source in node.src]
    kind = list if node.op in COMMUTATIVE else tuple
    return UPat(node.op, dtype, kind(sources), typed=typed)


def _needs_test(node: UOp, user: UOp | None) -> bool:
    """Whether the dtype of a node does not follow from the one of the node that uses it."""
    if user is None:
        return True
    if user.dtype is ANY_DTYPE and user.op is not Op.CAST:
        return False
    # The two sides of a comparison are alike, so one test will do.
    return node is next(source for source in user.src if source.dtype is ANY_DTYPE)
