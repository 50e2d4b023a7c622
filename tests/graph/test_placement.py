"""A value stands at the innermost loop that it depends on, in the smallest box."""

import itertools

from kernelet.base.dtype import dtypes
from kernelet.graph.division import (
    FALSE,
    TRUE,
    ZERO,
    add_index,
    divide_index,
    index_const,
    less_index,
    minimum_index,
    scale_index,
    subtract_index,
)
from kernelet.graph.ops import Op
from kernelet.graph.placement import (
    Box,
    Reading,
    box_at,
    common_prefix,
    is_computed,
    last_live,
    loops_over,
    place_value,
    ranges_in,
    split_index,
)
from kernelet.graph.show import show_expression
from kernelet.graph.uop import ParamArg, RangeArg, UOp


def loop(number: int, size: int, kind: str = "loop") -> UOp:
    return UOp(Op.RANGE, dtypes.index, (index_const(size),), RangeArg(number, kind))


ROW, COLUMN, INNER = loop(0, 4), loop(1, 6), loop(2, 5, "reduce")
LANE, COPY = loop(3, 8, "vector"), loop(4, 2, "unroll")


def at(*parts: UOp) -> UOp:
    total = ZERO
    for part in parts:
        total = add_index(total, part)
    return total


def low(box: Box | None) -> list[str]:
    assert box is not None
    return [show_expression(part) for part in box.lo]


# ---- where ----


def test_the_loops_that_all_readers_share_come_first() -> None:
    assert common_prefix([(ROW, COLUMN, INNER), (ROW, COLUMN), (ROW, COLUMN, LANE)]) == (
        ROW,
        COLUMN,
    )
    assert common_prefix([(ROW,), (COLUMN,)]) == ()


def test_a_value_goes_down_to_the_last_loop_that_it_depends_on() -> None:
    box = place_value([Reading((ROW, ZERO), (ROW, COLUMN))], (4, 1))
    assert box == Box((ROW,), (ROW, ZERO), (1, 1))
    assert box.size == 1


def test_a_loop_that_a_value_does_not_depend_on_ends_the_way_down() -> None:
    box = place_value([Reading((COLUMN,), (ROW, COLUMN))], (6,))
    assert box == Box((), (ZERO,), (6,))


def test_a_register_tile_is_never_a_place() -> None:
    index = at(scale_index(ROW, 16), scale_index(COPY, 8), LANE)
    box = place_value([Reading((index,), (ROW, COPY, LANE))], (64,))
    assert box == Box((ROW,), (scale_index(ROW, 16),), (16,))


def test_a_value_for_two_readers_stands_at_a_loop_of_both() -> None:
    readings = [Reading((ROW, COLUMN), (ROW, COLUMN)), Reading((ROW, INNER), (ROW, INNER))]
    assert place_value(readings, (4, 6)) == Box((ROW,), (ROW, ZERO), (1, 6))


def test_a_box_with_too_few_elements_for_a_tile_is_passed_over() -> None:
    reading = Reading((at(scale_index(ROW, 4), INNER), ZERO), (ROW, INNER, COLUMN))
    assert place_value([reading], (24, 1)).place == (ROW, INNER)
    tile = place_value([reading], (24, 1), least=2)
    assert (tile.place, tile.lo) == ((ROW,), (scale_index(ROW, 4), ZERO))


# ---- which box ----


def test_outer_loops_move_the_box_and_inner_ones_fill_it() -> None:
    index = at(scale_index(ROW, 3), INNER, index_const(-1))
    box = box_at((ROW,), [(index,)], (12,))
    assert low(box) == ["(r0 * 3) + -1"]
    assert box is not None
    assert box.sizes == (5,)


def test_neighbours_share_a_box() -> None:
    box = box_at((ROW,), [(ROW,), (at(ROW, index_const(2)),)], (6,))
    assert (low(box), box and box.sizes) == (["r0"], (3,))


def test_readers_that_move_apart_share_no_box() -> None:
    assert box_at((ROW,), [(ROW,), (scale_index(ROW, -1),)], (4,)) is None
    readings = [
        Reading((ROW,), (ROW,)),
        Reading((at(index_const(3), scale_index(ROW, -1)),), (ROW,)),
    ]
    assert place_value(readings, (4,)) == Box((), (ZERO,), (4,))


def test_a_loop_that_is_entangled_with_inner_ones_is_no_place() -> None:
    mixed = divide_index(at(scale_index(ROW, 5), INNER), 2)
    assert split_index(mixed, frozenset({ROW})) is None
    assert place_value([Reading((mixed,), (ROW, INNER))], (10,)) == Box(
        (ROW, INNER), (mixed,), (1,)
    )


