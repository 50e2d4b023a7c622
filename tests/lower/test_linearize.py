"""A tree of loops becomes a list: nothing is computed too early, too often or in sight of nobody."""

from kernelet.base.dtype import dtypes
from kernelet.graph.ops import Op
from kernelet.graph.show import show_expression
from kernelet.graph.spec import PROGRAM, verify
from kernelet.graph.uop import ScratchArg, UOp
from kernelet.lower.linearize import linearize
from tests.lower.pseudocode import (
    F32,
    VOID,
    around,
    block,
    load,
    loop,
    memory,
    store,
    value_text,
)

OUT, IN, TABLE = memory(0, 64), memory(1, 64), memory(2, 64)
SUM = UOp(Op.SCRATCH, F32, (), ScratchArg(1, 1))
I, J = loop(0, 8), loop(1, 8)


def text(program: list[UOp]) -> str:
    """The list as lines, without addresses and numbers."""
    lines, depth = [], 0
    for node in program:
        if node.op is Op.END:
            depth -= 1
        elif node.op is Op.RANGE:
            lines.append(
                "  " * depth + f"for r{node.arg.number} in {show_expression(node.src[0])}:"
            )
            depth += 1
        elif node.op is Op.STORE:
            place = load(node.src[0].src[0], node.src[0].src[1])
            lines.append("  " * depth + f"{value_text(place)} = {value_text(node.src[1])}")
        elif node.op not in (Op.CONST, Op.INDEX, Op.SCRATCH) and node.dtype is not dtypes.index:
            lines.append("  " * depth + value_text(node))
    return "\n".join(lines)


def linear(*statements: UOp) -> list[UOp]:
    program = linearize(block(*statements))
    verify(tuple(program), PROGRAM, "linearize")
    return program


def test_what_does_not_depend_on_a_loop_is_computed_outside_of_it() -> None:
    row = load(IN, I).alu(Op.SQRT)
    program = linear(around(I, around(J, store(OUT, I * 8 + J, row * load(TABLE, J)))))
    assert text(program).splitlines()[3:] == [
        "for r0 in 8:",
        "  p1[r0]",
        "  sqrt(p1[r0])",
        "  for r1 in 8:",
        "    p2[r1]",
        "    (sqrt(p1[r0]) * p2[r1])",
        "    p0[(r0 * 8) + r1] = (sqrt(p1[r0]) * p2[r1])",
    ]


def test_memory_that_a_loop_writes_is_read_inside_of_it() -> None:
    update = store(SUM, 0, load(SUM, 0) + load(IN, J))
    program = linear(store(SUM, 0, UOp.const(0.0, F32)), around(J, update))
    assert text(program).splitlines()[1:] == [
        "s1[0] = 0.0",
        "for r1 in 8:",
        "  s1[0]",
        "  p1[r1]",
        "  (s1[0] + p1[r1])",
        "  s1[0] = (s1[0] + p1[r1])",
    ]


def test_a_value_read_before_a_write_is_read_again_after_it() -> None:
    program = linear(
        store(OUT, 0, load(SUM, 0)), store(SUM, 0, load(IN, 0)), store(OUT, 1, load(SUM, 0))
    )
    assert [node for node in program if node.op is Op.LOAD and node.src[0].src[0] is SUM] == [
        load(SUM, 0),
        load(SUM, 0),
    ]


def test_what_was_computed_from_memory_is_computed_again_after_a_write() -> None:
    twice = load(SUM, 0) * 2.0
    program = linear(store(OUT, 0, twice), store(SUM, 0, load(IN, 0)), store(OUT, 1, twice))
    assert program.count(twice) == 2


def test_a_group_reads_everything_before_it_writes() -> None:
    swap = UOp(Op.BLOCK, VOID, (store(IN, 0, load(IN, 1)), store(IN, 1, load(IN, 0))))
    names = [node.op for node in linear(swap) if node.op in (Op.LOAD, Op.STORE)]
    assert names == [Op.LOAD, Op.LOAD, Op.STORE, Op.STORE]


def test_arguments_come_first_in_the_order_of_their_slots() -> None:
    rows, columns = UOp.variable("rows", 1, 8), UOp.variable("columns", 1, 8)
    program = linear(store(OUT, 0, load(TABLE, rows) + load(IN, columns)))
    assert program[:5] == [OUT, IN, TABLE, columns, rows]


def test_loops_one_after_the_other_share_nothing_that_was_inside() -> None:
    first = around(I, store(OUT, I, load(IN, I)))
    second = around(J, store(TABLE, J, load(OUT, J)))
    program = linear(first, second)
    assert [node.op for node in program if node.op in (Op.RANGE, Op.END)] == [
        *(Op.RANGE, Op.END),
        *(Op.RANGE, Op.END),
    ]


def test_each_value_is_computed_once() -> None:
    shared = load(IN, I) + 1.0
    program = linear(around(I, store(OUT, I, shared * shared), store(TABLE, I, shared)))
    assert len(program) == len(set(program))
