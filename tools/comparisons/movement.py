"""Rows of movements: shapes, orders, joins, cuts and paddings."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from tools.comparisons.draws import Draw, Operand
from tools.comparisons.elementwise import one
from tools.comparisons.row import Reference, Row, Value


def some_axes(draw: Draw) -> tuple[Operand]:
    """A tensor with at least one axis."""
    return (draw.tensor(draw.shape(least=1)),)


def matrices(draw: Draw) -> tuple[Operand]:
    """A tensor with at least two axes."""
    return (draw.tensor(draw.shape(least=2)),)


def _along(draw: Draw) -> tuple[Any, ...]:
    (value,) = some_axes(draw)
    return value, draw.axis(value)


def _order(draw: Draw) -> tuple[Any, ...]:
    value = draw.tensor()
    return value, tuple(int(at) for at in draw.random.permutation(value.ndim))


def _two_axes(draw: Draw) -> tuple[Any, ...]:
    (value,) = some_axes(draw)
    return value, draw.axis(value), draw.axis(value)


def _shape_of_as_many(draw: Draw) -> tuple[Any, ...]:
    value = draw.tensor()
    size = value.values.size
    shapes = [(size,), (1, size), value.shape[::-1], (*value.shape, 1), (-1, 1)]
    return value, draw.pick(*shapes[: 5 if size else 4])


def _reshaped_like(draw: Draw) -> tuple[Any, ...]:
    value = draw.tensor()
    return value, draw.form(value.shape[::-1])


def _wider(draw: Draw) -> tuple[Any, ...]:
    shape = draw.shape()
    return draw.tensor(draw.broadcast(shape)), shape


def _wider_like(draw: Draw) -> tuple[Any, ...]:
    value, shape = _wider(draw)
    return value, draw.form(shape)


def _padding(draw: Draw) -> tuple[Any, ...]:
    (value,) = some_axes(draw)
    pads = tuple((draw.integer(0, 2), draw.integer(0, 2)) for _ in value.shape)
    return value, pads, {"value": draw.pick(0, 1)}


def _padding_from_inside(draw: Draw) -> tuple[Any, ...]:
    value = draw.tensor((2, 4, 3))
    pads = ((0, 0), (draw.integer(0, 3), draw.integer(0, 3)), (draw.integer(0, 2), 1))
    return value, pads, {"mode": draw.pick("reflect", "replicate", "circular")}


def _pad_arguments(draw: Draw) -> tuple[Any, ...]:
    return draw.pick(_padding, _padding_from_inside)(draw)


def _pad(x: Value, pads: Value, mode: str = "constant", value: float = 0) -> Value:
    if mode == "constant":
        return np.pad(x, pads, constant_values=value)
    modes: dict[str, Literal["reflect", "edge", "wrap"]]
    modes = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    return np.pad(x, pads, mode=modes[mode])


def _bounds(draw: Draw) -> tuple[Any, ...]:
    (value,) = some_axes(draw)
    begins = [draw.integer(0, dim) for dim in value.shape]
    ends = [draw.integer(begin, dim) for begin, dim in zip(begins, value.shape, strict=True)]
    return value, tuple(zip(begins, ends, strict=True))


def _shrink(x: Value, bounds: Value) -> Value:
    return x[tuple(slice(begin, end) for begin, end in bounds)]


def _flip_arguments(draw: Draw) -> tuple[Any, ...]:
    (value,) = some_axes(draw)
    return value, draw.pick(draw.axis(value), tuple(range(value.ndim)))


def _squeezed(draw: Draw) -> tuple[Any, ...]:
    value = draw.tensor((2, 1, 3, 1))
    return value, draw.pick(None, 1, -1, 0, (1, 3))


def _squeeze(x: Value, dim: Value) -> Value:
    axes = range(4) if dim is None else dim if isinstance(dim, tuple) else (dim,)
    return np.squeeze(x, tuple(at for at in axes if x.shape[at] == 1))


def _new_axis(draw: Draw) -> tuple[Any, ...]:
    value = draw.tensor()
    return value, draw.integer(-value.ndim - 1, value.ndim)


def _flattened(draw: Draw) -> tuple[Any, ...]:
    value = draw.tensor((2, 3, 4))
    return value, draw.pick(*((0, -1), (1, 2), (0, 1), (-2, -1)))


def _flatten(x: Value, ends: tuple[int, int]) -> Value:
    first, last = (at % x.ndim for at in ends)
    return x.reshape((*x.shape[:first], -1, *x.shape[last + 1 :]))


def _unflattened(draw: Draw) -> tuple[Any, ...]:
    return draw.tensor((2, 12, 3)), 1, draw.pick((3, 4), (-1, 6), (2, 2, 3))


def _repeats(draw: Draw) -> tuple[Any, ...]:
    value = draw.tensor()
    more = draw.pick((), (2,)) if value.ndim else (2,)
    return value, (*more, *(draw.integer(1, 3) for _ in value.shape))


def _interleaved(draw: Draw) -> tuple[Any, ...]:
    (value,) = some_axes(draw)
    return value, draw.integer(1, 3), draw.pick(None, draw.axis(value))


def _rolled(draw: Draw) -> tuple[Any, ...]:
    value = draw.tensor((3, 4))
    shift = draw.integer(-5, 5)
    return draw.pick((value, shift, None), (value, shift, -1), (value, (shift, 1), (0, 1)))


def _several(draw: Draw) -> tuple[Any, ...]:
    (value,) = some_axes(draw)
    axis = draw.axis(value)
    longer = [*value.shape]
    longer[axis] = draw.integer(0, 3)
    return value, draw.tensor(tuple(longer)), {"dim": axis}


def _stacked(draw: Draw) -> tuple[Any, ...]:
    value, axis = _new_axis(draw)
    return value, draw.tensor(value.shape), {"dim": axis}


def _cut(draw: Draw) -> tuple[Any, ...]:
    value = draw.tensor((4, 7))
    return value, draw.pick(1, 3, 4, (3, 3, 1)), draw.pick(1, -1)


def _split(x: Value, sizes: Value, axis: int) -> list[Value]:
    length = x.shape[axis]
    steps = sizes if isinstance(sizes, tuple) else (sizes,) * math.ceil(length / sizes)
    return np.split(x, np.cumsum(steps)[:-1], axis)


def _chunked(draw: Draw) -> tuple[Any, ...]:
    return draw.tensor((4, 7)), draw.integer(1, 8), draw.pick(0, 1, -1)


def _chunk(x: Value, count: int, axis: int) -> list[Value]:
    return _split(x, math.ceil(x.shape[axis] / count), axis)


def _unbind(x: Value, axis: int) -> list[Value]:
    return list(np.moveaxis(x, axis, 0))


def _windows(draw: Draw) -> tuple[Any, ...]:
    return draw.tensor((2, 7)), draw.pick(1, -1), draw.integer(1, 4), draw.integer(1, 3)


def _unfold(x: Value, axis: int, size: int, step: int) -> Value:
    places = range(0, x.shape[axis] - size + 1, step)
    return np.stack([x[:, place : place + size] for place in places], 1)


def _diagonals(draw: Draw) -> tuple[Any, ...]:
    shape = draw.pick((3, 4), (4, 3), (2, 3, 4))
    return draw.tensor(shape), draw.integer(-2, 2), *draw.pick((0, 1), (-1, -2))


def _triangle(draw: Draw) -> tuple[Any, ...]:
    (value,) = matrices(draw)
    return value, draw.integer(-3, 3)


def _grids(draw: Draw) -> tuple[Any, ...]:
    lengths = [draw.integer(1, 4) for _ in range(draw.integer(1, 3))]
    return *(draw.tensor((length,)) for length in lengths), {"indexing": draw.pick("ij", "xy")}


def _pixels(draw: Draw) -> tuple[Any, ...]:
    return draw.tensor((2, 8, 3, 2)), 2


def _shuffle(x: Value, factor: int) -> Value:
    batch, channels, height, width = x.shape
    inner = channels // factor**2
    cut = x.reshape(batch, inner, factor, factor, height, width)
    turned = cut.transpose(0, 1, 4, 2, 5, 3)
    return turned.reshape(batch, inner, height * factor, width * factor)


def _large_pixels(draw: Draw) -> tuple[Any, ...]:
    return draw.tensor((2, 2, 6, 4)), 2


def _unshuffle(x: Value, factor: int) -> Value:
    batch, channels, height, width = x.shape
    cut = x.reshape(batch, channels, height // factor, factor, width // factor, factor)
    turned = cut.transpose(0, 1, 3, 5, 2, 4)
    return turned.reshape(batch, channels * factor**2, height // factor, width // factor)


def _row(name: str, draw: Reference, formula: Reference, call: Reference | None = None) -> Row:
    """A row that torch has under other arguments: values are moved and not computed."""
    return Row(name, draw, formula, None, call=call)


ROWS = (
    _row("T", lambda draw: (draw.tensor((3, 4)),), lambda x: x.T, lambda x: x.T),
    _row("mT", matrices, lambda x: np.swapaxes(x, -1, -2), lambda x: x.mT),
    Row("permute", _order, np.transpose),
    Row("reshape", _shape_of_as_many, np.reshape),
    _row("reshape_as", _reshaped_like, lambda x, other: x.reshape(other.shape)),
    Row("broadcast_to", _wider, np.broadcast_to),
    _row("expand_as", _wider_like, lambda x, other: np.broadcast_to(x, other.shape)),
    _row("pad", _pad_arguments, _pad),
    _row("shrink", _bounds, _shrink),
    _row("flip", _flip_arguments, np.flip),
    _row("squeeze", _squeezed, _squeeze),
    Row("unsqueeze", _new_axis, np.expand_dims),
    _row("flatten", _flattened, _flatten, lambda x, ends: x.flatten(*ends)),
    Row("unflatten", _unflattened, lambda x, _, sizes: x.reshape(2, *sizes, 3)),
    _row("repeat", _repeats, np.tile),
    _row("repeat_interleave", _interleaved, np.repeat),
    Row("roll", _rolled, np.roll),
    _row("cat", _several, lambda x, y, dim: np.concatenate([x, y], dim)),
    _row("stack", _stacked, lambda x, y, dim: np.stack([x, y], dim)),
    Row("split", _cut, _split),
    Row("chunk", _chunked, _chunk),
    Row("unbind", _along, _unbind),
    _row("unfold", _windows, _unfold),
    Row("swapaxes", _two_axes, np.swapaxes),
    Row("moveaxis", _two_axes, np.moveaxis),
    Row("diagonal", _diagonals, np.diagonal),
    Row("diag", lambda draw: (draw.tensor((4,)),), np.diag),
    _row("trace", lambda draw: (draw.tensor((3, 4)),), np.trace),
    Row("tril", _triangle, np.tril),
    Row("triu", _triangle, np.triu),
    _row("meshgrid", _grids, lambda *x, indexing: np.meshgrid(*x, indexing=indexing)),
    Row("pixel_shuffle", _pixels, _shuffle),
    Row("pixel_unshuffle", _large_pixels, _unshuffle),
    _row("to_device", one, lambda x: x, lambda x: x.to_device("PYTHON:1").to_device("PYTHON")),
)
