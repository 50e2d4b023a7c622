"""Values that do not live at the same time share blocks of memory."""

from kernelet.base.dtype import dtypes
from kernelet.kernelize.memory import plan_memory
from kernelet.kernelize.schedule import Call, Slot
from tests.lower.pseudocode import kernel, memory

KERNEL = kernel(memory(1, 4))


def call(*slots: int) -> Call:
    return Call(KERNEL, slots)


def blocks(calls: list[Call], sizes: list[int], kept: set[int]) -> list[int | None]:
    slots = [Slot(size, dtypes.float32, "CPU") for size in sizes]
    return [slot.arena for slot in plan_memory(calls, slots, kept)]


def test_a_chain_of_values_takes_turns() -> None:
    chain = [call(1, 0), call(2, 1), call(3, 2), call(4, 3), call(5, 4)]
    assert blocks(chain, [8] * 6, {0, 5}) == [None, 0, 1, 0, 1, None]


def test_what_is_given_or_asked_has_no_block() -> None:
    assert blocks([call(1, 0)], [8, 8], {0, 1}) == [None, None]


def test_a_result_never_shares_with_what_the_same_call_reads() -> None:
    found = blocks([call(1, 0), call(2, 1), call(3, 2)], [8] * 4, {0, 3})
    assert found[1] != found[2]


def test_a_value_that_is_read_late_keeps_its_block() -> None:
    calls = [call(1, 0), call(2, 1), call(3, 2), call(4, 3, 1)]
    found = blocks(calls, [8] * 5, {0, 4})
    assert found == [None, 0, 1, 2, None]


def test_a_value_that_nobody_reads_frees_its_block() -> None:
    assert blocks([call(1, 0), call(2, 0), call(3, 0)], [8] * 4, {0}) == [None, 0, 0, 0]


def test_a_much_larger_block_is_not_wasted() -> None:
    calls = [call(1, 0), call(2, 0), call(3, 0)]
    assert blocks(calls, [8, 100, 10, 60], {0}) == [None, 0, 1, 0]


def test_the_smallest_block_that_fits_is_taken() -> None:
    calls = [call(1, 0), call(2, 1), call(3, 2), call(4, 3)]
    assert blocks(calls, [8, 12, 9, 3, 8], {0})[4] == 1


def test_devices_share_nothing() -> None:
    slots = [Slot(8, dtypes.float32, name) for name in ("CPU", "CPU", "LLVM", "LLVM")]
    calls: list[Call] = [call(1, 0), Call(None, (2, 1)), call(3, 2)]
    assert [slot.arena for slot in plan_memory(calls, slots, {0})] == [None, 0, 1, 2]


def test_nothing_takes_no_part() -> None:
    assert blocks([call(1, 0), call(2, 1)], [8, 0, 0], {0}) == [None, 0, 1]
