"""One element of a value is one scalar expression; movement is arithmetic on its index."""

from __future__ import annotations

import pytest

from kernelet.base.dtype import dtypes
from kernelet.base.errors import InternalError
from kernelet.graph.division import TRUE, ZERO, add_index, index_const, less_index
from kernelet.graph.inline import Inliner, load
from kernelet.graph.movement import Place
from kernelet.graph.ops import Op
from kernelet.graph.uop import ParamArg, RangeArg, ReduceArg, UOp

F32 = dtypes.float32
SYMBOLS = {Op.ADD: "+", Op.MUL: "*", Op.CMPLT: "<", Op.AND: "&"}


def loop(number: int, size: int) -> UOp:
    return UOp(Op.RANGE, dtypes.index, (index_const(size),), RangeArg(number, "loop"))


I, J = loop(0, 8), loop(1, 4)


def memory(slot: int, *shape: int) -> UOp:
    size = 1
    for dim in shape:
        size *= dim
    node = UOp(Op.PARAM, F32, (), ParamArg(slot, size, "CPU"))
    return UOp(Op.RESHAPE, F32, (node,), shape)


def move(op: Op, x: UOp, arg: object) -> UOp:
    return UOp(op, x.dtype, (x,), arg)


def text(node: UOp) -> str:
    """The expression with memory as p0, p1 and loops as r0, r1."""
    if node.op is Op.CONST:
        return str(node.arg)
    if node.op is Op.RANGE:
        return f"r{node.arg.number}"
    if node.op is Op.PARAM:
        return f"p{node.arg.slot}"
    parts = [text(source) for source in node.src]
    if node.op is Op.INDEX:
        return f"{parts[0]}[{parts[1]}]"
    if node.op is Op.LOAD:
        return parts[0] if len(parts) == 1 else f"({parts[0]} if {parts[1]})"
    if node.op in SYMBOLS:
        return f"({parts[0]} {SYMBOLS[node.op]} {parts[1]})"
    return f"{node.op.name.lower()}({', '.join(parts)})"


def inlined(node: UOp, *index: UOp, gate: UOp = TRUE) -> UOp:
    return Inliner(lambda place: None).expression(node, index, gate)


X = memory(0, 8)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (X + X, "(p0[r0] + p0[r0])"),
        (move(Op.FLIP, X, (0,)), "p0[((r0 * -1) + 7)]"),
        (move(Op.SHRINK, memory(0, 12), ((3, 11),)), "p0[(r0 + 3)]"),
        (move(Op.EXPAND, memory(0, 1), (8,)), "p0[0]"),
        (UOp.const(2.5, F32).broadcast_to((8,)), "2.5"),
        (UOp(Op.ARANGE, dtypes.int32, (), (8,)), "cast(r0)"),
        (move(Op.PAD, memory(0, 6), ((1, 1),)), "(p0[(r0 + -1)] if (((r0 * -1) < 0) & (r0 < 7)))"),
    ],
)
def test_each_kind_of_node_is_written_inline(node: UOp, expected: str) -> None:
    assert text(inlined(node, I)) == expected


def test_padding_above_arithmetic_chooses() -> None:
    value = move(Op.PAD, memory(0, 7) + 1.0, ((1, 0),))
    assert text(inlined(value, I)) == (
        "where(((r0 * -1) < 0), ((p0[(r0 + -1)] if ((r0 * -1) < 0)) + 1.0), 0.0)"
    )


def test_nested_padding_is_gated_once() -> None:
    value = move(Op.PAD, move(Op.PAD, memory(0, 6), ((1, 0),)), ((1, 0),))
    assert text(inlined(value, I)) == "(p0[(r0 + -2)] if (((r0 * -1) < 0) & ((r0 * -1) < -1)))"


def test_what_is_padding_everywhere_is_not_read() -> None:
    value = move(Op.SHRINK, move(Op.PAD, memory(0, 8), ((8, 0),)), ((0, 8),))
    assert text(inlined(value, I)) == "0.0"


