"""Statements: stores, sums into memory, loops around them."""

from kernelet.graph.ops import Op
from kernelet.lower.statements import combine, wrap
from tests.lower.pseudocode import F32, at, block, load, loop, memory, store, value_text, written


def test_statements_are_wrapped_from_the_inside_out() -> None:
    statement = store(memory(0, 4), 0, load(memory(1, 4), 1))
    found = block(*wrap((loop(0, 4), loop(1, 5)), [statement]))
    assert written(found) == "for r0 in 4:\n  for r1 in 5:\n    p0[0] = p1[1]"


def test_a_masked_sum_keeps_what_it_has() -> None:
    place, gate = at(memory(0, 4), 0), loop(0, 4) < 2
    value = gate.where(load(memory(1, 4), 1), 0.0)
    assert value_text(combine(Op.ADD, place, F32, value).src[1]) == (
        "where((r0 < 2), (p0[0] + p1[1]), p0[0])"
    )
    assert combine(Op.MAX, place, F32, value).src[1].op is Op.MAX
    assert store(memory(0, 4), 0, value).src[0] is place
