"""Running reductions agree with numpy, also where the axis is cut into blocks."""

import math

import numpy as np
import pytest

from kernelet.base.dtype import dtypes
from kernelet.frontend.tensor import Tensor

inf, nan = math.inf, math.nan
CASES = [((5,), 0), ((3, 40), 1), ((33, 2), 0), ((2, 32), -1), ((300,), 0)]


def values(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def _along(x: np.ndarray, axis: int) -> list[int]:
    return [-1 if each == axis % x.ndim else 1 for each in range(x.ndim)]


@pytest.mark.parametrize(("shape", "axis"), CASES)
def test_running_sums_and_products(shape: tuple[int, ...], axis: int) -> None:
    x = values(shape)
    wide = x.astype(np.float64)
    sums, products = Tensor(x).cumsum(axis).numpy(), Tensor(x).cumprod(axis).numpy()
    np.testing.assert_allclose(sums, wide.cumsum(axis), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(products, wide.cumprod(axis), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("shape", "axis"), CASES)
def test_running_extremes_and_where_they_were_last_met(shape: tuple[int, ...], axis: int) -> None:
    x = np.round(values(shape) * 2)
    for name, accumulate in [("cummax", np.maximum), ("cummin", np.minimum)]:
        found, places = (each.numpy() for each in getattr(Tensor(x), name)(axis))
        np.testing.assert_array_equal(found, accumulate.accumulate(x, axis))
        hits = np.where(x == found, np.arange(x.shape[axis]).reshape(_along(x, axis)), 0)
        np.testing.assert_array_equal(places, np.maximum.accumulate(hits, axis))


def test_the_last_of_equal_extremes_is_the_one_met() -> None:
    assert Tensor([1.0, 1.0, 0.0, 1.0]).cummax(0)[1].tolist() == [0, 1, 1, 3]
    assert Tensor([1.0, nan, 2.0, nan, 1.0]).cummax(0)[1].tolist() == [0, 1, 1, 3, 3]


@pytest.mark.parametrize(("shape", "axis"), CASES)
def test_running_logsumexp(shape: tuple[int, ...], axis: int) -> None:
    x = values(shape)
    want = np.logaddexp.accumulate(x.astype(np.float64), axis)
    np.testing.assert_allclose(Tensor(x).logcumsumexp(axis).numpy(), want, rtol=1e-4, atol=1e-5)


def test_running_logsumexp_of_masked_values() -> None:
    got = Tensor([-inf, -inf, 0.0, 1.0]).logcumsumexp(0).numpy()
    np.testing.assert_allclose(got, [-inf, -inf, 0.0, np.logaddexp(0, 1)], rtol=1e-6)


def test_running_sums_have_the_type_of_sums() -> None:
    assert Tensor([200, 100, 50], dtype=dtypes.uint8).cumsum().tolist() == [200, 300, 350]
    assert Tensor([True, True, False]).cumsum().tolist() == [1, 2, 2]
    assert Tensor([True], dtype=dtypes.bool).cumsum().dtype is dtypes.int32
    assert Tensor([1.0], dtype=dtypes.half).cumsum().dtype is dtypes.half


def test_scalars_and_empty_axes_are_left_alone() -> None:
    assert Tensor(3).cumsum().item() == 3
    assert Tensor(3.0).cummax()[1].item() == 0
    assert Tensor.zeros(0, 3).cumsum(0).shape == (0, 3)


def test_a_long_axis_adds_up_in_blocks() -> None:
    x = np.ones(5000, np.int32)
    assert (Tensor(x).cumsum().numpy() == np.arange(1, 5001)).all()
