"""Views merge when they can, stack when they cannot, and carry variable sizes."""

from __future__ import annotations

import pytest

from kernelet.base.dtype import dtypes
from kernelet.base.errors import ShapeError
from kernelet.graph.division import (
    FALSE,
    TRUE,
    add_index,
    index_const,
    less_index,
    modulo_index,
    scale_index,
)
from kernelet.graph.infer import Dim
from kernelet.graph.ops import Op
from kernelet.graph.uop import RangeArg, UOp
from kernelet.graph.view import ShapeTracker, View, merge_views, tracker_of


def loop(number: int, size: Dim) -> UOp:
    node = index_const(size) if isinstance(size, int) else size
    return UOp(Op.RANGE, dtypes.index, (node,), RangeArg(number, "loop"))


def loops(*sizes: Dim) -> tuple[UOp, ...]:
    return tuple(loop(number, size) for number, size in enumerate(sizes))


def fresh(*shape: Dim) -> ShapeTracker:
    return ShapeTracker.from_shape(shape)


def only_view(tracker: ShapeTracker) -> View:
    assert len(tracker.views) == 1
    return tracker.views[0]


# ---- normal form ----


def test_equal_views_are_equal_values() -> None:
    assert View.create((2, 1, 3), (3, 77, 1)) == View.create((2, 1, 3))
    assert View.create((2, 3), mask=((0, 2), (-1, 9))) == View.create((2, 3))


def test_an_axis_seen_at_one_place_has_no_stride() -> None:
    view = View.create((4, 3), (3, 1), 0, ((2, 3), (0, 3)))
    assert (view.strides, view.offset) == ((0, 1), 6)


def test_a_view_of_padding_alone_is_blank() -> None:
    view = View.create((4, 3), (3, 1), 5, ((2, 2), (0, 3)))
    assert view == View.create((4, 3), mask=((0, 0), (0, 0)))
    assert view.is_blank
    assert view.index(loops(4, 3))[1] is FALSE


def test_a_view_without_elements_is_contiguous() -> None:
    assert View.create((3, 0), (7, 7), 9).is_contiguous
    assert fresh(3, 0).pad(((0, 0), (1, 1))).reshape((6,)).views[-1].is_blank


def test_a_scalar_has_one_element() -> None:
    tracker = fresh()
    assert (tracker.shape, tracker.size) == ((), 1)
    assert tracker.reshape((1, 1)).reshape(()).views == tracker.views
    assert tracker.index(()) == (index_const(0), TRUE)


# ---- contiguous ----


def test_a_fresh_tracker_is_contiguous() -> None:
    assert fresh(2, 3).is_contiguous
    assert fresh(2, 3).reshape((3, 1, 2)).is_contiguous
    assert fresh(2, 3).permute((1, 0)).permute((1, 0)).is_contiguous
    assert fresh(2, 3).flip((0, 1)).flip((0, 1)).is_contiguous


def test_moved_trackers_are_not_contiguous() -> None:
    assert not fresh(2, 3).permute((1, 0)).is_contiguous
    assert not fresh(2, 3).flip((0,)).is_contiguous
    assert not fresh(2, 1).expand((2, 3)).is_contiguous
    assert not fresh(2, 3).pad(((0, 1), (0, 0))).is_contiguous


def test_later_rows_are_row_major_at_an_offset() -> None:
    tracker = fresh(4, 3).shrink(((1, 3), (0, 3)))
    assert not tracker.is_contiguous
    assert only_view(tracker).is_row_major
    assert only_view(tracker).offset == 3


# ---- merging ----


def test_padding_then_shrinking_is_identity() -> None:
    tracker = fresh(4, 5)
    assert tracker.pad(((1, 2), (0, 3))).shrink(((1, 5), (0, 5))) == tracker


def test_padding_twice_is_padding_once() -> None:
    once = fresh(4, 5).pad(((3, 2), (1, 1)))
    assert fresh(4, 5).pad(((1, 2), (0, 0))).pad(((2, 0), (1, 1))) == once


