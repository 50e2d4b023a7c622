"""Resized signals are those of the formula for each mode."""

import numpy as np
import pytest

from kernelet.base.errors import ArgumentError
from kernelet.frontend.tensor import Tensor


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def places(length: int, size: int, aligned: bool) -> np.ndarray:
    if aligned:
        return np.linspace(0, length - 1, size) if size > 1 else np.zeros(1)
    return (np.arange(size) + 0.5) * length / size - 0.5


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 9, 14])
def test_linear_is_interpolation_between_neighbours(size: int, aligned: bool) -> None:
    x = values(2, 7)
    got = Tensor(x[None]).interpolate((size,), align_corners=aligned).numpy()[0]
    want = [np.interp(places(7, size, aligned), range(7), row) for row in x]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_bilinear_does_one_axis_after_the_other() -> None:
    x = values(1, 2, 5, 4)
    got = Tensor(x).interpolate((3, 7), mode="bilinear")
    rows = Tensor(x).transpose(2, 3).interpolate((3,)).transpose(2, 3).interpolate((7,))
    np.testing.assert_allclose(got.numpy(), rows.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 9, 14])
def test_nearest_takes_an_element(size: int) -> None:
    x = values(2, 3, 7)
    below = np.arange(size) * 7 // size
    assert Tensor(x).interpolate((size,), "nearest").tolist() == x[:, :, below].tolist()
    centre = (np.arange(size) * 2 + 1) * 7 // (2 * size)
    assert Tensor(x).interpolate((size,), "nearest-exact").tolist() == x[:, :, centre].tolist()


def test_a_factor_gives_the_size() -> None:
    x = values(1, 1, 4, 6)
    want = x.repeat(2, 2).repeat(2, 3)
    assert Tensor(x).interpolate(scale_factor=2, mode="nearest").tolist() == want.tolist()
    assert Tensor(x).interpolate(scale_factor=(0.5, 1.5)).shape == (1, 1, 2, 9)


def test_what_makes_no_sense_is_refused() -> None:
    x = Tensor.ones(1, 1, 4)
    with pytest.raises(ArgumentError, match="one of the two"):
        x.interpolate()
    with pytest.raises(ArgumentError, match="cubic"):
        x.interpolate(3, "cubic")
    with pytest.raises(ArgumentError, match="align_corners"):
        x.interpolate(3, "nearest", align_corners=True)
    with pytest.raises(ArgumentError, match="at least 1"):
        x.interpolate(0)


def test_a_scale_is_kept_where_it_does_not_divide_the_length() -> None:
    x = np.array([[[0.0, 1.0, 2.0, 3.0, 4.0]]], np.float32)
    found = Tensor(x).interpolate(scale_factor=0.5).numpy()
    np.testing.assert_allclose(found, [[[0.5, 2.5]]])  # (place + 1/2) * 2 - 1/2
    found = Tensor(x).interpolate(scale_factor=1.3, mode="nearest").numpy()
    np.testing.assert_array_equal(found, [[[0.0, 0.0, 1.0, 2.0, 3.0, 3.0]]])


def test_area_is_the_mean_of_each_piece() -> None:
    x = values(1, 2, 6, 9)
    want = x.reshape(1, 2, 2, 3, 3, 3).mean((3, 5))
    np.testing.assert_allclose(Tensor(x).interpolate((2, 3), "area").numpy(), want, rtol=1e-5)


@pytest.mark.parametrize("aligned", [False, True])
def test_cubics_go_along_a_line(aligned: bool) -> None:
    x = np.arange(8.0) * 2
    got = Tensor(x[None, None]).interpolate((15,), "bicubic", aligned).numpy()[0, 0]
    want = places(8, 15, aligned) * 2
    np.testing.assert_allclose(got[4:-4], want[4:-4], rtol=0.02)
    same = Tensor(x[None, None]).interpolate((8,), "bicubic", aligned)
    np.testing.assert_allclose(same.numpy()[0, 0], x, atol=1e-6)
