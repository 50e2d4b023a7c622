"""Realize graphs with the reference evaluator and keep the memory of their values.

In:  nodes.
Out: BUFFER nodes whose memory holds the values.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from weakref import WeakKeyDictionary, WeakSet

from kernelet.base.counters import GlobalCounters
from kernelet.base.dtype import DType, Scalar, bfloat16_bits, dtypes
from kernelet.base.errors import ArgumentError
from kernelet.graph.evaluate import evaluate_all
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp

_VIEWS = frozenset({Op.RESHAPE, Op.PERMUTE, Op.EXPAND, Op.SHRINK, Op.FLIP, Op.DETACH})
_memory: WeakKeyDictionary[UOp, list[Scalar]] = WeakKeyDictionary()
_realized: WeakKeyDictionary[UOp, UOp] = WeakKeyDictionary()
_stale: WeakSet[UOp] = WeakSet()


def default_device() -> str:
    """The device of tensors for which none is named."""
    return "PYTHON"


def new_buffer(data: bytes | memoryview | None, size: int, dtype: DType, device: str) -> UOp:
    """A BUFFER node with memory, holding a copy of `data`."""
    node = UOp.buffer(size, dtype, device)
    _memory[node] = [0] * size if data is None else _unpack(bytes(data), size, dtype)
    return node


def write_buffer(buffer: UOp, data: bytes) -> None:
    """Replace what the memory of `buffer` holds."""
    _memory[buffer] = _unpack(data, buffer.arg.size, buffer.dtype)


def realized(node: UOp) -> UOp | None:
    """`node` as a view of memory that holds its value; None when it was not computed."""
    chain = []
    base = node
    while base.op in _VIEWS and base not in _realized:
        chain.append(base)
        base = base.src[0]
    if base.op is Op.BUFFER:
        return None if base in _stale else node
    found = _realized.get(base)
    if found is None:
        return None
    found = realized(found)
    if found is None:
        return None
    for step in reversed(chain):
        found = step.replace(src=(found,))
    return found


def overwritten(nodes: Iterable[UOp]) -> set[UOp]:
    """The BUFFER nodes that realizing `nodes` writes to."""
    return {storage for after in _writes(nodes) if (storage := _storage(after)).op is Op.BUFFER}


def realize(nodes: Sequence[UOp]) -> None:
    """Compute `nodes`; readers of overwritten memory see its old contents."""
    roots = [node for node in dict.fromkeys(nodes) if realized(node) is None]
    writes = _writes(roots)
    results = [*roots, *writes]
    if not results:
        return
    values = evaluate_all(results, _bindings(results))
    GlobalCounters.kernel_count += len(roots)
    for node, found in zip(results, values, strict=True):
        if node in writes:
            storage = _storage(node)
            if storage.op is Op.BUFFER:
                _stale.add(storage)
                _memory.pop(storage, None)
        if node in _realized or (node.op in _VIEWS and realized(node) is not None):
            continue
        buffer = UOp.buffer(len(found), node.dtype, node.device or default_device())
        _memory[buffer] = found
        _realized[node] = buffer if node.shape == buffer.shape else _shaped(buffer, node)


def _shaped(buffer: UOp, node: UOp) -> UOp:
    return UOp(Op.RESHAPE, node.dtype, (buffer,), node.shape)


def read_bytes(node: UOp) -> bytes:
    """The elements of a realized node in row-major order."""
    return _pack(evaluate_all([node], _bindings([node]))[0], node.dtype)


def _bindings(nodes: Iterable[UOp]) -> dict[UOp, list[Scalar]]:
    found: dict[UOp, list[Scalar]] = {}
    seen: set[UOp] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        known = _realized.get(node)
        if known is not None:
            found[node] = evaluate_all([known], _bindings([known]))[0]
        elif node.op is Op.BUFFER:
            if node not in _memory:
                raise ArgumentError(
                    "realize: the tensor reads memory that was overwritten since. Realize it "
                    "before the write."
                )
            found[node] = _memory[node]
        else:
            stack.extend(node.src)
    return found


def _writes(nodes: Iterable[UOp]) -> list[UOp]:
    """The last AFTER of each storage below `nodes`."""
    found: dict[UOp, None] = {}
    inner: set[UOp] = set()
    for node in UOp.sink(*nodes).toposort():
        if node.op is Op.AFTER and node not in _realized:
            found[node] = None
            inner.add(node.src[0])
    return [node for node in found if node not in inner]


def _storage(node: UOp) -> UOp:
    while node.op is Op.AFTER:
        node = node.src[0]
    return node


def _unpack(data: bytes, size: int, dtype: DType) -> list[Scalar]:
    if dtype is dtypes.bfloat16:
        words = struct.unpack(f"<{size}H", data)
        return list(struct.unpack(f"<{size}f", struct.pack(f"<{size}I", *[w << 16 for w in words])))
    return list(struct.unpack(f"<{size}{dtype.code}", data))


def _pack(values: Sequence[Scalar], dtype: DType) -> bytes:
    if dtype is dtypes.bfloat16:
        return struct.pack(f"<{len(values)}H", *[bfloat16_bits(float(value)) for value in values])
    return struct.pack(f"<{len(values)}{dtype.code}", *values)
