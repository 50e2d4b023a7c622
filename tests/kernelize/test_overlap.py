"""Writes change nothing that is still to be read."""

import pytest

from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.kernelize.overlap import read_copies, reads_in_place, separate_overlaps, storage_of
from tests.kernelize.graphs import after, contiguous, write
from tests.lower.pseudocode import expand, flip, memory, permute, reduce, reshape, shrink

X, Y = memory(0, 8), memory(1, 8)
TWICE = X * 2.0


@pytest.mark.parametrize("value", [Y, X + Y, TWICE * TWICE + Y.maximum(X)])
def test_a_value_that_reads_what_it_writes_is_written_in_place(value: UOp) -> None:
    graph = UOp.sink(after(X, write(X, value)))
    assert separate_overlaps(graph) is graph


@pytest.mark.parametrize(
    "value",
    [
        flip(X, 0),
        X + flip(X, 0),
        flip(X, 0) + X,
        flip(TWICE, 0) + TWICE,
        TWICE + flip(TWICE, 0),
        expand(reduce(X, Op.ADD, 0), 8),
    ],
)
def test_a_value_that_reads_its_memory_elsewhere_is_computed_first(value: UOp) -> None:
    graph = separate_overlaps(UOp.sink(after(X, write(X, value))))
    assert graph is UOp.sink(after(X, write(X, contiguous(value))))


def test_a_shifted_slice_is_computed_first() -> None:
    target, value = shrink(X, (1, 8)), shrink(X, (0, 7))
    assert (
        write(target, contiguous(value))
        in separate_overlaps(UOp.sink(after(X, write(target, value)))).toposort()
    )


def test_a_slice_may_be_changed_in_place() -> None:
    target = shrink(X, (1, 8))
    graph = UOp.sink(after(X, write(target, target + 1.0)))
    assert separate_overlaps(graph) is graph


def test_another_view_of_the_same_elements_is_not_known_to_be_in_place() -> None:
    table = memory(0, 4, 4)
    graph = UOp.sink(after(table.src[0], write(table, permute(table, 1, 0))))
    assert Op.CONTIGUOUS in [node.op for node in separate_overlaps(graph).toposort()]


def test_an_earlier_state_is_the_same_memory() -> None:
    changed = after(X, write(X, X + 1.0))
    assert storage_of(shrink(changed, (0, 3))) is X


def test_reads_of_a_lost_state_become_reads_of_a_copy() -> None:
    latest = after(X, write(X, X + 1.0))
    graph = read_copies(UOp.sink(contiguous(X * 3.0 + latest)), [X])
    saved = contiguous(X)
    changed = after(X, write(X, saved + 1.0))
    assert graph is UOp.sink(contiguous(saved * 3.0 + changed))


def test_targets_stay_the_memory_itself_in_every_state() -> None:
    once = after(X, write(X, X + 1.0))
    twice = after(once, write(shrink(once, (0, 4)), shrink(once, (4, 8))))
    graph = read_copies(UOp.sink(contiguous(once + twice)), [once])
    saved = contiguous(once)
    changed = after(once, write(shrink(once, (0, 4)), shrink(saved, (4, 8))))
    assert graph is UOp.sink(contiguous(saved + changed))


# ---- results that results need ----

ROWS, MEANS = memory(0, 5, 4), memory(1, 5, 1)


def spread(value: UOp) -> UOp:
    return expand(value, 5, 4)


def test_a_reduction_that_takes_away_its_own_mean_reads_its_own_result() -> None:
    away = ROWS - spread(MEANS)
    assert reads_in_place(reduce(away * away, Op.ADD, 1), MEANS)
    assert reads_in_place(reshape(reduce(reshape(away, 5, 2, 2), Op.ADD, 1, 2), 5), MEANS)
    assert reads_in_place(reduce(ROWS, Op.ADD, 1), MEANS)


@pytest.mark.parametrize(
    "value",
    [
        reduce(ROWS - spread(flip(MEANS, 0)), Op.ADD, 1),
        reduce(ROWS, Op.ADD, 1) + expand(reduce(MEANS, Op.ADD, 0), 5, 1),
        reduce(ROWS - spread(memory(1, 5, 1) * 1.0 + flip(MEANS, 0)), Op.ADD, 1),
    ],
    ids=["of another row", "of all rows", "of both"],
)
def test_other_reductions_read_other_results(value: UOp) -> None:
    assert not reads_in_place(value, MEANS)
