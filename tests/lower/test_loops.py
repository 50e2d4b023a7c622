"""Loops that run as one become one; the statements of a tree come in order."""

from __future__ import annotations

import random

import pytest

from kernelet.base.dtype import dtypes
from kernelet.graph.division import add_index, index_const, scale_index
from kernelet.graph.ops import Op
from kernelet.graph.uop import RangeArg, UOp
from kernelet.lower.loops import (
    body_of,
    fresh_numbers,
    join_loops,
    merge_sum_axes,
    statements_of,
    with_body,
)
from tests.lower.pseudocode import (
    around,
    block,
    expand,
    kernel,
    load,
    loop,
    memory,
    permute,
    product,
    reduce,
    reshape,
    shrink,
    store,
    written,
)
from tests.reference.evaluate import evaluate

C, T, ROW = loop(0, 4), loop(1, 9), loop(2, 5)
OUT, IN = memory(0, 64), memory(1, 999)


def joined(*statements: UOp) -> str:
    return written(join_loops(block(*statements)))


def test_statements_come_in_order_with_their_loops() -> None:
    first, second, third = (store(OUT, n, load(IN, n)) for n in range(3))
    tree = block(around(C, first, around(T, second)), block(third))
    assert list(statements_of(tree)) == [(first, (C,)), (second, (C, T)), (third, ())]


# ---- loops that run as one ----


def test_two_loops_that_every_address_runs_through_as_one_are_one() -> None:
    place = add_index(scale_index(C, 9), T)
    text = joined(around(C, around(T, store(OUT, place, load(IN, add_index(place, ROW))))))
    assert text == "for r1 in 36:\n  p0[r1] = p1[r1 + r2]"


def test_three_loops_become_one_from_the_inside() -> None:
    place = add_index(add_index(scale_index(C, 45), scale_index(T, 5)), ROW)
    text = joined(around(C, around(T, around(ROW, store(OUT, place, load(IN, place))))))
    assert text == "for r2 in 180:\n  p0[r2] = p1[r2]"


@pytest.mark.parametrize("factor", [0, 1, 8, 10, 18])
def test_loops_with_another_pitch_stay_apart(factor: int) -> None:
    tree = around(C, around(T, store(OUT, 0, load(IN, add_index(scale_index(C, factor), T)))))
    assert joined(tree).count("for ") == 2


def test_one_address_is_enough_to_keep_loops_apart() -> None:
    place = add_index(scale_index(C, 9), T)
    inside = store(OUT, place, load(IN, place) + load(memory(2, 9), T))
    assert joined(around(C, around(T, inside))).count("for ") == 2


def test_conditions_and_numbers_count_as_addresses() -> None:
    place = add_index(scale_index(C, 9), T)
    gate = UOp(Op.CMPLT, dtypes.bool, (T, index_const(3)))
    number = UOp(Op.CAST, dtypes.float32, (T,))
    for value in (load(IN, place, gates=(gate,)), load(IN, place) * number):
        assert joined(around(C, around(T, store(OUT, place, value)))).count("for ") == 2


def test_a_loop_that_ends_where_another_says_keeps_it_apart() -> None:
    size = add_index(C, index_const(1))
    inner = UOp(Op.RANGE, dtypes.index, (size,), RangeArg(7, "loop"))
    tree = around(C, around(T, around(inner, store(OUT, 0, load(IN, inner)))))
    assert joined(tree).count("for ") == 3


def test_divided_indices_keep_loops_apart() -> None:
    place = add_index(scale_index(C, 9), T)
    row = UOp(Op.IDIV, dtypes.index, (place, index_const(5)))
    assert joined(around(C, around(T, store(OUT, place, load(IN, row))))).count("for ") == 2


def test_tiles_and_loops_with_several_statements_stay() -> None:
    place = add_index(scale_index(C, 9), T)
    lanes = loop(1, 9, "vector")
    tile = add_index(scale_index(C, 9), lanes)
    assert joined(around(C, around(lanes, store(OUT, tile, load(IN, tile))))).count("for ") == 2
    two = around(C, store(OUT, C, load(IN, C)), around(T, store(OUT, place, load(IN, place))))
    assert joined(two).count("for ") == 2


def test_symbolic_loops_stay_apart() -> None:
    n = UOp.variable("n", 1, 9)
    inner = UOp(Op.RANGE, dtypes.index, (n,), RangeArg(1, "loop"))
    place = add_index(scale_index(C, n), inner)
    assert joined(around(C, around(inner, store(OUT, 0, load(IN, place))))).count("for ") == 2


