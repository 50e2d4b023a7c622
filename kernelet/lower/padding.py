"""Loops of a sum that leave out what is padding from end to end.

In:  a BLOCK of loops over scalar expressions, before and after its padded loads are copied.
Out: the same program; loops begin and end where the padding does.

for y: for k in 3: acc += where(0 <= y + k - 1 < 14, x[y + k - 1], 0) * w[k]
->  for y: for k in max(1 - y, 0) .. min(15 - y, 3): acc += ...

What is padding counts for nothing, whatever it is multiplied with.
"""

from __future__ import annotations

from kernelet.graph.division import (
    ZERO,
    add_index,
    gate_parts,
    index_const,
    less_index,
    maximum_index,
    minimum_index,
    replace_ranges,
    subtract_index,
)
from kernelet.graph.ops import Op
from kernelet.graph.placement import Chain, last_live
from kernelet.graph.uop import UOp
from kernelet.lower.loops import body_of, statements_of, with_body
from kernelet.lower.masks import is_factor

# A loop, and the conditions without each of which it adds nothing.
Gates = dict[UOp, tuple[UOp, ...]]


def needed_gates(block: UOp) -> Gates:
    """The conditions that all statements in a loop of a sum need to have any effect."""
    found: Gates = {}
    for statement, chain in statements_of(block):
        gates = _gates_of(statement)
        for variable in chain:
            if variable.arg.kind == "reduce" and variable.src[0].op is Op.CONST:
                known = found.get(variable, gates)
                found[variable] = tuple(gate for gate in known if gate in gates)
    return found


def _gates_of(statement: UOp) -> tuple[UOp, ...]:
    """The conditions without each of which `acc += value` adds nothing."""
    address, value = statement.src
    gates: list[UOp] = []
    if value.op is Op.WHERE and value.src[2].src == (address,):
        gates += gate_parts(value.src[0])
        value = value.src[1]
    if value.op is not Op.ADD or value.src[0].src != (address,):
        return ()
    for node in value.src[1].toposort():
        if node.op is Op.LOAD and len(node.src) == 2 and is_factor(value.src[1], node):
            gates += gate_parts(node.src[1])
    return tuple(gate for gate in gates if gate.op is Op.CMPLT)


def without_padding(statement: UOp, gates: Gates, around: Chain = ()) -> UOp:
    """A statement whose loops leave out where one of their conditions fails throughout."""
    if statement.op not in (Op.LOOP, Op.BLOCK):
        return statement
    inside = around if statement.op is Op.BLOCK else (*around, statement.src[0])
    body = [without_padding(each, gates, inside) for each in body_of(statement)]
    variable = statement.src[0]
    start, end = ZERO, variable.src[0]
    for gate in gates.get(variable, ()):
        first, last = _live_part(gate, variable, frozenset(around))
        start, end = maximum_index(start, first), minimum_index(end, last)
    if start is ZERO and end is variable.src[0]:
        return with_body(statement, body)
    counter = variable.replace(src=(subtract_index(end, start),))
    moved = {variable: add_index(start, counter)}
    return statement.replace(src=(counter, *(replace_ranges(each, moved) for each in body)))


def _live_part(gate: UOp, variable: UOp, outer: frozenset[UOp]) -> tuple[UOp, UOp]:
    """Where a condition holds first, and after which iteration it does not hold again."""
    size, (left, right) = variable.src[0], gate.src
    fails = less_index(right, add_index(left, index_const(1)))
    end = last_live(fails, variable, outer)
    mirror = subtract_index(size, add_index(variable, index_const(1)))
    rest = last_live(replace_ranges(fails, {variable: mirror}), variable, outer)
    return ZERO if rest is None else subtract_index(size, rest), size if end is None else end
