"""Loops of a register tile are written out: copies for unrolled ones, vectors for lanes."""

from __future__ import annotations

import pytest

from kernelet.base.dtype import dtypes
from kernelet.base.errors import InternalError
from kernelet.graph.division import bounds_gate
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.lower.expand import expand_tiles
from tests.lower.pseudocode import around, block, load, loop, memory, store, written

OUT, IN, FLAGS = memory(0, 64), memory(1, 64), memory(2, 64, dtype=dtypes.bool)
I = loop(0, 4)
LANE = loop(1, 4, "vector")
COPY = loop(2, 2, "unroll")


def expanded(*statements: UOp) -> str:
    return written(expand_tiles(block(*statements)))


def in_lanes(*statements: UOp) -> str:
    """What becomes of statements in a loop with lanes, inside a plain loop of 4."""
    found = expanded(around(I, around(LANE, *statements))).splitlines()
    assert found[0] == "for r0 in 4:"
    return "\n".join(line.removeprefix("  ") for line in found[1:])


def test_an_unrolled_loop_is_one_copy_for_each_turn() -> None:
    assert expanded(around(COPY, store(OUT, COPY * 8, load(IN, COPY)))) == (
        "p0[0] = p1[0]\np0[8] = p1[1]"
    )


def test_a_plain_loop_stays() -> None:
    assert expanded(around(I, store(OUT, I, load(IN, I)))) == "for r0 in 4:\n  p0[r0] = p1[r0]"


def test_neighbours_are_read_and_written_as_one_vector() -> None:
    place = I * 4 + LANE
    assert in_lanes(store(OUT, place, load(IN, place) * load(IN, place))) == (
        "p0[r0 * 4:+4] = (p1[r0 * 4:+4] * p1[r0 * 4:+4])"
    )


def test_what_is_the_same_in_all_lanes_is_spread() -> None:
    value = load(IN, I) * 2.0 + load(IN, LANE)
    assert in_lanes(store(OUT, LANE, value)) == ("p0[0:+4] = ((p1[r0] * 2.0)x4 + p1[0:+4])")
    assert in_lanes(store(OUT, LANE, load(IN, I))) == "p0[0:+4] = p1[r0]x4"


def test_the_inverse_of_a_number_is_spread_as_one() -> None:
    third = UOp.const(3.0, dtypes.float32).alu(Op.RECIPROCAL)
    node = expand_tiles(block(around(LANE, store(OUT, LANE, load(IN, LANE) * third))))
    (inverse,) = [part for part in node.toposort() if part.op is Op.RECIPROCAL]
    assert inverse.dtype.lanes == 4


