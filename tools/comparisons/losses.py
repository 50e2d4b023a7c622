"""Rows of losses, normalizations and attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tools.comparisons.activations import softplus
from tools.comparisons.draws import FLOATS, Draw, Operand
from tools.comparisons.reductions import log_sum
from tools.comparisons.row import Reference, Row, Value, torch

REDUCTIONS = ("mean", "sum", "none")


def _pair(draw: Draw) -> tuple[Any, ...]:
    shape = draw.shape()
    two = draw.tensor(shape, extremes=False), draw.tensor(shape, extremes=False)
    return (*two, {"reduction": draw.pick(*REDUCTIONS)})


def _with(name: str, *choices: float) -> Reference:
    """Predictions and targets, and a number under a name."""

    def draw(source: Draw) -> tuple[Any, ...]:
        first, second, named = _pair(source)
        return first, second, {**named, name: source.pick(*choices)}

    return draw


def reduced(each: Value, reduction: str) -> Value:
    """The losses as the reduction asks."""
    return each if reduction == "none" else getattr(np, reduction)(each)


def _loss(each: Reference) -> Reference:
    """A loss of numpy: a formula for each element, and the reduction."""

    def loss(x: Value, target: Value, reduction: str, **named: Value) -> Value:
        return reduced(each(x, target, **named), reduction)

    return loss


def _smooth(x: Value, target: Value, beta: float) -> Value:
    away = np.abs(x - target)
    return np.where(away < beta, away * away / (2 * beta or 1), away - beta / 2)


def _huber(x: Value, target: Value, delta: float) -> Value:
    return delta * _smooth(x, target, delta)


def _hinge(x: Value, target: Value, margin: float) -> Value:
    return np.where(target * x >= margin, 0, margin - target * x)


def _shares(draw: Draw) -> tuple[Any, ...]:
    shape = draw.shape()
    x, target = draw.plain(shape, 0.01, 0.9), draw.plain(shape, 0, 1)
    return x, target, {"reduction": draw.pick(*REDUCTIONS)}


def _logits(draw: Draw) -> tuple[Any, ...]:
    x, target, named = _shares(draw)
    weight = draw.plain(draw.broadcast(x.shape), 0.5, 2)
    pos_weight = draw.pick(None, Operand(weight.values, weight.dtype, has_gradient=False))
    logits = draw.tensor(x.shape, extremes=False)
    return logits, target, {**named, "pos_weight": pos_weight}


def _entropy(x: Value, target: Value) -> Value:
    yes, no = np.maximum(np.log(x), -100), np.maximum(np.log(1 - x), -100)
    return -(target * yes + (1 - target) * no)


def _entropy_of_logits(x: Value, target: Value, pos_weight: Value) -> Value:
    weight = 1 if pos_weight is None else pos_weight
    return (1 - target) * x + (1 + (weight - 1) * target) * softplus(-x)


def _divergence_arguments(draw: Draw) -> tuple[Any, ...]:
    shape = draw.shape(least=1)
    log_target = draw.pick(True, False)
    target = draw.plain(shape, -3 if log_target else 0, 1)
    reduction = draw.pick(*REDUCTIONS, "batchmean")
    return draw.plain(shape), target, {"reduction": reduction, "log_target": log_target}


def _divergence(x: Value, target: Value, reduction: str, log_target: bool) -> Value:
    logs = target if log_target else np.log(np.where(target > 0, target, 1))
    each = (np.exp(target) if log_target else target) * (logs - x)
    return each.sum() / len(x) if reduction == "batchmean" else reduced(each, reduction)


# ---- classes ----


def _classes(draw: Draw) -> tuple[Operand, Operand, Operand, int]:
    """Predictions (classes along axis 1), class numbers, weights, how many classes."""
    count = draw.integer(1, 5)
    batch, rest = draw.pick((), (3,), (1,)), draw.pick((), (2,), (2, 3))
    rest = rest if batch else ()
    x = draw.tensor((*batch, count, *rest), extremes=False)
    target = draw.indices((*batch, *rest), count)
    weight = draw.plain((count,), 0.2, 2)
    return x, target, Operand(weight.values, weight.dtype, has_gradient=False), count


def _nll_arguments(draw: Draw) -> tuple[Any, ...]:
    x, target, weight, count = _classes(draw)
    ignored = draw.pick(-100, draw.integer(0, count - 1))
    named = {"weight": draw.pick(None, weight), "ignore_index": ignored}
    return x, target, {**named, "reduction": draw.pick(*REDUCTIONS)}


def _entropy_arguments(draw: Draw) -> tuple[Any, ...]:
    x, target, named = _nll_arguments(draw)
    smoothing = {"label_smoothing": draw.pick(0.0, 0.0, 0.1)}
    if draw.pick(True, False, False):
        del named["ignore_index"]
        return x, draw.plain(x.shape, 0, 1), {**named, **smoothing}
    return x, target, {**named, **smoothing}


def _nll(x: Value, target: Value, weight: Value, ignore_index: int, reduction: str) -> Value:
    axis = min(1, x.ndim - 1)
    kept = target != ignore_index
    chosen = np.take_along_axis(x, np.expand_dims(target, axis), axis).squeeze(axis)
    share = kept * (1.0 if weight is None else weight[target])
    each = np.where(share != 0, -chosen * share, 0)
    return each.sum() / share.sum() if reduction == "mean" else reduced(each, reduction)


def _cross_entropy(
    x: Value,
    target: Value,
    weight: Value,
    reduction: str,
    label_smoothing: float,
    ignore_index: int = -100,
) -> Value:
    axis = min(1, x.ndim - 1)
    logs = x - log_sum(x, axis, True)
    count = x.shape[axis]
    scale = np.ones(count) if weight is None else weight
    along = scale.reshape((count, *(1,) * (x.ndim - axis - 1)))
    if target.dtype.kind == "f":
        wanted = target * (1 - label_smoothing) + label_smoothing / count
        each = -(wanted * logs * along).sum(axis)
        batch = each.size if each.size else 1
        return each.sum() / batch if reduction == "mean" else reduced(each, reduction)
    plain = _nll(logs, target, weight, ignore_index, "none")
    spread = np.where(target != ignore_index, -(logs * along).mean(axis), 0)
    each = plain * (1 - label_smoothing) + spread * label_smoothing
    if reduction != "mean":
        return reduced(each, reduction)
    return each.sum() / ((target != ignore_index) * scale[target]).sum()


def _sparse_arguments(draw: Draw) -> tuple[Any, ...]:
    count, batch = draw.integer(1, 5), draw.pick((3,), (2, 3), (1,))
    target = draw.indices(batch, count)
    named = {"ignore_index": draw.pick(-1, 0), "label_smoothing": draw.pick(0.0, 0.1)}
    x = draw.tensor((*batch, count), extremes=False)
    return x, target, {**named, "reduction": draw.pick(*REDUCTIONS)}


def _sparse(x: Value, target: Value, **named: Value) -> Value:
    return _cross_entropy(np.moveaxis(x, -1, 1), target, weight=None, **named)


def _sparse_of_torch(x: Value, target: Value, **named: Value) -> Value:
    return torch.nn.functional.cross_entropy(x.movedim(-1, 1), target.long(), **named)


def _long(function: str) -> Reference:
    """torch takes class numbers as int64 alone."""

    def loss(x: Value, target: Value, **named: Value) -> Value:
        target = target if target.is_floating_point() else target.long()
        return getattr(torch.nn.functional, function)(x, target, **named)

    return loss


# ---- normalizations ----


def _layer_arguments(draw: Draw) -> tuple[Any, ...]:
    shape = draw.pick((3, 4), (5,), (2, 3, 4))
    weight, bias = draw.plain(shape[-1:]), draw.plain(shape[-1:])
    x = draw.tensor(shape, extremes=False)
    return x, -1, 1e-5, draw.pick(None, weight), draw.pick(None, bias)


def _layer(x: Value, axis: int, eps: float, weight: Value, bias: Value) -> Value:
    away = x - x.mean(axis, keepdims=True)
    normal = away / np.sqrt((away**2).mean(axis, keepdims=True) + eps)
    normal = normal if weight is None else normal * weight
    return normal if bias is None else normal + bias


def _layer_of_torch(x: Value, axis: int, eps: float, weight: Value, bias: Value) -> Value:
    return torch.nn.functional.layer_norm(x, x.shape[axis:], weight, bias, eps)


def _batch_arguments(draw: Draw) -> tuple[Any, ...]:
    shape = draw.pick((2, 3), (2, 3, 4), (2, 3, 2, 2))
    vectors = [draw.plain((3,), 0.2, 2) for _ in range(4)]
    weight, bias, mean, invstd = vectors
    return draw.tensor(shape, extremes=False), draw.pick(None, weight), bias, mean, invstd


def _batch(x: Value, weight: Value, bias: Value, mean: Value, invstd: Value) -> Value:
    sizes = (1, 3, *(1,) * (x.ndim - 2))
    scale = invstd if weight is None else invstd * weight
    return (x - mean.reshape(sizes)) * scale.reshape(sizes) + bias.reshape(sizes)


# ---- attention ----


def _attention_arguments(draw: Draw) -> tuple[Any, ...]:
    batch, heads = draw.pick((), (2,)), draw.pick((), (2,))
    lead = (*batch, *heads) if batch else heads
    queries, keys, width = draw.integer(1, 4), draw.integer(1, 4), draw.integer(1, 3)
    query = draw.plain((*lead, queries, width), -2, 2)
    key, value = (draw.plain((*lead, keys, width), -2, 2) for _ in range(2))
    bias = Operand(draw.plain((queries, keys)).values, draw.dtype, has_gradient=False)
    mask = draw.pick(None, draw.mask((queries, keys)), bias)
    scale = draw.pick(None, 0.5)
    return query, key, value, mask, 0.0, mask is None and draw.pick(True, False), False, scale


def _attention(
    query: Value,
    key: Value,
    value: Value,
    mask: Value,
    dropout: float,
    is_causal: bool,
    grouped: bool,
    scale: float | None,
) -> Value:
    scores = query @ np.swapaxes(key, -1, -2)
    scores = scores * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    peak = scores.max(-1, keepdims=True)
    exponential = np.exp(scores - np.where(np.isfinite(peak), peak, 0))
    total = exponential.sum(-1, keepdims=True)
    return exponential / np.where(total == 0, 1, total) @ value


def _attention_of_torch(
    query: Value,
    key: Value,
    value: Value,
    mask: Value,
    dropout: float,
    is_causal: bool,
    grouped: bool,
    scale: float | None,
) -> Value:
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, mask, dropout, is_causal, scale=scale
    )


def _masked(draw: Draw) -> tuple[Any, ...]:
    x = draw.plain(draw.shape(least=1))
    return x, draw.mask(draw.broadcast(x.shape)), draw.axis(x)


def _masked_softmax(x: Value, mask: Value, axis: int) -> Value:
    left = np.where(mask, np.exp(x), 0)
    total = left.sum(axis, keepdims=True)
    return left / np.where(total == 0, 1, total)


ROWS = (
    Row("masked_softmax", _masked, _masked_softmax, None, FLOATS),
    Row("mse_loss", _pair, _loss(lambda x, y: (x - y) ** 2), dtypes=FLOATS),
    Row("l1_loss", _pair, _loss(lambda x, y: np.abs(x - y)), dtypes=FLOATS),
    Row("smooth_l1_loss", _with("beta", 1.0, 0.5, 0.0), _loss(_smooth), dtypes=FLOATS),
    Row("huber_loss", _with("delta", 1.0, 0.5), _loss(_huber), dtypes=FLOATS),
    Row("hinge_loss", _with("margin", 1.0, 0.5), _loss(_hinge), None, FLOATS),
    Row("binary_crossentropy", _shares, _loss(_entropy), "binary_cross_entropy", FLOATS),
    Row(
        "binary_crossentropy_logits",
        _logits,
        _loss(_entropy_of_logits),
        "binary_cross_entropy_with_logits",
        FLOATS,
    ),
    Row("kl_div", _divergence_arguments, _divergence, dtypes=FLOATS),
    Row("nll_loss", _nll_arguments, _nll, _long("nll_loss"), FLOATS),
    Row("cross_entropy", _entropy_arguments, _cross_entropy, _long("cross_entropy"), FLOATS),
    Row("sparse_categorical_crossentropy", _sparse_arguments, _sparse, _sparse_of_torch, FLOATS),
    Row("layernorm", _layer_arguments, _layer, _layer_of_torch, FLOATS),
    Row("batchnorm", _batch_arguments, _batch, None, FLOATS),
    Row(
        "scaled_dot_product_attention",
        _attention_arguments,
        _attention,
        _attention_of_torch,
        FLOATS,
    ),
)
