"""Where the nodes of a kernel stand, and what they access.

In:  all nodes of a linear program, or of a tree of loops, in order.
Out: claims about nodes, in words, and whether each holds; a claim may rest on those before it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from kernelet.base.dtype import Scalar, dtypes
from kernelet.graph import division
from kernelet.graph.checks import STATEMENTS, access_of, is_register
from kernelet.graph.fold import fold
from kernelet.graph.ops import ELEMENTWISE, Op
from kernelet.graph.uop import UOp
from kernelet.graph.walk import substitute

Placed = Iterator[tuple[UOp, bool, str]]

# How many values of an index are tried out where its bounds do not prove an access.
_MOST_TRIED = 4096
_COMPUTED = ELEMENTWISE | {Op.CONST}


# ---- the tree of loops ----


def loops_surround_their_uses(nodes: Sequence[UOp]) -> Placed:
    """Every loop variable is used inside its LOOP only, and no statement is a value."""
    free: dict[UOp, frozenset[UOp]] = {}
    for node in nodes:
        inside = node.src[1:] if node.op is Op.LOOP else node.src
        used = frozenset().union(*[free[source] for source in inside])
        if node.op is Op.RANGE:
            used |= {node}
        elif node.op is Op.LOOP:
            used = (used | free[node.src[0]]) - {node.src[0]}
        elif node.op not in STATEMENTS:
            yield (
                node,
                not any(each.op in STATEMENTS for each in node.src),
                "no value is a statement",
            )
        free[node] = used
    root = nodes[-1]
    yield root, root.op is Op.BLOCK, "the root is a BLOCK"
    for variable in free[root]:
        yield variable, False, "a loop variable is used inside its LOOP"


# ---- the linear program ----


def program_is_in_order(nodes: Sequence[UOp]) -> Placed:
    """Arguments first, each node after its sources and in sight of them, loops closed in order."""
    visible: set[UOp] = set()
    scopes: list[tuple[UOp, list[UOp]]] = []
    for before, node in zip((None, *nodes), nodes, strict=False):
        if node.op is Op.END:
            closes = bool(scopes) and scopes[-1][0] is node.src[0]
            yield node, closes, "it closes the innermost open loop"
            visible.difference_update(scopes.pop()[1])
            continue
        in_sight = visible.issuperset(node.src)
        yield node, in_sight, "its sources are computed before it, in loops that are open"
        if node.op is Op.VARIABLE and before is not None:
            yield node, before.op in (Op.PARAM, Op.VARIABLE), "variables follow the other arguments"
        if node.op is Op.PARAM and before is not None:
            first = before.op is Op.PARAM and before.arg.slot < node.arg.slot
            yield node, first, "memory comes first, in the order of its slots"
        if node.op is Op.RANGE:
            kind = node.arg.kind
            yield node, kind in ("loop", "thread", "reduce"), "no loop of another kind is left"
            yield node, not (kind == "thread" and scopes), "the thread loop is the outermost"
            scopes.append((node, []))
        if node not in visible and scopes:
            scopes[-1][1].append(node)
        visible.add(node)
    for loop, _ in scopes:
        yield loop, False, "every loop is closed"


# ---- accesses ----


def accesses_are_inside(nodes: Sequence[UOp]) -> Placed:
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
        index = division.normalize_index(offset)
        # That r <= n - 1 holds for a loop of n turns may be needed.
        below = division.less_index(index, division.ZERO)
        above = division.less_index(division.index_const(last), index)
        if below is above is division.FALSE:
            continue
        low, high = _values_of(index)
        found = f"elements {low}..{high + max(lanes, 1) - 1} are in memory of {memory.arg.size}"
        yield node, low >= 0 and high <= last, f"{found}, or have a gate"


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
    low, coefficients = division.terms_of(substitute(index, remainders))
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
        least, greatest = _values_of_group(sorted(loops, key=repr), division.sum_of(0, terms))
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
