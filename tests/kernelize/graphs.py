"""Small graphs over memory arguments, and schedules as text."""

from __future__ import annotations

from kernelet import pipeline
from kernelet.base.dtype import DType, dtypes
from kernelet.graph.ops import Op
from kernelet.graph.show import show
from kernelet.graph.uop import UOp
from kernelet.kernelize.schedule import Schedule
from kernelet.programs import kernel_name

F32 = dtypes.float32


def contiguous(x: UOp) -> UOp:
    return UOp(Op.CONTIGUOUS, x.dtype, (x,))


def copy(x: UOp, device: str) -> UOp:
    return UOp(Op.COPY, x.dtype, (x,), device)


def write(target: UOp, value: UOp) -> UOp:
    return UOp(Op.ASSIGN, target.dtype, (target, value))


def after(storage: UOp, *writes: UOp) -> UOp:
    return UOp(Op.AFTER, storage.dtype, (storage, *writes))


def number(value: float, *shape: int, dtype: DType = F32) -> UOp:
    return UOp.const(value, dtype).broadcast_to(shape)


def schedule(*asked: UOp) -> Schedule:
    return pipeline.schedule(UOp.sink(*asked), "CPU")


def calls(found: Schedule) -> list[str]:
    """Each call as `name targets <- sources`."""
    lines = []
    for call in found.calls:
        name = "copy" if call.kernel is None else kernel_name(call.kernel)
        targets, sources = call.slots[: call.outputs], call.slots[call.outputs :]
        lines.append(" ".join([name, *map(str, targets), "<-", *map(str, sources)]))
    return lines


def ops(graph: UOp) -> list[Op]:
    return [node.op for node in graph.toposort()]


def text(graph: UOp) -> list[str]:
    return show(graph).splitlines()
