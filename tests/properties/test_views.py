"""Random chains of movement ops see what numpy sees."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelet.base.dtype import dtypes
from kernelet.graph.division import TRUE, and_gates, index_const, index_of, substitute_index
from kernelet.graph.infer import Dim, Shape, max_dim
from kernelet.graph.movement import movement_index, multiply_dims, rows_of
from kernelet.graph.ops import MOVEMENT, OP_TABLE, Op
from kernelet.graph.uop import RangeArg, UOp
from tests.reference.evaluate import evaluate

Array = np.ndarray
MOST_ELEMENTS = 200


def factorizations(size: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes with `size` elements."""

    @st.composite
    def draw_shape(draw: st.DrawFn) -> tuple[int, ...]:
        shape, rest = [], size
        for _ in range(draw(st.integers(1, 4))):
            shape.append(draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0])))
            rest //= shape[-1]
        return (*shape, rest)

    return draw_shape()


def draw_argument(draw: st.DrawFn, op: Op, shape: tuple[int, ...]) -> object:
    axes = range(len(shape))
    if op is Op.RESHAPE:
        return draw(factorizations(math.prod(shape)))
    if op is Op.PERMUTE:
        return tuple(draw(st.permutations(axes)))
    if op is Op.EXPAND:
        room = MOST_ELEMENTS // max(math.prod(shape), 1)
        grown = []
        for dim in shape:
            grown.append(draw(st.integers(1, max(1, min(room, 3)))) if dim == 1 else dim)
            room //= grown[-1] if dim == 1 else 1
        return tuple(grown)
    if op is Op.PAD:
        return tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in axes)
    if op is Op.SHRINK:
        begins = [draw(st.integers(0, dim - 1)) for dim in shape]
        return tuple((b, draw(st.integers(b + 1, d))) for b, d in zip(begins, shape, strict=True))
    return tuple(axis for axis in axes if draw(st.booleans()))


def move_array(array: Array, op: Op, arg: object) -> Array:
    if op is Op.RESHAPE:
        return array.reshape(arg)
    if op is Op.PERMUTE:
        return array.transpose(arg)
    if op is Op.EXPAND:
        return np.broadcast_to(array, arg)
    if op is Op.PAD:
        return np.pad(array, arg)
    if op is Op.SHRINK:
        return array[tuple(slice(begin, end) for begin, end in arg)]
    return np.flip(array, arg)


