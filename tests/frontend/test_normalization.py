"""Normalisations are their formulas."""

import numpy as np

from kernelet.base.dtype import dtypes
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
    scaled = Tensor(x).layernorm(-1, 1e-5, Tensor(weight), Tensor(bias))
    close(scaled, normal(x, -1) * weight + bias)
    assert Tensor(x).half().layernorm().dtype is dtypes.half


def test_batch_norm_uses_the_statistics_it_is_given() -> None:
    x, mean, scale = values(2, 6, 3, 4), values(6), np.abs(values(6))
    weight, bias = values(6) + 1, values(6) * 2
    tall = [each.reshape(1, 6, 1, 1) for each in (mean, scale, weight, bias)]
    want = (x - tall[0]) * tall[1]
    close(Tensor(x).batchnorm(None, None, Tensor(mean), Tensor(scale)), want)
    whole = Tensor(x).batchnorm(*(Tensor(each) for each in (weight, bias, mean, scale)))
    close(whole, want * tall[2] + tall[3])
