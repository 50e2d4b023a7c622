"""A running reduction goes on from result to result: the loops, read as text."""

from __future__ import annotations

from kernelet.base.dtype import dtypes
from kernelet.graph.ops import Op
from kernelet.graph.spec import LOOPS, verify
from kernelet.graph.uop import UOp
from kernelet.lower.nest import NestWriter, write_nest
from kernelet.lower.transforms import Backwards, Plan, Split, Transform
from tests.lower.pseudocode import F32, expand, kernel, memory, reduce, reshape, written


def scan(
    length: int,
    *,
    strict: bool = False,
    backwards: bool = False,
    rows: int = 3,
    op: Op = Op.ADD,
) -> UOp:
    """Running sums, or products, of the rows of a matrix."""
    shape = (rows, length, length)
    count = UOp(Op.ARANGE, dtypes.int32, (), (length,))
    result = expand(reshape(count, 1, length, 1), *shape)
    element = expand(reshape(count, 1, 1, length), *shape)
    first, last = (result, element) if backwards else (element, result)
    limit = last if strict else last + UOp.const(1, dtypes.int32).broadcast_to(shape)
    value = expand(reshape(memory(1, rows, length), rows, 1, length), *shape)
    identity = UOp.const(0.0 if op is Op.ADD else 1.0, F32)
    masked = first.alu(Op.CMPLT, limit).where(value, identity.broadcast_to(shape))
    return kernel(reshape(reduce(masked, op, 2), rows, length))


def loops(graph: UOp, *root: Transform) -> str:
    found = write_nest(graph, Plan(root=root, lanes=4))
    verify(found, LOOPS, "write loops")
    return written(found)


def test_the_sum_starts_before_the_loop_and_goes_on_inside() -> None:
    assert loops(scan(5)) == (
        "for r0 in 3:\n"
        "  s1[0] = 0.0\n"
        "  for r1 in 5:\n"
        "    s1[0] = (s1[0] + p1[(r0 * 5) + r1])\n"
        "    p0[(r0 * 5) + r1] = s1[0]"
    )


def test_a_sum_without_the_element_itself_reads_the_one_before() -> None:
    assert (
        "s1[0] = where((r1 * -1 < 0), (s1[0] + p1[((r0 * 5) + r1) + -1] if (r1 * -1 < 0)), s1[0])"
        in loops(scan(5, strict=True))
    )


def test_a_sum_of_what_follows_runs_from_the_end() -> None:
    text = loops(scan(5, backwards=True), Backwards(1))
    assert "reduce" not in text
    assert "p0[((r0 * 5) + (r1 * -1)) + 4] = s1[0]" in text


def test_a_loop_in_the_other_direction_starts_each_sum_again() -> None:
    assert "in 5 reduce:" in loops(scan(5, backwards=True))
    assert "in 5 reduce:" in loops(scan(5), Backwards(1))


def test_a_loop_whose_last_tile_overlaps_starts_each_sum_again() -> None:
    assert "in 5 reduce:" in loops(scan(5), Split(1, 2, "loop"))


def test_lanes_add_what_came_since_the_tile_before() -> None:
    text = loops(scan(8), Split(1, 4, "vector"))
    assert "reduce" not in text
    # Sums of one, two and four elements; the two shorter ones are kept for the next tile.
    assert text.count("vector:") == 3 + 4 + 1


def test_products_of_floats_run_one_by_one() -> None:
    products = scan(8, op=Op.MUL)
    assert "reduce" not in loops(products)
    # inf * 0 is NaN: lanes that multiply what came since would make it of 0 * (2e38 * 2e38).
    assert "reduce" in loops(products, Split(1, 4, "vector"))


def test_rows_side_by_side_have_sums_of_their_own() -> None:
    text = loops(scan(5, rows=4), Split(0, 2, "unroll"))
    assert "s1[r4] = (s1[r4] + p1[" in text
    assert "reduce" not in text


def test_a_scan_across_lanes_keeps_a_row_of_sums() -> None:
    writer = NestWriter(scan(5, rows=16), Plan(root=(Split(0, 16),), lanes=4))
    text = written(writer.build())
    assert len(writer.carried) == 1
    assert "reduce" not in text
