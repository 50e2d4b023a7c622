"""The greatest and the least value of an index while some loops stand still.

In:  an index expression and the loops that stand still.
Out: an index expression in these loops alone.
"""

from __future__ import annotations

from kernelet.graph.division import (
    ZERO,
    add_index,
    combination,
    divide_index,
    index_const,
    maximum_index,
    sum_of,
    terms_of,
)
from kernelet.graph.ops import Op
from kernelet.graph.placement import ranges_in
from kernelet.graph.uop import UOp


def extreme(index: UOp, outer: frozenset[UOp], *, greatest: bool = True) -> UOp:
    """The greatest value, or the least: 8 * i + j for j in 8  ->  8 * i + 7

    A loop whose size depends on outer loops ends where that tells.
    """
    constant, coefficients = terms_of(index)
    ends = (
        (_extreme_atom(atom, outer, greatest is (factor > 0)), factor)
        for atom, factor in coefficients.items()
    )
    return combination(ends, constant)


def _extreme_atom(atom: UOp, outer: frozenset[UOp], greatest: bool) -> UOp:
    if ranges_in(atom) <= outer:
        return atom
    if atom.op is Op.RANGE:
        last = add_index(extreme(atom.src[0], outer), index_const(-1))
        return last if greatest else ZERO
    if atom.op is Op.MAX:
        return maximum_index(*[extreme(part, outer, greatest=greatest) for part in atom.src])
    if atom.op is Op.IDIV and atom.src[1].op is Op.CONST:
        return divide_index(extreme(atom.src[0], outer, greatest=greatest), atom.src[1].arg)
    low, high = atom.bounds
    return index_const(int(high if greatest else low))


def last_live(gate: UOp, variable: UOp, outer: frozenset[UOp]) -> UOp | None:
    """How many iterations of a loop come before the gate holds for all that is inside of it.

    i + 8 * k - j < 0 for a loop over j, with k inside, in 4  ->  j in i + 25

    None where the gate does not hold for the rest of a loop.
    """
    if gate.op is Op.CONST:
        return ZERO if gate.arg else None
    if gate.op is not Op.CMPLT or gate.src[1].op is not Op.CONST:
        return None
    constant, found = terms_of(gate.src[0])
    step = -found.get(variable, 0)
    coefficients = {atom: factor for atom, factor in found.items() if atom is not variable}
    if step <= 0 or any(variable in ranges_in(atom) for atom in coefficients):
        return None
    total = sum_of(constant - gate.src[1].arg, coefficients)
    return add_index(divide_index(extreme(total, outer), step), index_const(1))
