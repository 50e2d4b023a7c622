"""Each way in which a program can be wrong is found, in words."""

from collections.abc import Sequence

import pytest

from kernelet.base.dtype import dtypes
from kernelet.base.errors import InternalError
from kernelet.graph.ops import Op
from kernelet.graph.spec import LOOPS, PROGRAM, Spec, verify
from kernelet.graph.uop import ParamArg, RangeArg, ScratchArg, UOp

F32, INDEX, BOOL, VOID = dtypes.float32, dtypes.index, dtypes.bool, dtypes.void


def number(value: int) -> UOp:
    return UOp.const(value, INDEX)


def loop(count: int, name: int = 0, kind: str = "loop") -> UOp:
    return UOp(Op.RANGE, INDEX, (number(count),), RangeArg(name, kind))


def at(memory: UOp, offset: UOp) -> UOp:
    return UOp(Op.INDEX, memory.dtype, (memory, offset))


OUT = UOp(Op.PARAM, F32, (), ParamArg(0, 8, "CPU"))
IN = UOp(Op.PARAM, F32, (), ParamArg(1, 8, "CPU"))
N = UOp.variable("n", 1, 8)
I = loop(8)
LOAD = UOp(Op.LOAD, F32, (at(IN, I),))
SUM = LOAD + 1.0
STORE = UOp(Op.STORE, VOID, (at(OUT, I), SUM))
END = UOp(Op.END, VOID, (I,))
ONE = UOp.const(1.0, F32)
GOOD = [OUT, IN, N, number(8), I, LOAD.src[0], LOAD, ONE, SUM, STORE.src[0], STORE, END]
REGISTER = UOp(Op.SCRATCH, F32.vec(4), (), ScratchArg(0, 2, True))
LANES = UOp(Op.CONST, F32.vec(4), (), 1.0)


def program_of(*roots: UOp) -> list[UOp]:
    """Everything below the roots, in order, outside of all loops."""
    return list(UOp.sink(*roots).toposort())[:-1]


def broken(nodes: UOp | Sequence[UOp], spec: Spec = PROGRAM) -> str:
    with pytest.raises(InternalError) as caught:
        verify(nodes, spec, "linearize")
    return str(caught.value)


def test_a_right_program_passes() -> None:
    verify(GOOD, PROGRAM, "linearize")
    again = [*GOOD[:-1], LOAD.src[0], LOAD, STORE, END]
    verify(again, PROGRAM, "linearize")
    vector = UOp(Op.LOAD, F32.vec(4), (at(IN, number(4)),))
    register = at(REGISTER, number(1))
    parts = [UOp(Op.EXTRACT, F32, (vector,), lane) for lane in range(4)]
    gate = UOp(Op.VECTORIZE, BOOL.vec(4), (UOp.const(True, BOOL),) * 4)
    stores = [
        UOp(Op.STORE, VOID, (register, UOp(Op.VECTORIZE, F32.vec(4), tuple(parts)))),
        UOp(Op.STORE, VOID, (at(OUT, N), UOp(Op.LOAD, F32.vec(4), (register,)), gate)),
    ]
    order = [OUT, IN, N, *[n for n in program_of(*stores) if n not in (OUT, IN, N)]]
    verify(order, PROGRAM, "linearize")


def without(node: UOp) -> list[UOp]:
    return [other for other in GOOD if other is not node]


WRONG_ORDERS = [
    (without(END), "every loop is closed"),
    (without(ONE), "its sources are computed before it"),
    (without(LOAD), "its sources are computed before it"),
    ([*GOOD, END], "it closes the innermost"),
    ([*GOOD, SUM], "in loops that are open"),
    ([*GOOD[:5], END, *GOOD[5:-1]], "in loops that are open"),
    ([IN, OUT, *GOOD[2:]], "in the order of its slots"),
    ([OUT, N, IN, *GOOD[3:]], "in the order of its slots"),
    ([OUT, IN, number(8), N, *GOOD[4:]], "variables follow the other arguments"),
    ([*GOOD[:4], I, loop(8, 1, "thread")], "the thread loop is the outermost"),
    ([*GOOD[:4], loop(8, 1, "vector")], "no loop of another kind"),
]


@pytest.mark.parametrize(("nodes", "problem"), WRONG_ORDERS, ids=lambda part: str(part)[-40:])
def test_a_program_out_of_order_is_found(nodes: list[UOp], problem: str) -> None:
    assert problem in broken(nodes)