def test_permuting_then_reshaping_unrelated_axes_is_one_view() -> None:
    tracker = fresh(2, 3, 4, 5).permute((3, 0, 1, 2)).reshape((5, 1, 6, 2, 2))
    assert only_view(tracker).strides == (1, 0, 20, 10, 5)


def test_padded_axes_split_off_others() -> None:
    view = only_view(fresh(4, 6).pad(((0, 0), (1, 1))).reshape((2, 2, 8)))
    assert view.mask == ((0, 2), (0, 2), (1, 7))


def test_whole_rows_of_padding_join_and_split() -> None:
    tracker = fresh(4, 6).pad(((1, 1), (0, 0)))
    line = tracker.reshape((36,))
    assert only_view(line).mask == ((6, 30),)
    assert line.reshape((6, 6)) == tracker


def test_transposing_then_flattening_is_two_views() -> None:
    assert len(fresh(3, 4).permute((1, 0)).reshape((12,)).views) == 2


def test_a_stack_falls_back_to_one_view_when_the_last_move_is_undone() -> None:
    tracker = fresh(3, 4).permute((1, 0))
    assert tracker.reshape((12,)).reshape((4, 3)) == tracker
    assert tracker.reshape((12,)).reshape((2, 2, 3)).shape == (2, 2, 3)
    assert only_view(tracker.reshape((12,)).reshape((2, 2, 3))).strides == (2, 1, 4)


def test_a_slice_of_a_stack_that_is_regular_is_one_view() -> None:
    tracker = fresh(3, 4).permute((1, 0)).reshape((12,)).shrink(((3, 6),))
    assert only_view(tracker) == View.create((3,), (4,), 1)


def test_flipping_everything_keeps_one_axis() -> None:
    assert only_view(fresh(3, 4).flip((0, 1)).reshape((12,))) == View.create((12,), (-1,), 11)


def test_axes_of_size_one_do_not_keep_others_from_joining() -> None:
    tracker = fresh(2, 1, 2).flip((0, 2)).reshape((4,))
    assert only_view(tracker) == View.create((4,), (-1,), 3)


def test_a_diagonal_is_one_view() -> None:
    tracker = fresh(4, 4).reshape((16,)).pad(((0, 4),)).reshape((4, 5)).shrink(((0, 4), (0, 1)))
    assert only_view(tracker.reshape((4,))) == View.create((4,), (5,))


def test_steps_along_a_diagonal_of_a_padded_view_merge() -> None:
    inner = View.create((4, 4), (1, 4))
    outer = View.create((4,), (5,))
    assert merge_views(inner, outer) == View.create((4,), (5,))


def test_views_that_do_not_merge_are_refused() -> None:
    assert merge_views(View.create((3, 4), (1, 3)), View.create((12,))) is None


def test_a_blank_view_hides_what_is_below() -> None:
    blank = View.create((4,), mask=((0, 0),))
    assert merge_views(View.create((3, 4), (1, 3)), blank) == blank
    assert merge_views(blank, View.create((2, 2))) == View.create((2, 2), mask=((0, 0), (0, 0)))


def test_expanding_then_flattening_keeps_one_view_along_whole_axes() -> None:
    assert only_view(fresh(1, 1).expand((3, 4)).reshape((12,))).strides == (0,)
    assert len(fresh(1, 4).expand((3, 4)).reshape((12,)).views) == 2


def test_a_reshape_to_another_size_is_refused() -> None:
    with pytest.raises(ShapeError, match="Give sizes with the same product"):
        fresh(2, 3).reshape((7,))


def test_windows_are_one_view() -> None:
    height, kernel, out = 14, 3, 12
    tracker = fresh(5, height).reshape((5, 1, height)).expand((5, 4, height))
    tracker = tracker.reshape((5, 4 * height)).shrink(((0, 5), (0, kernel * (height + 1))))
    tracker = tracker.reshape((5, kernel, height + 1)).shrink(((0, 5), (0, kernel), (0, out)))
    assert only_view(tracker.permute((0, 2, 1))).strides == (14, 1, 1)


