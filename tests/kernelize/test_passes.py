"""From asked values to a schedule: calls in order, slots, results."""

import pytest

from kernelet.base.errors import InternalError
from kernelet.graph.ops import Op
from tests.kernelize.graphs import after, calls, contiguous, copy, number, schedule, write
from tests.lower.pseudocode import (
    expand,
    flip,
    memory,
    permute,
    product,
    reduce,
    reshape,
    shrink,
    softmax,
)

X, Y = memory(0, 8), memory(1, 8)


def test_elementwise_work_is_one_kernel() -> None:
    assert calls(schedule((X + Y).maximum(X * Y).alu(Op.SQRT))) == ["e_8 2 <- 0 1"]


def test_softmax_is_one_kernel() -> None:
    assert calls(schedule(softmax(memory(0, 4, 100)))) == ["r_4_100_100_100 1 <- 0"]


def test_a_product_with_bias_and_maximum_is_one_kernel() -> None:
    both = reshape(product(memory(0, 40, 30), memory(1, 50, 30)), 40, 50)
    bias = expand(reshape(memory(2, 50), 1, 50), 40, 50)
    assert calls(schedule((both + bias).maximum(number(0.0, 40, 50)))) == ["r_40_50_30 3 <- 0 1 2"]


def test_a_product_of_a_product_is_two_kernels() -> None:
    first = reshape(product(memory(0, 40, 30), memory(1, 50, 30)), 40, 50)
    second = product(first, memory(2, 60, 50))
    assert calls(schedule(second)) == ["r_40_50_30 3 <- 0 1", "r_40_60_50 4 <- 3 2"]


def test_what_is_asked_twice_is_computed_once() -> None:
    found = schedule(X + Y, flip(X + Y, 0))
    assert calls(found) == ["e_8 2 <- 0 1"]
    assert [result.op for result in found.results] == [Op.PARAM, Op.FLIP]


def test_results_are_views_of_slots() -> None:
    found = schedule(permute(memory(0, 4, 6) * 2.0, 1, 0))
    (result,) = found.results
    assert result.shape == (6, 4)
    assert result.op is Op.PERMUTE
    assert found.slots[1].arena is None


def test_values_in_between_share_memory() -> None:
    value = X
    for _ in range(4):
        value = contiguous(flip(value, 0) + 1.0)
    found = schedule(value)
    assert [slot.arena for slot in found.slots] == [None, 0, 1, 0, None]


def test_written_memory_is_told() -> None:
    found = schedule(after(Y, write(Y, X + 1.0)))
    assert found.written == {1}
    assert calls(found) == ["e_8 1 <- 0"]


def test_old_contents_are_read_before_the_write() -> None:
    found = schedule(after(X, write(X, X * 2.0)), flip(X, 0) + 1.0)
    assert calls(found) == ["e_8 1 <- 0", "e_8 0 <-"]
    found = schedule(after(X, write(X, X * 2.0)), X + 1.0)
    assert calls(found) == ["e_8 1 0 <-"]


def test_old_and_latest_contents_in_one_value_need_a_copy() -> None:
    found = schedule(X + after(X, write(X, X * 2.0)))
    assert calls(found) == ["e_8 0 2 <-"]


def test_two_states_of_two_memories_in_one_value_come_to_an_end() -> None:
    new_x = after(X, write(X, Y * 2.0))
    new_y = after(Y, write(Y, X * 3.0))
    found = schedule((X + Y) * (new_x + new_y))
    assert calls(found) == ["e_8 3 <- 1", "e_8 0 1 4 <- 3"]
    assert found.written == {0, 1}


def test_a_swap_of_two_memories_keeps_both() -> None:
    found = schedule(after(X, write(X, contiguous(Y))), after(Y, write(Y, contiguous(X))))
    assert calls(found) == ["e_8 2 <- 1", "e_8 3 0 <- 2", "e_8 1 <- 3"]


def test_a_copy_between_devices_waits_for_its_value() -> None:
    assert calls(schedule(copy(X + 1.0, "LLVM"))) == ["e_8 1 <- 0", "copy 2 <- 1"]


def test_numbers_need_a_kernel_only_when_they_are_asked() -> None:
    assert calls(schedule(number(3.0, 8))) == ["e 0 <-"]
    assert calls(schedule(X + 3.0)) == ["e_8 1 <- 0"]


def test_a_slice_of_a_sum_computes_the_slice() -> None:
    total = reduce(memory(0, 40, 6), Op.ADD, 1)
    found = schedule(shrink(total, (0, 4), (0, 1)))
    assert found.slots[-1].size == 4
    assert calls(found) == ["r_4_6 1 <- 0"]


def test_two_histories_of_one_memory_are_an_error() -> None:
    first = after(X, write(X, flip(X, 0) + 1.0))
    second = after(X, write(X, flip(X, 0) + 2.0))
    with pytest.raises(InternalError, match="no order respects all reads"):
        schedule(first, second)