def test_what_is_padding_nowhere_is_not_gated() -> None:
    value = move(Op.SHRINK, move(Op.PAD, memory(0, 8), ((3, 3),)), ((3, 11),))
    assert text(inlined(value, I)) == "p0[r0]"


def test_an_address_outside_is_gated_even_where_nobody_looks() -> None:
    beyond = add_index(I, index_const(1))
    assert text(load(memory(0, 8).src[0], beyond, TRUE)) == "(p0[(r0 + 1)] if (r0 < 7))"
    assert load(memory(0, 4).src[0], add_index(I, index_const(9)), TRUE).op is Op.CONST


def test_equal_places_are_one_expression() -> None:
    value = X.alu(Op.EXP2)
    both = inlined(value + move(Op.FLIP, move(Op.FLIP, value, (0,)), (0,)), I)
    assert both.src[0] is both.src[1]


def test_deep_graphs_are_no_deep_recursion() -> None:
    value = X
    for _ in range(5000):
        value = value + 1.0
    assert inlined(value, I).op is Op.ADD


# ---- reductions and stored values belong to the caller ----


def test_the_caller_says_how_a_stage_is_read() -> None:
    total = UOp(Op.REDUCE, F32, (memory(0, 8, 4),), ReduceArg(Op.ADD, (1,)))
    kept = UOp.const(7.0, F32)
    seen: list[Place] = []

    def read(place: Place) -> UOp | None:
        seen.append(place)
        return kept if place.node is total else None

    found = Inliner(read).expression(total * 2.0, (I, ZERO))
    assert found is kept * 2.0
    assert Place(total, (I, ZERO), TRUE) in seen


def test_the_caller_may_name_another_place() -> None:
    table = memory(0, 8, 4)
    total = UOp(Op.REDUCE, F32, (table,), ReduceArg(Op.ADD, (1,)))

    def read(place: Place) -> Place | None:
        return Place(table, (place.index[0], J), place.gate) if place.node is total else None

    assert text(Inliner(read).expression(total, (I, ZERO))) == "p0[((r0 * 4) + r1)]"


def test_a_reduction_that_nobody_takes_is_an_error() -> None:
    total = UOp(Op.REDUCE, F32, (X,), ReduceArg(Op.ADD, (0,)))
    with pytest.raises(InternalError, match="REDUCE cannot be part of a kernel"):
        inlined(total, ZERO)


def test_the_gate_of_a_place_reaches_every_load() -> None:
    gate = less_index(I, index_const(4))
    near, far = memory(0, 4), memory(1, 8)
    assert text(inlined(near.src[0], I, gate=gate)) == "(p0[r0] if (r0 < 4))"
    assert text(inlined(far.src[0], I, gate=gate)) == "p1[r0]"  # nothing outside to protect


# ---- picking ----


def test_a_picked_element_is_read_where_the_index_says() -> None:
    table = memory(0, 8, 4)
    picks = UOp(Op.PARAM, dtypes.int32, (), ParamArg(1, 4, "CPU"))
    index = UOp(Op.RESHAPE, dtypes.int32, (picks,), (1, 4))
    found = inlined(UOp(Op.GATHER, F32, (table, index), 0), ZERO, J)
    assert text(found).startswith("(p0[")
    assert "p1[r1]" in text(found)
    assert len(found.src) == 2


def test_the_least_integer_picks_nothing() -> None:
    wide = UOp(Op.PARAM, dtypes.int64, (), ParamArg(1, 4, "CPU"))
    index = UOp(Op.RESHAPE, dtypes.int64, (wide,), (1, 4))
    found = inlined(UOp(Op.GATHER, F32, (memory(0, 8, 4), index), 0), ZERO, J)
    # Its negative is itself, so it would pass -index < 1.
    assert "max(-1, cast(p1[r1]))" in text(found)
