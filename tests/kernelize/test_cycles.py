"""Writes that read each other's old contents are one kernel where that says the same."""

import numpy as np
import pytest

from kernelet import Tensor
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from tests.kernelize.graphs import after, calls, contiguous, schedule, write
from tests.lower.pseudocode import expand, flip, memory, reduce, shrink

X, Y, Z = memory(0, 8), memory(1, 8), memory(2, 8)


def update(target: UOp, value: UOp) -> UOp:
    return after(target, write(target, value))


def test_two_memories_that_read_each_other_are_written_at_once() -> None:
    assert calls(schedule(update(X, X + Y), update(Y, Y * X))) == ["e_8 0 1 <-"]


def test_a_swap_needs_no_copy() -> None:
    assert calls(schedule(update(X, Y), update(Y, X))) == ["e_8 0 1 <-"]


def test_a_ring_of_three_is_one_kernel() -> None:
    assert calls(schedule(update(X, Y), update(Y, Z), update(Z, X))) == ["e_8 0 1 2 <-"]


def test_later_readers_see_the_new_contents() -> None:
    new_x, new_y = update(X, X + Y), update(Y, Y * X)
    found = schedule(new_x, new_y, flip(new_x, 0) + flip(new_y, 0))
    assert calls(found) == ["e_8 0 1 <-", "e_8 2 <- 0 1"]


def test_earlier_readers_see_the_old_contents() -> None:
    found = schedule(update(X, X + Y), update(Y, Y * X), flip(X, 0) + flip(Y, 0))
    assert calls(found) == ["e_8 2 <- 0 1", "e_8 0 1 <-"]


@pytest.mark.parametrize(
    "value",
    [flip(X, 0), expand(reduce(X, Op.ADD, 0), 8), Y * expand(reduce(X, Op.MAX, 0), 8)],
    ids=["elsewhere", "all of it", "both"],
)
def test_what_is_read_elsewhere_needs_a_copy(value: UOp) -> None:
    assert len(calls(schedule(update(X, X + Y), update(Y, value)))) > 1


def test_a_cycle_of_different_shapes_needs_a_copy() -> None:
    part = memory(3, 4)
    found = schedule(
        update(X, X * expand(shrink(part, (0, 1)), 8)), update(part, shrink(X, (0, 4)))
    )
    assert len(calls(found)) > 1


def test_what_reads_the_new_contents_is_no_part_of_the_cycle() -> None:
    new_x = update(X, X + Y)
    assert len(calls(schedule(new_x, update(Y, Y * X + new_x)))) > 1


def test_chains_of_writes_to_one_memory_are_no_cycle() -> None:
    once = update(X, X + Y)
    twice = update(once, once * 2.0)
    assert len(calls(schedule(twice, update(Y, X + contiguous(Y))))) > 1


@pytest.mark.parametrize("shape", [(), (1,), (5,), (3, 7), (64,), (4, 0)])
def test_values_are_those_of_simultaneous_assignments(shape):
    start = [np.random.default_rng(n).standard_normal(shape).astype(np.float32) for n in range(3)]
    a, b, c = [Tensor(each).contiguous().realize() for each in start]
    x, y, z = (each.copy() for each in start)
    for _ in range(3):
        new = a + b, b * a - c, a * 0.5
        for target, value in zip((a, b, c), new, strict=True):
            target.assign(value)
        Tensor.realize(a, b, c)
        x, y, z = x + y, y * x - z, x * 0.5
    for mine, want in zip((a, b, c), (x, y, z), strict=True):
        np.testing.assert_allclose(mine.numpy(), want, rtol=1e-5)
