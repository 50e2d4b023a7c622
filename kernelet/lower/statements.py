"""The statements that loops are made of.

In:  addresses and values.
Out: STOREs and LOOPs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kernelet.base.dtype import DType, dtypes
from kernelet.graph.division import ZERO
from kernelet.graph.infer import Dim
from kernelet.graph.ops import Op
from kernelet.graph.placement import Chain, loop_over
from kernelet.graph.uop import UOp

Statements = list[UOp]


def store(address: UOp, value: UOp) -> UOp:
    """The statement that writes one element."""
    return UOp(Op.STORE, dtypes.void, (address, value))


def combine(op: Op, address: UOp, dtype: DType, value: UOp) -> UOp:
    """Add a value to an accumulator: acc += where(gate, x, 0)  ->  acc = where(gate, acc + x, acc)

    The second form is one masked instruction.
    """
    total = UOp(Op.LOAD, dtype, (address,))
    if op is Op.ADD and value.op is Op.WHERE:
        gate, kept, other = value.src
        if other.op is Op.CONST and other.arg == 0:
            return store(address, gate.where(total.alu(op, kept), total))
    return store(address, total.alu(op, value))


def open_loop(size: Dim, numbers: Iterator[int], kind: str = "loop") -> UOp:
    """A new loop variable; ZERO where there is one step."""
    return ZERO if size == 1 else loop_over(size, next(numbers), kind)


def memories(statements: Iterable[UOp], op: Op) -> set[UOp]:
    """The memories that statements read (LOAD) or write (STORE)."""
    nodes = (node for one in statements for node in one.toposort())
    return {node.src[0].src[0] for node in nodes if node.op is op}


def loads_of(statement: UOp) -> list[UOp]:
    """The loads of memory that a kernel is given."""
    loads = (node for node in statement.toposort() if node.op is Op.LOAD)
    return [load for load in loads if load.src[0].src[0].op is Op.PARAM]


def wrap(loops: Chain, statements: Statements) -> Statements:
    """The statements inside plain loops, the first loop outermost; ZERO is no loop."""
    for variable in reversed(loops):
        if variable is not ZERO:
            statements = [UOp(Op.LOOP, dtypes.void, (variable, *statements))]
    return statements
