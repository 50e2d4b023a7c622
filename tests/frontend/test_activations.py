"""Activations follow their formulas and keep NaN."""

import math

import numpy as np
import pytest

from kernelet.frontend.tensor import Tensor

X = np.array([-100, -7, -3.2, -1, -0.4, 0, 0.3, 1, 2.9, 3.1, 6.5, 100], np.float64)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(x, 0)


def erf(x: np.ndarray) -> np.ndarray:
    return np.array([math.erf(value) for value in x])


FORMULAS = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "hardtanh": lambda x: np.clip(x, -1, 1),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "celu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "selu": lambda x: (
        1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0)))
    ),
    "sigmoid": sigmoid,
    "logsigmoid": lambda x: -softplus(-x),
    "softplus": softplus,
    "softsign": lambda x: x / (1 + np.abs(x)),
    "silu": lambda x: x * sigmoid(x),
    "swish": lambda x: x * sigmoid(x),
    "mish": lambda x: x * np.tanh(softplus(x)),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "quick_gelu": lambda x: x * sigmoid(1.702 * x),
    "hardsigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "tanhshrink": lambda x: x - np.tanh(x),
    "softshrink": lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0),
    "hardshrink": lambda x: np.where(np.abs(x) > 0.5, x, 0),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_activations_follow_their_formulas(name: str) -> None:
    with np.errstate(over="ignore"):
        want = FORMULAS[name](X)
    np.testing.assert_allclose(getattr(Tensor(X), name)().numpy(), want, rtol=1e-9, atol=1e-9)
    assert math.isnan(getattr(Tensor([math.nan]), name)().item())


def test_exact_gelu_uses_the_error_function() -> None:
    want = 0.5 * X * (1 + erf(X / math.sqrt(2)))
    np.testing.assert_allclose(Tensor(X).gelu("none").numpy(), want, rtol=1e-8, atol=1e-8)


def test_parameters_move_the_kinks() -> None:
    x = Tensor([-4.0, 2.0])
    assert x.leaky_relu(0.25).tolist() == [-1.0, 2.0]
    assert x.hardtanh(-3, 1).tolist() == [-3.0, 1.0]
    assert x.threshold(0, -7).tolist() == [-7.0, 2.0]
    np.testing.assert_allclose(x.softplus(2.0).numpy(), np.logaddexp([-8, 4], 0) / 2, rtol=1e-5)
    np.testing.assert_allclose(x.celu(2.0).numpy(), [2 * np.expm1(-2), 2.0], rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "slopes"),
    [
        ("relu", [0, 0, 1]),
        ("relu6", [0, 0, 1]),
        ("leaky_relu", [0.01, 0.01, 1]),
        ("abs", [-1, 0, 1]),
    ],
)
def test_slopes_at_kinks_are_those_of_pytorch(name: str, slopes: list[float]) -> None:
    x = Tensor([-2.0, 0.0, 2.0])
    found = getattr(x, name)().sum().gradient(x)[0].numpy()
    np.testing.assert_allclose(found, slopes, rtol=1e-6)


@pytest.mark.parametrize(("alpha", "beta"), [(1 / 6, 0.5), (0.2, 0.5), (0.5, 0.25), (2.0, -1.0)])
def test_slope_and_shift_of_a_hard_sigmoid_are_given(alpha: float, beta: float) -> None:
    x = np.linspace(-5, 5, 41, dtype=np.float32)
    found = Tensor(x).hardsigmoid(alpha, beta=beta).numpy()
    np.testing.assert_allclose(found, np.clip(alpha * x + beta, 0, 1), atol=1e-6)


def test_scales_of_selu_are_given() -> None:
    x = np.linspace(-5, 5, 41, dtype=np.float32)
    expected = 1.1 * np.where(x > 0, x, 1.5 * np.expm1(x))
    np.testing.assert_allclose(Tensor(x).selu(alpha=1.5, gamma=1.1).numpy(), expected, rtol=1e-5)