def test_the_joined_loop_has_the_kind_of_the_outer_one() -> None:
    outer, inner = loop(0, 4, "thread"), loop(1, 9, "reduce")
    place = add_index(scale_index(outer, 9), inner)
    text = joined(around(outer, around(inner, store(OUT, place, load(IN, place)))))
    assert text == "for r1 in 36 thread:\n  p0[r1] = p1[r1]"


# ---- sums over joined axes ----


def value_of(graph: UOp, seed: int = 0) -> list[object]:
    """The stored value, for random numbers in all arguments."""
    choose = random.Random(seed)
    params = [node for node in graph.toposort() if node.op is Op.PARAM]
    data = {node: [choose.randrange(-8, 9) / 4 for _ in range(node.arg.size)] for node in params}
    return list(evaluate(graph.src[0].src[1], data))


def pixels() -> UOp:
    """x[n, k, y, x] * w[o, k], summed over k: (n, o, y, x)"""
    shape = (2, 3, 4, 5, 6)
    left = expand(reshape(permute(memory(1, 2, 6, 4, 5), 0, 2, 3, 1), 2, 1, 4, 5, 6), *shape)
    right = expand(reshape(memory(2, 3, 6), 1, 3, 1, 1, 6), *shape)
    return reshape(reduce(left * right, Op.ADD, 4), 2, 3, 4, 5)


@pytest.mark.parametrize("op", [Op.ADD, Op.MAX])
def test_sums_have_one_axis_where_the_loops_are_one(op: Op) -> None:
    graph = kernel(reduce(memory(1, 2, 3, 4, 5), op, 3) * 2.0)
    found = merge_sum_axes(graph, ((0,), (1, 2), (3,)))
    total = next(node for node in found.toposort() if node.op is Op.REDUCE)
    assert total.src[0].shape == (2, 12, 5)
    assert total.arg.axes == (2,)
    assert value_of(found) == value_of(graph)


def test_a_contraction_keeps_its_value() -> None:
    graph = kernel(pixels().maximum(pixels().const_like(0.0)))
    for merged in (((0,), (1,), (2, 3)), ((0, 1), (2, 3)), ((0, 1, 2, 3),), ((0,), (1, 2), (3,))):
        found = merge_sum_axes(graph, merged)
        assert found is not graph
        assert value_of(found) == value_of(graph)


def test_loops_that_are_not_joined_leave_the_kernel_as_it_is() -> None:
    graph = kernel(product(memory(1, 6, 7), memory(2, 8, 7)))
    assert merge_sum_axes(graph, ()) is graph
    assert merge_sum_axes(graph, ((0,), (1,), (2,))) is graph
    assert merge_sum_axes(graph, ((0,), (1, 2))) is graph  # an axis of one is no loop


def test_a_part_of_a_sum_is_the_sum_of_a_part() -> None:
    whole = reduce(memory(1, 4, 5, 6), Op.ADD, 2)
    graph = kernel(shrink(reshape(whole, 4, 5), (1, 3), (0, 4)))
    found = merge_sum_axes(graph, ((0, 1),))
    total = next(node for node in found.toposort() if node.op is Op.REDUCE)
    assert total.src[0].shape == (8, 6)
    assert value_of(found) == value_of(graph)


def test_sums_of_other_shapes_stay() -> None:
    rows = expand(reduce(memory(1, 4, 5), Op.ADD, 1), 4, 5)
    graph = kernel(rows + memory(2, 4, 5))
    found = merge_sum_axes(graph, ((0, 1),))
    assert value_of(found) == value_of(graph)
    assert next(node for node in found.toposort() if node.op is Op.REDUCE).src[0].shape == (4, 5)


def test_a_loop_keeps_its_variable_when_its_body_changes() -> None:
    row, column = loop(3, 4), loop(7, 5)
    target, source = memory(0, 20), memory(1, 20)
    inner = around(column, store(target, column, load(source, column)))
    outer = around(row, inner)
    (statement,) = body_of(block(outer))
    assert body_of(statement) == (inner,)
    assert with_body(statement, [inner, inner]).src == (row, inner, inner)
    assert with_body(block(outer), [inner]) is block(inner)
    assert next(fresh_numbers(block(outer), Op.RANGE)) == 8
    assert next(fresh_numbers(block(outer), Op.SCRATCH)) == 1
