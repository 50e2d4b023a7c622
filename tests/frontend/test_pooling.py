"""Pools agree with a loop over their windows."""

import itertools
import math

import numpy as np
import pytest

from kernelet.base.errors import ShapeError
from kernelet.frontend.tensor import Tensor


def values(*shape: int) -> np.ndarray:
    # Negative, so that zeros of the padding would win a maximum.
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32) - 5


def pooled(
    x: np.ndarray, size: int, stride: int, pad: int, gap: int, ceil: bool, counts_pad: bool | None
) -> np.ndarray:
    """The maximum of each window (counts_pad None) or the mean, over a square image."""
    length, rounded = x.shape[0], math.ceil if ceil else math.floor
    count = rounded((length + 2 * pad - gap * (size - 1) - 1) / stride) + 1
    if ceil and (count - 1) * stride >= length + pad:
        count -= 1
    result = np.zeros((count, count))
    for i, j in itertools.product(range(count), repeat=2):
        offsets = itertools.product(range(size), repeat=2)
        places = [(i * stride - pad + a * gap, j * stride - pad + b * gap) for a, b in offsets]
        inside = [x[at] for at in places if min(at) >= 0 and max(at) < length]
        within = len(inside) if not counts_pad else sum(max(at) < length + pad for at in places)
        result[i, j] = max(inside) if counts_pad is None else sum(inside) / within
    return result


CASES = [(3, 2, 1, 1), (2, 2, 0, 1), (3, 2, 1, 2), (2, 3, 1, 1), (3, 3, 0, 1), (3, 1, 1, 1)]


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize(("size", "stride", "pad", "gap"), CASES)
def test_pools_of_one_image(size: int, stride: int, pad: int, gap: int, ceil: bool) -> None:
    x = values(7, 7)
    image = Tensor(x).reshape(1, 1, 7, 7)
    got = image.max_pool2d(size, stride, gap, pad, ceil).numpy()[0, 0]
    np.testing.assert_allclose(got, pooled(x, size, stride, pad, gap, ceil, None), rtol=1e-5)
    for counted in (False, True) if gap == 1 else ():
        got = image.avg_pool2d(size, stride, 1, pad, ceil, counted).numpy()[0, 0]
        want = pooled(x, size, stride, pad, 1, ceil, counted)
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_the_default_stride_is_the_window_and_batches_are_kept() -> None:
    x = values(2, 3, 4, 6)
    want = x.reshape(2, 3, 2, 2, 3, 2)
    np.testing.assert_allclose(Tensor(x).max_pool2d((2, 2)).numpy(), want.max((3, 5)))
    np.testing.assert_allclose(Tensor(x).avg_pool2d().numpy(), want.mean((3, 5)), rtol=1e-5)


def test_a_tuple_of_any_length_pools_that_many_axes() -> None:
    x = values(1, 2, 6)
    assert Tensor(x).max_pool2d((3,)).tolist() == x.reshape(1, 2, 2, 3).max(3).tolist()
    assert Tensor(values(1, 2, 4, 4, 4)).avg_pool2d((2, 2, 2)).shape == (1, 2, 2, 2, 2)


def test_indices_name_the_first_greatest_element() -> None:
    x = values(1, 2, 5, 5)
    found, places = Tensor(x).max_pool2d(3, 2, padding=1, return_indices=True)
    flat = x.reshape(1, 2, 25)
    picked = np.take_along_axis(flat, places.numpy().reshape(1, 2, -1), 2)
    np.testing.assert_array_equal(picked.reshape(found.shape), found.numpy())
    assert Tensor.ones(1, 1, 2, 2).max_pool2d(2, return_indices=True)[1].item() == 0


def test_integers_pool_too() -> None:
    x = np.array([[[-5, -6], [-7, -8]]], np.int32)
    assert Tensor(x).max_pool2d(2, padding=1, stride=1).numpy().max() == -5


@pytest.mark.parametrize("size", [1, 2, 3, 5, (3, None), (7, 4)])
def test_adaptive_pools_cut_axes_into_even_pieces(size: object) -> None:
    x = values(2, 7, 6)
    sizes = (size, size) if isinstance(size, int) else (size[0], size[1] or 6)
    pieces = [
        [(i * length // count, -(-(i + 1) * length // count)) for i in range(count)]
        for length, count in zip((7, 6), sizes, strict=True)
    ]
    for name, fold in [("adaptive_avg_pool2d", np.mean), ("adaptive_max_pool2d", np.max)]:
        want = [
            [[fold(plane[a:b, c:d]) for c, d in pieces[1]] for a, b in pieces[0]] for plane in x
        ]
        np.testing.assert_allclose(getattr(Tensor(x), name)(size).numpy(), want, rtol=1e-5)


def test_windows_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match="max_pool2d.*5 elements.*axis of 3"):
        Tensor.ones(1, 1, 3, 3).max_pool2d(5)
    with pytest.raises(ShapeError, match=r"avg_pool2d: 2 window sizes.*\(3,\)"):
        Tensor.ones(3).avg_pool2d(2)
