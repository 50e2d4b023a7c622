"""Calls run after what they need; reads of lost states are found."""

from kernelet.graph.uop import UOp
from kernelet.kernelize.cut import Cutter
from kernelet.kernelize.order import hold_less, lost_states, order_calls
from tests.kernelize.graphs import after, contiguous, write
from tests.lower.pseudocode import flip, memory


def cut(*asked: UOp) -> Cutter:
    return Cutter(UOp.sink(*asked), "CPU", 0)


def test_a_value_is_computed_before_its_readers() -> None:
    first = contiguous(memory(0, 4) * 2.0)
    second = contiguous(flip(first, 0))
    pieces = cut(second).pieces
    assert order_calls(pieces) == ([first, second], True)


def test_readers_of_old_contents_come_before_the_write() -> None:
    x = memory(0, 4)
    change = write(x, x * 2.0)
    old = contiguous(x + 1.0)
    pieces = cut(after(x, change), old).pieces
    assert order_calls(pieces) == ([old, change], True)


def test_writes_to_one_memory_keep_their_order() -> None:
    x = memory(0, 4)
    first = write(x, x * 2.0)
    second = write(after(x, first), after(x, first) + 1.0)
    assert order_calls(cut(after(after(x, first), second)).pieces) == ([first, second], True)


def test_a_call_that_needs_the_old_and_the_latest_state_is_found() -> None:
    x = memory(0, 4)
    change = write(x, x * 2.0)
    both = contiguous(x + after(x, change))
    cutter = cut(both)
    _, is_right = order_calls(cutter.pieces)
    assert not is_right
    assert lost_states(cutter.pieces, cutter.order) == {x}


def test_only_states_on_the_cycle_are_lost() -> None:
    x, y = memory(0, 4), memory(1, 4)
    change = write(x, x * 2.0)
    other = write(y, contiguous(flip(x, 0)))
    both = contiguous(x + after(x, change))
    cutter = cut(both, after(y, other))
    assert lost_states(cutter.pieces, cutter.order) == {x}


def test_a_copy_of_the_old_contents_loses_nothing() -> None:
    x = memory(0, 4)
    saved = contiguous(x)
    change = write(x, x * 2.0)
    cutter = cut(contiguous(saved + after(x, change)))
    assert order_calls(cutter.pieces)[1]
    assert not lost_states(cutter.pieces, cutter.order)


def test_a_result_is_computed_as_soon_as_what_it_reads_is_there() -> None:
    first = contiguous(memory(0, 4) * 2.0)
    second = contiguous(flip(first, 0))
    result = contiguous(flip(first, 0) * 3.0)
    pieces = cut(result, contiguous(flip(second, 0))).pieces
    order, _ = order_calls(pieces)
    kept = frozenset({0, pieces.slot_of[result]})
    assert hold_less(pieces, order, kept).index(result) == 1


def test_a_value_waits_for_its_reader_where_that_holds_nothing_longer() -> None:
    x = memory(0, 4)
    early = contiguous(x * 2.0)
    steps = [contiguous(flip(x, 0))]
    for _ in range(3):
        steps.append(contiguous(flip(steps[-1], 0)))
    last = contiguous(flip(early, 0) + flip(steps[-1], 0))
    pieces = cut(last).pieces
    order = [early, *steps, last]
    kept = frozenset({0, pieces.slot_of[last]})
    assert hold_less(pieces, order, kept) == [*steps, early, last]


def test_a_value_does_not_wait_when_what_it_reads_would_have_to() -> None:
    x = contiguous(memory(0, 4) + 1.0)
    early = contiguous(flip(x, 0))
    other = contiguous(flip(memory(1, 4), 0))
    last = contiguous(flip(early, 0) + flip(other, 0))
    pieces = cut(last).pieces
    kept = frozenset({0, 1, pieces.slot_of[last]})
    assert hold_less(pieces, [x, early, other, last], kept) == [x, early, other, last]
