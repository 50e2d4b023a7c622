"""Types and the rounding of numbers as tinygrad programs ask for them."""

import math

import numpy as np
import pytest

from kernelet.base.dtype import dtypes, round_to
from kernelet.compat import dtype as compat

FP8 = {dtypes.fp8e4m3: (4, 448.0), dtypes.fp8e5m2: (5, 57344.0)}  # exponent bits, greatest number


def numbers_of(exponent: int, greatest: float) -> list[float]:
    """The numbers of all 256 codes, from the definition of the format (OCP OFP8)."""
    mantissa = 7 - exponent
    found = []
    for code in range(256):
        power, part = code >> mantissa & (1 << exponent) - 1, code & (1 << mantissa) - 1
        size = (part + ((power > 0) << mantissa)) * 2.0 ** (
            max(power, 1) - (1 << exponent - 1) + 1 - mantissa
        )
        if size > greatest:
            is_infinite = exponent == 5 and part == 0
            size = math.inf if is_infinite else math.nan
        found.append(-size if code > 127 else size)
    return found


def test_the_types_by_name():
    assert compat.DTYPES_DICT["float"] is compat.DTYPES_DICT["float32"] is dtypes.float32
    assert "index" not in compat.DTYPES_DICT
    assert set(compat.truncate) == set(dtypes.all)


def test_a_number_is_cut_to_its_type():
    assert compat.truncate[dtypes.int8](200) == -56
    assert compat.truncate[dtypes.float16](70000.0) == math.inf
    assert compat.float_to_fp16(0.1) == float(np.float16(0.1))
    assert compat.float_to_bf16(3.01) == 3.015625


def test_the_least_type_that_holds_others():
    assert compat.least_upper_dtype(dtypes.int8, dtypes.uint8, dtypes.float16) is dtypes.float16
    assert compat.least_upper_float(dtypes.int64) is dtypes.default_float
    assert compat.sum_acc_dtype(dtypes.int8) is dtypes.int32
    assert compat.sum_acc_dtype(dtypes.uint8) is dtypes.uint32
    assert compat.sum_acc_dtype(dtypes.float16) is dtypes.float32


def test_a_cast_is_lossless_where_every_value_comes_back():
    for source in dtypes.ints:
        edges = [int(source.min), int(source.min) + 1, int(source.max) - 1, int(source.max)]
        for target in dtypes.all:
            same = all(round_to(target, edge) == edge for edge in edges)
            assert compat.can_lossless_cast(source, target) == same, (source, target)
    assert compat.can_lossless_cast(dtypes.float16, dtypes.float32)
    assert not compat.can_lossless_cast(dtypes.float16, dtypes.bfloat16)
    assert not compat.can_lossless_cast(dtypes.float32, dtypes.int64)


@pytest.mark.parametrize("kind", FP8, ids=lambda kind: kind.name)
def test_every_code_of_an_8_bit_float_is_its_number(kind):
    for code, number in enumerate(numbers_of(*FP8[kind])):
        found = compat.fp8_to_float(code, kind)
        assert found == number or (math.isnan(found) and math.isnan(number))
        if not math.isnan(number):
            assert compat.float_to_fp8(number, kind) == code


@pytest.mark.parametrize("kind", FP8, ids=lambda kind: kind.name)
def test_numbers_round_to_the_nearest_8_bit_float(kind):
    exponent, greatest = FP8[kind]
    codes = [(n, code) for code, n in enumerate(numbers_of(exponent, greatest)) if math.isfinite(n)]
    for number in np.random.default_rng(0).normal(0, 10, 500).clip(-greatest, greatest).tolist():
        gaps = [(abs(n - number), code & 1, code) for n, code in codes if n * number > 0]
        assert compat.float_to_fp8(number, kind) == min(gaps)[2]
    assert compat.fp8_to_float(compat.float_to_fp8(-1e9, kind), kind) == -greatest


def test_an_infinity_without_a_code_is_nan():
    assert compat.float_to_fp8(math.inf, dtypes.fp8e4m3) == 0x7F
    assert compat.float_to_fp8(-math.inf, dtypes.fp8e4m3) == 0xFF
    assert compat.float_to_fp8(-math.inf, dtypes.fp8e5m2) == 0xFC
    assert compat.float_to_fp8(math.nan, dtypes.fp8e5m2) == 0x7F
