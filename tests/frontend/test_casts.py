"""Short names cast, and out-of-range values become what they should."""

import math

import pytest

from kernelet.base.dtype import dtypes
from kernelet.frontend.tensor import Tensor

NAMES = {
    "float": dtypes.float32,
    "half": dtypes.float16,
    "bfloat16": dtypes.bfloat16,
    "double": dtypes.float64,
    "int": dtypes.int32,
    "long": dtypes.int64,
    "short": dtypes.int16,
    "bool": dtypes.bool,
}


@pytest.mark.parametrize("name", NAMES)
def test_short_names_cast(name: str) -> None:
    x = getattr(Tensor([0, 3], dtype="int8"), name)()
    assert x.dtype is NAMES[name]
    assert x.tolist() == [0, name == "bool" or 3]


def test_floats_drop_their_fraction_and_saturate() -> None:
    x = Tensor([-1.9, 1.9, 1e20, -1e20, math.nan])
    assert x.int().tolist() == [-1, 1, 2**31 - 1, -(2**31), 0]
    assert Tensor([0.0, 0.5, math.nan]).bool().tolist() == [False, True, True]


def test_halves_overflow_to_infinity() -> None:
    assert Tensor([65519.0, 65520.0]).half().tolist() == [65504.0, math.inf]
