"""The op table: every kind of node, its arity, its algebra and its Python meaning.

In:  nothing.
Out: `Op`, and `OP_TABLE`, the one place that says what an op is.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from kernelet.base import scalars


class Op(enum.IntEnum):
    """Kinds of nodes, grouped by where they occur."""

    # leaves
    BUFFER = enum.auto()  # memory that holds data; arg BufferArg
    PARAM = enum.auto()  # the n-th memory argument of a schedule or kernel; arg ParamArg
    CONST = enum.auto()  # a number; arg the Python value
    VARIABLE = enum.auto()  # an integer given at launch; arg VariableArg
    BIND = enum.auto()  # (VARIABLE, CONST): a variable with its value for now
    ARANGE = enum.auto()  # arg (size,): the integers from 0 along one axis
    # movement: changes indexing only
    RESHAPE = enum.auto()  # arg new shape
    PERMUTE = enum.auto()  # arg order of the old axes
    EXPAND = enum.auto()  # arg new shape; axes of size 1 repeat
    PAD = enum.auto()  # arg (before, after) for each axis; filled with 0
    SHRINK = enum.auto()  # arg (begin, end) for each axis
    FLIP = enum.auto()  # arg the axes that run backwards
    # values over whole tensors
    REDUCE = enum.auto()  # arg ReduceArg; reduced axes keep size 1
    GATHER = enum.auto()  # (values, index): values at index along axis arg; 0 where there is none
    CONTIGUOUS = enum.auto()  # the same value, stored to memory of its own
    DETACH = enum.auto()  # the same value, gradients stop here
    FUNCTION = enum.auto()  # (value, x): value, known to be the function of x that arg names
    COPY = enum.auto()  # the same value on another device, or on several; arg name, names, CutArg
    MULTI = enum.auto()  # one part a device; arg the axis that is cut, None: each is the whole
    ASSIGN = enum.auto()  # (target, value): write value over the storage that target views
    AFTER = enum.auto()  # (storage, *writes): that storage once the writes are done
    SINK = enum.auto()  # several nodes as one root
    # elementwise, unary
    EXP2 = enum.auto()
    LOG2 = enum.auto()
    SIN = enum.auto()
    SQRT = enum.auto()
    RECIPROCAL = enum.auto()
    NEG = enum.auto()
    TRUNC = enum.auto()
    CAST = enum.auto()
    BITCAST = enum.auto()
    # elementwise, binary
    ADD = enum.auto()
    MUL = enum.auto()
    MAX = enum.auto()  # NaN wins
    MOD = enum.auto()  # Python's %: sign of the divisor; x % 0 is 0
    IDIV = enum.auto()  # Python's //: rounds down; x // 0 is 0
    CMPLT = enum.auto()
    CMPNE = enum.auto()
    AND = enum.auto()
    OR = enum.auto()
    XOR = enum.auto()
    SHL = enum.auto()
    SHR = enum.auto()
    # elementwise, ternary
    WHERE = enum.auto()  # (condition, if true, if false)
    MULACC = enum.auto()  # (a, b, c): a * b + c, rounded once
    # optional ops, made by `lower/decompose.py` for targets that have them
    SUB = enum.auto()
    FDIV = enum.auto()
    TRUNCDIV = enum.auto()  # C's /: rounds to zero, divisor not 0
    TRUNCMOD = enum.auto()  # C's %: sign of the dividend, divisor not 0
    # kernels
    RANGE = enum.auto()  # (size,): a loop variable; arg RangeArg
    END = enum.auto()  # (range,): the loop closes
    SCRATCH = enum.auto()  # a small array or a register inside a kernel; arg ScratchArg
    INDEX = enum.auto()  # (memory, offset): the address of one element
    LOAD = enum.auto()  # (index,) or (index, gate): 0 where the gate is false
    STORE = enum.auto()  # (index or view, value) or (index, value, gate)
    VECTORIZE = enum.auto()  # one scalar a lane
    EXTRACT = enum.auto()  # (vector,): one lane; arg which
    BLOCK = enum.auto()  # statements in order
    LOOP = enum.auto()  # (range, *statements)
    BARRIER = enum.auto()  # all threads of a group have come here


@dataclass(frozen=True, slots=True)
class OpInfo:
    """What is known of one elementwise op.

    `meaning` is the value in Python for arguments of the op's own dtype before rounding;
    `compares` says the result is bool whatever the arguments are.
    """

    arity: int
    meaning: Callable[..., bool | int | float] = field(repr=False)
    commutative: bool = False
    associative: bool = False
    compares: bool = False
    identity: float | None = None


OP_TABLE: dict[Op, OpInfo] = {
    Op.EXP2: OpInfo(1, scalars.exp2),
    Op.LOG2: OpInfo(1, scalars.log2),
    Op.SIN: OpInfo(1, scalars.sine),
    Op.SQRT: OpInfo(1, scalars.square_root),
    Op.RECIPROCAL: OpInfo(1, scalars.reciprocal),
    Op.NEG: OpInfo(1, scalars.negate),
    Op.TRUNC: OpInfo(1, scalars.truncate),
    Op.CAST: OpInfo(1, lambda x: x),
    Op.BITCAST: OpInfo(1, lambda x: x),
    Op.ADD: OpInfo(2, lambda x, y: x + y, True, True, identity=0),
    Op.MUL: OpInfo(2, lambda x, y: x * y, True, True, identity=1),
    Op.MAX: OpInfo(2, scalars.maximum, True, True, identity=-math.inf),
    Op.MOD: OpInfo(2, scalars.floor_modulo),
    Op.IDIV: OpInfo(2, scalars.floor_divide),
    Op.CMPLT: OpInfo(2, lambda x, y: x < y, compares=True),
    Op.CMPNE: OpInfo(2, lambda x, y: x != y, True, compares=True),
    Op.AND: OpInfo(2, lambda x, y: x & y, True, True),
    Op.OR: OpInfo(2, lambda x, y: x | y, True, True, identity=0),
    Op.XOR: OpInfo(2, lambda x, y: x ^ y, True, True, identity=0),
    Op.SHL: OpInfo(2, scalars.shift_left),
    Op.SHR: OpInfo(2, scalars.shift_right),
    Op.WHERE: OpInfo(3, lambda condition, x, y: x if condition else y),
    Op.MULACC: OpInfo(3, scalars.multiply_add),
    Op.SUB: OpInfo(2, lambda x, y: x - y),
    Op.FDIV: OpInfo(2, scalars.divide),
    Op.TRUNCDIV: OpInfo(2, scalars.trunc_divide),
    Op.TRUNCMOD: OpInfo(2, scalars.trunc_modulo),
}

ELEMENTWISE = frozenset(OP_TABLE)
COMMUTATIVE = frozenset(op for op, info in OP_TABLE.items() if info.commutative)
COMPARISONS = frozenset(op for op, info in OP_TABLE.items() if info.compares)
MOVEMENT = frozenset({Op.RESHAPE, Op.PERMUTE, Op.EXPAND, Op.PAD, Op.SHRINK, Op.FLIP})
