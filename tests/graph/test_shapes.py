"""Shapes follow from the sources; sizes are sums in one normal form."""

from __future__ import annotations

import math

import pytest

from kernelet.base.dtype import dtypes
from kernelet.graph.infer import Dim, Shape, max_dim
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
