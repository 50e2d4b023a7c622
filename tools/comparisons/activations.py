"""Rows of activation functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tools.comparisons.draws import FLOATS, Draw
from tools.comparisons.elementwise import one
from tools.comparisons.row import Reference, Row, Value, named, torch


def with_numbers(*choices: tuple[float, ...]) -> Reference:
    """A tensor and one of the choices of further arguments, or none of them."""

    def draw(source: Draw) -> tuple[Any, ...]:
        return (source.tensor(), *source.pick((), *choices))

    return draw


def sigmoid(x: Value) -> Value:
    """The logistic function, without overflow on either side."""
    return np.exp(-np.logaddexp(0, -x))


def softplus(x: Value, beta: float = 1.0) -> Value:
    """log(1 + exp(beta * x)) / beta."""
    return np.logaddexp(0, beta * x) / beta


def _erf(x: Value) -> Value:
    return np.vectorize(math.erf, otypes=[float])(x)


def _elu(x: Value, alpha: float = 1.0) -> Value:
    return np.where(x > 0, x, alpha * np.expm1(x))


def _celu(x: Value, alpha: float = 1.0) -> Value:
    return np.where(x > 0, x, alpha * np.expm1(x / alpha))


def _selu(x: Value) -> Value:
    return 1.0507009873554805 * _elu(x, 1.6732632423543772)


def _gelu(x: Value, approximate: str = "tanh") -> Value:
    if approximate == "none":
        return x * 0.5 * (1 + _erf(x / math.sqrt(2)))
    return x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _gelu_of_torch(x: Value, approximate: str = "tanh") -> Value:
    return torch.nn.functional.gelu(x, approximate=approximate)


def _gelu_arguments(draw: Draw) -> tuple[Any, ...]:
    return draw.tensor(), draw.pick("tanh", "none")


def _threshold(x: Value, threshold: float, value: float) -> Value:
    return np.where(x <= threshold, value, x)


def _softplus_of_torch(x: Value, beta: float = 1.0) -> Value:
    return torch.nn.functional.softplus(x, beta, 1e9)


def _hardtanh(x: Value, low: float = -1.0, high: float = 1.0) -> Value:
    return np.clip(x, low, high)


def _hardsigmoid(x: Value) -> Value:
    return np.clip(x / 6 + 0.5, 0, 1)


# torch's own have constants of float32 in them.
def _hardsigmoid_of_torch(x: Value) -> Value:
    return torch.nn.functional.hardtanh(x / 6 + 0.5, 0, 1)


def _celu_of_torch(x: Value, alpha: float = 1.0) -> Value:
    return alpha * torch.nn.functional.elu(x / alpha)


def _softshrink(x: Value, lambd: float = 0.5) -> Value:
    return np.where(np.abs(x) <= lambd, 0, np.where(x > 0, x - lambd, x + lambd))


def _hardshrink(x: Value, lambd: float = 0.5) -> Value:
    return np.where(np.abs(x) <= lambd, 0, x)


def _leaky_relu(x: Value, slope: float = 0.01) -> Value:
    return np.where(x > 0, x, x * slope)


def _quick_gelu(x: Value) -> Value:
    return x * sigmoid(1.702 * x)


def _quick_gelu_of_torch(x: Value) -> Value:
    return x * torch.sigmoid(1.702 * x)


FLOATING = Row("", one, abs, dtypes=FLOATS)

ROWS = (
    Row("relu", one, lambda x: np.maximum(x, 0)),
    Row("sigmoid", one, sigmoid),
    *named(
        {
            "relu6": lambda x: np.clip(x, 0, 6),
            "selu": _selu,
            "logsigmoid": lambda x: -softplus(-x),
            "softsign": lambda x: x / (1 + np.abs(x)),
            "silu": lambda x: x * sigmoid(x),
            "mish": lambda x: x * np.tanh(softplus(x)),
            "hardswish": lambda x: x * _hardsigmoid(x),
            "tanhshrink": lambda x: x - np.tanh(x),
        },
        FLOATING,
    ),
    Row("quick_gelu", one, _quick_gelu, _quick_gelu_of_torch, FLOATS),
    Row("erfc", one, np.vectorize(math.erfc, otypes=[float]), dtypes=FLOATS),
    Row("gelu", _gelu_arguments, _gelu, _gelu_of_torch, FLOATS),
    Row("softplus", with_numbers((2.0,), (0.5,)), softplus, _softplus_of_torch, FLOATS),
    Row("elu", with_numbers((0.7,)), _elu, dtypes=FLOATS),
    Row("celu", with_numbers((0.7,)), _celu, _celu_of_torch, FLOATS),
    Row("hardsigmoid", one, _hardsigmoid, _hardsigmoid_of_torch, FLOATS),
    Row("leaky_relu", with_numbers((0.2,)), _leaky_relu, dtypes=FLOATS),
    Row("hardtanh", with_numbers((-2.0, 0.5)), _hardtanh, dtypes=FLOATS),
    Row("softshrink", with_numbers((1.0,)), _softshrink, dtypes=FLOATS),
    Row("hardshrink", with_numbers((1.0,)), _hardshrink, dtypes=FLOATS),
    Row("threshold", lambda draw: (draw.tensor(), 0.5, -1.5), _threshold, dtypes=FLOATS),
    Row(
        "sequential",
        one,
        lambda x: np.maximum(x, 0) * 2,
        lambda x: torch.relu(x) * 2,
        FLOATS,
        call=lambda x: x.sequential([lambda y: y.relu(), lambda y: y * 2]),
    ),
)