def test_a_tile_that_overlaps_moves_with_its_minimum() -> None:
    start = minimum_index(scale_index(ROW, 8), index_const(20))
    box = box_at((ROW,), [(at(start, LANE),)], (28,))
    assert box == Box((ROW,), (start,), (8,))


def test_a_box_of_everything_ends_where_the_value_ends() -> None:
    around = at(COLUMN, index_const(-2))
    assert box_at((), [(around,)], (3,)) == Box((), (ZERO,), (3,))


def test_a_box_outside_of_the_value_is_one_element() -> None:
    beyond = at(COLUMN, index_const(50))
    box = box_at((), [(beyond,)], (3,))
    assert box is not None
    assert box.sizes == (1,)


def test_a_variable_axis_has_room_for_its_greatest_size() -> None:
    size = UOp.variable("n", 1, 9)
    inner = UOp(Op.RANGE, dtypes.index, (size,), RangeArg(7, "loop"))
    assert box_at((), [(inner,)], (size,)) == Box((), (ZERO,), (9,))


def picked() -> UOp:
    """An index that is read from memory, at another place in each row."""
    memory = UOp(Op.PARAM, dtypes.int32, (), ParamArg(0, 4, "CPU"))
    address = UOp(Op.INDEX, dtypes.index, (memory, ROW))
    return UOp(Op.LOAD, dtypes.int32, (address,)).cast(dtypes.index)


def test_a_computed_index_needs_all_of_its_axis() -> None:
    reading = Reading((picked(), COLUMN), (ROW, COLUMN))
    assert place_value([reading], (9, 6)) == Box((), (ZERO, ZERO), (9, 6))
    ordered = Reading((picked(), COLUMN), (COLUMN, ROW))
    assert place_value([ordered], (9, 6)) == Box((COLUMN,), (ZERO, COLUMN), (9, 1))


def test_readings_that_differ_by_a_variable_need_all_of_the_value() -> None:
    size = UOp.variable("n", 1, 9)
    inner = UOp(Op.RANGE, dtypes.index, (size,), RangeArg(7, "loop"))
    turned = at(size, scale_index(inner, -1), index_const(-1))
    readings = [Reading((inner,), (inner,)), Reading((turned,), (inner,))]
    assert place_value(readings, (size,)) == Box((), (ZERO,), (9,))


# ---- words ----


def test_an_index_out_of_memory_is_computed() -> None:
    assert is_computed(at(picked(), INNER))
    assert not is_computed(at(ROW, INNER))


def test_an_index_knows_its_loops() -> None:
    assert ranges_in(at(ROW, scale_index(COLUMN, 2), index_const(3))) == {ROW, COLUMN}
    assert ranges_in(index_const(3)) == frozenset()


def test_the_constant_belongs_to_the_inner_part() -> None:
    outer, inner = (
        split_index(at(scale_index(ROW, 2), INNER, index_const(3)), frozenset({ROW})) or ()
    )
    assert (show_expression(outer), show_expression(inner)) == ("r0 * 2", "r2 + 3")


def test_axes_of_one_element_have_no_loop() -> None:
    rows, one, columns = loops_over((4, 1, 3))
    assert (rows.arg, one, columns.arg) == (RangeArg(0, "loop"), ZERO, RangeArg(2, "loop"))
    numbers = itertools.count(5)
    assert [at.arg.number for at in (*loops_over((2, 2), numbers), *loops_over((2,), numbers))] == [
        5,
        6,
        7,
    ]


# ---- masks ----


def end(condition: UOp) -> str | None:
    found = last_live(condition, ALONG, frozenset({ROW}))
    return None if found is None else show_expression(found)


ALONG = loop(5, 40)
PLACE = add_index(scale_index(ROW, 8), loop(6, 8))


def below(index: UOp, limit: int = 0) -> UOp:
    return less_index(index, index_const(limit))


def test_a_loop_ends_where_the_rest_is_masked_for_all_inside() -> None:
    assert end(below(subtract_index(PLACE, ALONG))) == "(r0 * 8) + 8"
    ahead = subtract_index(ROW, scale_index(ALONG, 2))
    assert end(below(subtract_index(ahead, loop(6, 8)))) == "(r0 // 2) + 1"
    assert end(below(subtract_index(ROW, ALONG), -2)) == "r0 + 3"


def test_a_loop_does_not_end_where_its_beginning_is_masked() -> None:
    assert end(below(subtract_index(ALONG, ROW))) is None
    assert end(below(ROW, 2)) is None
    assert end(below(subtract_index(ROW, divide_index(ALONG, 3)))) is None
    assert end(FALSE) is None
    assert end(TRUE) == "0"
