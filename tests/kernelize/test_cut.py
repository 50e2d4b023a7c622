"""Each stored value becomes one call over numbered slots."""

import pytest

from kernelet.base.dtype import dtypes
from kernelet.base.errors import DeviceError
from kernelet.graph.ops import Op
from kernelet.graph.uop import ParamArg, UOp
from kernelet.kernelize.cut import Cutter, slot_view
from kernelet.kernelize.schedule import Call, Slot
from tests.kernelize.graphs import after, contiguous, copy, text, write
from tests.lower.pseudocode import F32, expand, flip, memory, shrink

X, Y = memory(0, 8), memory(1, 8)


def cut(*asked: UOp, given: int = 0) -> Cutter:
    return Cutter(UOp.sink(*asked), "CPU", given)


def kernels(cutter: Cutter) -> list[Call]:
    return [call for call in cutter.pieces.calls.values() if call.kernel is not None]


def test_a_kernel_stores_to_its_first_argument() -> None:
    (call,) = kernels(cut(contiguous(Y + X)))
    assert (call.slots, call.outputs) == ((2, 1, 0), 1)
    assert text(call.kernel) == [
        "%0 = PARAM float32 (8,) slot=0 CPU",
        "%1 = PARAM float32 (8,) slot=1 CPU",
        "%2 = PARAM float32 (8,) slot=2 CPU",
        "%3 = ADD float32 (8,) %1 %2",
        "%4 = STORE %0 %3",
        "%5 = SINK %4",
    ]


def test_the_same_work_on_other_memory_is_the_same_kernel() -> None:
    first, second = kernels(cut(contiguous(X * 2.0), contiguous(Y * 2.0)))
    assert first.kernel is second.kernel
    assert first.slots != second.slots


def test_readers_of_a_stored_value_read_its_slot() -> None:
    stored = contiguous(X * 2.0)
    _, second = kernels(cut(contiguous(flip(stored, 0))))
    assert second.slots == (3 - 1, 1)
    assert Op.MUL not in [node.op for node in second.kernel.toposort()]


def test_a_write_goes_through_its_view() -> None:
    (call,) = kernels(cut(after(X, write(shrink(X, (2, 5)), shrink(Y, (0, 3))))))
    assert call.slots == (0, 1)
    target = call.kernel.src[0].src[0]
    assert (target.op, target.arg) == (Op.SHRINK, ((2, 5),))


def test_memory_written_and_read_is_one_argument() -> None:
    (call,) = kernels(cut(after(X, write(X, X + Y))))
    assert call.slots == (0, 1)


def test_a_copy_to_another_device_is_no_kernel() -> None:
    cutter = cut(copy(X, "LLVM"))
    assert list(cutter.pieces.calls.values()) == [Call(None, (1, 0))]
    assert [slot.device for slot in cutter.pieces.slots] == ["CPU", "LLVM"]


def test_one_kernel_reads_memory_of_one_device() -> None:
    far = UOp(Op.PARAM, F32, (), ParamArg(1, 8, "LLVM"))
    with pytest.raises(DeviceError, match="one kernel would read memory of CPU and LLVM"):
        cut(contiguous(X + far))


def test_arguments_that_nothing_reads_keep_their_slots() -> None:
    cutter = cut(contiguous(X + 1.0), given=3)
    assert cutter.given == 3
    assert kernels(cutter)[0].slots == (3, 0)


def test_what_is_made_of_numbers_alone_lives_on_the_asked_device() -> None:
    cutter = Cutter(UOp.sink(contiguous(UOp.const(1.0, F32).broadcast_to((4,)))), "LLVM", 0)
    assert cutter.pieces.slots == [Slot(4, F32, "LLVM")]


def test_a_slot_has_room_for_the_greatest_size() -> None:
    size = UOp.variable("n", 1, 6)
    view = slot_view(3, (size, 2), Slot(12, dtypes.float32, "CPU"))
    assert text(view) == [
        "%0 = PARAM float32 (12,) slot=3 CPU",
        "%1 = RESHAPE float32 (6, 2) %0",
        "%2 = SHRINK float32 (n, 2) %1 ((0, n), (0, 2))",
    ]


def test_each_state_of_memory_is_the_same_slot() -> None:
    once = after(X, write(X, X + 1.0))
    cutter = cut(contiguous(expand(shrink(once, (0, 1)), 4)))
    assert cutter.pieces.slot_of[once] == cutter.pieces.slot_of[X] == 0
