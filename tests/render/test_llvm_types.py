"""Names and numbers in LLVM IR."""

from __future__ import annotations

import math

import pytest

from kernelet.base.dtype import DType, dtypes
from kernelet.render.llvm_types import literal, suffix, type_name


@pytest.mark.parametrize(
    ("dtype", "value", "text"),
    [
        (dtypes.float32, 1.0, "0x3FF0000000000000"),
        (dtypes.float32, 0.1, "0x3FB99999A0000000"),
        (dtypes.float64, 0.1, "0x3FB999999999999A"),
        (dtypes.float32, math.nan, "0x7FF8000000000000"),
        (dtypes.float32, -math.inf, "0xFFF0000000000000"),
        (dtypes.float16, 1.0, "15360"),
        (dtypes.bfloat16, 1.0, "16256"),
        (dtypes.bool, True, "true"),
        (dtypes.uint8, -1, "255"),
        (dtypes.int32.vec(2), 7, "<i32 7, i32 7>"),
        (dtypes.float32.vec(4), 0.0, "zeroinitializer"),
    ],
)
def test_literals_are_exact(dtype: DType, value: float, text: str) -> None:
    assert literal(dtype, value) == text


def test_the_sign_of_a_zero_is_kept_in_every_lane() -> None:
    assert literal(dtypes.float32.vec(2), -0.0).count("0x8000000000000000") == 2


def test_bools_are_bits_in_registers_and_bytes_in_memory() -> None:
    assert type_name(dtypes.bool.vec(8)) == "<8 x i1>"
    assert type_name(dtypes.bool, in_memory=True) == "i8"


def test_intrinsics_are_named_by_lanes_and_element() -> None:
    assert suffix(dtypes.float32.vec(16)) == "v16f32"
    assert suffix(dtypes.index) == "i64"
