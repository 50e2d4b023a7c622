"""Graphs over several devices become one graph a device, with the same value."""

from __future__ import annotations

import pytest

from kernelet.base.dtype import dtypes
from kernelet.graph.ops import Op
from kernelet.graph.uop import CutArg, ReduceArg, UOp
from kernelet.kernelize.multi import cut_like, spread
from tests.reference.evaluate import evaluate

NAMES = ("A", "B", "C")


def cut(sizes, axis, shape, first=0):
    """A value of `shape` in parts along `axis`, and the numbers that each part holds."""
    parts, values = [], {}
    for name, size in zip(NAMES, sizes, strict=False):
        part_shape = (*shape[:axis], size, *shape[axis + 1 :])
        count = 1
        for dim in part_shape:
            count *= dim
        buffer = UOp.buffer(count, dtypes.int32, name)
        values[buffer] = list(range(first, first + count))
        first += count
        parts.append(UOp(Op.RESHAPE, dtypes.int32, (buffer,), part_shape))
    return UOp(Op.MULTI, dtypes.int32, tuple(parts), axis), values


def check(node, values, axis):
    """The spread graph has the same value, MULTI on top alone, and every part on one device."""
    found = spread(node)
    assert found.op is Op.MULTI
    assert found.arg == axis
    assert found.shape == node.shape
    assert found.device == node.device
    assert evaluate(found, values) == evaluate(node, values)
    for part in found.src:
        assert not [n for n in part.toposort() if n.op is Op.MULTI]
        for inner in part.toposort():
            devices = {source.device for source in inner.src} - {None}
            assert len(devices) <= 1
    if axis is None:
        assert all(evaluate(part, values) == evaluate(node, values) for part in found.src)
    return found


def move(op, arg):
    return lambda x: UOp(op, x.dtype, (x,), arg)


MOVES = {
    "rows join": (0, (4, 6), move(Op.RESHAPE, (24,)), 0),
    "rows split": (0, (4, 6), move(Op.RESHAPE, (2, 2, 6)), 0),
    "other axes split": (0, (4, 6), move(Op.RESHAPE, (4, 3, 2)), 0),
    "columns join rows": (1, (4, 6), move(Op.RESHAPE, (24,)), None),
    "columns split": (1, (4, 6), move(Op.RESHAPE, (4, 2, 3)), 1),
    "an axis in front": (1, (4, 6), move(Op.RESHAPE, (1, 4, 6)), 2),
    "rows that do not split": (0, (4, 6), move(Op.RESHAPE, (3, 8)), None),
    "permute": (0, (4, 6), move(Op.PERMUTE, (1, 0)), 1),
    "flip of the cut axis": (0, (4, 6), move(Op.FLIP, (0, 1)), None),
    "flip": (0, (4, 6), move(Op.FLIP, (1,)), 0),
    "pad": (0, (4, 6), move(Op.PAD, ((0, 0), (1, 2))), 0),
    "pad of the cut axis": (0, (4, 6), move(Op.PAD, ((1, 2), (0, 1))), None),
    "shrink": (0, (4, 6), move(Op.SHRINK, ((0, 4), (1, 3))), 0),
    "shrink of the cut axis": (0, (4, 6), move(Op.SHRINK, ((1, 3), (0, 6))), None),
    "shrink to one part": (0, (4, 6), move(Op.SHRINK, ((0, 2), (0, 6))), None),
    "shrink to nothing": (0, (4, 6), move(Op.SHRINK, ((1, 1), (0, 6))), None),
    "expand": (0, (4, 1), move(Op.EXPAND, (4, 3)), 0),
}


@pytest.mark.parametrize("name", MOVES)
def test_movement_keeps_the_cut_where_it_can(name):
    axis, shape, function, expected = MOVES[name]
    x, values = cut((shape[axis] // 2, shape[axis] // 2), axis, shape)
    check(function(x), values, expected)


@pytest.mark.parametrize("sizes", [(2, 2), (3, 1), (1, 2, 1)])
@pytest.mark.parametrize("op", [Op.ADD, Op.MUL, Op.MAX])
def test_reductions_of_the_cut_axis_are_combined_on_every_device(sizes, op):
    x, values = cut(sizes, 0, (4, 3))
    check(UOp(Op.REDUCE, x.dtype, (x,), ReduceArg(op, (0,))), values, None)
    check(UOp(Op.REDUCE, x.dtype, (x,), ReduceArg(op, (0, 1))), values, None)
    check(UOp(Op.REDUCE, x.dtype, (x,), ReduceArg(op, (1,))), values, 0)


def test_operands_that_are_cut_alike_meet_part_by_part():
    x, values = cut((2, 1), 0, (3, 2))
    y, others = cut((2, 1), 0, (3, 2), 100)
    found = check(x + y, values | others, 0)
    assert not [node for node in found.toposort() if node.op is Op.COPY]


def test_operands_that_are_cut_otherwise_are_brought_together():
    x, values = cut((2, 1), 0, (3, 2))
    for sizes, axis in (((1, 2), 0), ((1, 1), 1)):
        y, others = cut(sizes, axis, (3, 2), 100)
        check(x * y, values | others, 0)


def test_wholes_and_numbers_are_cut_as_the_other_operand():
    x, values = cut((2, 1), 0, (3, 2))
    buffer = UOp.buffer(6, dtypes.int32, "A")
    whole = UOp(Op.COPY, x.dtype, (UOp(Op.RESHAPE, x.dtype, (buffer,), (3, 2)),), ("A", "B"))
    values[buffer] = [7, 8, 9, 10, 11, 12]
    check(whole + x, values, 0)
    check(whole + whole, values, None)
    check(x * 3, values, 0)
    counted = UOp(Op.RESHAPE, x.dtype, (UOp(Op.ARANGE, x.dtype, (), (6,)),), (3, 2))
    check(counted + x, values, 0)


def test_a_copy_to_one_device_joins_the_parts():
    for axis in (0, 1):
        x, values = cut((2, 1, 1), axis, (4, 4))
        copy = UOp(Op.COPY, x.dtype, (x,), "B")
        found = spread(copy + 1)
        assert found.device == "B"
        assert not [node for node in found.toposort() if node.op is Op.MULTI]
        assert evaluate(found, values) == evaluate(copy + 1, values)


def test_a_node_of_one_device_stays_the_same_node():
    buffer = UOp.buffer(3, dtypes.int32, "A")
    copy = UOp(Op.COPY, dtypes.int32, (buffer,), "B")
    assert spread(copy + 1) is copy + 1


def test_what_is_written_to_parts_is_cut_like_them():
    x, values = cut((2, 1), 0, (3, 2))
    y, others = cut((1, 1), 1, (3, 2), 100)
    parts = cut_like(y, x)
    assert [part.shape for part in parts] == [(2, 2), (1, 2)]
    joined = UOp(Op.MULTI, y.dtype, parts, 0)
    assert evaluate(joined, values | others) == evaluate(y, others)


def test_a_copy_in_parts_gives_each_device_its_own():
    buffer = UOp.buffer(7, dtypes.int32, "A")
    copy = UOp(Op.COPY, dtypes.int32, (buffer,), CutArg(("A", "B", "C"), 0))
    found = check(copy + 0, {buffer: list(range(7))}, 0)
    assert [part.shape for part in found.src] == [(2,), (2,), (3,)]
    x, values = cut((2, 1), 0, (3, 2))
    again = UOp(Op.COPY, x.dtype, (x,), CutArg(("A", "B"), 1))
    check(again + x, values, 1)