BOOL_LANES = UOp(Op.CONST, BOOL.vec(2), (), True)
WRONG_NODES = [
    (UOp(Op.SCRATCH, F32, (), ScratchArg(0, 0)), "it has room for elements"),
    (UOp(Op.SCRATCH, F32, (), 3), "its payload is ScratchArg"),
    (
        UOp(Op.RANGE, F32, (number(8),), RangeArg(0, "loop")),
        "it is dtypes.index",
    ),
    (UOp(Op.RANGE, INDEX, (ONE,), RangeArg(0, "loop")), "its size is an index"),
    (UOp(Op.END, VOID, (N,)), "it closes a RANGE"),
    (at(ONE, number(0)), "it is in PARAM or SCRATCH"),
    (at(IN, ONE), "its offset is an index"),
    (at(REGISTER, N), "the address in a register is constant"),
    (UOp(Op.LOAD, F32, (IN,)), "its address is an INDEX"),
    (UOp(Op.LOAD, dtypes.int32, (at(IN, N),)), "elements of the memory's dtype"),
    (UOp(Op.LOAD, F32, (at(REGISTER, number(0)),)), "it moves all of a register"),
    (UOp(Op.LOAD, F32, (at(IN, N), ONE)), "its gate is one bool"),
    (UOp(Op.LOAD, F32.vec(4), (at(IN, N), BOOL_LANES)), "or one for each lane"),
    (UOp(Op.LOAD, F32, (at(IN, N), N < 3, N < 4)), "it has one gate at most"),
    (UOp(Op.STORE, F32, (at(OUT, N), ONE)), "it is dtypes.void"),
    (UOp(Op.STORE, VOID, (at(OUT, N), N)), "elements of the memory's dtype"),
    (UOp(Op.VECTORIZE, F32.vec(4), (ONE, ONE)), "one source for each lane"),
    (UOp(Op.VECTORIZE, F32.vec(2), (ONE, N)), "its sources are its lanes"),
    (UOp(Op.EXTRACT, F32, (LANES,), 4), "its source has that lane"),
    (UOp(Op.EXTRACT, INDEX, (LANES,), 1), "it is a scalar of its source"),
    (UOp(Op.ADD, F32.vec(4), (LANES, ONE)), "its sources have its lanes"),
    (UOp(Op.ADD, F32, (IN, IN)), "in a kernel it has no shape"),
    (UOp(Op.REDUCE, F32, (IN,)), "REDUCE does not occur"),
]


@pytest.mark.parametrize(("node", "problem"), WRONG_NODES, ids=lambda part: str(part)[-40:])
def test_a_wrong_node_is_found(node: UOp, problem: str) -> None:
    assert problem in broken(program_of(node))


@pytest.mark.parametrize(
    ("memory", "offset", "lanes"),
    [(IN, N, 1), (IN, N - 2, 1), (IN, I, 2), (IN, number(5), 4), (REGISTER, number(2), 4)],
)
def test_an_access_that_may_leave_its_memory_needs_a_gate(
    memory: UOp, offset: UOp, lanes: int
) -> None:
    load = UOp(Op.LOAD, F32.vec(lanes), (at(memory, offset),))
    nodes = program_of(load)
    if I in nodes:
        nodes.append(END)
    first = [node for node in nodes if node.op in (Op.PARAM, Op.VARIABLE)]
    nodes = first + [node for node in nodes if node not in first]
    assert "or have a gate" in broken(nodes)
    if memory is IN:
        gate = UOp.const(True, BOOL)
        place = nodes.index(load)
        nodes[place : place + 1] = [gate, load.replace(src=(*load.src, gate))]
        verify(nodes, PROGRAM, "linearize")


def test_terms_that_go_together_are_tried_out() -> None:
    start = -(loop(2) * -8).maximum(-6)  # 0 or 6
    apart = start * 4 - start // 2 * 4 - start * 2
    assert apart.bounds.min < 0
    load = UOp(Op.LOAD, F32, (at(IN, apart),))
    nodes = [*program_of(load), UOp(Op.END, VOID, (loop(2),))]
    nodes = [IN, *[node for node in nodes if node is not IN]]
    verify(nodes, PROGRAM, "linearize")
    wide = UOp(Op.LOAD, F32, (at(IN, apart + 8),))
    nodes = [IN, *[node for node in program_of(wide) if node is not IN], nodes[-1]]
    assert "elements 8..8 are in memory of 8" in broken(nodes)


