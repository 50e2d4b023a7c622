"""Transforms turn a nest into another nest over the same elements."""

import itertools

import pytest

from kernelet.base.dtype import dtypes
from kernelet.graph.uop import UOp
from kernelet.graph.walk import substitute
from kernelet.lower.transforms import (
    Backwards,
    GroupLanes,
    Loop,
    Loops,
    Nest,
    Parallel,
    Plan,
    Reorder,
    Split,
    apply_transforms,
    can_apply,
    coordinate_of,
    lanes_for,
)
from tests.lower.pseudocode import loop
from tests.reference.evaluate import evaluate

TABLE: Nest = (Loop(0, 6), Loop(1, 10))


def places(nest: Nest) -> list[tuple[int, int]]:
    """Which element of a table each iteration stands at, in order."""
    ranges = [loop(number, int(part.size)) for number, part in enumerate(nest)]  # type: ignore[arg-type]
    found = []
    for point in itertools.product(*[range(int(part.size)) for part in nest]):  # type: ignore[arg-type]
        values = {v: UOp.const(n, dtypes.index) for v, n in zip(ranges, point, strict=True)}
        row, column = (
            evaluate(substitute(coordinate_of(nest, ranges, axis), values))[0] for axis in (0, 1)
        )
        found.append((int(row), int(column)))
    return found


def test_a_split_steps_by_its_factor() -> None:
    assert Split(1, 5).apply(TABLE) == (Loop(0, 6), Loop(1, 2, 5), Loop(1, 5))


def test_a_split_that_does_not_divide_ends_with_a_tile_that_overlaps() -> None:
    nest = Split(1, 4, "vector").apply(TABLE)
    assert nest == (Loop(0, 6), Loop(1, 3, 4, limit=6), Loop(1, 4, kind="vector"))
    assert [column for row, column in places(nest) if row == 0] == [*range(8), 6, 7, 8, 9]


def test_to_run_backwards_is_to_start_at_the_last_tile() -> None:
    nest = apply_transforms(TABLE, (Reorder((1, 0)), Split(0, 2, "vector"), Backwards(0)))
    assert nest == (Loop(1, 10), Loop(0, 3, 2, mirror=4), Loop(0, 2, kind="vector"))
    assert [row for row, column in places(nest) if column == 4] == [4, 5, 2, 3, 0, 1]
    whole = apply_transforms(TABLE, (Split(0, 6, "vector"), Backwards(0)))
    assert [row for row, column in places(whole) if column == 4] == [0, 1, 2, 3, 4, 5]


def test_a_split_by_the_whole_size_only_moves_the_loop_inwards() -> None:
    assert Split(0, 6, "unroll").apply(TABLE) == (Loop(1, 10), Loop(0, 6, kind="unroll"))


def test_a_split_cuts_the_smallest_step_wherever_it_stands() -> None:
    nest = apply_transforms(TABLE, (Split(1, 4), Reorder((2, 0, 1))))
    assert Split(1, 2, "vector").apply(nest) == (
        Loop(1, 2, 2),
        Loop(0, 6),
        Loop(1, 3, 4, limit=6),
        Loop(1, 2, kind="vector"),
    )


def test_reordering_changes_the_order_alone() -> None:
    nest = Reorder((1, 0)).apply(TABLE)
    assert nest == (Loop(1, 10), Loop(0, 6))
    assert sorted(places(nest)) == sorted(places(TABLE))


def test_an_order_names_every_loop_once() -> None:
    with pytest.raises(AssertionError):
        Reorder((0, 0)).apply(TABLE)


def test_the_outermost_loop_is_shared_out() -> None:
    assert Parallel().apply(TABLE) == (Loop(0, 6, kind="thread"), Loop(1, 10))


