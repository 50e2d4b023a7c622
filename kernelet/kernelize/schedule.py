"""What to run, in order, and the memory it needs: plain data.

In:  the passes of this stage.
Out: a `Schedule`, kept for every graph of the same form.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelet.base.dtype import DType
from kernelet.graph.uop import UOp


@dataclass(frozen=True, slots=True)
class Slot:
    """Memory for `size` elements; `arena` shares one block among slots that do not live together.

    `arena` is None for memory that is given to the schedule or kept after it.
    """

    size: int
    dtype: DType
    device: str
    arena: int | None = None

    @property
    def nbytes(self) -> int:
        """The bytes needed."""
        return self.size * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Call:
    """Launch a kernel; its n-th memory argument is `slots[n]`, the first `outputs` are written.

    Without a kernel all of the second slot is copied to the first, on another device.
    """

    kernel: UOp | None
    slots: tuple[int, ...]
    outputs: int = 1

    @property
    def written(self) -> tuple[int, ...]:
        """The slots that it writes."""
        return self.slots[: self.outputs]


@dataclass(frozen=True, slots=True)
class Schedule:
    """The calls in order.

    The first `given` slots are the caller's. `results[n]` is the n-th asked node as movement over a
    PARAM that names its slot; `written` are the given slots that change.
    """

    calls: tuple[Call, ...]
    slots: tuple[Slot, ...]
    given: int
    results: tuple[UOp, ...]
    written: frozenset[int]

    @property
    def kernels(self) -> tuple[UOp, ...]:
        """The kernels in order."""
        return tuple(call.kernel for call in self.calls if call.kernel is not None)
