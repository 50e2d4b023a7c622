"""Movement ops as index arithmetic, one op at a time and in the chains that models make."""

from __future__ import annotations

import math

import pytest

from kernelet.base.dtype import dtypes
from kernelet.base.errors import ShapeError
from kernelet.graph.division import FALSE, TRUE, ZERO, add_index, index_const, scale_index
from kernelet.graph.infer import Dim, Shape, max_dim
from kernelet.graph.movement import (
    Index,
    add_dims,
    flatten_index,
    movement_index,
    multiply_dims,
    normal_shape,
    places_below,
    product_of,
    reshape_groups,
    row_major_strides,
    rows_of,
    subtract_dims,
    unflatten_index,
)
from kernelet.graph.ops import MOVEMENT, Op
from kernelet.graph.uop import RangeArg, UOp


def loop(number: int, size: Dim) -> UOp:
    node = index_const(size) if isinstance(size, int) else size
    return UOp(Op.RANGE, dtypes.index, (node,), RangeArg(number, "loop"))


def loops(*sizes: Dim) -> Index:
    return tuple(loop(number, size) for number, size in enumerate(sizes))


def tensor(*shape: Dim) -> UOp:
    node = UOp.buffer(math.prod(map(max_dim, shape)), dtypes.float32, "PYTHON")
    return UOp(Op.RESHAPE, dtypes.float32, (node,), shape)


def move(node: UOp, *steps: tuple[Op, object]) -> UOp:
    for op, arg in steps:
        node = UOp(op, dtypes.float32, (node,), arg)
    return node


def indices_at(node: UOp, source: UOp, index: Index) -> tuple[Index, list[UOp]]:
    """The index into `source`, some movement ops below `node`, and the gates met on the way."""
    gates = []
    while node is not source:
        index, gate = movement_index(node, index)
        gates.append(gate)
        node = node.src[0]
    return index, [gate for gate in gates if gate is not TRUE]


def ops_in(*indices: UOp) -> set[Op]:
    return {node.op for index in indices for node in index.toposort()}


def plus(*parts: UOp | int) -> UOp:
    total = ZERO
    for part in parts:
        total = add_index(total, index_const(part) if isinstance(part, int) else part)
    return total


# ---- sizes ----


def test_sizes_stay_numbers_where_they_are_known() -> None:
    n = UOp.variable("n", 1, 9)
    assert add_dims(2, 3) == 5
    assert multiply_dims(n, 0) == 0
    assert subtract_dims(add_dims(n, 4), n) == 4
    assert subtract_dims(n, n) == 0


def test_equal_sizes_are_equal_values() -> None:
    n = UOp.variable("n", 1, 9)
    assert multiply_dims(4, add_dims(n, 1)) is add_dims(multiply_dims(n, 4), 4)
    assert normal_shape((n + 1 - n, n * 2 + n)) == (1, multiply_dims(n, 3))
    assert product_of((2, n, 3)) is multiply_dims(n, 6)


def test_row_major_strides_of_a_variable_shape() -> None:
    n = UOp.variable("n", 1, 9)
    assert row_major_strides((3, n, 4)) == (multiply_dims(n, 4), 4, 1)
    assert row_major_strides(()) == ()


# ---- groups of axes ----


@pytest.mark.parametrize(
    ("old", "new", "groups"),
    [
        ((6, 5), (6, 5), [((0,), (0,)), ((1,), (1,))]),
        ((6, 5), (2, 3, 5), [((0,), (0, 1)), ((1,), (2,))]),
        ((2, 6), (4, 3), [((0, 1), (0, 1))]),
        ((1, 6, 1), (6,), [((1,), (0,))]),
        ((), (1, 1), []),
        ((2, 2, 9), (4, 3, 3), [((0, 1), (0,)), ((2,), (1, 2))]),
        ((0, 3), (3, 0), []),
    ],
)
def test_groups_are_the_smallest_with_equal_products(
    old: Shape, new: Shape, groups: list[tuple[tuple[int, ...], tuple[int, ...]]]
) -> None:
    assert [(group.old_axes, group.new_axes) for group in reshape_groups(old, new)] == groups


def test_variable_axes_are_groups_of_their_own() -> None:
    n = UOp.variable("n", 1, 9)
    found = reshape_groups((4, n, 6), (2, 2, n, 1, 3, 2))
    assert [(g.old_axes, g.new_axes) for g in found] == [
        ((0,), (0, 1)),
        ((1,), (2,)),
        ((2,), (4, 5)),
    ]


