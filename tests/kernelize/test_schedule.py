"""A schedule is plain data."""

from kernelet.base.dtype import dtypes
from kernelet.kernelize.schedule import Call, Schedule, Slot
from tests.lower.pseudocode import kernel, memory


def test_a_slot_knows_its_bytes() -> None:
    assert Slot(12, dtypes.float16, "CPU").nbytes == 24
    assert Slot(0, dtypes.float64, "CPU").nbytes == 0


def test_the_kernels_leave_copies_out() -> None:
    graph = kernel(memory(1, 4))
    plan = Schedule((Call(None, (1, 0)), Call(graph, (2, 1))), (), 0, (), frozenset())
    assert plan.kernels == (graph,)
