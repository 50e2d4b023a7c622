"""Names and numbers in C."""

from __future__ import annotations

import math

import pytest

from kernelet.base.dtype import DType, dtypes
from kernelet.render.c_types import literal, scalar_name, short_name


@pytest.mark.parametrize(
    ("dtype", "value", "text"),
    [
        (dtypes.float32, 0.1, "0.1f"),
        (dtypes.float32, 1.0, "1.0f"),
        (dtypes.float32, 1 / 3, "0x1.555556p-2f"),
        (dtypes.float32, 2.0**31, "0x1p+31f"),
        (dtypes.float32, 1e30, "1e+30f"),
        (dtypes.float64, 1 / 3, "0.3333333333333333"),
        (dtypes.float32, -0.0, "-0.0f"),
        (dtypes.float32, 1e39, "__builtin_inff()"),
        (dtypes.float64, -math.inf, "-__builtin_inf()"),
        (dtypes.float32, math.nan, '__builtin_nanf("")'),
        (dtypes.float16, 1.0, "0x3c00"),
        (dtypes.bfloat16, 1.0, "0x3f80"),
        (dtypes.int32, -(1 << 31), "(-2147483647 - 1)"),
        (dtypes.int64, -(1 << 63), "(-9223372036854775807ll - 1)"),
        (dtypes.uint64, (1 << 64) - 1, "18446744073709551615ull"),
        (dtypes.uint32, -1, "4294967295u"),
        (dtypes.index, 12, "12"),
        (dtypes.index, 1 << 40, "1099511627776ll"),
        (dtypes.bool, True, "1"),
    ],
)
def test_literals_are_exact_and_short(dtype: DType, value: float, text: str) -> None:
    assert literal(dtype, value) == text


def test_sixteen_bit_floats_are_held_as_their_bits() -> None:
    assert scalar_name(dtypes.float16) == scalar_name(dtypes.bfloat16) == "unsigned short"


def test_an_index_is_a_64_bit_integer() -> None:
    assert scalar_name(dtypes.index) == "long long"
    assert short_name(dtypes.index.vec(8)) == "int64x8"
