"""Sorting is stable, puts NaN last, and finds the same order for short and long rows."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from kernelet.base.config import Context
from kernelet.base.dtype import dtypes
from kernelet.base.errors import ArgumentError, ShapeError
from kernelet.frontend import sorting
from kernelet.frontend.tensor import Tensor

inf, nan = math.inf, math.nan


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def stable_order(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """The order in which NaN is the greatest and equals keep their order."""
    if not descending:
        return np.argsort(x, axis, kind="stable")
    turned = np.argsort(np.flip(x, axis), axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - turned, axis)


SAMPLES = {
    "floats": (values(3, 5), -1),
    "first axis": (values(3, 5), 0),
    "specials": (np.array([3, nan, -inf, 1, inf, -0.0, 0.0, -2, nan, 3], np.float32), 0),
    "halves": (values(7).astype(np.float16), 0),
    "doubles": (np.array([1e300, -1e300, nan, -inf, 1, 1 + 1e-15, -1, -1 - 1e-15, 0, -0.0]), 0),
    "bools": (np.array([True, False, True, False]), 0),
    "bytes": (np.array([[200, 3, 255], [3, 3, 0]], np.uint8), 1),
    "int8": (np.array([-128, 127, 0, -1, -128], np.int8), 0),
    "uint32": (np.array([2**32 - 1, 0, 2**31, 5], np.uint32), 0),
    "int64": (np.array([2**62, 2**62 + 1, -(2**63), 2**63 - 1, 0, -1, 2**32, -(2**32)]), 0),
    "uint64": (np.array([2**64 - 1, 0, 2**63, 2**63 - 1, 2**32], np.uint64), 0),
}


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("sample", SAMPLES)
def test_order_is_stable_and_nan_is_the_greatest(sample: str, descending: bool) -> None:
    x, axis = SAMPLES[sample]
    found, order = Tensor(x).sort(axis, descending)
    want = stable_order(x, axis, descending)
    np.testing.assert_array_equal(order.numpy(), want)
    np.testing.assert_array_equal(found.numpy(), np.take_along_axis(x, want, axis))
    assert found.dtype is Tensor(x).dtype
    assert order.dtype is dtypes.int32
    np.testing.assert_array_equal(Tensor(x).argsort(axis, descending).numpy(), want)


@pytest.mark.parametrize(
    "computed",
    [
        lambda x: x.softmax(1),
        lambda x: x - x.mean(0),
        lambda x: x.layernorm(),
        lambda x: 1 - x / x.abs().sum(1, keepdim=True),
        lambda x: x * 0.3 + x.flip(0) / 7,
    ],
)
def test_computed_rows_are_sorted_by_values_that_are_computed_once(computed: Callable) -> None:
    # In compiled code the same element may be rounded in two ways, in lanes and outside of them.
    with Context(DEV="LLVM"):
        rows = computed(Tensor(values(9, 40)))
        found, order, largest = rows.sort(1)[0].numpy(), rows.argsort(1).numpy(), rows.topk(3)[0]
        middle, want = rows.median(1).numpy(), np.sort(rows.numpy(), 1)
    assert (np.sort(order, 1) == np.arange(40)).all()
    assert (np.diff(found) >= 0).all()
    np.testing.assert_allclose(found, want, atol=1e-6)
    np.testing.assert_allclose(largest.numpy(), found[:, :-4:-1], atol=1e-6)
    np.testing.assert_allclose(middle, found[:, 19], atol=1e-6)


@pytest.mark.parametrize("length", [9, 30, 100])
def test_long_rows_are_sorted_by_columns(length: int) -> None:
    rng = np.random.default_rng(length)
    x = rng.integers(-1000, 1000, (2, length)).astype(np.int64) * 2**32 + np.arange(length)
    np.testing.assert_array_equal(Tensor(x)._sorted_rows(8).numpy(), np.sort(x, 1))


def test_columns_are_few_enough_for_columnsort() -> None:
    for length in (5, 100, 5000, 70000, 1 << 20):
        columns, rows = sorting._column_shape(length)
        assert columns * rows >= length
        assert rows >= 2 * (columns - 1) ** 2
        assert rows % columns == 0
        assert rows % 2 == 0


def test_the_largest_few_come_in_order() -> None:
    x = values(3, 7)
    found, places = Tensor(x).topk(3)
    want = np.argsort(-x, 1, kind="stable")[:, :3]
    np.testing.assert_array_equal(places.numpy(), want)
    np.testing.assert_array_equal(found.numpy(), np.take_along_axis(x, want, 1))
    assert Tensor(x).topk(2, 0, largest=False)[0].tolist() == np.sort(x, 0)[:2].tolist()
    assert Tensor(x).topk(0)[0].shape == (3, 0)
    with pytest.raises(ArgumentError, match="k from 0 to 7, not 8"):
        Tensor(x).topk(8)


def test_scalars_and_empty_axes() -> None:
    found, order = Tensor(3.0).sort()
    assert (found.item(), order.item()) == (3.0, 0)
    assert Tensor.zeros(2, 0).sort()[0].shape == (2, 0)
    assert Tensor(3.0).topk(1)[0].item() == 3.0
    assert Tensor(3.0).median().item() == 3.0


def test_medians_take_the_lower_middle() -> None:
    x = values(3, 7)
    assert Tensor(x).median().item() == np.median(x)
    assert Tensor(x).median(1, keepdim=True).tolist() == np.median(x, 1, keepdims=True).tolist()
    assert Tensor([4, 1, 3, 2]).median().item() == 2
    assert math.isnan(Tensor([1.0, nan, 2.0]).median().item())


@pytest.mark.parametrize("share", [0, 0.3, 0.5, 1])
def test_quantiles_are_those_of_numpy(share: float) -> None:
    x = values(3, 7)
    got = Tensor(x).quantile(share, 1).numpy()
    np.testing.assert_allclose(got, np.quantile(x, share, axis=1), rtol=1e-5)
    kept = Tensor(x).quantile(share, keepdim=True).numpy()
    np.testing.assert_allclose(kept, np.quantile(x, share, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_several_quantiles_lie_along_a_new_first_axis(kind: Callable) -> None:
    x, shares = values(3, 5), [0.1, 0.5, 0.9]
    for axis in (None, 0, 1):
        for keepdim in (False, True):
            found = Tensor(x).quantile(kind(shares), axis, keepdim).numpy()
            wanted = np.quantile(x, shares, axis, keepdims=keepdim)
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_quantiles_refuse_what_they_cannot_do() -> None:
    with pytest.raises(ArgumentError, match="q=2"):
        Tensor([1.0]).quantile(2)
    with pytest.raises(ShapeError, match="median"):
        Tensor.zeros(0).median()
