"""Rows of reductions, running reductions and order."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from tools.comparisons.draws import FLOATS, Draw
from tools.comparisons.row import Reference, Row, Value, torch


def _reduced(draw: Draw) -> tuple[Any, ...]:
    value = draw.tensor(extremes=False)
    return value, draw.axes(value), draw.pick(True, False)


def _small(draw: Draw) -> tuple[Any, ...]:
    value = draw.tensor(None, -2, 2, extremes=False)
    return value, draw.axes(value), draw.pick(True, False)


def _one_axis(draw: Draw) -> tuple[Any, ...]:
    value = draw.tensor(extremes=False)
    return value, draw.pick(None, draw.axis(value)), draw.pick(True, False)


def _along(draw: Draw) -> tuple[Any, ...]:
    value = draw.tensor(extremes=False)
    return value, draw.axis(value)


def _along_axes(draw: Draw) -> tuple[Any, ...]:
    value = draw.tensor(extremes=False)
    return value, draw.axis(value) if value.ndim else -1


def _axes(x: Value, axis: Value) -> tuple[int, ...]:
    every = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return tuple(sorted(at % x.ndim for at in every)) if x.ndim else ()


def over(function: Reference) -> Reference:
    """numpy's reduction with our arguments: an axis of a scalar is none."""
    return lambda x, axis, keep: function(x, axis=_axes(x, axis), keepdims=keep)


def by_torch(name: str, **options: object) -> Reference:
    """torch's reduction with our arguments."""
    return lambda x, axis, keep: getattr(torch, name)(x, axis, keepdim=keep, **options)


def _of_truth(name: str) -> Reference:
    # Of uint8 torch gives uint8.
    return lambda x, axis, keep: getattr(torch, name)(x != 0, axis, keepdim=keep)


def _flat_or_along(function: Reference) -> Reference:
    """A reduction of one axis, or of all elements as one; with `keep` each axis stays."""

    def reduce(x: Value, axis: Value, keep: bool) -> Value:
        if axis is None or x.ndim == 0:
            return np.reshape(function(np.ravel(x), 0), (1,) * x.ndim if keep else ())
        found = function(x, axis)
        return np.expand_dims(found, axis) if keep else found

    return reduce


def _product_by_torch(x: Value, axis: Value, keep: bool) -> Value:
    every = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    for at in sorted((at % max(x.ndim, 1) for at in every), reverse=True):
        x = x.prod(at, keepdim=keep)
    return x


def log_sum(x: Value, axis: Value = -1, keepdims: bool = False) -> Value:
    """log(sum(exp(x))) without overflow."""
    peak = np.max(x, axis=axis, keepdims=True)
    peak = np.where(np.isfinite(peak), peak, 0)
    total = np.log(np.sum(np.exp(x - peak), axis=axis, keepdims=True)) + peak
    return total if keepdims else np.squeeze(total, axis)


def _norm(x: Value, p: float, axis: Value, keep: bool) -> Value:
    size, axes = np.abs(x), _axes(x, axis)
    if p == 0:
        return np.sum(x != 0, axis=axes, keepdims=keep).astype(x.dtype)
    if math.isinf(p):
        return (np.max if p > 0 else np.min)(size, axis=axes, keepdims=keep)
    return np.sum(size**p, axis=axes, keepdims=keep) ** (1 / p)


def _norm_by_torch(x: Value, p: float, axis: Value, keep: bool) -> Value:
    return torch.linalg.vector_norm(x, p, axis, keep)


def _norm_arguments(draw: Draw) -> tuple[Any, ...]:
    value, axis, keep = _reduced(draw)
    return value, draw.pick(2.0, 1, 0, 3.0, math.inf, -math.inf), axis, keep


def _spread(draw: Draw) -> tuple[Any, ...]:
    return (*_reduced(draw), draw.pick(0, 1))


def _variance(x: Value, axis: Value, keep: bool, correction: int) -> Value:
    return np.var(x, axis=_axes(x, axis), keepdims=keep, ddof=correction)


def _deviation(x: Value, axis: Value, keep: bool, correction: int) -> Value:
    return np.std(x, axis=_axes(x, axis), keepdims=keep, ddof=correction)


def _mean(x: Value, axis: Value, keep: bool) -> Value:
    return np.mean(x, axis=_axes(x, axis), keepdims=keep)


def _moments(spread: Reference) -> Reference:
    return lambda x, axis, keep, c: (spread(x, axis, keep, c), _mean(x, axis, keep))


def _spread_by_torch(name: str) -> Reference:
    return lambda x, axis, keep, c: getattr(torch, name)(x, axis, correction=c, keepdim=keep)


def _moments_by_torch(name: str) -> Reference:
    # With an infinity among the values torch's moments have NaN for the mean.
    spread = _spread_by_torch(name)
    return lambda x, axis, keep, c: (spread(x, axis, keep, c), x.mean(axis, keepdim=keep))


def _softmax(x: Value, axis: int) -> Value:
    return np.exp(_log_softmax(x, axis))


def _log_softmax(x: Value, axis: int) -> Value:
    along = axis if x.ndim else None
    return x - log_sum(x, along, True)


def _normalized(x: Value, p: float, axis: int) -> Value:
    return x / np.maximum(_norm(x, p, axis, True), 1e-12)


def _running_extreme(best: Value) -> Reference:
    def run(x: Value, axis: int) -> tuple[Value, Value]:
        values = best.accumulate(x, axis) if x.ndim else x
        hit = (x == values) | np.isnan(x)
        if not x.ndim:
            return values, np.zeros((), int)
        shape = [1] * x.ndim
        shape[axis] = x.shape[axis]
        places = np.where(hit, np.arange(x.shape[axis]).reshape(shape), 0)
        return values, np.maximum.accumulate(places, axis)

    return run