def test_elements_near_each_other_are_picked_from_the_vectors_that_hold_them() -> None:
    assert in_lanes(store(OUT, LANE, load(IN, LANE * -2 + 6))) == (
        "p0[0:+4] = (p1[3:+4].3, p1[3:+4].1, p1[0:+4].2, p1[0:+4].0)"
    )
    assert in_lanes(store(OUT, LANE, load(IN, LANE // 2))) == (
        "p0[0:+4] = (p1[0:+2].0, p1[0:+2].0, p1[0:+2].1, p1[0:+2].1)"
    )


def test_elements_in_more_than_two_vectors_are_picked_from_two_at_a_time() -> None:
    low = "(p1[0:+4].0, p1[0:+4].3, p1[0:+4].0, p1[0:+4].0)"
    high = "(p1[4:+4].0, p1[4:+4].0, p1[4:+4].2, p1[6:+4].3)"
    found = in_lanes(store(OUT, LANE, load(IN, LANE * 3)))
    assert found == f"p0[0:+4] = ({low}.0, {low}.1, {high}.2, {high}.3)"


def test_elements_far_apart_or_behind_a_condition_are_gathered() -> None:
    assert in_lanes(store(OUT, LANE, load(IN, LANE * 6))) == (
        "p0[0:+4] = (p1[0], p1[6], p1[12], p1[18])"
    )
    gated = load(IN, LANE * 2, gates=(bounds_gate(LANE, 3),))
    assert "p1[0:" not in in_lanes(store(OUT, LANE, gated))


def test_elements_at_no_constant_distance_are_gathered() -> None:
    assert in_lanes(store(OUT, LANE, load(IN, (LANE + I) // 2))) == (
        "p0[0:+4] = (p1[r0 // 2], p1[(r0 + 1) // 2], p1[(r0 // 2) + 1], p1[((r0 + 1) // 2) + 1])"
    )


def test_lanes_that_are_written_apart_are_taken_apart() -> None:
    assert in_lanes(store(OUT, LANE * 8, load(IN, LANE))) == (
        "at once:\n"
        "  p0[0] = p1[0:+4].0\n"
        "  p0[8] = p1[0:+4].1\n"
        "  p0[16] = p1[0:+4].2\n"
        "  p0[24] = p1[0:+4].3"
    )


def test_each_lane_of_a_gated_vector_has_its_gate() -> None:
    place = I * 4 + LANE + -1
    gate = bounds_gate(place, 14)
    (line,) = in_lanes(store(OUT, I * 4 + LANE, load(IN, place, 1, [gate]))).splitlines()
    assert line.startswith("p0[r0 * 4:+4] = p1[(r0 * 4) + -1:+4] if ((")
    assert "(0, 1, 2, 3)) <" in line


def test_a_gathered_lane_keeps_a_gate_only_where_it_may_fail() -> None:
    gate = bounds_gate(LANE * 2 + I + -1, 64)
    assert in_lanes(store(OUT, LANE, load(IN, LANE * 2 + I + -1, 1, [gate]))) == (
        "p0[0:+4] = (p1[r0 + -1] if (r0 * -1 < 0), p1[r0 + 1], p1[r0 + 3], p1[r0 + 5])"
    )


def test_a_loop_counter_is_a_vector_of_numbers() -> None:
    assert in_lanes(store(OUT, LANE, (I * 4 + LANE).cast(dtypes.float32))) == (
        "p0[0:+4] = float32((r0 * 4x4 + (0, 1, 2, 3)))"
    )


def test_a_choice_by_place_compares_numbers_of_32_bits() -> None:
    value = (LANE < 3).where(load(IN, LANE), 0.5)
    assert in_lanes(store(OUT, LANE, value)) == (
        "p0[0:+4] = where(((0, 1, 2, 3) < (3x4 + 0x4)), p1[0:+4], 0.5x4)"
    )


def test_truth_values_have_lanes_too() -> None:
    value = (load(FLAGS, LANE) & load(FLAGS, I)).cast(dtypes.float32)
    assert in_lanes(store(OUT, LANE, value)) == "p0[0:+4] = float32((p2[0:+4] & p2[r0]x4))"


def test_copies_of_lanes_are_vectors_side_by_side() -> None:
    place = COPY * 4 + LANE
    assert expanded(around(COPY, around(LANE, store(OUT, place, load(IN, place))))) == (
        "p0[0:+4] = p1[0:+4]\np0[4:+4] = p1[4:+4]"
    )


def test_a_gate_that_holds_in_one_copy_is_gone_there() -> None:
    gate = bounds_gate(COPY + I + -1, 64)
    assert expanded(
        around(I, around(COPY, store(OUT, COPY, load(IN, COPY + I + -1, 1, [gate]))))
    ).splitlines() == [
        "for r0 in 4:",
        "  p0[0] = p1[r0 + -1] if (r0 * -1 < 0)",
        "  p0[1] = p1[r0]",
    ]


def test_a_copy_whose_gate_fails_is_padding() -> None:
    gate = bounds_gate(COPY + -1, 64)
    assert expanded(around(COPY, store(OUT, COPY, load(IN, COPY + -1, 1, [gate])))) == (
        "p0[0] = 0.0\np0[1] = p1[0]"
    )


def test_only_lanes_have_a_vector_form() -> None:
    inner = UOp(Op.LOOP, dtypes.void, (I, store(OUT, I, load(IN, LANE))))
    with pytest.raises(InternalError, match="LOOP has no vector form"):
        expanded(around(LANE, inner))
