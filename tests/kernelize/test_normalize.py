"""What the cut works on: no history, every asked value stored."""

import pytest

from kernelet import Tensor
from kernelet.base.dtype import dtypes
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.graph.walk import base_of
from kernelet.kernelize.normalize import is_memory, normalize, simplify_values
from tests.kernelize.graphs import after, contiguous, copy, number, write
from tests.lower.pseudocode import (
    F32,
    expand,
    flip,
    memory,
    pad,
    permute,
    reduce,
    reshape,
    shrink,
)

X = memory(0, 8)
TABLE = memory(0, 4, 6)


def normal(*asked: UOp) -> tuple[UOp, ...]:
    return normalize(UOp.sink(*asked)).src


# ---- what is asked ----


def test_an_asked_value_is_stored() -> None:
    assert normal(X + 1.0) == (contiguous(X + 1.0),)


def test_a_view_of_an_asked_value_stays_a_view() -> None:
    value = TABLE * 2.0
    view = permute(expand(reshape(value, 4, 6, 1), 4, 6, 3), 2, 0, 1)
    assert base_of(normal(view)[0]) is contiguous(value)


@pytest.mark.parametrize("view", [shrink(X * 2.0, (2, 4)), pad(X * 2.0, (1, 1))])
def test_a_part_of_a_value_is_stored_alone(view: UOp) -> None:
    assert normal(view) == (contiguous(view),)


def test_memory_and_its_views_are_stored_already() -> None:
    assert normal(flip(X, 0), contiguous(X)) == (flip(X, 0), contiguous(X))


def test_an_asked_number_stays_a_number_for_its_readers() -> None:
    ones = number(1.0, 8)
    asked, value = normal(ones, X + ones)
    assert base_of(asked) is contiguous(UOp.const(1.0, F32))
    assert value is contiguous(X + ones)


def test_an_asked_counter_stays_a_counter_for_its_readers() -> None:
    count = UOp(Op.ARANGE, dtypes.int32, (), (8,))
    assert normal(count, count + 1) == (contiguous(count), contiguous(count + 1))


def test_memory_that_is_written_afterwards_is_copied_for_who_asks() -> None:
    latest = after(X, write(X, X + 1.0))
    assert normal(flip(X, 0), latest) == (flip(contiguous(X), 0), latest)


def test_a_stored_value_that_is_written_is_not_shared_with_its_equal() -> None:
    value = X + 1.0
    stored = contiguous(value)
    latest = after(stored, write(stored, stored * 2.0))
    asked, changed = normal(value, latest)
    assert asked is contiguous(value)
    assert changed.src[0] is contiguous(asked)


# ---- what is taken away ----


def test_history_is_taken_away() -> None:
    detached = UOp(Op.DETACH, F32, (X,)) + 1.0
    function = UOp(Op.FUNCTION, F32, (X * 2.0, X), "twice")
    assert normal(contiguous(detached + function)) == (contiguous((X + 1.0) + X * 2.0),)


def test_a_copy_of_a_copy_is_one_copy() -> None:
    assert normal(contiguous(contiguous(X * 2.0))) == (contiguous(X * 2.0),)
    assert normal(contiguous(copy(X, "LLVM"))) == (copy(X, "LLVM"),)


def test_a_copy_that_is_written_stays_a_copy() -> None:
    first = contiguous(X * 2.0)
    second = contiguous(first)
    latest = after(second, write(second, second + 1.0))
    assert normal(first, latest) == (first, latest)


def test_a_copy_to_its_own_device_is_none_unless_it_is_written() -> None:
    here = copy(X, "CPU")
    assert normal(contiguous(here + 1.0)) == (contiguous(X + 1.0),)
    latest = after(here, write(here, here + 1.0))
    mine = contiguous(X)
    assert normal(latest) == (after(mine, write(mine, mine + 1.0)),)


def test_only_memory_in_order_goes_to_another_device() -> None:
    assert normal(copy(reshape(X, 2, 4), "LLVM")) == (copy(reshape(X, 2, 4), "LLVM"),)
    assert normal(copy(flip(X, 0), "LLVM")) == (copy(contiguous(flip(X, 0)), "LLVM"),)


# ---- algebra on what is asked ----


def test_a_computation_that_comes_to_nothing_is_a_copy() -> None:
    assert simplify_values(UOp.sink(X.maximum(X))) is UOp.sink(contiguous(X))
    placed = contiguous(X).replace(arg="CPU")
    assert simplify_values(UOp.sink(contiguous(X))) is UOp.sink(placed)
    assert simplify_values(UOp.sink(flip(X, 0))) is UOp.sink(flip(X, 0))


def test_a_number_stays_where_it_was_computed() -> None:
    number = UOp.const(0, dtypes.int32).broadcast_to((8,))
    inside = X.cast(dtypes.int32) * 0
    placed = UOp(Op.CONTIGUOUS, dtypes.int32, (number,), "CPU")
    assert simplify_values(UOp.sink(inside)) is UOp.sink(placed)
    assert simplify_values(UOp.sink(contiguous(inside))) is UOp.sink(placed)
    assert placed.device == "CPU"


def test_a_detached_computation_that_comes_to_nothing_is_a_copy() -> None:
    detached = UOp(Op.DETACH, F32, (X.maximum(X),))
    assert simplify_values(UOp.sink(detached)) is UOp.sink(contiguous(UOp(Op.DETACH, F32, (X,))))


# ---- reductions ----


def test_a_reduction_without_results_is_a_number() -> None:
    x = Tensor.zeros(0, 3).contiguous().realize()
    assert (x.mean(1) + x.softmax(1).sum(1)).tolist() == []
    assert x.var(1).realize().shape == (0,)


def test_a_result_around_nothing_reads_nothing() -> None:
    x = Tensor.zeros(5, 0).contiguous().realize()
    assert (x.shrink(((0, 3), None)) * 2).pad(((0, 1), (1, 1))).tolist() == [[0.0, 0.0]] * 4
    assert (x * 2).pad(((0, 1), (0, 0))).tolist() == [[]] * 6


# ---- words ----


def test_memory_is_what_has_a_place() -> None:
    assert all(map(is_memory, [X, contiguous(X), copy(X, "LLVM"), after(X, write(X, X + 1.0))]))
    assert not any(map(is_memory, [flip(X, 0), X + 1.0, UOp.const(1.0, F32)]))


# ---- reshapes above sums ----


def by_groups(value: UOp, groups: int) -> UOp:
    """Rows of (4, 6), each less the greatest of its group."""
    split = reshape(value, 4, groups, 6 // groups)
    return reshape(split - expand(reduce(split, Op.MAX, 2), 4, groups, 6 // groups), 4, 6)


@pytest.mark.parametrize("groups", [2, 3])
def test_what_follows_a_reshaped_row_has_the_loops_of_the_row(groups: int) -> None:
    value = by_groups(TABLE, groups)
    (found,) = normal((value + memory(1, 4, 6)).maximum(number(0.0, 4, 6)) * value)
    assert found.op is Op.RESHAPE
    assert found.shape == (4, 6)
    assert found.src[0].op is Op.CONTIGUOUS
    assert found.src[0].shape == (4, groups, 6 // groups)


def test_reshapes_of_values_without_rows_stay_where_they_are() -> None:
    value = reshape(reshape(TABLE, 2, 12) * 2.0, 4, 6) + 1.0
    assert normal(value) == (contiguous(value),)