@st.composite
def chains(draw: st.DrawFn, longest: int = 7) -> tuple[UOp, Array]:
    """A chain of movement ops on a buffer, and the same on 1, 2, 3... (0 is for padding)."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    size = math.prod(shape)
    node = UOp(Op.RESHAPE, dtypes.int32, (UOp.buffer(size, dtypes.int32, "PYTHON"),), shape)
    array = np.arange(1, size + 1).reshape(shape)
    for _ in range(draw(st.integers(1, longest))):
        op = draw(st.sampled_from(sorted(MOVEMENT)))
        if op is Op.PAD and array.size > MOST_ELEMENTS:
            continue
        arg = draw_argument(draw, op, array.shape)
        node, array = UOp(op, dtypes.int32, (node,), arg), move_array(array, op, arg)
    return node, array


def loops(shape: Shape) -> tuple[UOp, ...]:
    """A loop variable for each axis; 0 for axes of size 1, as lowering makes them."""
    return tuple(
        index_const(0)
        if dim == 1
        else UOp(Op.RANGE, dtypes.index, (index_of(dim),), RangeArg(number, "loop"))
        for number, dim in enumerate(shape)
    )


def evaluate_grid(index: UOp, shape: Sequence[int]) -> Array:
    """The values of an index, or gate, over all of its loops."""
    grids = np.indices(shape)
    values: dict[UOp, Array] = {}
    for node in index.toposort():
        if node.op is Op.CONST:
            values[node] = np.asarray(node.arg)
        elif node.op is Op.RANGE:
            values[node] = grids[node.arg.number]
        elif node.op in (Op.MAX, Op.MOD, Op.IDIV):
            function = {Op.MAX: np.maximum, Op.MOD: np.mod, Op.IDIV: np.floor_divide}[node.op]
            values[node] = function(*(values[source] for source in node.src))
        else:
            values[node] = OP_TABLE[node.op].meaning(*(values[source] for source in node.src))
    return np.broadcast_to(values[index], shape)


def read(flat: UOp, gate: UOp, shape: Sequence[int], size: int) -> Array:
    """What an index and a gate read of memory that holds 1, 2, 3..., 0 in the padding."""
    memory = np.arange(1, size + 1)
    where, valid = evaluate_grid(flat, shape), evaluate_grid(gate, shape)
    assert np.all((where[valid] >= 0) & (where[valid] < size)), "a read outside of the memory"
    return np.where(valid, memory[np.clip(where, 0, size - 1)], 0)


@given(chains())
@settings(max_examples=400, deadline=None)
def test_indices_moved_op_by_op_see_what_numpy_sees(chain: tuple[UOp, Array]) -> None:
    node, expected = chain
    index, gates = loops(expected.shape), TRUE
    while node.op in MOVEMENT:
        index, gate = movement_index(node, index)
        gates, node = and_gates(gates, gate), node.src[0]
    np.testing.assert_array_equal(read(index[0], gates, expected.shape, node.arg.size), expected)


@given(chains(4))
@settings(max_examples=400, deadline=None)
def test_neighbouring_rows_lie_as_numpy_shows_them(chain: tuple[UOp, Array]) -> None:
    node, expected = chain
    found = rows_of(node)
    if found is None:
        return
    base, start = found
    memory = np.arange(1, base.arg.size + 1)
    np.testing.assert_array_equal(memory[start : start + expected.size], expected.flatten())


# ---- sizes that are given at launch ----

LENGTH = UOp.variable("length", 1, 4)


def at_length(dim: Dim, length: int) -> int:
    return dim if isinstance(dim, int) else int(evaluate(dim, {LENGTH: length})[0])


def draw_variable_reshape(draw: st.DrawFn, shape: Shape) -> Shape:
    place = draw(st.integers(0, len(shape)))
    kind = draw(st.sampled_from(["insert", "join", "split", "squeeze"]))
    if kind == "squeeze":
        return tuple(dim for dim in shape if dim != 1)
    before, after = shape[:place], shape[place + 1 :]
    if kind == "join" and after:
        return (*before, multiply_dims(shape[place], after[0]), *after[1:])
    if kind == "split" and place < len(shape):
        dim = shape[place]
        if dim == LENGTH * 2:
            return (*before, LENGTH, 2, *after)
        if isinstance(dim, int) and dim % 2 == 0:
            return (*before, 2, dim // 2, *after)
    return (*before, 1, *shape[place:])


def draw_variable_argument(draw: st.DrawFn, op: Op, shape: Shape) -> object:
    """An argument for an op on a shape with variable axes."""
    if op is Op.RESHAPE:
        return draw_variable_reshape(draw, shape)
    if op is Op.EXPAND:
        grown = draw(st.sampled_from([1, 2, LENGTH]))
        return tuple(grown if dim == 1 else dim for dim in shape)
    if op is Op.SHRINK:
        cuts = []
        for dim in shape:
            if isinstance(dim, int):
                choices = [(0, dim), (dim // 2, dim), *([(0, LENGTH)] if dim >= 4 else [])]
            else:
                choices = [(0, dim), *([(1, dim)] if dim.bounds.min > 1 else [])]
            cuts.append(draw(st.sampled_from(choices)))
        return tuple(cuts)
    return draw_argument(draw, op, tuple(map(max_dim, shape)))


def argument_at(arg: object, length: int) -> object:
    if isinstance(arg, tuple):
        return tuple(argument_at(part, length) for part in arg)
    return at_length(arg, length) if isinstance(arg, UOp) else arg


@st.composite
def variable_chains(draw: st.DrawFn) -> UOp:
    """A chain of movement ops, some of whose sizes are variable."""
    shape = (2, 4, 2)
    node = UOp(Op.RESHAPE, dtypes.int32, (UOp.buffer(16, dtypes.int32, "PYTHON"),), shape)
    node = UOp(Op.SHRINK, dtypes.int32, (node,), ((0, 2), (0, LENGTH), (0, 2)))
    for _ in range(draw(st.integers(1, 7))):
        op = draw(st.sampled_from(sorted(MOVEMENT)))
        if op in (Op.PAD, Op.EXPAND) and math.prod(map(max_dim, node.shape)) > MOST_ELEMENTS:
            continue
        arg = draw_variable_argument(draw, op, node.shape)
        node = UOp(op, dtypes.int32, (node,), arg)
    return node


def array_at(node: UOp, length: int) -> Array:
    if node.op is Op.BUFFER:
        return np.arange(1, node.arg.size + 1)
    return move_array(array_at(node.src[0], length), node.op, argument_at(node.arg, length))


def bound(index: UOp, length: int) -> UOp:
    return substitute_index(index, {LENGTH: index_const(length)})


@given(variable_chains(), st.integers(1, 4))
@settings(max_examples=300, deadline=None)
def test_variable_indices_moved_op_by_op_see_what_numpy_sees(node: UOp, length: int) -> None:
    expected = array_at(node, length)
    index, gates = loops(node.shape), TRUE
    while node.op in MOVEMENT:
        index, gate = movement_index(node, index)
        gates, node = and_gates(gates, gate), node.src[0]
    flat, gates = bound(index[0], length), bound(gates, length)
    np.testing.assert_array_equal(read(flat, gates, expected.shape, node.arg.size), expected)
