"""A graph with one more axis is the graph of each element, side by side."""

from __future__ import annotations

import pytest

from kernelet.base.dtype import dtypes
from kernelet.graph.batch import with_batch_axis
from kernelet.graph.ops import Op
from kernelet.graph.spec import TENSOR, verify
from kernelet.graph.uop import ReduceArg, UOp
from tests.reference.evaluate import evaluate

ROWS = [[1.0, -2.0, 3.0, 4.0, 0.5, -6.0], [7.0, 8.0, -9.0, 0.0, 2.0, 5.0]]
OTHER = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0]


def leaf() -> UOp:
    return UOp.buffer(6, dtypes.float32, "PYTHON")


def movement(op: Op, node: UOp, arg: object) -> UOp:
    return UOp(op, node.dtype, (node,), arg)


def table(node: UOp) -> UOp:
    return movement(Op.RESHAPE, node, (2, 3))


CASES = {
    "arithmetic": lambda x, y: x * y + x.maximum(y) * 2.0,
    "a cast": lambda x, y: x.cast(dtypes.int32),
    "a condition": lambda x, y: (x < y).where(x, y),
    "a reshape": lambda x, y: table(x) + table(y),
    "an order of axes": lambda x, y: movement(Op.PERMUTE, table(x), (1, 0)),
    "a repetition": lambda x, y: movement(Op.EXPAND, movement(Op.RESHAPE, x, (1, 6)), (3, 6)),
    "a padding": lambda x, y: movement(Op.PAD, table(x), ((1, 0), (0, 2))),
    "a part": lambda x, y: movement(Op.SHRINK, table(x), ((1, 2), (0, 2))),
    "a flip": lambda x, y: movement(Op.FLIP, table(x), (1,)),
    "a sum": lambda x, y: UOp(
        Op.REDUCE, dtypes.float32, (table(x) * table(y),), ReduceArg(Op.ADD, (1,))
    ),
    "memory of its own": lambda x, y: UOp(Op.CONTIGUOUS, x.dtype, (x + y,)),
    "what is the same for all": lambda x, y: y * 2.0,
}


@pytest.mark.parametrize("name", CASES)
def test_each_element_of_the_batch_has_its_own_value(name: str) -> None:
    x, y, rows = leaf(), leaf(), UOp.buffer(12, dtypes.float32, "PYTHON")
    (found,) = with_batch_axis([CASES[name](x, y)], {x: movement(Op.RESHAPE, rows, (2, 6))}, 2)
    verify(UOp.sink(found), TENSOR, "batch")
    single = CASES[name](x, y)
    assert found.shape == (2, *single.shape)
    wanted = [value for row in ROWS for value in evaluate(single, {x: row, y: OTHER})]
    assert evaluate(found, {rows: ROWS[0] + ROWS[1], y: OTHER}) == wanted


def test_the_batch_adds_no_computation() -> None:
    x, rows = leaf(), UOp.buffer(600, dtypes.float32, "PYTHON")
    root = x * x + x
    (found,) = with_batch_axis([root], {x: movement(Op.RESHAPE, rows, (100, 6))}, 100)
    assert [node.op for node in found.toposort() if node.op in (Op.ADD, Op.MUL)] == [Op.MUL, Op.ADD]


def test_memory_that_is_written_is_one_for_each_element() -> None:
    x, storage = leaf(), leaf()
    written = UOp(Op.AFTER, x.dtype, (storage, UOp(Op.ASSIGN, x.dtype, (storage, x + x))))
    rows = UOp.buffer(12, dtypes.float32, "PYTHON")
    (found,) = with_batch_axis([written], {x: movement(Op.RESHAPE, rows, (2, 6))}, 2)
    verify(UOp.sink(found), TENSOR, "batch")
    assert found.op is Op.AFTER
    assert found.src[0].op is Op.CONTIGUOUS
    assert found.shape == (2, 6)
