"""Running reductions agree with numpy, and each takes one pass."""

import math

import numpy as np
import pytest

from kernelet.base.counters import GlobalCounters
from kernelet.base.dtype import dtypes
from kernelet.frontend.tensor import Tensor

inf, nan = math.inf, math.nan
CASES = [((5,), 0), ((3, 40), 1), ((33, 2), 0), ((2, 32), -1), ((300,), 0), ((4, 24, 40), 1)]


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


def test_a_long_axis_alone_adds_up_in_parts() -> None:
    x = np.ones(1 << 17, np.int32)
    assert (Tensor(x).cumsum().numpy() == np.arange(1, x.size + 1)).all()


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax"])
def test_a_running_reduction_is_one_kernel(name: str) -> None:
    x = Tensor(values((20, 64))).realize()
    found = getattr(x * 2, name)(1)
    before = GlobalCounters.kernel_count
    (found[0] if isinstance(found, tuple) else found).realize()
    assert GlobalCounters.kernel_count == before + 1


def test_infinities_and_nan_do_not_reach_back() -> None:
    x = values((3, 64))
    x[0, 9], x[1, 20], x[2, 3], x[2, 40] = nan, inf, inf, -inf
    with np.errstate(invalid="ignore"):
        want = x.cumsum(1)
    np.testing.assert_allclose(Tensor(x).cumsum(1).numpy(), want, rtol=1e-4, atol=1e-5)
    found = Tensor([[0.0] + [1e30] * 31]).cumprod(1).numpy()
    np.testing.assert_array_equal(found, np.zeros((1, 32)))


def test_the_gradient_of_a_running_sum_is_a_sum_from_the_end() -> None:
    x, weights = Tensor(values((3, 48))).realize(), values((3, 48))[::-1].copy()
    (gradient,) = (x.cumsum(1) * Tensor(weights).realize()).sum().gradient(x)
    before = GlobalCounters.kernel_count
    found = gradient.numpy()
    assert GlobalCounters.kernel_count == before + 1
    want = weights[:, ::-1].cumsum(1)[:, ::-1]
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("shape", "axis"), CASES)
def test_gradients_of_running_products_and_extremes(shape: tuple[int, ...], axis: int) -> None:
    x, weights = values(shape), values(shape)[::-1].copy()
    size = x.shape[axis]
    rows = np.moveaxis(x, axis, -1).astype(np.float64)
    outer = np.moveaxis(weights, axis, -1)
    products, places = rows.cumprod(-1), np.zeros(rows.shape, int)
    for n in range(size):
        places[..., n] = rows[..., : n + 1].argmax(-1)
    smooth = (outer * products)[..., ::-1].cumsum(-1)[..., ::-1] / rows
    picks = (places[..., None] == np.arange(size)) * outer[..., None]
    for name, want in [("cumprod", smooth), ("cummax", picks.sum(-2))]:
        node = Tensor(x)
        found = getattr(node, name)(axis)
        found = found[0] if isinstance(found, tuple) else found
        (gradient,) = (found * Tensor(weights)).sum().gradient(node)
        got = np.moveaxis(gradient.numpy(), axis, -1)
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def test_a_scan_of_a_scan_and_a_scan_of_part_of_one() -> None:
    x = values((20, 48))
    node = Tensor(x).realize()
    twice, part = node.cumsum(0).cumsum(1), node.cumsum(1)[:, 5:20]
    np.testing.assert_allclose(twice.numpy(), x.cumsum(0).cumsum(1), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(part.numpy(), x.cumsum(1)[:, 5:20], rtol=1e-3, atol=1e-4)
    total = node.cumsum(1).sum(1)
    np.testing.assert_allclose(total.numpy(), x.cumsum(1).sum(1), rtol=1e-3, atol=1e-4)


def test_a_scan_may_be_written_over_what_it_reads() -> None:
    x = values((20, 48))
    for axis in (0, 1):
        node = Tensor(x.copy()).realize()
        node.assign(node.cumsum(axis)).realize()
        np.testing.assert_allclose(node.numpy(), x.cumsum(axis), rtol=1e-4, atol=1e-5)
