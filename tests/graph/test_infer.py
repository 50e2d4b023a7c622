"""Shapes and devices follow from the sources; sizes are sums in one normal form."""

from __future__ import annotations

import math

import pytest

from kernelet.base.dtype import dtypes
from kernelet.graph.division import normalize_index
from kernelet.graph.infer import Dim, Shape, grow_dim, max_dim, order_key
from kernelet.graph.ops import Op
from kernelet.graph.uop import ReduceArg, UOp

N = UOp.variable("n", 1, 9)
P = UOp.variable("p", 0, 8)


def tensor(*shape: Dim) -> UOp:
    memory = UOp.buffer(math.prod(map(max_dim, shape)), dtypes.float32, "PYTHON")
    return UOp(Op.RESHAPE, dtypes.float32, (memory,), shape)


@pytest.mark.parametrize(
    ("op", "arg", "shape"),
    [
        (Op.RESHAPE, (4, 3), (4, 3)),
        (Op.PERMUTE, (1, 2, 0), (1, 4, 3)),
        (Op.EXPAND, (3, 7, 4), (3, 7, 4)),
        (Op.PAD, ((1, 2), (0, 0), (0, 3)), (6, 1, 7)),
        (Op.SHRINK, ((1, 2), (0, 1), (0, 3)), (1, 1, 3)),
        (Op.FLIP, (0,), (3, 1, 4)),
        (Op.REDUCE, ReduceArg(Op.ADD, (0, 2)), (1, 1, 1)),
        (Op.CONTIGUOUS, None, (3, 1, 4)),
        (Op.EXP2, None, (3, 1, 4)),
    ],
)
def test_the_shape_follows_from_the_source(op: Op, arg: object, shape: Shape) -> None:
    assert UOp(op, dtypes.float32, (tensor(3, 1, 4),), arg).shape == shape


def test_memory_is_a_line() -> None:
    assert UOp.buffer(12, dtypes.float32, "PYTHON").shape == (12,)
    assert UOp.const(1, dtypes.float32).shape == ()


@pytest.mark.parametrize(
    ("bounds", "size"),
    [((P, P + 1), 1), ((P, P + N), N), ((N - 1, N), 1), ((2, N + 5), N + 3), ((N, N * 3), N * 2)],
)
def test_a_slice_between_variables_has_a_size_in_normal_form(
    bounds: tuple[Dim, Dim], size: Dim
) -> None:
    assert UOp(Op.SHRINK, dtypes.float32, (tensor(64),), (bounds,)).shape == (size,)


def test_padding_a_slice_back_gives_the_size_it_had() -> None:
    part = UOp(Op.SHRINK, dtypes.float32, (tensor(64),), ((P, P + 1),))
    assert UOp(Op.PAD, dtypes.float32, (part,), ((P, 63 - P),)).shape == (64,)


@pytest.mark.parametrize(
    ("dim", "amount"), [(P, N), (N, P), (P * 4 + 1, N * 2 - 3), (N * P, P), ((N + P) * 3, -P)]
)
def test_sums_of_sizes_are_those_of_index_arithmetic(dim: UOp, amount: UOp) -> None:
    assert grow_dim(dim, amount) is normalize_index(dim + amount)
    assert grow_dim(amount, dim) is normalize_index(dim + amount)


def test_the_greatest_size_is_known() -> None:
    assert max_dim(7) == 7
    assert max_dim(N * 4 + 1) == 37


def test_atoms_sort_by_what_they_are() -> None:
    parts = [UOp.variable("b", 0, 1), UOp.variable("a", 0, 1), N // 2]
    assert sorted(parts, key=order_key) == [parts[1], parts[0], parts[2]]


def test_the_device_is_that_of_the_memory_below() -> None:
    value = tensor(4) + UOp.const(1, dtypes.float32).broadcast_to((4,))
    assert value.device == "PYTHON"
    assert UOp(Op.COPY, dtypes.float32, (value,), "CPU").device == "CPU"
    assert UOp.const(1, dtypes.float32).device is None