@pytest.mark.parametrize(
    "transforms",
    [
        (),
        (Split(0, 4), Split(0, 3)),
        (Split(1, 7, "unroll"), Split(0, 5), Reorder((3, 1, 0, 2))),
        (Split(1, 8), Split(1, 4), Split(1, 2), Parallel()),
    ],
)
def test_no_element_is_left_out(transforms: tuple[Split | Reorder | Parallel, ...]) -> None:
    assert set(places(apply_transforms(TABLE, transforms))) == set(places(TABLE))


def test_a_plan_reads_as_a_list() -> None:
    plan = Plan(root=(Split(0, 4),), grouped=((1, GroupLanes(0, 2, 8)),))
    split = "Split(axis=0, factor=4, kind='loop')"
    assert str(plan) == f"{split}; stage 1: GroupLanes(axis=0, unroll=2, lanes=8)"
    assert str(Plan()) == "no transforms"


def test_a_transform_needs_its_loops() -> None:
    nest = (Loop(0, 6), Loop(1, 8))
    assert can_apply(Split(1, 8), nest)
    assert not can_apply(Split(0, 8), nest)
    assert not can_apply(Split(2, 2), nest)
    assert not can_apply(Split(1, 4), Split(1, 2).apply(nest))
    assert can_apply(Reorder((1, 0)), nest)
    assert not can_apply(Reorder((0,)), nest)
    assert can_apply(Parallel(), nest)
    assert not can_apply(Parallel(), ())


# ---- planning ----


def test_what_is_done_to_loops_can_be_done_again() -> None:
    loops = Loops(TABLE)
    loops.split(0, 3, "unroll")
    loops.tile(1, 2, 2)
    loops.put_first(1)
    loops.share_out([0, 1], 2)
    assert loops.nest == apply_transforms(TABLE, loops.transforms)
    assert [loop.kind for loop in loops.nest[:2]] == ["thread", "loop"]


def test_tiles_are_vectors_side_by_side() -> None:
    loops = Loops(TABLE)
    loops.tile(1, 4, 2)
    assert loops.transforms == (Split(1, 8, "unroll"), Split(1, 4, "vector"))


def test_what_changes_nothing_is_no_transform() -> None:
    loops = Loops(TABLE)
    loops.split(0, 1)
    loops.tile(1, 1)
    loops.put_first(0)
    assert not loops.transforms


def test_one_order_says_what_several_did() -> None:
    loops = Loops((*TABLE, Loop(2, 4)))
    loops.put_first(2)
    loops.put_first(1)
    assert loops.transforms == (Reorder((0, 2, 1)),)
    loops.put_first(0, 2)
    assert not loops.transforms


@pytest.mark.parametrize(
    ("sizes", "first"), [((6, 10), 0), ((3, 5), 1), ((3, 4), 1), ((9, 4), 0), ((1, 3), 1)]
)
def test_threads_share_a_loop_that_keeps_them_busy(sizes: tuple[int, int], first: int) -> None:
    loops = Loops(tuple(Loop(axis, size) for axis, size in enumerate(sizes)))
    assert loops.share_out([0, 1], 2) == first
    assert loops.nest[0] == Loop(first, sizes[first], kind="thread")


def test_nothing_is_shared_out_where_nothing_can_be() -> None:
    for loops, positions, threads in [
        (Loops(TABLE), [0, 1], 1),
        (Loops(TABLE), [], 2),
        (Loops((Loop(0, 1),)), [0], 2),
        (Loops((Loop(0, UOp.variable("n", 1, 9)),)), [0], 2),
    ]:
        assert loops.share_out(positions, threads) is None
        assert not loops.transforms


def test_a_tile_is_no_plain_loop() -> None:
    loops = Loops(TABLE)
    loops.tile(1, 4)
    assert loops.plain() == [0, 1]


@pytest.mark.parametrize(("size", "lanes"), [(1, 1), (5, 4), (8, 8), (100, 8)])
def test_lanes_fit_the_axis_and_the_register(size: int, lanes: int) -> None:
    assert lanes_for(size, 8) == lanes
