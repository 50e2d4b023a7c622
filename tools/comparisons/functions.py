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
    Row("logaddexp", tensors, np.logaddexp, dtypes=FLOATS),
    Row("atan2", tensors, np.arctan2, dtypes=FLOATS),
    Row("pow", _powers, np.power, dtypes=NUMBERS),
    Row("__rpow__", _exponents, _reflected_power, _reflected_power, FLOATS, call=_reflected_power),
)
