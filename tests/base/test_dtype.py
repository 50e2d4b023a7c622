import copy
import math
import pickle

import numpy as np
import pytest

from kernelet.base.dtype import (
    FORMATS,
    DType,
    dtypes,
    float_from_bits,
    float_to_bits,
    promote,
    round_float,
    round_to,
)

NUMPY_TYPES = [dtype for dtype in dtypes.all if dtype.name not in FORMATS]


@pytest.mark.parametrize("dtype", dtypes.all, ids=str)
def test_a_type_is_one_object_in_every_copy(dtype: DType) -> None:
    for each in (dtype, dtype.vec(4)):
        assert pickle.loads(pickle.dumps(each)) is each
        assert copy.deepcopy(each) is each
    assert dtype.vec(4).scalar is dtype
    assert dtype.vec(1) is dtype
    assert dtype.vec(4) is dtype.vec(4)


def test_short_names_are_the_same_types() -> None:
    assert dtypes.half is dtypes.float16
    assert dtypes.float is dtypes.float32
    assert dtypes.double is dtypes.float64
    assert (dtypes.char, dtypes.short, dtypes.int, dtypes.long) == (
        dtypes.int8,
        dtypes.int16,
        dtypes.int32,
        dtypes.int64,
    )
    assert dtypes.from_name("uint8") is dtypes.uchar


@pytest.mark.parametrize("dtype", NUMPY_TYPES, ids=str)
def test_size_and_limits_are_those_of_numpy(dtype: DType) -> None:
    found = np.dtype(dtype.name)
    assert found.itemsize == dtype.itemsize
    if dtype.is_integer:
        assert (dtype.min, dtype.max) == (np.iinfo(found).min, np.iinfo(found).max)
    elif dtype.is_float:
        assert (dtype.min, dtype.max) == (-math.inf, math.inf)
    else:
        assert (dtype.min, dtype.max) == (False, True)


@pytest.mark.parametrize("left", dtypes.all, ids=str)
@pytest.mark.parametrize("right", dtypes.all, ids=str)
def test_promotion_does_not_depend_on_the_order(left: DType, right: DType) -> None:
    assert promote(left, right) is promote(right, left)
    assert promote(promote(left, right), left) is promote(left, right)


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        (dtypes.bool, dtypes.int8, dtypes.int8),
        (dtypes.uint8, dtypes.int8, dtypes.int16),
        (dtypes.uint16, dtypes.int32, dtypes.int32),
        (dtypes.uint32, dtypes.int32, dtypes.int64),
        (dtypes.uint64, dtypes.int64, dtypes.float32),
        (dtypes.int64, dtypes.float16, dtypes.float16),
        (dtypes.float16, dtypes.bfloat16, dtypes.float32),
        (dtypes.float32, dtypes.float64, dtypes.float64),
        (dtypes.fp8e4m3, dtypes.fp8e5m2, dtypes.float16),
        (dtypes.fp8e5m2, dtypes.bfloat16, dtypes.bfloat16),
        (dtypes.int64, dtypes.fp8e4m3, dtypes.fp8e4m3),
    ],
    ids=str,
)
def test_the_result_holds_both(left: DType, right: DType, result: DType) -> None:
    assert promote(left, right) is result


@pytest.mark.parametrize("value", [0, 1, -1, 127, 128, 255, 256, -129, 2**31, -(2**63), 2**64 - 1])
@pytest.mark.parametrize("dtype", dtypes.ints, ids=str)
def test_integers_wrap(dtype: DType, value: int) -> None:
    bits = dtype.itemsize * 8
    assert (round_to(dtype, value) - value) % (1 << bits) == 0
    assert dtype.min <= round_to(dtype, value) <= dtype.max


@pytest.mark.parametrize(
    ("dtype", "value", "result"),
    [
        (dtypes.int8, 3.9, 3),
        (dtypes.int8, -3.9, -3),
        (dtypes.int8, 1e9, 127),
        (dtypes.uint8, -5.0, 0),
        (dtypes.int32, math.nan, 0),
        (dtypes.int64, math.inf, 2**63 - 1),
        (dtypes.bool, math.nan, True),
        (dtypes.bool, 0.0, False),
    ],
    ids=str,
)
def test_floats_lose_their_fraction_and_stay_in_range(
    dtype: DType, value: float, result: int
) -> None:
    assert round_to(dtype, value) == result


@pytest.mark.parametrize("value", [0.1, 65519.0, 65520.0, 1e-8, -2049.0, 3.4e38, 1e300, -math.inf])
def test_floats_round_as_numpy_does(value: float) -> None:
    with np.errstate(over="ignore"):
        for dtype in (dtypes.float16, dtypes.float32, dtypes.float64):
            assert round_float(dtype, value) == float(np.array(value).astype(dtype.name))


@pytest.mark.parametrize(
    ("value", "bits"),
    [(1.0, 0x3F80), (-2.5, 0xC020), (1.00390625, 0x3F80), (1.01171875, 0x3F82), (math.inf, 0x7F80)],
)
def test_bfloat16_keeps_the_upper_half_rounded_to_even(value: float, bits: int) -> None:
    assert float_to_bits(dtypes.bfloat16, value) == bits


@pytest.mark.parametrize(
    ("dtype", "value", "bits"),
    [
        # Examples and limits from OCP's specification of 8-bit floats (OFP8).
        (dtypes.fp8e4m3, 448.0, 0x7E),
        (dtypes.fp8e4m3, 2.0**-6, 0x08),
        (dtypes.fp8e4m3, 2.0**-9, 0x01),
        (dtypes.fp8e4m3, 2.0**-10, 0x00),
        (dtypes.fp8e4m3, 1.5 * 2.0**-9, 0x02),
        (dtypes.fp8e4m3, -1.0625, 0xB8),
        (dtypes.fp8e4m3, 1e9, 0x7E),
        (dtypes.fp8e4m3, -math.inf, 0xFE),
        (dtypes.fp8e5m2, 57344.0, 0x7B),
        (dtypes.fp8e5m2, 61440.0, 0x7C),
        (dtypes.fp8e5m2, 2.0**-16, 0x01),
        (dtypes.fp8e5m2, -math.inf, 0xFC),
    ],
    ids=str,
)
def test_eight_bits_are_rounded_to_even_and_keep_their_range(
    dtype: DType, value: float, bits: int
) -> None:
    assert float_to_bits(dtype, value) == bits


@pytest.mark.parametrize("name", FORMATS)
def test_every_code_is_a_number_that_has_this_code(name: str) -> None:
    dtype = dtypes.from_name(name)
    for code in range(1 << 8 * dtype.itemsize):
        value = float_from_bits(dtype, code)
        assert math.isnan(value) or float_to_bits(dtype, value) == code


def test_nan_stays_nan_in_sixteen_and_in_eight_bits() -> None:
    for dtype in dtypes.floats:
        assert math.isnan(round_float(dtype, math.nan))
