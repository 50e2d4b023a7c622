"""Constants are computed as the device would compute them."""

import math

from kernelet.base.dtype import dtypes
from kernelet.graph.fold import constant_like, constant_value, fold, is_power_of_two
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp


def test_a_constant_is_seen_through_views() -> None:
    two = UOp.const(2, dtypes.int32)
    spread = two.broadcast_to((3, 4))
    flipped = UOp(Op.FLIP, dtypes.int32, (spread,), (0,))
    assert [constant_value(node) for node in (two, spread, flipped)] == [2, 2, 2]


def test_padding_and_data_are_not_constant() -> None:
    spread = UOp.const(2, dtypes.int32).broadcast_to((3,))
    assert constant_value(UOp(Op.PAD, dtypes.int32, (spread,), ((1, 0),))) is None
    assert constant_value(UOp.buffer(3, dtypes.int32, "CPU")) is None
    assert constant_value(spread + 1) is None


def test_a_constant_takes_the_shape_or_the_lanes() -> None:
    spread = UOp.const(2, dtypes.int32).broadcast_to((3,))
    assert constant_like(spread, dtypes.bool, True).shape == (3,)
    vector = UOp(Op.CONST, dtypes.float32.vec(4), (), 1.0)
    assert constant_like(vector, vector.dtype, 0.1).arg == 0.10000000149011612


def test_folding_wraps_and_rounds() -> None:
    assert fold(Op.ADD, dtypes.int8, 127, 1) == -128
    assert fold(Op.MUL, dtypes.float32, 1e30, 1e30) == math.inf
    assert fold(Op.IDIV, dtypes.int32, 5, 0) == 0
    assert fold(Op.CAST, dtypes.uint8, -1.5) == 0
    assert fold(Op.CMPLT, dtypes.bool, 1, 2) is True
    assert fold(Op.ADD, dtypes.float16.vec(2), 0.1, 0.2) == fold(Op.ADD, dtypes.float16, 0.1, 0.2)


def test_only_exact_reciprocals_are_folded() -> None:
    assert [is_power_of_two(value) for value in (1.0, -0.25, 1024, 0.0, math.inf)] == [True] * 5
    assert not any(is_power_of_two(value) for value in (41.0, 3, 0.1))
