"""The nodes that tensors start from: memory filled from Python values, and names of devices.

In:  what a user hands to `Tensor(...)`.
Out: BUFFER nodes with memory.
"""

from __future__ import annotations

from kernelet import engine, holdings
from kernelet.base.dtype import DType, dtypes
from kernelet.base.errors import DeviceError, ShapeError
from kernelet.frontend import host
from kernelet.frontend.primitives import DeviceLike, Primitives
from kernelet.graph.division import index_of
from kernelet.graph.infer import Shape
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.graph.walk import substitute
from kernelet.runtime.device import canonical


def node_of(data: object, device: DeviceLike, dtype: DType | None) -> UOp:
    """The node for whatever a user hands to Tensor(...)."""
    if isinstance(data, Primitives):
        data = data.uop
    if isinstance(data, UOp):
        node = data.cast(dtypes.default_int) if data.dtype is dtypes.index else data
        if device is not None and node.device not in (None, device_name(device)):
            node = UOp(Op.COPY, node.dtype, (node,), device_name(device))
        return node if dtype is None else node.cast(dtype)
    name = device_name(device)
    if isinstance(data, bytes | bytearray | memoryview):
        raw = bytes(data)
        kind = dtype or dtypes.uint8
        shape = (len(raw) // kind.itemsize,)
        return stored_node(host.HostData(raw, shape, kind), name)
    if hasattr(data, "__array__") and hasattr(data, "dtype"):
        node = stored_node(host.from_array(data.__array__(), dtype), name)
        return node if dtype is None else node.cast(dtype)
    return stored_node(host.from_nested([] if data is None else data, dtype), name)


def stored_node(found: host.HostData, device: str | tuple[str, ...]) -> UOp:
    if isinstance(device, tuple):
        node = stored_node(found, device[0])
        return UOp(Op.COPY, node.dtype, (node,), device)
    size = len(found.data) // found.dtype.itemsize
    buffer = holdings.new_buffer(found.data, size, found.dtype, device)
    if found.shape == (size,):
        return buffer
    return UOp(Op.RESHAPE, found.dtype, (buffer,), found.shape)


def device_name(device: DeviceLike) -> str | tuple[str, ...]:
    """The one spelling of a device's name, or of several names for values on all of them."""
    if device is None:
        return engine.default_device()
    if isinstance(device, str):
        return canonical(device)
    names = tuple([canonical(name) for name in device])
    if not names or len(set(names)) < len(names):
        raise DeviceError(
            f"device {tuple(device)}: a value lives on different devices. Name each once."
        )
    return names if len(names) > 1 else names[0]


def known_shape(shape: Shape) -> tuple[int, ...]:
    """The sizes as numbers: bound variables have their present value."""
    return tuple(dim if isinstance(dim, int) else _value_of(dim) for dim in shape)


def _value_of(dim: UOp) -> int:
    bound = {node: node.src[1] for node in dim.toposort() if node.op is Op.BIND}
    found = index_of(substitute(dim, bound))
    if found.op is not Op.CONST:
        raise ShapeError(
            "a size depends on a Variable that has no value. Bind it: Variable(...).bind(value)."
        )
    return int(found.arg)
