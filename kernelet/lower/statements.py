"""The statements that loops are made of.

In:  addresses and values.
Out: STOREs and LOOPs.
"""

from __future__ import annotations

from kernelet.base.dtype import DType, dtypes
from kernelet.graph.ops import Op
from kernelet.graph.placement import Chain
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


def wrap(loops: Chain, statements: Statements) -> Statements:
    """The statements inside plain loops, the first loop outermost."""
    for variable in reversed(loops):
        statements = [UOp(Op.LOOP, dtypes.void, (variable, *statements))]
    return statements