def _running(function: Reference) -> Reference:
    return lambda x, axis: function(x, axis) if x.ndim else x


def _order(draw: Draw) -> tuple[Any, ...]:
    value = draw.tensor()
    return value, draw.axis(value), draw.pick(True, False)


def _argsort(x: Value, axis: int, descending: bool) -> Value:
    if not x.ndim:
        return np.zeros((), int)
    if not descending:
        return np.argsort(x, axis, kind="stable")
    turned = np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)
    return x.shape[axis] - 1 - turned


def _sort(x: Value, axis: int, descending: bool) -> tuple[Value, Value]:
    order = _argsort(x, axis, descending)
    return (np.take_along_axis(x, order, axis) if x.ndim else x), order


def _sort_by_torch(x: Value, axis: int, descending: bool) -> Value:
    return tuple(torch.sort(x, dim=axis, descending=descending, stable=True))


def _few(draw: Draw) -> tuple[Any, ...]:
    value = draw.tensor()
    axis = draw.axis(value)
    count = value.shape[axis] if value.ndim else 1
    return value, draw.integer(0 if value.ndim else 1, count), axis, draw.pick(True, False)


def _topk(x: Value, k: int, axis: int, largest: bool) -> Value:
    values = _sort(x, axis, largest)[0]
    return np.take(values, np.arange(k), axis) if x.ndim else values


def _topk_of_ours(x: Value, k: int, axis: int, largest: bool) -> Value:
    # Which of equals is first is not defined in torch: the places are used instead.
    values, places = x.topk(k, axis, largest)
    return values, x.gather(axis, places) if x.ndim else x


def _twice(function: Reference) -> Reference:
    return lambda *given: (function(*given), function(*given))


def _topk_by_torch(x: Value, k: int, axis: int, largest: bool) -> Value:
    return torch.topk(x, k, axis, largest)[0]


def _middle(x: Value, axis: int) -> Value:
    place = (x.shape[axis] - 1) // 2
    found = np.take(np.sort(x, axis), place, axis)
    return np.where(np.isnan(x).any(axis), np.nan, found) if x.dtype.kind == "f" else found


def _share(draw: Draw) -> tuple[Any, ...]:
    value, axis, keep = _one_axis(draw)
    return value, draw.pick(0.0, 0.25, 0.5, 1.0, 0.7), axis, keep


def _quantile(x: Value, q: float, axis: Value, keep: bool) -> Value:
    # On an element nothing is added to it; on a line to infinity numpy adds 0 times that.
    place = q * ((x.shape[axis] if x.ndim and axis is not None else x.size) - 1)
    method: Literal["lower", "linear"] = "lower" if place == int(place) else "linear"
    return np.quantile(x, q, axis=axis if x.ndim else None, keepdims=keep, method=method)


def _torch_quantile(x: Value, q: float, axis: Value, keep: bool) -> Value:
    return torch.quantile(x, q, axis, keepdim=keep)


ROWS = (
    Row("sum", _reduced, over(np.sum), by_torch("sum")),
    Row("prod", _small, over(np.prod), _product_by_torch),
    Row("mean", _reduced, _mean, by_torch("mean")),
    Row("max", _reduced, over(np.max), by_torch("amax")),
    Row("min", _reduced, over(np.min), by_torch("amin")),
    Row("any", _reduced, over(np.any), _of_truth("any")),
    Row("all", _reduced, over(np.all), _of_truth("all")),
    Row("count_nonzero", _reduced, over(np.count_nonzero), None),
    Row("argmax", _one_axis, _flat_or_along(np.argmax), by_torch("argmax")),
    Row("argmin", _one_axis, _flat_or_along(np.argmin), by_torch("argmin")),
    Row("var", _spread, _variance, _spread_by_torch("var"), FLOATS),
    Row("std", _spread, _deviation, _spread_by_torch("std"), FLOATS),
    Row("var_mean", _spread, _moments(_variance), _moments_by_torch("var"), FLOATS),
    Row("std_mean", _spread, _moments(_deviation), _moments_by_torch("std"), FLOATS),
    Row("norm", _norm_arguments, _norm, _norm_by_torch, FLOATS),
    Row("normalize", lambda d: (d.tensor(extremes=False), 2.0, -1), _normalized, dtypes=FLOATS),
    Row("logsumexp", _reduced, over(log_sum), by_torch("logsumexp"), FLOATS),
    Row("softmax", _along_axes, _softmax, dtypes=FLOATS),
    Row("softmin", _along_axes, lambda x, axis: _softmax(-x, axis), dtypes=FLOATS),
    Row("log_softmax", _along_axes, _log_softmax, dtypes=FLOATS),
    Row("cumsum", _along, _running(np.cumsum)),
    Row("cumprod", _along, _running(np.cumprod)),
    Row("cummax", _along, _running_extreme(np.maximum)),
    Row("cummin", _along, _running_extreme(np.minimum)),
    Row("logcumsumexp", _along, _running(np.logaddexp.accumulate), dtypes=FLOATS),
    Row("argsort", _order, _argsort, lambda x, a, d: _sort_by_torch(x, a, d)[1]),
    Row("sort", _order, _sort, _sort_by_torch),
    Row(
        "topk",
        _few,
        _twice(_topk),
        _twice(_topk_by_torch),
        gradient_edges=False,
        call=_topk_of_ours,
    ),
    Row("median", _one_axis, _flat_or_along(_middle), None),
    Row("quantile", _share, _quantile, _torch_quantile, FLOATS),
)