def test_a_variable_axis_merges_with_those_below_it() -> None:
    n = UOp.variable("n", 1, 9)
    found = reshape_groups((n, 4, 5), (n * 4, 5))
    assert [(group.old_axes, group.new_axes) for group in found] == [((0, 1), (0,)), ((2,), (1,))]


def test_a_reshape_to_another_size_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"\(2, 3\) into \(4, 2\): 6 elements are not 8"):
        reshape_groups((2, 3), (4, 2))


# ---- one op ----


def test_unrelated_axes_pass_through_a_reshape() -> None:
    node = move(tensor(4, 6, 5), (Op.RESHAPE, (4, 1, 6, 5)))
    i, _, j, k = index = loops(4, 1, 6, 5)
    assert movement_index(node, index) == ((i, j, k), TRUE)


def test_splitting_an_axis_needs_no_division() -> None:
    node = move(tensor(7, 12), (Op.RESHAPE, (7, 3, 4)))
    i, j, k = index = loops(7, 3, 4)
    assert movement_index(node, index)[0] == (i, plus(scale_index(j, 4), k))


def test_joining_axes_divides_once_for_each_axis() -> None:
    node = move(tensor(3, 4), (Op.RESHAPE, (12,)))
    ((row, column), gate) = movement_index(node, loops(12))
    assert (row.op, column.op, gate) == (Op.IDIV, Op.MOD, TRUE)


def test_joining_then_splitting_is_identity() -> None:
    node = move(tensor(3, 4, 5), (Op.RESHAPE, (60,)), (Op.RESHAPE, (3, 4, 5)))
    index = loops(3, 4, 5)
    assert indices_at(node, node.src[0].src[0], index) == (index, [])


def test_permute_moves_each_index_to_its_source_axis() -> None:
    node = move(tensor(2, 3, 4), (Op.PERMUTE, (2, 0, 1)))
    i, j, k = index = loops(4, 2, 3)
    assert movement_index(node, index) == ((j, k, i), TRUE)


def test_expanded_axes_read_their_one_element() -> None:
    node = move(tensor(2, 1), (Op.EXPAND, (2, 9)))
    i, j = loops(2, 9)
    assert movement_index(node, (i, j)) == ((i, ZERO), TRUE)


def test_shrink_adds_where_it_begins() -> None:
    n = UOp.variable("n", 0, 4)
    node = move(tensor(9, 9), (Op.SHRINK, ((2, 5), (n, n + 3))))
    i, j = index = loops(3, 3)
    assert movement_index(node, index) == ((plus(i, 2), plus(j, n)), TRUE)


def test_flip_counts_from_the_end() -> None:
    node = move(tensor(4, 5), (Op.FLIP, (1,)))
    i, j = index = loops(4, 5)
    assert movement_index(node, index) == ((i, plus(scale_index(j, -1), 4)), TRUE)


def test_only_padding_has_a_gate() -> None:
    node = move(tensor(4, 5), (Op.PAD, ((0, 0), (2, 1))))
    i, j = index = loops(4, 8)
    found, gate = movement_index(node, index)
    assert found == (i, plus(j, -2))
    assert gate.op is Op.AND


def test_a_gate_that_always_holds_is_true() -> None:
    node = move(tensor(4), (Op.PAD, ((1, 1),)))
    assert movement_index(node, (plus(loop(0, 4), 1),))[1] is TRUE
    assert movement_index(node, (ZERO,))[1] is FALSE


def test_padding_then_shrinking_needs_no_gate() -> None:
    node = move(tensor(4), (Op.PAD, ((3, 2),)), (Op.SHRINK, ((3, 7),)))
    index = loops(4)
    assert indices_at(node, node.src[0].src[0], index) == (index, [])


def test_variable_axes_pass_through_a_reshape() -> None:
    n = UOp.variable("n", 1, 9)
    node = move(tensor(4, n, 6), (Op.RESHAPE, (2, 2, n, 6)))
    i, j, k, m = index = loops(2, 2, n, 6)
    assert movement_index(node, index)[0] == (plus(scale_index(i, 2), j), k, m)


def test_splitting_off_a_variable_outer_axis_needs_no_division() -> None:
    n = UOp.variable("n", 1, 9)
    node = move(tensor(n * 4), (Op.RESHAPE, (n, 4)))
    i, j = index = loops(n, 4)
    assert movement_index(node, index)[0] == (plus(scale_index(i, 4), j),)


