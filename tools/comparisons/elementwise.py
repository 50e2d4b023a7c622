"""Rows of arithmetic, comparison, bits, casts and operators."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tools.comparisons.draws import (
    FLOATS,
    INTEGERS,
    NUMBERS,
    WHOLE,
    Draw,
    Operand,
)
from tools.comparisons.row import Reference, Row, Value, named, torch


def one(draw: Draw) -> tuple[Operand]:
    """A tensor."""
    return (draw.tensor(),)


def pair(draw: Draw) -> tuple[Any, ...]:
    """Two tensors, or a tensor and a number."""
    return draw.pair()


def tensors(draw: Draw) -> tuple[Operand, Operand]:
    """Two tensors."""
    shape = draw.shape()
    return draw.tensor(shape), draw.tensor(draw.broadcast(shape))


def between(low: float, high: float) -> Callable[[Draw], tuple[Operand]]:
    """A tensor of numbers in a range, with no greater ones."""
    return lambda draw: (draw.tensor(None, low, high, extremes=False),)


def with_number(draw: Draw) -> tuple[Any, ...]:
    """A tensor and a number."""
    return draw.tensor(), draw.scalar()


def _with_divisor(draw: Draw) -> tuple[Any, ...]:
    number = draw.scalar()
    return draw.tensor(extremes=False), number if draw.dtype == "bool" else number or 1


def _divided(draw: Draw) -> tuple[Any, ...]:
    first, second = draw.pair()
    return first, _without_zero(draw, second)


def _with_rest(draw: Draw) -> tuple[Any, ...]:
    # A quotient with more digits than the type leaves no rest to compare.
    first, second = draw.pair(extremes=False)
    return first, _without_zero(draw, second)


def _without_zero(draw: Draw, value: Value) -> Value:
    if draw.is_float:
        return value
    if isinstance(value, Operand):
        return Operand(
            np.where(value.values == 0, 1, value.values).astype(value.dtype), value.dtype
        )
    return value if value else 1


def _divided_by_tensor(draw: Draw) -> tuple[Any, ...]:
    return _without_zero(draw, draw.tensor(extremes=False)), draw.scalar()


def _shifted(draw: Draw) -> tuple[Any, ...]:
    value = draw.tensor()
    amount = draw.indices(draw.broadcast(value.shape), 8)
    same = Operand(amount.values.astype(value.dtype), value.dtype)
    return value, draw.pick(same, draw.integer(0, 7))


def _three(draw: Draw) -> tuple[Operand, ...]:
    shape = draw.shape()
    return draw.tensor(shape), draw.tensor(draw.broadcast(shape)), draw.tensor(shape)


def _between(x: Value, end: Value, weight: Value) -> Value:
    far = end - (end - x) * (1 - weight)
    return np.where(np.abs(weight) < 0.5, x + (end - x) * weight, far)


def _three_and_value(draw: Draw) -> tuple[Any, ...]:
    return (*_three(draw), {"value": draw.pick(1, 2, 3)})


def _condition(draw: Draw) -> tuple[Any, ...]:
    shape = draw.shape()
    first, second = draw.tensor(draw.broadcast(shape)), draw.tensor(draw.broadcast(shape))
    mask, number = draw.mask(shape), draw.scalar()
    return draw.pick((mask, first, second), (mask, first, number), (mask, number, second))


def _masked(draw: Draw) -> tuple[Any, ...]:
    value = draw.tensor()
    return value, draw.mask(draw.broadcast(value.shape)), draw.scalar()


def _limits(draw: Draw) -> tuple[Any, ...]:
    value = draw.tensor()
    low, high = sorted((draw.scalar(), draw.scalar()))
    return draw.pick((value, low, high), (value, low, None), (value, None, high))


def _clamped(x: Value, low: Value, high: Value) -> Value:
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def _with_fillers(draw: Draw) -> tuple[Any, ...]:
    return (draw.tensor(), *draw.pick((), (1.5,), (2.0, 3.0, -4.0)))


def _filled(x: Value, nan: float = 0.0, high: Value = None, low: Value = None) -> Value:
    return np.nan_to_num(x, nan=nan, posinf=high, neginf=low)


def _near(draw: Draw) -> tuple[Any, ...]:
    first, second = tensors(draw)
    equal = Operand(np.broadcast_to(first.values, first.shape).copy(), first.dtype)
    return first, draw.pick(second, equal), {"equal_nan": draw.pick(True, False)}


def _rounded_to(draw: Draw) -> tuple[Any, ...]:
    return draw.tensor(), draw.pick(0, 0, 1, 2)


ANY, FLOATING = Row("", one, abs), Row("", one, abs, dtypes=FLOATS)
TWO = Row("", pair, abs)
FLAT = Row("", one, abs, dtypes=NUMBERS, has_gradient=False)
BITS = Row("", pair, abs, dtypes=WHOLE)
COMPARED = Row("", pair, abs, has_gradient=False)

ARITHMETIC = (
    Row("sub", pair, np.subtract),
    Row("div", _divided, np.true_divide),
    Row("floordiv", _with_rest, np.floor_divide, "floor_divide", NUMBERS, has_gradient=False),
    Row("mod", _with_rest, np.mod, "remainder", NUMBERS),
    Row("fmod", _with_rest, np.fmod, dtypes=NUMBERS),
    Row("neg", one, np.negative, dtypes=NUMBERS),
    Row("__pos__", one, lambda x: x, "positive"),
    Row("reciprocal", one, lambda x: 1 / x),
    Row("square", one, lambda x: x * x, dtypes=NUMBERS),
    Row("lerp", _three, _between, dtypes=FLOATS),
    Row("addcmul", _three_and_value, lambda x, y, z, value: x + value * y * z, dtypes=NUMBERS),
    Row("addcdiv", _three_and_value, lambda x, y, z, value: x + value * y / z, dtypes=FLOATS),
    Row("clamp", _limits, _clamped, dtypes=NUMBERS),
    Row("abs", one, np.abs),
    Row("sign", one, np.sign, None, NUMBERS),
    Row("copysign", tensors, np.copysign, dtypes=FLOATS),
    Row("where", _condition, np.where),
    Row("masked_fill", _masked, lambda x, mask, value: np.where(mask, np.array(value, x.dtype), x)),
    Row("round", _rounded_to, np.round, lambda x, d: torch.round(x, decimals=d), NUMBERS, False),
    Row("frac", one, lambda x: x - np.trunc(x), dtypes=FLOATS),
    *named({"add": np.add, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum}, TWO),
    *named({"trunc": np.trunc, "floor": np.floor, "ceil": np.ceil}, FLAT),
)

COMPARISONS = (
    *named(
        {"lt": np.less, "gt": np.greater, "le": np.less_equal, "ge": np.greater_equal}, COMPARED
    ),
    *named({"eq": np.equal, "ne": np.not_equal}, COMPARED),
    Row("__eq__", with_number, np.equal, "eq"),
    Row("__ne__", with_number, np.not_equal, "ne"),
    Row("nan_to_num", _with_fillers, _filled, dtypes=FLOATS),
    Row("isclose", _near, np.isclose),
    Row("allclose", _near, np.allclose),
    *named({"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}, ANY),
)

LOGIC = (
    Row("logical_not", one, np.logical_not),
    *named(
        {
            "logical_and": np.logical_and,
            "logical_or": np.logical_or,
            "logical_xor": np.logical_xor,
        },
        replace(COMPARED, draw=tensors),
    ),
    *named(
        {
            "bitwise_and": np.bitwise_and,
            "bitwise_or": np.bitwise_or,
            "bitwise_xor": np.bitwise_xor,
        },
        BITS,
    ),
    Row("bitwise_not", one, np.bitwise_not, dtypes=WHOLE),
    Row("lshift", _shifted, np.left_shift, "bitwise_left_shift", INTEGERS),
    Row("rshift", _shifted, np.right_shift, "bitwise_right_shift", INTEGERS),
)


def _swapped(combine: Reference) -> Reference:
    return lambda x, y: combine(y, x)


def _reflected(name: str) -> Row:
    """The operator of a number and a tensor, the tensor on the right."""
    combine = _swapped(getattr(operator, name))
    draw = _divided_by_tensor if name in ("truediv", "floordiv", "mod") else with_number
    smooth = name != "floordiv"
    return Row(f"__r{name}__", draw, combine, combine, NUMBERS, smooth, call=combine)


_IN_PLACE_TYPES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("and_", "or_", "xor"), WHOLE),
    **dict.fromkeys(("lshift", "rshift"), INTEGERS),
    **dict.fromkeys(("truediv", "pow"), FLOATS),
}


def _in_place(name: str) -> Row:
    """The operator that writes into the tensor."""
    shifts = name in ("lshift", "rshift")
    draw = _shifted if shifts else _with_divisor
    dtypes = _IN_PLACE_TYPES.get(name, NUMBERS)
    combine = getattr(operator, name)
    method = f"__i{name.strip('_')}__"
    return Row(method, draw, combine, combine, dtypes, False, call=getattr(operator, method[2:-2]))


OPERATORS = (
    *map(_reflected, ("add", "sub", "mul", "truediv", "floordiv", "mod")),
    *map(_in_place, ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")),
    *map(_in_place, ("and_", "or_", "xor", "lshift", "rshift")),
)


def _saturated(x: Value, dtype: str) -> Value:
    if x.dtype.kind != "f" or dtype == "bool":
        return x.astype(dtype)
    # The greatest int64 is no float64: what is not below it is out of range.
    limits = np.iinfo(dtype)
    whole = np.where(np.isnan(x) | (x >= limits.max) | (x <= limits.min), 0, x).astype(dtype)
    return np.where(x >= limits.max, limits.max, np.where(x <= limits.min, limits.min, whole))


def _cast(name: str) -> Row:
    """A cast under its short name."""
    dtype = _LONG_NAMES[name]
    if dtype in FLOATS:
        return Row(name, one, lambda x: x.astype(float), lambda x: x.to(getattr(torch, dtype)))
    # What torch gives for a float out of range depends on the processor.
    return Row(name, one, lambda x: _saturated(x, dtype), None, has_gradient=False)


_LONG_NAMES = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "bfloat16": "bfloat16",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "bool": "bool",
}

ROWS = (*ARITHMETIC, *COMPARISONS, *LOGIC, *OPERATORS, *map(_cast, _LONG_NAMES))
