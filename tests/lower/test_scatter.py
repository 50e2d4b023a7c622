"""Elements that name their result are added where they belong."""

from __future__ import annotations

import pytest

from kernelet.base.dtype import DType, dtypes
from kernelet.graph.ops import Op
from kernelet.graph.scan import identity_of
from kernelet.graph.spec import LOOPS, verify
from kernelet.graph.uop import UOp
from kernelet.lower.nest import write_nest
from kernelet.lower.scatter import scatter_sum
from kernelet.lower.transforms import Plan, Reorder
from tests.lower.pseudocode import expand, kernel, memory, reduce, reshape, written

COLUMNS_FIRST = Plan(root=(Reorder((1, 0)),))


def search(
    steps: int = 6,
    results: int = 5,
    width: int = 4,
    dtype: DType = dtypes.float32,
    op: Op = Op.ADD,
) -> UOp:
    """sum_t where(pick[t] != v, 0, x[t, d]) for all v and d."""
    shape = (steps, results, width)
    picks = expand(reshape(memory(1, steps, dtype=dtypes.int32), steps, 1, 1), *shape)
    numbers = UOp(Op.ARANGE, dtypes.int32, (), (results,))
    wanted = expand(reshape(numbers, 1, results, 1), *shape)
    added = expand(reshape(memory(2, steps, width, dtype=dtype), steps, 1, width), *shape)
    neutral = expand(reshape(UOp.const(identity_of(op, dtype), dtype), 1, 1, 1), *shape)
    return reshape(reduce(picks.alu(Op.CMPNE, wanted).where(neutral, added), op, 0), *shape[1:])


def scattered(graph: UOp, plan: Plan = COLUMNS_FIRST) -> str:
    block = scatter_sum(write_nest(graph, plan), 1)
    verify(block, LOOPS, "scatter")
    return written(block)


def test_each_element_is_added_where_it_belongs() -> None:
    text = scattered(kernel(search()))
    assert text.count("for") == 3, "columns, all results once, all elements once"
    assert "!=" not in text.replace("!= True", ""), "nothing is searched"
    first, second = text.split("reduce:")
    assert "= 0.0" in first
    assert "p1[" in second, "the number of the result is read"


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int32])
@pytest.mark.parametrize("op", [Op.MUL, Op.MAX])
def test_products_and_maxima_are_put_in_place_too(op: Op, dtype: DType) -> None:
    first, second = scattered(kernel(search(op=op, dtype=dtype))).split("reduce:")
    assert f"= {identity_of(op, dtype)}" in first
    assert "p1[" in second
    assert "!=" not in second.replace("!= True", "")


def test_what_is_added_to_the_sum_comes_first() -> None:
    text = scattered(kernel(memory(3, 5, 4) + search()))
    assert "p3[" in text.split("reduce:")[0]
    assert "p3[" not in text.split("reduce:")[1]


def unchanged(graph: UOp, plan: Plan = COLUMNS_FIRST) -> bool:
    block = write_nest(graph, plan)
    return scatter_sum(block, 1) is block


def test_only_a_sum_that_is_stored_as_it_is_can_be_scattered() -> None:
    assert not unchanged(kernel(search()))
    assert unchanged(kernel(search() * search())), "two sums"
    assert unchanged(kernel(search().alu(Op.MAX, UOp.const(0.0, dtypes.float32))))
    assert unchanged(kernel(search()), Plan()), "the results are not the innermost loop"


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
def test_narrow_sums_stay_in_a_register(dtype: DType) -> None:
    assert unchanged(kernel(search(dtype=dtype)))


def test_what_differs_from_result_to_result_is_searched() -> None:
    shape = (6, 5, 4)
    picks = expand(reshape(memory(1, 6, dtype=dtypes.int32), 6, 1, 1), *shape)
    numbers = UOp(Op.ARANGE, dtypes.int32, (), (5,))
    wanted = expand(reshape(numbers, 1, 5, 1), *shape)
    zero = expand(reshape(UOp.const(0.0, dtypes.float32), 1, 1, 1), *shape)
    value = picks.alu(Op.CMPNE, wanted).where(zero, memory(2, *shape))
    assert unchanged(kernel(reshape(reduce(value, Op.ADD, 0), 5, 4)))