def test_padded_windows_are_two_views() -> None:
    height, kernel = 14, 3
    tracker = fresh(5, 12).pad(((0, 0), (1, 1))).reshape((5, 1, height)).expand((5, 4, height))
    tracker = tracker.reshape((5, 4 * height)).shrink(((0, 5), (0, kernel * (height + 1))))
    tracker = tracker.reshape((5, kernel, height + 1)).shrink(((0, 5), (0, kernel), (0, 12)))
    assert len(tracker.views) == 2
    i, k, y = loops(5, 3, 12)
    flat, _ = tracker.index((i, k, y))
    assert flat is add_index(scale_index(i, 12), add_index(add_index(k, y), index_const(-1)))


# ---- indices ----


def test_an_index_is_offset_and_strides() -> None:
    i, j = loops(3, 4)
    flat, gate = fresh(4, 5).flip((0,)).shrink(((0, 3), (1, 5))).index((i, j))
    assert gate is TRUE
    assert flat is add_index(add_index(scale_index(i, -5), j), index_const(16))


def test_the_gate_says_what_is_padding() -> None:
    (i,) = loops(7)
    flat, gate = fresh(4).pad(((2, 1),)).index((i,))
    assert flat is add_index(i, index_const(-2))
    assert gate.op is Op.AND
    assert set(gate.src) == {less_index(index_const(1), i), less_index(i, index_const(6))}


def test_a_stack_divides_where_views_do_not_merge() -> None:
    (i,) = loops(12)
    flat, _ = fresh(3, 4).permute((1, 0)).reshape((12,)).index((i,))
    column = UOp(Op.IDIV, dtypes.index, (i, index_const(3)))
    assert flat is add_index(column, scale_index(modulo_index(i, 3), 4))


# ---- nodes ----


def moved(node: UOp, op: Op, arg: object) -> UOp:
    return UOp(op, node.dtype, (node,), arg)


def test_a_tracker_is_found_through_movement_alone() -> None:
    memory = UOp.buffer(12, dtypes.float32, "PYTHON")
    square = moved(memory, Op.RESHAPE, (3, 4))
    turned = moved(square, Op.PERMUTE, (1, 0))
    assert tracker_of(turned) == (memory, fresh(3, 4).permute((1, 0)))
    doubled = turned + turned
    assert tracker_of(moved(doubled, Op.FLIP, (0,))) == (doubled, fresh(4, 3).flip((0,)))
    assert tracker_of(memory) == (memory, fresh(12))


def test_trackers_are_kept_on_the_nodes() -> None:
    memory = UOp.buffer(12, dtypes.float32, "PYTHON")
    turned = moved(moved(memory, Op.RESHAPE, (3, 4)), Op.PERMUTE, (1, 0))
    assert tracker_of(turned) is tracker_of(turned)
    assert tracker_of(moved(turned, Op.FLIP, (0,)))[1] == tracker_of(turned)[1].flip((0,))


def test_long_chains_of_moves_need_no_deep_stack() -> None:
    node = UOp.buffer(12, dtypes.float32, "PYTHON")
    for _ in range(3000):
        node = moved(moved(node, Op.PAD, ((1, 0),)), Op.SHRINK, ((1, 13),))
    assert tracker_of(node)[1] == fresh(12)


# ---- sharing memory ----


def test_a_strided_view_is_given_in_numbers() -> None:
    view = fresh(4, 5).permute((1, 0)).flip((0,)).strided_view()
    assert view is not None
    assert (view.shape, view.strides, view.offset) == ((5, 4), (-1, 5), 4)


@pytest.mark.parametrize(
    "tracker",
    [
        fresh(4).pad(((1, 0),)),
        fresh(3, 4).permute((1, 0)).reshape((12,)),
    ],
)
def test_padding_and_stacks_have_no_strided_view(tracker: ShapeTracker) -> None:
    assert tracker.strided_view() is None
