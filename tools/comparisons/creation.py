"""Rows of methods that make tensors, of constants, ranges and random numbers.

Of random numbers facts are compared: shape, type, limits, mean and deviation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kernelet import Tensor
from tools.comparisons.draws import (
    EPSILON,
    FLOATS,
    INTEGERS,
    NUMBERS,
    Draw,
    Operand,
    array_type,
    rounded,
)
from tools.comparisons.row import Reference, Row, Value

_MANY = 600


def _shaped(draw: Draw) -> tuple[Any, ...]:
    return draw.shape(), {"dtype": draw.dtype}


def _filled(draw: Draw) -> tuple[Any, ...]:
    return draw.shape(), draw.scalar(), {"dtype": draw.dtype}


def _like(draw: Draw) -> tuple[Any, ...]:
    return (draw.plain(),)


def _filled_like(draw: Draw) -> tuple[Any, ...]:
    return draw.plain(), draw.scalar()


def _range(draw: Draw) -> tuple[Any, ...]:
    low, span = draw.integer(-5, 5), draw.integer(0, 12)
    step = draw.pick(1, 2, 3)
    if draw.is_float:
        return low + 0.5, low + span + 0.75, step * 0.5, {"dtype": draw.dtype}
    low = abs(low)
    return draw.pick((low, low + span, step), (low + span, low, -step), (span,))


def _line(draw: Draw) -> tuple[Any, ...]:
    return draw.number(), draw.number(), draw.integer(0, 9), {"dtype": draw.dtype}


def _matrix(draw: Draw) -> tuple[Any, ...]:
    rows, columns = draw.integer(0, 5), draw.pick(None, draw.integer(0, 5))
    return rows, columns, {"dtype": draw.dtype}


def _triangle(draw: Draw) -> tuple[Any, ...]:
    rows, columns, named = _matrix(draw)
    return rows, columns, draw.integer(-2, 2), named


def _typed(function: Reference) -> Reference:
    """A function of numpy that takes the type by our name."""
    return lambda *values, dtype: np.asarray(function(*values)).astype(array_type(dtype))


def _arange(*values: float, dtype: str = "int64") -> Value:
    return np.arange(*values).astype(array_type(dtype))


# ---- random numbers ----


def _facts(made: Tensor, low: float, high: float, mean: float, deviation: float) -> tuple[Any, ...]:
    """Shape and type of random numbers, and whether limits and moments are as they should be."""
    values = made.numpy().astype(float)
    # As the type has them: rounding keeps numbers in order.
    low, high = rounded(np.array([low, high]), made.dtype.name).astype(float)
    inside = bool(((low <= values) & (values <= high)).all())
    if not values.size:
        return made.shape, inside, True
    # Uniform numbers are multiples of a power of two, so that the mean is half of it less.
    coarse = EPSILON[made.dtype.name]
    error = 6 * deviation / math.sqrt(values.size) + coarse * (abs(mean) + 2 * deviation)
    close = abs(values.mean() - mean) <= error
    if values.size >= _MANY:
        close &= abs(values.std() - deviation) <= (0.1 + coarse) * deviation
    return made.shape, inside, bool(close)


def _random(name: str, expected: Callable[..., tuple[float, ...]], draw: Reference) -> Row:
    """A row for a method that draws numbers; `expected` are low, high, mean and deviation."""

    def call(*given: Value, **options: Value) -> tuple[Any, ...]:
        plain = [each.shape if isinstance(each, Tensor) else each for each in given]
        made = getattr(Tensor, name)(*given, **options)
        facts = _facts(made, *expected(*plain, **options))
        alike = isinstance(given[0], Tensor) and made.dtype is given[0].dtype
        return facts[0], "that of the other" if alike else made.dtype.name, *facts[1:]

    def facts(*given: Value, **options: Value) -> tuple[Any, ...]:
        shape = getattr(given[0], "shape", given[0])
        return shape, options.get("dtype", "that of the other"), True, True

    return Row(name, draw, facts, None, FLOATS, False, call=call)


def _sized(draw: Draw) -> tuple[Any, ...]:
    return draw.pick((_MANY,), (2, _MANY // 2), (0,), (3, 1)), {"dtype": draw.dtype}


def _many_alike(draw: Draw) -> tuple[Any, ...]:
    return (draw.plain((_MANY,), dtype=array_type(draw.dtype)),)


def _with_limits(draw: Draw) -> tuple[Any, ...]:
    shape, named = _sized(draw)
    low = draw.number(-2, 0)
    return shape, {**named, "low": low, "high": low + draw.number(0.5, 3)}


def _with_moments(draw: Draw) -> tuple[Any, ...]:
    shape, named = _sized(draw)
    return shape, {**named, "mean": draw.number(), "std": draw.number(0.5, 2)}


def _uniform(low: float, high: float) -> tuple[float, ...]:
    # Low precision rounds numbers up to the limit.
    slack = (high - low) / 100
    return low - slack, high + slack, (low + high) / 2, (high - low) / math.sqrt(12)


def _symmetric(bound: float) -> tuple[float, ...]:
    return _uniform(-bound, bound)


def _standard_uniform(*_: Value, **__: Value) -> tuple[float, ...]:
    return _uniform(0, 1)


def _standard_normal(*_: Value, **__: Value) -> tuple[float, ...]:
    return -math.inf, math.inf, 0.0, 1.0


def _any_uniform(shape: Value, low: float, high: float, **_: Value) -> tuple[float, ...]:
    return _uniform(low, high)


def _any_normal(shape: Value, mean: float, std: float, **_: Value) -> tuple[float, ...]:
    return -math.inf, math.inf, mean, std


def _inputs(shape: Value) -> int:
    return int(max(math.prod(shape[1:]), 1))


def _glorot(shape: Value, **_: Value) -> tuple[float, ...]:
    return _symmetric(math.sqrt(6 / max(shape[0] + math.prod(shape[1:]), 1)))


def _scaled(shape: Value, **_: Value) -> tuple[float, ...]:
    return _symmetric(max(math.prod(shape), 1) ** -0.5)


def _kaiming(shape: Value, **_: Value) -> tuple[float, ...]:
    return _symmetric(math.sqrt(6 / (1 + 0.01**2) / _inputs(shape)))


def _kaiming_normal(shape: Value, **_: Value) -> tuple[float, ...]:
    return -math.inf, math.inf, 0.0, math.sqrt(2 / (1 + 0.01**2) / _inputs(shape))


def _whole_numbers(draw: Draw) -> tuple[Any, ...]:
    low = draw.integer(0, 3)
    return draw.shape(), low, low + draw.integer(1, 50), draw.dtype


def _randint(shape: Value, low: int, high: int, dtype: str) -> tuple[Any, ...]:
    made = Tensor.randint(shape, low=low, high=high, dtype=dtype)
    values = made.numpy()
    return made.shape, made.dtype.name, bool(((low <= values) & (values < high)).all())


def _permuted(count: int) -> tuple[Any, ...]:
    made = Tensor.randperm(count)
    return made.shape, sorted(np.ravel(made.numpy()).tolist())


def _chances(draw: Draw) -> tuple[Any, ...]:
    weights = draw.plain(draw.pick((4,), (2, 4)), 0.5, 2)
    without_second = np.where(np.arange(4) == 1, 0, weights.values)
    replacement = draw.pick(True, False)
    samples = draw.integer(1, 9 if replacement else 3)
    return Operand(without_second.astype(weights.values.dtype), weights.dtype), samples, replacement


def _sampled(weights: Tensor, samples: int, replacement: bool) -> tuple[Any, ...]:
    found = weights.multinomial(samples, replacement)
    rows = np.reshape(found.numpy(), (-1, samples))
    distinct = replacement or all(len(set(row)) == samples for row in rows.tolist())
    return found.shape, bool(np.isin(rows, (0, 2, 3)).all()), distinct


def _dropped(x: Tensor, p: float) -> tuple[Any, ...]:
    plain = x.dropout(p)
    with Tensor.train():
        kept = (x + 64).dropout(p).numpy().astype(float)
    wanted = np.array(0.0) if p == 1 else (x.numpy().astype(float) + 64) / (1 - p)
    right = (kept == 0) | (np.abs(kept - wanted) <= 2 * EPSILON[x.dtype.name] * (64 + wanted))
    share = abs(float((kept == 0).mean()) - p) <= 0.1
    return plain, bool(np.all(right)), share


def _certain(draw: Draw) -> tuple[Operand]:
    """Chances of which none leaves a choice."""
    chances = draw.plain(None, 0, 1)
    return (Operand(np.round(chances.values), chances.dtype),)


def _bits_arguments(draw: Draw) -> tuple[Any, ...]:
    return draw.integer(0, 99), draw.integer(0, 99), draw.integer(0, 40)


def _bits(key: int, start: int, count: int) -> tuple[Any, ...]:
    words = Tensor([key, 5], dtype="uint32")
    made = Tensor.random_bits(words, Tensor([start], dtype="uint32"), count)
    later = Tensor.random_bits(words, Tensor([start + 1], dtype="uint32"), count)
    return made.shape, made.dtype.name, made[1:].tolist() == later[: max(count - 1, 0)].tolist()


def _seeded(seed: int) -> tuple[Any, ...]:
    Tensor.manual_seed(seed)
    first = Tensor.rand(5).tolist()
    Tensor.manual_seed(seed)
    return first == Tensor.rand(5).tolist(), first == Tensor.rand(5).tolist()


def _state(seed: int) -> tuple[int, ...]:
    Tensor.manual_seed(seed)
    before = Tensor.random_state()
    Tensor.rand(3, 4).realize()
    return *before, Tensor.random_state()[1]


def _facts_row(name: str, draw: Reference, facts: Reference, call: Reference) -> Row:
    return Row(name, draw, facts, None, INTEGERS, False, call=call)


ROWS = (
    Row("zeros", _shaped, _typed(np.zeros), None, has_gradient=False),
    Row("ones", _shaped, _typed(np.ones), None, has_gradient=False),
    Row("full", _filled, _typed(np.full), None, has_gradient=False),
    Row("arange", _range, _arange, None, NUMBERS),
    Row("linspace", _line, _typed(np.linspace), None, FLOATS, tolerance=16),
    Row("eye", _matrix, _typed(np.eye), None),
    Row("tri", _triangle, _typed(np.tri), None),
    Row("zeros_like", _like, np.zeros_like, has_gradient=False),
    Row("ones_like", _like, np.ones_like, has_gradient=False),
    Row("full_like", _filled_like, np.full_like, has_gradient=False),
    _random("rand", _standard_uniform, _sized),
    _random("randn", _standard_normal, _sized),
    _random("rand_like", _standard_uniform, _many_alike),
    _random("randn_like", _standard_normal, _many_alike),
    _random("uniform", _any_uniform, _with_limits),
    _random("normal", _any_normal, _with_moments),
    _random("scaled_uniform", _scaled, _sized),
    _random("glorot_uniform", _glorot, _sized),
    _random("kaiming_uniform", _kaiming, _sized),
    _random("kaiming_normal", _kaiming_normal, _sized),
    _facts_row("randint", _whole_numbers, lambda s, low, high, dtype: (s, dtype, True), _randint),
    _facts_row(
        "randperm",
        lambda draw: (draw.integer(0, 20),),
        lambda count: ((count,), list(range(count))),
        _permuted,
    ),
    Row(
        "multinomial",
        _chances,
        lambda x, samples, _: ((*x.shape[:-1], samples), True, True),
        None,
        FLOATS,
        False,
        call=_sampled,
    ),
    Row(
        "dropout",
        lambda draw: (draw.plain((40, 50)), draw.pick(0.0, 0.3, 1.0)),
        lambda x, p: (x, True, True),
        None,
        FLOATS,
        False,
        call=_dropped,
    ),
    _facts_row("random_bits", _bits_arguments, lambda k, s, n: ((n,), "uint32", True), _bits),
    Row("bernoulli", _certain, lambda x: x, None, FLOATS, False),
    _facts_row("random_state", lambda d: (d.integer(0, 9),), lambda seed: (seed, 0, 12), _state),
    _facts_row("manual_seed", lambda d: (d.integer(0, 9),), lambda seed: (True, False), _seeded),
)
