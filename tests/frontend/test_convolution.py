"""Convolutions agree with a loop over filters and windows."""

import itertools

import numpy as np
import pytest

from kernelet.base.dtype import dtypes
from kernelet.base.errors import ArgumentError, ShapeError
from kernelet.frontend.tensor import Tensor


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def convolved(
    x: np.ndarray, weight: np.ndarray, groups: int, stride: int, gap: int, pads: list
) -> np.ndarray:
    """The definition of a convolution over two axes."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *pads))
    filters, depth, high, wide = weight.shape
    rows = (x.shape[2] - gap * (high - 1) - 1) // stride + 1
    columns = (x.shape[3] - gap * (wide - 1) - 1) // stride + 1
    result = np.zeros((x.shape[0], filters, rows, columns))
    for n, f, i, j in itertools.product(*map(range, result.shape)):
        first = f // (filters // groups) * depth
        top, left = i * stride, j * stride
        patch = x[n, first : first + depth, top : top + gap * high : gap]
        patch = patch[:, :, left : left + gap * wide : gap]
        result[n, f, i, j] = (patch * weight[f]).sum()
    return result


CASES = [(1, 1, 1, 0), (1, 1, 1, 1), (2, 2, 1, 1), (1, 3, 2, 2), (2, 1, 2, 0), (4, 2, 1, 1)]


@pytest.mark.parametrize(("groups", "stride", "gap", "pad"), CASES)
def test_conv2d_is_its_definition(groups: int, stride: int, gap: int, pad: int) -> None:
    x, weight, bias = values(1, 4, 7, 6), values(4, 4 // groups, 3, 2), values(4)
    got = Tensor(x).conv2d(Tensor(weight), Tensor(bias), groups, stride, gap, pad)
    want = convolved(x, weight, groups, stride, gap, [(pad, pad)] * 2)
    np.testing.assert_allclose(got.numpy(), want + bias.reshape(4, 1, 1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("padding", "pads"),
    [((2, 0), [(2, 2), (0, 0)]), ((1, 2, 0, 3), [(0, 3), (1, 2)]), ("same", [(1, 1), (0, 1)])],
)
def test_paddings_may_differ_on_each_side(padding: object, pads: list) -> None:
    x, weight = values(1, 2, 5, 6), values(3, 2, 3, 2)
    got = Tensor(x).conv2d(Tensor(weight), padding=padding).numpy()
    np.testing.assert_allclose(got, convolved(x, weight, 1, 1, 1, pads), rtol=1e-4, atol=1e-5)


def test_one_and_three_axes() -> None:
    x, weight = values(2, 3, 8), values(4, 3, 3)
    want = convolved(x[:, :, None], weight[:, :, None], 1, 2, 1, [(0, 0), (1, 1)])[:, :, 0]
    got = Tensor(x).conv1d(Tensor(weight), None, 2, 1).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    flat, cube = values(1, 2, 1, 4, 5), values(3, 2, 1, 2, 2)
    want = convolved(flat[:, :, 0], cube[:, :, 0], 1, 1, 1, [(0, 0), (0, 0)])
    got = Tensor(flat).conv3d(Tensor(cube)).numpy()[:, :, 0]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_window_of_one_is_a_matrix_product() -> None:
    x, weight = values(2, 3, 4, 4), values(5, 3, 1, 1)
    want = np.einsum("nchw,oc->nohw", x, weight[:, :, 0, 0])
    np.testing.assert_allclose(Tensor(x).conv2d(Tensor(weight)).numpy(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("groups", "stride", "gap", "pad", "extra"),
    [(1, 1, 1, 0, 0), (2, 2, 1, 1, 1), (1, 3, 2, 2, 1), (1, 1, 1, 3, 0), (2, 2, 1, 0, 0)],
)
def test_transposed_convolution_is_the_adjoint(
    groups: int, stride: int, gap: int, pad: int, extra: int
) -> None:
    x, weight = values(1, 4, 5, 5), values(4, 3, 3, 3)
    got = Tensor(x).conv_transpose2d(
        Tensor(weight), None, groups, stride, gap, pad, output_padding=extra
    )
    # <transposed(x), y> = <x, convolved(y)> for every y.
    y = values(*got.shape)
    back = convolved(y, weight, groups, stride, gap, [(pad, pad)] * 2)[:, :, :5, :5]
    np.testing.assert_allclose((got.numpy() * y).sum(), (x * back).sum(), rtol=1e-3)


def test_the_bias_of_halves_is_added_before_rounding() -> None:
    x = Tensor([[[2048.0, 1.0]]], dtype=dtypes.half)
    weight, bias = Tensor([[[1.0, 1.0]]], dtype=dtypes.half), Tensor([1.0], dtype=dtypes.half)
    result = x.conv2d(weight, bias)
    assert result.dtype is dtypes.half
    assert result.item() == 2050.0


def test_pixels_shuffle_there_and_back() -> None:
    x = values(2, 8, 3, 4)
    want = x.reshape(2, 2, 2, 2, 3, 4).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 6, 8)
    shuffled = Tensor(x).pixel_shuffle(2)
    assert shuffled.tolist() == want.tolist()
    assert shuffled.pixel_unshuffle(2).tolist() == x.tolist()


def test_what_does_not_fit_is_said() -> None:
    x = Tensor.ones(1, 3, 4, 4)
    with pytest.raises(ShapeError, match=r"\(1, 3, 4, 4\).*\(2, 4, 3, 3\).*4 channels in"):
        x.conv2d(Tensor.ones(2, 4, 3, 3))
    with pytest.raises(ShapeError, match="smaller windows than 5 of 4"):
        x.conv2d(Tensor.ones(2, 3, 5, 3))
    with pytest.raises(ShapeError, match=r"\(1, 3, 4, 4\) with weight \(2, 3, 3\)"):
        x.conv2d(Tensor.ones(2, 3, 3))
    with pytest.raises(ShapeError, match=r"\(3,\).*a bias of one number"):
        x.conv2d(Tensor.ones(2, 3, 3, 3), Tensor.ones(3))
    with pytest.raises(ShapeError, match="groups=2"):
        Tensor.ones(1, 4, 4, 4).conv2d(Tensor.ones(3, 2, 3, 3), groups=2)
    with pytest.raises(ArgumentError, match="output_padding=2"):
        x.conv_transpose2d(Tensor.ones(3, 3, 3, 3), output_padding=2)
    with pytest.raises(ShapeError, match="pixel_shuffle"):
        x.pixel_shuffle(2)
    with pytest.raises(ShapeError, match="pixel_unshuffle"):
        x.pixel_unshuffle(3)
