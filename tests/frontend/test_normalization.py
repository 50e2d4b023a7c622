"""Normalisations are their formulas."""

import numpy as np
import pytest

from kernelet.base.dtype import dtypes
from kernelet.base.errors import ArgumentError, ShapeError
from kernelet.frontend.tensor import Tensor


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def normal(x: np.ndarray, axes: object) -> np.ndarray:
    wide = x.astype(np.float64)
    away = wide - wide.mean(axes, keepdims=True)
    return away / np.sqrt(wide.var(axes, keepdims=True) + 1e-5)


def close(got: Tensor, want: np.ndarray) -> None:
    assert got.shape == want.shape
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-5)


def test_layer_norm() -> None:
    x, weight, bias = values(2, 6, 3, 4), values(4), values(4)
    close(Tensor(x).layernorm(), normal(x, -1))
    close(Tensor(x).layernorm((1, 2)), normal(x, (1, 2)))
    close(Tensor(x).layer_norm((3, 4)), normal(x, (2, 3)))
    close(Tensor(x).layer_norm(4, Tensor(weight), Tensor(bias)), normal(x, -1) * weight + bias)
    assert Tensor(x).half().layernorm().dtype is dtypes.half


def test_rms_norm() -> None:
    x, weight = values(2, 3, 4), values(4)
    want = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-6)
    close(Tensor(x).rms_norm(), want)
    close(Tensor(x).rms_norm(4, Tensor(weight)), want * weight)


def test_batch_norm_uses_the_statistics_it_is_given() -> None:
    x, mean, scale = values(2, 6, 3, 4), values(6), np.abs(values(6))
    weight, bias = values(6) + 1, values(6) * 2
    tall = [each.reshape(1, 6, 1, 1) for each in (mean, scale, weight, bias)]
    want = (x - tall[0]) * tall[1]
    close(Tensor(x).batchnorm(None, None, Tensor(mean), Tensor(scale)), want)
    whole = Tensor(x).batchnorm(*(Tensor(each) for each in (weight, bias, mean, scale)))
    close(whole, want * tall[2] + tall[3])


def test_groups_of_channels() -> None:
    x, weight, bias = values(2, 6, 3, 4), values(6), values(6) + 1
    grouped = normal(x.reshape(2, 3, 2, 3, 4), (2, 3, 4)).reshape(x.shape)
    tall = weight.reshape(6, 1, 1), bias.reshape(6, 1, 1)
    close(Tensor(x).group_norm(3), grouped)
    close(Tensor(x).group_norm(3, Tensor(weight), Tensor(bias)), grouped * tall[0] + tall[1])
    close(Tensor(x).instance_norm(), normal(x, (2, 3)))


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"layer_norm.*\(2, 3\).*\(2,\)"):
        Tensor.ones(2, 3).layer_norm(2)
    with pytest.raises(ArgumentError, match=r"group_norm\(4\)"):
        Tensor.ones(2, 6).group_norm(4)
