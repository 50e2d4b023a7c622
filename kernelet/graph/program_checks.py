"""What is wrong with a node inside a kernel's loops, or with where it stands, if anything is.

In:  a node; or all nodes of a linear program, or of a tree of loops, in order.
Out: what is wrong, in words; None when it is right.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from kernelet.base.dtype import DType, Scalar, dtypes
from kernelet.graph.checks import check_elementwise
from kernelet.graph.division import FALSE, ZERO, add_index, index_const, less_index, scale_index
from kernelet.graph.fold import fold
from kernelet.graph.ops import ELEMENTWISE, Op
from kernelet.graph.uop import RangeArg, ScratchArg, UOp
from kernelet.graph.walk import substitute

# A node that is wrong for where it stands, and why.
Misplaced = tuple[UOp, str]

_MEMORY = frozenset({Op.PARAM, Op.SCRATCH})
# How many values of an index are tried out where its bounds do not prove an access.
_MOST_TRIED = 4096
_COMPUTED = ELEMENTWISE | {Op.CONST}
_STATEMENTS = frozenset({Op.STORE, Op.LOOP, Op.BLOCK, Op.BARRIER})


# ---- single nodes ----


def check_scalar_elementwise(node: UOp) -> str | None:
    """An elementwise op on scalars or vectors."""
    problem = check_elementwise(node)
    return problem if problem or not node.shape else f"it has the shape {node.shape} in a kernel"


def check_scratch(node: UOp) -> str | None:
    """A small array inside a kernel."""
    if not isinstance(node.arg, ScratchArg) or node.arg.size < 1 or node.src:
        return f"its payload is {node.arg!r} with {len(node.src)} sources"
    return None


def check_range(node: UOp) -> str | None:
    """A loop variable."""
    (size,) = node.src
    if not isinstance(node.arg, RangeArg) or node.dtype is not dtypes.index:
        return f"it is {node.dtype} with {node.arg!r}, not an index with RangeArg"
    return None if size.dtype is dtypes.index else f"its size is {size.dtype}, not an index"


def check_end(node: UOp) -> str | None:
    """The end of one loop."""
    (loop,) = node.src
    if loop.op is not Op.RANGE:
        return f"it closes {loop.op.name}, not RANGE"
    return None if node.dtype is dtypes.void else f"it is {node.dtype}"


def check_index(node: UOp) -> str | None:
    """The address of one element."""
    memory, offset = node.src
    if memory.op not in _MEMORY:
        return f"it is in {memory.op.name}, not in PARAM or SCRATCH"
    if offset.dtype is not dtypes.index:
        return f"its offset is {offset.dtype}, not an index"
    if _is_register(memory) and offset.op is not Op.CONST:
        return "the address of a register is not a constant"
    return None


def check_load(node: UOp) -> str | None:
    """A scalar or a vector from memory."""
    return _access(node, node.dtype, node.src[1:])


def check_store(node: UOp) -> str | None:
    """A scalar or a vector to memory."""
    if node.dtype is not dtypes.void:
        return f"it is {node.dtype}"
    return _access(node, node.src[1].dtype, node.src[2:])


def _is_register(memory: UOp) -> bool:
    return memory.op is Op.SCRATCH and bool(memory.arg.register)


def _access(node: UOp, dtype: DType, gates: tuple[UOp, ...]) -> str | None:
    if node.src[0].op is not Op.INDEX:
        return f"its address is {node.src[0].op.name}, not INDEX"
    memory = node.src[0].src[0]
    if len(gates) > 1:
        return f"it has {len(node.src)} sources"
    if _is_register(memory):
        if gates or dtype is not memory.dtype:
            return f"it moves {dtype} with {len(gates)} gates; the register is {memory.dtype}"
        return None
    if dtype.scalar is not memory.dtype.scalar:
        return f"it moves {dtype}; the memory is {memory.dtype}"
    for gate in gates:
        if not gate.dtype.is_bool or gate.dtype.lanes not in (1, dtype.lanes):
            return f"its gate is {gate.dtype}, not bool or one bool for each lane of {dtype}"
    return None


def check_vectorize(node: UOp) -> str | None:
    """One scalar for each lane."""
    if len(node.src) != node.dtype.lanes or node.dtype.lanes < 2:
        return f"it has {len(node.src)} sources for {node.dtype.lanes} lanes"
    if any(source.dtype is not node.dtype.scalar for source in node.src):
        return f"its sources are not all {node.dtype.scalar}"
    return None


def check_extract(node: UOp) -> str | None:
    """One lane of a vector."""
    (vector,) = node.src
    if not isinstance(node.arg, int) or not 0 <= node.arg < vector.dtype.lanes:
        return f"there is no lane {node.arg!r} in {vector.dtype}"
    same = node.dtype is vector.dtype.scalar
    return None if same else f"it is {node.dtype} of {vector.dtype}"


def check_block(node: UOp) -> str | None:
    """Statements in order."""
    return _statements(node, node.src)


def check_loop(node: UOp) -> str | None:
    """A loop around statements."""
    variable, *body = node.src
    if variable.op is not Op.RANGE:
        return f"it is over {variable.op.name}"
    return _statements(node, body)


def _statements(node: UOp, body: Sequence[UOp]) -> str | None:
    wrong = [part.op.name for part in body if part.op not in _STATEMENTS]
    if wrong:
        return f"{', '.join(wrong)} among its statements"
    return None if node.dtype is dtypes.void else f"it is {node.dtype}"


# ---- the tree of loops ----


def loops_surround_their_uses(nodes: Sequence[UOp]) -> Misplaced | None:
    """Every loop variable is used inside its LOOP only, and no statement is a value."""
    free: dict[UOp, frozenset[UOp]] = {}
    for node in nodes:
        used = frozenset().union(*[free[source] for source in node.src])
        if node.op is Op.RANGE:
            used |= {node}
        elif node.op is Op.LOOP:
            used = frozenset().union(*[free[source] for source in node.src[1:]]) - {node.src[0]}
            used |= free[node.src[0]] - {node.src[0]}
        elif node.op not in _STATEMENTS and any(source.op in _STATEMENTS for source in node.src):
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
    for place, node in enumerate(nodes):
        if node.op is Op.END:
            if not scopes or scopes[-1][0] is not node.src[0]:
                return node, "it does not close the innermost open loop"
            visible.difference_update(scopes.pop()[1])
            continue
        for source in node.src:
            if source not in visible:
                return node, f"{source.op.name} is used before it is computed, or after its loop"
        problem = _argument_order(nodes, place) or _loop_place(node, [loop for loop, _ in scopes])
        if problem is not None:
            return node, problem
        if node.op is Op.RANGE:
            scopes.append((node, []))
        if node not in visible and scopes:
            scopes[-1][1].append(node)
        visible.add(node)
    return (scopes[-1][0], "its loop is never closed") if scopes else None


def _argument_order(nodes: Sequence[UOp], place: int) -> str | None:
    node = nodes[place]
    if node.op not in (Op.PARAM, Op.VARIABLE) or place == 0:
        return None
    before = nodes[place - 1]
    if node.op is Op.VARIABLE:
        ordered = before.op in (Op.PARAM, Op.VARIABLE)
        return None if ordered else "a variable stands after the arguments"
    ordered = before.op is Op.PARAM and before.arg.slot < node.arg.slot
    return None if ordered else "memory arguments are not first, in the order of their slots"


def _loop_place(node: UOp, around: Sequence[UOp]) -> str | None:
    if node.op is not Op.RANGE:
        return None
    if node.arg.kind not in ("loop", "thread", "reduce"):
        return f"a loop of kind {node.arg.kind} is left"
    if node.arg.kind == "thread" and around:
        return "the thread loop is not the outermost"
    return None


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
        gates = node.src[1:] if node.op is Op.LOAD else node.src[2:]
        dtype = node.dtype if node.op is Op.LOAD else node.src[1].dtype
        memory, offset = node.src[0].src
        lanes = 1 if _is_register(memory) else dtype.lanes // memory.dtype.lanes
        last = memory.arg.size - max(lanes, 1)
        low, high = offset.bounds
        if gates or (low >= 0 and high <= last) or _is_proved(offset, last):
            continue
        low, high = _values_of(offset)
        if low < 0 or high > last:
            found = f"elements {low}..{high + max(lanes, 1) - 1} of {memory.arg.size}"
            return node, f"it may touch {found} and has no gate"
    return None


def _is_proved(offset: UOp, last: int) -> bool:
    """Whether 0 <= offset <= last follows from r <= n - 1 for a loop of n turns."""
    index = _in_normal_form(offset)
    return less_index(index, ZERO) is FALSE and less_index(index_const(last), index) is FALSE


def _in_normal_form(index: UOp) -> UOp:
    """Sums and multiples as `division.py` writes them."""
    if index.op in (Op.ADD, Op.SUB):
        left, right = map(_in_normal_form, index.src)
        return add_index(left, right if index.op is Op.ADD else scale_index(right, -1))
    if index.op is Op.MUL and index.src[1].op is Op.CONST:
        return scale_index(_in_normal_form(index.src[0]), index.src[1].arg)
    return index


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
    index = substitute(index, remainders)
    groups: list[tuple[set[UOp], list[UOp]]] = []
    for term in _terms_of(index):
        loops = {node for node in term.toposort() if node.op in (Op.RANGE, Op.VARIABLE)}
        terms = [term]
        for group in [group for group in groups if group[0] & loops]:
            groups.remove(group)
            loops, terms = loops | group[0], terms + group[1]
        groups.append((loops, terms))
    parts = [_values_of_group(sorted(loops, key=repr), terms) for loops, terms in groups]
    return sum(low for low, _ in parts), sum(high for _, high in parts)


def _reads_memory(index: UOp) -> bool:
    return any(node.op is Op.LOAD for node in index.toposort())


def _terms_of(index: UOp) -> list[UOp]:
    terms, stack = [], [(index, False)]
    while stack:
        node, is_negative = stack.pop()
        if node.op in (Op.ADD, Op.SUB):
            left, right = node.src
            stack.append((left, is_negative))
            stack.append((right, is_negative ^ (node.op is Op.SUB)))
        else:
            terms.append(-node if is_negative else node)
    return terms


def _values_of_group(loops: list[UOp], terms: list[UOp]) -> tuple[int, int]:
    choices = [range(int(loop.bounds.min), int(loop.bounds.max) + 1) for loop in loops]
    if any(map(_reads_memory, terms)) or math.prod(map(len, choices)) > _MOST_TRIED:
        bounds = [term.bounds for term in terms]
        return sum(int(part.min) for part in bounds), sum(int(part.max) for part in bounds)
    order = [node for node in UOp.sink(*terms).toposort() if node.op in _COMPUTED]
    found = []
    for point in itertools.product(*choices):
        values: dict[UOp, Scalar] = dict(zip(loops, point, strict=True))
        for node in order:
            sources = [values[source] for source in node.src]
            values[node] = fold(node.op, node.dtype, *sources) if sources else node.arg
        found.append(sum(int(values[term]) for term in terms))
    return min(found), max(found)
