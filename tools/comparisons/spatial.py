"""Rows of convolutions, pools and resizing: windows that slide over images."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tools.comparisons.draws import FLOATS, NUMBERS, Draw, Operand
from tools.comparisons.row import Reference, Row, Value, torch

Sizes = tuple[int, ...]


def _image(draw: Draw, *shape: int) -> Operand:
    return draw.tensor(shape, -2, 2, extremes=False)


def _places(
    sizes: Sizes, kernel: Sizes, stride: int, dilation: int
) -> Iterator[tuple[Sizes, tuple[slice, ...]]]:
    """Where each window goes in the result, and which elements it sees."""
    reach = [dilation * (width - 1) + 1 for width in kernel]
    counts = [(size - wide) // stride + 1 for size, wide in zip(sizes, reach, strict=True)]
    for place in itertools.product(*map(range, counts)):
        starts = [at * stride for at in place]
        ends = zip(starts, reach, strict=True)
        yield place, tuple(slice(start, start + wide, dilation) for start, wide in ends)


def _around(x: Value, padding: int, value: float = 0) -> Value:
    pads = [(0, 0), (0, 0), *((padding, padding),) * (x.ndim - 2)]
    return np.pad(x, pads, constant_values=value)


def _windows(x: Value, kernel: Sizes, stride: int, dilation: int) -> Value:
    """Every window of the last axes: (batch, channels, *places, *kernel)."""
    every = list(_places(x.shape[2:], kernel, stride, dilation))
    counts = [max(place[axis] for place, _ in every) + 1 for axis in range(len(kernel))]
    found = [x[(slice(None), slice(None), *seen)] for _, seen in every]
    return np.stack(found, 2).reshape((*x.shape[:2], *counts, *kernel))


# ---- convolution ----


def _convolution(dims: int) -> Reference:
    def draw(source: Draw) -> tuple[Any, ...]:
        groups = source.pick(1, 2)
        width = source.pick(1, 2, 3)
        sizes = [source.integer(5, 6)] * dims
        x = _image(source, source.integer(1, 2), 2, *sizes)
        weight = _image(source, 2 * groups, 2 // groups, *(width,) * dims)
        bias = source.pick(None, _image(source, 2 * groups))
        named = {"groups": groups, "stride": source.pick(1, 2), "padding": source.pick(0, 1)}
        return x, weight, bias, {**named, "dilation": source.pick(1, 2)}

    return draw


def _convolved(
    x: Value, weight: Value, bias: Value, groups: int, stride: int, padding: int, dilation: int
) -> Value:
    kernel = weight.shape[2:]
    seen = _windows(_around(x, padding), kernel, stride, dilation)
    last = tuple(range(-len(kernel), 0))
    parts = []
    for inputs, outputs in zip(np.split(seen, groups, 1), np.split(weight, groups, 0), strict=True):
        axes = [1, *(at % inputs.ndim for at in last)]
        parts.append(np.tensordot(inputs, outputs, (axes, range(1, outputs.ndim))))
    found = np.moveaxis(np.concatenate(parts, -1), -1, 1)
    return found if bias is None else found + bias.reshape((-1, *(1,) * len(kernel)))


def _transposed(draw: Draw) -> tuple[Any, ...]:
    groups, width, stride = draw.pick(1, 2), draw.pick(1, 2, 3), draw.pick(1, 2, 3)
    x, weight = _image(draw, 1, 2, 3, 3), _image(draw, 2, 2, width, width)
    bias = draw.pick(None, _image(draw, 2 * groups))
    named = {"groups": groups, "stride": stride, "padding": draw.integer(0, (width - 1) // 2)}
    extra = draw.integer(0, stride - 1)
    return x, weight, bias, {**named, "output_padding": extra, "dilation": draw.pick(1, 2)}


def _spread(
    x: Value,
    weight: Value,
    bias: Value,
    groups: int,
    stride: int,
    padding: int,
    output_padding: int,
    dilation: int,
) -> Value:
    width = weight.shape[-1]
    size = (x.shape[-1] - 1) * stride + dilation * (width - 1) + 1 + output_padding
    result = np.zeros((x.shape[0], weight.shape[1] * groups, size, size), x.dtype)
    per = x.shape[1] // groups
    for channel in range(x.shape[1]):
        first = channel // per * weight.shape[1]
        outputs = slice(first, first + weight.shape[1])
        for row, column in itertools.product(range(x.shape[2]), range(x.shape[3])):
            down, right = (
                slice(at * stride, at * stride + dilation * (width - 1) + 1, dilation)
                for at in (row, column)
            )
            added = x[:, channel, row, column][:, None, None, None] * weight[channel]
            result[:, outputs, down, right] += added
    result = result[:, :, padding : size - padding, padding : size - padding]
    return result if bias is None else result + bias.reshape((-1, 1, 1))


# ---- pools ----


def _pooled(draw: Draw) -> tuple[Any, ...]:
    width = draw.pick(2, 3)
    named = {"stride": draw.pick(1, 2, 3), "padding": draw.pick(0, 1)}
    return _image(draw, 1, 2, 6, 5), (width, width), named


def _mean_pool(x: Value, kernel: Sizes, stride: int, padding: int) -> Value:
    return _windows(_around(x, padding), kernel, stride, 1).mean((-1, -2))


def _max_pool(x: Value, kernel: Sizes, stride: int, padding: int) -> Value:
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    return _windows(_around(x, padding, least), kernel, stride, 1).max((-1, -2))


def _adaptive(draw: Draw) -> tuple[Any, ...]:
    return _image(draw, 1, 2, 6, 5), draw.pick((2, 2), (3, 5), (1, 1), (4, 2))


def _adapted(reduce: Reference) -> Reference:
    """The reduction of boxes that cover an axis, as evenly as whole numbers allow."""

    def pool(x: Value, sizes: Sizes) -> Value:
        rows, columns = (
            [(at * size // count, math.ceil((at + 1) * size / count)) for at in range(count)]
            for size, count in zip(x.shape[2:], sizes, strict=True)
        )
        found = [[reduce(x[:, :, a:b, c:d], (2, 3)) for c, d in columns] for a, b in rows]
        return np.moveaxis(np.array(found), (0, 1), (2, 3))

    return pool


# ---- resizing ----


def _resized(draw: Draw) -> tuple[Any, ...]:
    size = draw.pick((4, 7), (2, 3), (5, 5))
    mode = draw.pick("linear", "nearest")
    aligned = mode == "linear" and draw.pick(True, False)
    return _image(draw, 1, 2, 3, 5), size, mode, aligned


def _resize(x: Value, sizes: Sizes, mode: str, aligned: bool) -> Value:
    for axis, count in zip((2, 3), sizes, strict=True):
        length = x.shape[axis]
        place = np.arange(count)
        if mode == "nearest":
            x = np.take(x, np.floor(place * (length / count)).astype(int), axis)
            continue
        if aligned:
            at = place * ((length - 1) / max(count - 1, 1))
        else:
            at = np.clip((place + 0.5) * (length / count) - 0.5, 0, None)
        low = np.minimum(np.floor(at).astype(int), length - 1)
        high = np.minimum(low + 1, length - 1)
        share = (at - low).reshape((-1, *(1,) * (3 - axis)))
        x = np.take(x, low, axis) * (1 - share) + np.take(x, high, axis) * share
    return x


def _resize_by_torch(x: Value, sizes: Sizes, mode: str, aligned: bool) -> Value:
    how = {"mode": "bilinear", "align_corners": aligned} if mode == "linear" else {"mode": mode}
    return torch.nn.functional.interpolate(x, sizes, **how)


ROWS = (
    Row("conv1d", _convolution(1), _convolved, dtypes=NUMBERS),
    Row("conv2d", _convolution(2), _convolved, dtypes=NUMBERS),
    # Between the elements there are zeros, which make NaN of an infinite weight.
    Row("conv_transpose2d", _transposed, _spread, dtypes=NUMBERS, edges=False),
    Row("avg_pool2d", _pooled, _mean_pool, dtypes=FLOATS),
    Row("max_pool2d", _pooled, _max_pool, dtypes=NUMBERS, gradient_edges=False),
    Row("adaptive_avg_pool2d", _adaptive, _adapted(np.mean), dtypes=FLOATS),
    Row(
        "adaptive_max_pool2d",
        _adaptive,
        _adapted(np.max),
        dtypes=NUMBERS,
        gradient_edges=False,
    ),
    # Whether an infinite neighbour counts at all is a matter of how its weight is rounded.
    Row("interpolate", _resized, _resize, _resize_by_torch, FLOATS, edges=False),
)