def test_joining_a_variable_outer_axis_divides_by_numbers_only() -> None:
    n = UOp.variable("n", 1, 9)
    node = move(tensor(n, 4), (Op.RESHAPE, (n * 4,)))
    index = loop(0, multiply_dims(n, 4))
    row, column = movement_index(node, (index,))[0]
    assert (row.src[1], column.src[1]) == (index_const(4), index_const(4))


def test_flattening_then_unflattening_is_identity() -> None:
    index = loops(2, 3, 4)
    assert unflatten_index(flatten_index(index, (12, 4, 1)), (2, 3, 4)) == index


# ---- chains of models ----


def windows(node: UOp, kernel: int, stride: int = 1, dilation: int = 1) -> UOp:
    """The last two axes (h, w) as (out, out, kernel, kernel), with movement ops alone."""
    *outer, height, width = node.shape
    lead = len(outer)
    sizes = (height, width)
    outs = [(size - dilation * (kernel - 1) - 1) // stride + 1 for size in sizes]
    # Rows of the window start one later each: repeat, then read with a length one longer.
    spans = [size + dilation for size in sizes]
    repeats = [-(-kernel * span // size) for span, size in zip(spans, sizes, strict=True)]

    def pairs(*values: tuple[int, int]) -> tuple[int, ...]:
        return tuple(value for pair in values for value in pair)

    def whole(*bounds: int) -> tuple[tuple[int, int], ...]:
        return tuple((0, int(dim)) for dim in (*outer, *bounds))

    steps = [
        (Op.RESHAPE, (*outer, *pairs((1, height), (1, width)))),
        (Op.EXPAND, (*outer, *pairs((repeats[0], height), (repeats[1], width)))),
        (Op.RESHAPE, (*outer, repeats[0] * height, repeats[1] * width)),
        (Op.SHRINK, whole(kernel * spans[0], kernel * spans[1])),
        (Op.RESHAPE, (*outer, *pairs((kernel, spans[0]), (kernel, spans[1])))),
        (Op.SHRINK, whole(*pairs((kernel, outs[0] * stride), (kernel, outs[1] * stride)))),
        (Op.RESHAPE, (*outer, kernel, outs[0], stride, kernel, outs[1], stride)),
        (Op.SHRINK, whole(kernel, outs[0], 1, kernel, outs[1], 1)),
        (Op.RESHAPE, (*outer, kernel, outs[0], kernel, outs[1])),
        (Op.PERMUTE, (*range(lead), lead + 1, lead + 3, lead, lead + 2)),
    ]
    return move(node, *steps)


@pytest.mark.parametrize("kernel", [2, 3, 5])
@pytest.mark.parametrize("dilation", [1, 2])
def test_windows_of_stride_one_read_without_division(kernel: int, dilation: int) -> None:
    image = tensor(2, 3, 14, 17)
    node = windows(image, kernel, dilation=dilation)
    b, c, y, x, v, u = index = loops(*node.shape)
    found, gates = indices_at(node, image, index)
    assert found == (b, c, plus(y, scale_index(v, dilation)), plus(x, scale_index(u, dilation)))
    assert gates == []


@pytest.mark.parametrize(("size", "kernel", "stride"), [(14, 2, 2), (13, 3, 2), (15, 3, 3)])
def test_windows_of_longer_strides_read_without_division(
    size: int, kernel: int, stride: int
) -> None:
    image = tensor(2, 3, size, size)
    node = windows(image, kernel, stride)
    b, c, y, x, v, u = index = loops(*node.shape)
    found, _ = indices_at(node, image, index)
    rows, columns = plus(scale_index(y, stride), v), plus(scale_index(x, stride), u)
    assert found == (b, c, rows, columns)


def test_a_padded_convolution_reads_sums_of_loops_under_simple_gates() -> None:
    image = tensor(8, 16, 28, 28)
    padded = move(image, (Op.PAD, ((0, 0), (0, 0), (1, 1), (1, 1))))
    node = windows(padded, 3)
    # (batch, 1, channels out, channels in, y, x, ky, kx) as conv2d reduces over it
    node = move(
        node,
        (Op.RESHAPE, (8, 1, 16, 28, 28, 3, 3)),
        (Op.EXPAND, (8, 32, 16, 28, 28, 3, 3)),
        (Op.PERMUTE, (0, 1, 3, 4, 2, 5, 6)),
    )
    b, _, y, x, c, v, u = index = loops(*node.shape)
    found, gates = indices_at(node, image, index)
    assert found == (b, c, plus(y, v, -1), plus(x, u, -1))
    assert not ops_in(*found, *gates) & {Op.IDIV, Op.MOD}
    assert all(op not in MOVEMENT for op in ops_in(*found))


def test_attention_heads_split_and_join_without_division() -> None:
    n = UOp.variable("n", 1, 128)
    source = tensor(2, n, 512)
    heads = move(source, (Op.RESHAPE, (2, n, 8, 64)), (Op.PERMUTE, (0, 2, 1, 3)))
    b, h, t, d = index = loops(2, 8, n, 64)
    found, _ = indices_at(heads, source, index)
    assert found == (b, t, plus(scale_index(h, 64), d))
    joined = move(heads, (Op.PERMUTE, (0, 2, 1, 3)), (Op.RESHAPE, (2, n, 512)))
    index = loops(2, n, 512)
    assert indices_at(joined, source, index) == (index, [])


def test_repeating_an_axis_divides_only_that_axis() -> None:
    source = tensor(5, 7)
    steps = ((Op.RESHAPE, (5, 1, 7)), (Op.EXPAND, (5, 3, 7)), (Op.RESHAPE, (5, 21)))
    i, j = index = loops(5, 21)
    (row, column), _ = indices_at(move(source, *steps), source, index)
    assert row is i
    assert (column.op, column.src) == (Op.MOD, (j, index_const(7)))


def test_a_strided_slice_reads_multiples() -> None:
    source = tensor(5, 12)
    steps = (
        (Op.SHRINK, ((0, 5), (1, 10))),
        (Op.RESHAPE, (5, 3, 3)),
        (Op.SHRINK, ((0, 5), (0, 3), (0, 1))),
        (Op.RESHAPE, (5, 3)),
    )
    i, j = index = loops(5, 3)
    assert indices_at(move(source, *steps), source, index)[0] == (i, plus(scale_index(j, 3), 1))


def test_neighbouring_rows_are_found() -> None:
    buffer = UOp.buffer(24, dtypes.float32, "CPU")
    matrix = UOp(Op.RESHAPE, dtypes.float32, (buffer,), (4, 6))
    rows = UOp(Op.SHRINK, dtypes.float32, (matrix,), ((1, 3), (0, 6)))
    columns = UOp(Op.SHRINK, dtypes.float32, (matrix,), ((0, 4), (1, 3)))
    row = UOp(Op.SHRINK, dtypes.float32, (matrix,), ((2, 3), (0, 6)))
    part = UOp(Op.SHRINK, dtypes.float32, (row,), ((0, 1), (1, 3)))
    assert rows_of(buffer) == (buffer, 0)
    assert rows_of(rows) == (buffer, 6)
    assert rows_of(UOp(Op.RESHAPE, dtypes.float32, (rows,), (3, 4))) == (buffer, 6)
    assert rows_of(part) == (buffer, 13)
    assert rows_of(columns) is None
    position = UOp.variable("position", 0, 3)
    moving = UOp(Op.SHRINK, dtypes.float32, (matrix,), ((position, position + 1), (0, 6)))
    assert rows_of(moving) is None, "where they begin is known at each launch"
    assert rows_of(UOp(Op.PERMUTE, dtypes.float32, (matrix,), (1, 0))) is None
    assert rows_of(UOp(Op.PERMUTE, dtypes.float32, (row,), (1, 0))) == (buffer, 12)
    corner = UOp(Op.SHRINK, dtypes.float32, (matrix,), ((2, 3), (1, 3)))
    assert rows_of(corner) == (buffer, 13)
    assert rows_of(UOp(Op.FLIP, dtypes.float32, (matrix,), (0,))) is None


def test_places_below_are_behind_arithmetic_and_movement() -> None:
    source = tensor(4)
    padded = move(source, (Op.PAD, ((1, 0),)))
    value = (padded + padded) * move(source, (Op.PAD, ((0, 1),)))
    (i,) = index = loops(5)
    places = places_below(value, index, 8)
    assert places is not None
    found = {place.index[0]: place.gate for place in places}
    assert {place.node for place in places} == {source.src[0]}
    assert set(found) == {i, plus(i, -1)}
    assert found[i] is not TRUE
    assert places_below(value, index, 7) is None
