"""Sizes have a greatest value, atoms an order, and values a device."""

from __future__ import annotations

from kernelet.base.dtype import dtypes
from kernelet.graph.infer import as_dim, max_dim, order_key
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp

N = UOp.variable("n", 1, 9)


def test_the_greatest_size_is_known() -> None:
    assert max_dim(7) == 7
    assert max_dim(N * 4 + 1) == 37


def test_a_size_that_is_known_is_a_number() -> None:
    assert as_dim(UOp.const(7, dtypes.index)) == 7
    assert as_dim(UOp.variable("one", 1, 1) + 2) == 3
    assert as_dim(N) is N


def test_atoms_sort_by_what_they_are() -> None:
    parts = [UOp.variable("b", 0, 1), UOp.variable("a", 0, 1), N // 2]
    assert sorted(parts, key=order_key) == [parts[1], parts[0], parts[2]]


def test_the_device_is_that_of_the_memory_below() -> None:
    memory = UOp.buffer(4, dtypes.float32, "PYTHON")
    value = memory + UOp.const(1, dtypes.float32).broadcast_to((4,))
    assert value.device == "PYTHON"
    assert UOp(Op.COPY, dtypes.float32, (value,), "CPU").device == "CPU"
    assert UOp.const(1, dtypes.float32).device is None
