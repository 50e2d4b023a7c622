"""Tensors on several devices: how a value is cut into parts, and how the parts are written.

In:  a node, the devices, and the axis that is cut.
Out: copies to several devices; all other ops on them are written as on one device.
"""

from __future__ import annotations

from collections.abc import Iterable

from kernelet.base.errors import DeviceError
from kernelet.frontend import history, live
from kernelet.frontend.host import device_name
from kernelet.frontend.primitives import DeviceLike, Primitives
from kernelet.graph.ops import Op
from kernelet.graph.uop import CutArg, UOp
from kernelet.graph.walk import apply_view, split_view
from kernelet.kernelize.multi import cut_like, spread


def sharded(tensor: Primitives, devices: DeviceLike, axis: int | None) -> UOp:
    """The node of a tensor whole on each device, or in parts of nearly equal size."""
    names = device_name(devices)
    node = tensor.uop
    if isinstance(names, str) or axis is None:
        return UOp(Op.COPY, node.dtype, (node,), names)
    axis = tensor.axis(axis)
    size = node.shape[axis]
    fits = isinstance(size, int) and size >= len(names)
    wanted = f"an axis long enough for {len(names)} devices, or axis=None for whole copies"
    tensor._need(fits, f"{wanted}: axis {axis} has size {size}")
    return UOp(Op.COPY, node.dtype, (node,), CutArg(names, axis))


def axis_of(node: UOp) -> int | None:
    """The axis along which a value is cut; None if it is whole on each of its devices."""
    axis: int | None = spread(node).arg if isinstance(node.device, tuple) else None
    return axis


def overwritten(target: UOp, value: UOp) -> UOp:
    """`target` after `value` is written to it: each part in the memory that it has."""
    if target.op is not Op.MULTI:
        return value
    parts = []
    for part, new in zip(target.src, cut_like(value, target), strict=True):
        chain, storage = split_view(part)
        if storage.op in (Op.BUFFER, Op.AFTER) and not live.repeats(chain) and new is not part:
            write = UOp(Op.ASSIGN, new.dtype, (part, new))
            new = apply_view(chain, UOp(Op.AFTER, new.dtype, (storage, write)))
        parts.append(new)
    written = UOp(Op.MULTI, target.dtype, tuple(parts), target.arg)
    history.remember(written, value)
    return written


def check_devices(nodes: Iterable[UOp]) -> None:
    """DeviceError when values of several devices meet those of others."""
    devices = {node.device for node in nodes} - {None}
    if len(devices) > 1 and any(isinstance(device, tuple) for device in devices):
        raise DeviceError(
            f"the tensors are on {' and '.join(sorted(map(str, devices)))}. Bring them "
            "together with .shard(devices, axis) or .to(device)."
        )
