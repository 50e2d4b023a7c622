"""Rows of exponentials, powers, roots, trigonometry and their inverses."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from tools.comparisons.draws import FLOATS, NUMBERS, Draw
from tools.comparisons.elementwise import one, tensors
from tools.comparisons.row import Reference, Row, Value, named


def _powers(draw: Draw) -> tuple[Any, ...]:
    if not draw.is_float:
        base = draw.tensor(None, -3, 3)
        return base, draw.pick(draw.plain(draw.broadcast(base.shape), 0, 4), draw.integer(0, 4))
    base = draw.tensor()
    number = draw.pick(2, 0, 3, -1, 0.5, -0.5, 1.5, -2, 65)
    return base, draw.pick(draw.tensor(draw.broadcast(base.shape)), number)


def _exponents(draw: Draw) -> tuple[Any, ...]:
    return draw.plain(None, 0 if not draw.is_float else -3, 3), draw.pick(2, 3, 0.5, 1, 2.5)


def _reflected_power(x: Value, base: float) -> Value:
    return operator.pow(base, x)


def _of_floats(function: Reference) -> Reference:
    """The function, which numpy computes in float16 of bools and small integers."""
    return lambda x: function(x if np.asarray(x).dtype.kind == "f" else np.float64(x))


def _lgamma(x: float) -> float:
    is_pole = x <= 0 and math.floor(x) == x
    return math.inf if is_pole or math.isinf(x) else math.lgamma(x)


def _digamma(x: float) -> float:
    """By steps up to where the series in 1 / x has its digits; NaN at the poles, as torch."""
    if x == 0 or math.isinf(x):
        return math.copysign(math.inf, -x) if x == 0 else x if x > 0 else math.nan
    if x < 0:
        turned = math.pi * math.remainder(x, 1)
        return math.nan if turned == 0 else _digamma(1 - x) - math.pi / math.tan(turned)
    steps = 0.0
    while x < 12:
        steps, x = steps + 1 / x, x + 1
    terms = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
    tail = math.fsum(term / x ** (2 * power) for power, term in enumerate(terms, 1) if x < 1e8)
    return math.log(x) - 0.5 / x - tail - steps


ANY = Row("", one, abs)
INSIDE = Row("", lambda draw: (draw.tensor(None, -0.99, 0.99),), abs, dtypes=FLOATS)

ROWS = (
    *named(
        {
            name: _of_floats(function)
            for name, function in {
                "exp": np.exp,
                "exp2": np.exp2,
                "log": np.log,
                "log2": np.log2,
                "log10": np.log10,
                "expm1": np.expm1,
                "log1p": np.log1p,
                "sqrt": np.sqrt,
                "sin": np.sin,
                "cos": np.cos,
                "sinh": np.sinh,
                "cosh": np.cosh,
                "tanh": np.tanh,
                "asinh": np.arcsinh,
                "atan": np.arctan,
            }.items()
        },
        ANY,
    ),
    # Far out the cosine has as many digits, but not as many that count beside a pole.
    Row("tan", one, np.tan, tolerance=256),
    Row("rsqrt", one, lambda x: 1 / np.sqrt(x)),
    Row("acosh", lambda draw: (draw.tensor(None, 1, 9),), np.arccosh, dtypes=FLOATS),
    *named({"asin": np.arcsin, "acos": np.arccos, "atanh": np.arctanh}, INSIDE),
    Row("erf", one, np.vectorize(math.erf, otypes=[float])),
    Row("lgamma", one, np.vectorize(_lgamma, otypes=[float]), dtypes=FLOATS, tolerance=16),
    # The slope of torch's has 12 digits.
    Row("digamma", one, np.vectorize(_digamma, otypes=[float]), None, FLOATS, tolerance=16),
    Row("logaddexp", tensors, np.logaddexp, dtypes=FLOATS),
    Row("atan2", tensors, np.arctan2, dtypes=FLOATS),
    Row("pow", _powers, np.power, dtypes=NUMBERS),
    Row("__rpow__", _exponents, _reflected_power, _reflected_power, FLOATS, call=_reflected_power),
)