def test_of_a_number_from_memory_the_remainder_is_known() -> None:
    numbers = UOp(Op.PARAM, dtypes.int64, (), ParamArg(0, 1, "CPU"))
    found = UOp(Op.LOAD, dtypes.int64, (at(numbers, number(0)),)).cast(INDEX)
    rest = found.alu(Op.TRUNCMOD, number(5))
    inside = rest + ((rest >> 63) & 5)  # 0..4
    for offset, problem in (
        (inside + 3, ""),
        (inside + 4, "elements 4..8 are in memory of 8"),
        (found, "a gate"),
    ):
        nodes = program_of(UOp(Op.LOAD, F32, (at(IN, offset),)))
        nodes = [numbers, IN, *[node for node in nodes if node not in (numbers, IN)]]
        if problem:
            assert problem in broken(nodes)
        else:
            verify(nodes, PROGRAM, "linearize")


def test_differences_are_tried_out_by_their_parts() -> None:
    start = -(loop(2) * -8).maximum(-6)  # 0 or 6
    apart = start * 4 - start // 2 * 4
    rows, columns = loop(70), loop(71)
    memory = UOp(Op.PARAM, F32, (), ParamArg(0, 70 * 71, "CPU"))
    place = (rows * 71 + columns + apart).alu(Op.SUB, start * 2)
    load = UOp(Op.LOAD, F32, (at(memory, place),))
    ends = [UOp(Op.END, VOID, (node,)) for node in program_of(load)[::-1] if node.op is Op.RANGE]
    nodes = [memory, *[node for node in program_of(load) if node is not memory], *ends]
    verify(nodes, PROGRAM, "linearize")


def test_nothing_is_touched_in_a_loop_without_turns() -> None:
    memory = UOp(Op.PARAM, F32, (), ParamArg(0, 0, "CPU"))
    around = loop(0)
    load = UOp(Op.LOAD, F32, (at(memory, around),))
    nodes = [memory, number(0), around, load.src[0], load, UOp(Op.END, VOID, (around,))]
    verify(nodes, PROGRAM, "linearize")
    after = [*nodes, *program_of(UOp(Op.LOAD, F32, (at(memory, number(0)),)))[1:]]
    assert "or have a gate" in broken(after)


def test_a_right_tree_of_loops_passes() -> None:
    verify(UOp(Op.BLOCK, VOID, (UOp(Op.LOOP, VOID, (I, STORE)),)), LOOPS, "write loops")


J = loop(4, 1)
WRONG_TREES = [
    (UOp(Op.LOOP, VOID, (I, STORE)), "the root is a BLOCK"),
    (UOp(Op.BLOCK, VOID, (STORE,)), "used inside its LOOP"),
    (UOp(Op.BLOCK, VOID, (UOp(Op.LOOP, VOID, (I, STORE)), STORE)), "used inside its LOOP"),
    (UOp(Op.BLOCK, VOID, (UOp(Op.LOOP, VOID, (J, STORE)),)), "used inside its LOOP"),
    (UOp(Op.BLOCK, VOID, (SUM,)), "only statements are in it"),
    (UOp(Op.BLOCK, VOID, (UOp(Op.LOOP, VOID, (ONE, STORE)),)), "it is over a RANGE"),
    (UOp(Op.BLOCK, VOID, (UOp(Op.LOOP, VOID, (I, SUM)),)), "only statements are in it"),
    (UOp(Op.BLOCK, VOID, (END,)), "END does not occur"),
]


@pytest.mark.parametrize(("tree", "problem"), WRONG_TREES, ids=lambda part: str(part)[-40:])
def test_a_wrong_tree_of_loops_is_found(tree: UOp, problem: str) -> None:
    assert problem in broken(tree, LOOPS)


def test_a_statement_is_not_a_value() -> None:
    address = UOp(Op.INDEX, F32, (OUT, number(0)))
    inner = UOp(Op.STORE, VOID, (address, ONE))
    tree = UOp(Op.BLOCK, VOID, (UOp(Op.STORE, VOID, (address, ONE, inner)),))
    assert "its gate is one bool" in broken(tree, LOOPS)
