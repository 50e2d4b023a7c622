"""What is wrong with where a node stands in a kernel, or with what it accesses, if anything is.

In:  all nodes of a linear program, or of a tree of loops, in order.
Out: a node and what is wrong with it, in words; None when all is right.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from kernelet.base.dtype import Scalar, dtypes
from kernelet.graph.checks import STATEMENTS, access_of, is_register
from kernelet.graph.division import (
    FALSE,
    ZERO,
    index_const,
    less_index,
    normalize_index,
    sum_of,
    terms_of,
)
from kernelet.graph.fold import fold
from kernelet.graph.ops import ELEMENTWISE, Op
from kernelet.graph.uop import UOp
from kernelet.graph.walk import substitute

# A node that is wrong for where it stands, and why.
Misplaced = tuple[UOp, str]

# How many values of an index are tried out where its bounds do not prove an access.
_MOST_TRIED = 4096
_COMPUTED = ELEMENTWISE | {Op.CONST}


# ---- the tree of loops ----


def loops_surround_their_uses(nodes: Sequence[UOp]) -> Misplaced | None:
    """Every loop variable is used inside its LOOP only, and no statement is a value."""
    free: dict[UOp, frozenset[UOp]] = {}
    for node in nodes:
        inside = node.src[1:] if node.op is Op.LOOP else node.src
        used = frozenset().union(*[free[source] for source in inside])
        if node.op is Op.RANGE:
            used |= {node}
        elif node.op is Op.LOOP:
            used = (used | free[node.src[0]]) - {node.src[0]}
        elif node.op not in STATEMENTS and any(source.op in STATEMENTS for source in node.src):
            return node, "a statement is not a value"
        free[node] = used
    root = nodes[-1]
    if root.op is not Op.BLOCK:
        return root, "the root is not a BLOCK"
    for variable in free[root]:
        return variable, "it is used outside its LOOP"
    return None


# ---- the linear program ----


def program_is_in_order(nodes: Sequence[UOp]) -> Misplaced | None:
    """Arguments first, each node after its sources and in sight of them, loops closed in order."""
    visible: set[UOp] = set()
    scopes: list[tuple[UOp, list[UOp]]] = []
    for before, node in zip((None, *nodes), nodes, strict=False):
        if node.op is Op.END:
            if not scopes or scopes[-1][0] is not node.src[0]:
                return node, "it does not close the innermost open loop"
            visible.difference_update(scopes.pop()[1])
            continue
        for source in node.src:
            if source not in visible:
                return node, f"{source.op.name} is used before it is computed, or after its loop"
        problem = _argument_order(before, node) if before is not None else None
        if node.op is Op.RANGE:
            problem = _loop_place(node, is_inner=bool(scopes))
        if problem is not None:
            return node, problem
        if node.op is Op.RANGE:
            scopes.append((node, []))
        if node not in visible and scopes:
            scopes[-1][1].append(node)
        visible.add(node)
    return (scopes[-1][0], "its loop is never closed") if scopes else None


def _argument_order(before: UOp, node: UOp) -> str | None:
    if node.op is Op.VARIABLE and before.op not in (Op.PARAM, Op.VARIABLE):
        return "a variable stands after the arguments"
    if node.op is Op.PARAM and (before.op is not Op.PARAM or before.arg.slot >= node.arg.slot):
        return "memory arguments are not first, in the order of their slots"
    return None


def _loop_place(loop: UOp, is_inner: bool) -> str | None:
    kind = loop.arg.kind
    if kind not in ("loop", "thread", "reduce"):
        return f"a loop of kind {kind} is left"
    return "the thread loop is not the outermost" if kind == "thread" and is_inner else None


# ---- accesses ----


def accesses_are_inside(nodes: Sequence[UOp]) -> Misplaced | None:
    """Every load and store without a gate is proved to be inside its memory."""
    empty = 0
    for node in nodes:
        if node.op in (Op.RANGE, Op.END):
            loop = node if node.op is Op.RANGE else node.src[0]
            if loop.src[0].bounds.max <= 0:
                empty += 1 if node.op is Op.RANGE else -1
        # Nothing happens inside a loop of no turns.
        if node.op not in (Op.LOAD, Op.STORE) or empty:
            continue
        address, dtype, gates = access_of(node)
        memory, offset = address.src
        lanes = 1 if is_register(memory) else dtype.lanes // memory.dtype.lanes
        last = memory.arg.size - max(lanes, 1)
        low, high = offset.bounds
        if gates or (low >= 0 and high <= last):
            continue
        index = normalize_index(offset)
        # That r <= n - 1 holds for a loop of n turns may be needed.
        if less_index(index, ZERO) is FALSE and less_index(index_const(last), index) is FALSE:
            continue
        low, high = _values_of(index)
        if low < 0 or high > last:
            found = f"elements {low}..{high + max(lanes, 1) - 1} of {memory.arg.size}"
            return node, f"it may touch {found} and has no gate"
    return None


def _values_of(index: UOp) -> tuple[int, int]:
    """The least and the greatest value of an index; terms that go together are tried out.

    min(8 * i, 6) // 2 * 4 - min(8 * i, 6) * 4 is 0 or -12, which bounds of its parts do not tell.
    Of a number from memory nothing is known but its remainder.
    """
    remainders = {
        node: UOp.variable(f"remainder {number}", int(node.bounds.min), int(node.bounds.max))
        for number, node in enumerate(index.toposort())
        if node.op is Op.TRUNCMOD and node.dtype is dtypes.index and _reads_memory(node)
    }
    low, coefficients = terms_of(substitute(index, remainders))
    high = low
    groups: list[tuple[set[UOp], dict[UOp, int]]] = []
    for atom, factor in coefficients.items():
        loops, terms = (
            {n for n in atom.toposort() if n.op in (Op.RANGE, Op.VARIABLE)},
            {atom: factor},
        )
        for group in [group for group in groups if group[0] & loops]:
            groups.remove(group)
            loops, terms = loops | group[0], terms | group[1]
        groups.append((loops, terms))
    for loops, terms in groups:
        least, greatest = _values_of_group(sorted(loops, key=repr), sum_of(0, terms))
        low, high = low + least, high + greatest
    return low, high


def _reads_memory(index: UOp) -> bool:
    return any(node.op is Op.LOAD for node in index.toposort())


def _values_of_group(loops: list[UOp], index: UOp) -> tuple[int, int]:
    choices = [range(int(loop.bounds.min), int(loop.bounds.max) + 1) for loop in loops]
    if _reads_memory(index) or math.prod(map(len, choices)) > _MOST_TRIED:
        return int(index.bounds.min), int(index.bounds.max)
    order = [node for node in index.toposort() if node.op in _COMPUTED]
    found = []
    for point in itertools.product(*choices):
        values: dict[UOp, Scalar] = dict(zip(loops, point, strict=True))
        for node in order:
            sources = [values[source] for source in node.src]
            values[node] = fold(node.op, node.dtype, *sources) if sources else node.arg
        found.append(int(values[index]))
    return min(found), max(found)
