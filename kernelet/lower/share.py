"""Loops side by side that run over the same become one, which reads each operand once.

In:  a BLOCK of loops over scalar expressions.
Out: the same values with fewer loops.

    a = 0; for k: a += x[k]; b = 0; for k: b += x[k] * y[k]
    ->  a = 0; b = 0; for k: a += x[k]; b += x[k] * y[k]
"""

from __future__ import annotations

from collections.abc import Iterable

from kernelet.base.dtype import dtypes
from kernelet.graph.division import replace_ranges
from kernelet.graph.ops import Op
from kernelet.graph.placement import TILE_KINDS
from kernelet.graph.uop import UOp
from kernelet.lower.loops import body_of, with_body
from kernelet.lower.statements import memories


def share_loops(block: UOp) -> UOp:
    """Join loops of the same size in the same body wherever no statement between minds."""
    found: list[UOp] = []
    for statement in body_of(block):
        if not _is_loop(statement) or not _join(found, statement):
            found.append(statement)
    return with_body(block, [share_loops(one) if _is_loop(one) else one for one in found])


def _is_loop(statement: UOp) -> bool:
    return statement.op is Op.LOOP and statement.src[0].arg.kind not in TILE_KINDS


def _join(found: list[UOp], loop: UOp) -> bool:
    """Put what a loop does into one before it; what it needs in between moves before that."""
    needed: list[UOp] = []
    for at in range(len(found) - 1, -1, -1):
        other = found[at]
        is_apart = _are_apart([other], [loop, *needed])
        if is_apart and _is_loop(other) and _runs_alike(other, loop):
            (variable, *body), (own, *parts) = other.src, loop.src
            parts = [replace_ranges(part, {own: variable}) for part in parts]
            rest = [each for each in found[at + 1 :] if each not in needed]
            joined = UOp(Op.LOOP, dtypes.void, (variable, *body, *parts))
            found[at:] = [*reversed(needed), joined, *rest]
            return True
        if not is_apart:
            if _is_loop(other):
                return False
            needed.append(other)
    return False


def _runs_alike(one: UOp, other: UOp) -> bool:
    left, right = one.src[0], other.src[0]
    return left.src == right.src and left.arg.kind == right.arg.kind == "reduce"


def _are_apart(some: Iterable[UOp], others: Iterable[UOp]) -> bool:
    """Whether it makes no difference which come first: none writes what others read or write."""
    ours, theirs = memories(some, Op.STORE), memories(others, Op.STORE)
    ours_read, theirs_read = memories(some, Op.LOAD), memories(others, Op.LOAD)
    return ours.isdisjoint(theirs | theirs_read) and theirs.isdisjoint(ours_read)
