"""Rows of systems of equations, factors of matrices, and of windows put back together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tools.comparisons.draws import FLOATS, Draw, Operand
from tools.comparisons.row import Row, Value, torch

Arguments = tuple[Any, ...]
FACTORED = ("float32", "float64")


def _small(draw: Draw, *shape: int) -> Operand:
    return draw.tensor(shape, -2, 2, extremes=False)


def _any_two(draw: Draw) -> Arguments:
    shapes = draw.shape(0, 2), draw.shape(0, 2)
    return tuple(_small(draw, *shape) for shape in shapes)


# ---- systems and factors ----


def _square(draw: Draw) -> Operand:
    size = draw.integer(1, 3)
    shape = draw.pick((size, size), (2, size, size))
    values = draw.random.uniform(-1, 1, shape) + 2 * np.eye(size)
    return Operand(values.astype(draw.dtype), draw.dtype)


def _system(draw: Draw) -> Arguments:
    square = _square(draw)
    return square, draw.plain((*square.shape[:-1], 2))


def _triangular(draw: Draw) -> Arguments:
    names = {"upper": draw.pick(True, False), "unitriangular": draw.pick(True, False)}
    return *_system(draw), names


def _solve_triangular(x: Value, y: Value, upper: bool, unitriangular: bool) -> Value:
    triangle = np.triu(x) if upper else np.tril(x)
    if unitriangular:
        size = x.shape[-1]
        triangle = triangle * (1 - np.eye(size)) + np.eye(size)
    return np.linalg.solve(triangle, y)


def _positive(draw: Draw) -> tuple[Operand]:
    square = _square(draw).values
    positive = square @ square.swapaxes(-1, -2) + np.eye(square.shape[-1])
    return (Operand(positive.astype(draw.dtype), draw.dtype),)


def _tall_or_wide(draw: Draw) -> tuple[Operand]:
    square = _square(draw)
    cut = square.values[..., : draw.integer(1, square.shape[-1])]
    return (Operand(np.ascontiguousarray(draw.pick(cut, cut.swapaxes(-1, -2))), draw.dtype),)


def _singular_values(x: Value) -> Value:
    return np.linalg.svd(x)[1]


def _orthogonal(x: Value, steps: int, params: tuple[float, ...]) -> Value:
    norm = (x * x).sum((-2, -1), keepdims=True) ** 0.5
    found = x / (norm + 1e-7)
    for _ in range(steps):
        found = params[0] * found + params[1] * found @ found.swapaxes(-1, -2) @ found
    return found


# ---- windows ----


def _normed(draw: Draw) -> Arguments:
    shape = (2, draw.integer(1, 2), draw.integer(3, 6), draw.integer(3, 6))
    positive = np.abs(_small(draw, *shape).values) + 0.5
    return Operand(positive.astype(draw.plain().values.dtype), draw.dtype), 2, draw.integer(2, 3)


def _norm_pool(x: Value, power: int, size: int) -> Value:
    cut = np.lib.stride_tricks.sliding_window_view(x, (size, size), (2, 3))
    return (cut[:, :, ::size, ::size] ** power).sum((-2, -1)) ** (1 / power)


def _unpooled(draw: Draw) -> Arguments:
    values = _small(draw, 2, 1, 2, 3)
    starts = (np.arange(2)[:, None] * 2 + draw.integer(0, 1)) * 6 + np.arange(3) * 2
    places = np.broadcast_to(starts + draw.integer(0, 1), values.shape).astype("int64")
    return values, Operand(places, "int64"), 2


def _unpool(x: Value, places: Value, _size: int) -> Value:
    image = np.zeros((*x.shape[:2], 24), x.dtype)
    np.put_along_axis(image, places.reshape(*x.shape[:2], -1), x.reshape(*x.shape[:2], -1), -1)
    return image.reshape(*x.shape[:2], 4, 6)


def _folded(draw: Draw) -> Arguments:
    return _small(draw, 2, 3 * 4, 6), (3, 4), 2


def _fold(x: Value, size: tuple[int, int], window: int) -> Value:
    image, cells = np.zeros((2, 3, *size), x.dtype), x.reshape(2, 3, window, window, 2, 3)
    for i, j in np.ndindex(window, window):
        image[:, :, i : i + 2, j : j + 3] += cells[:, :, i, j]
    return image


# ---- sizes and orders ----


def _smaller(draw: Draw) -> Arguments:
    value = draw.tensor(draw.shape(1))
    return value, tuple(draw.integer(0, size) for size in value.shape)


def _wider(draw: Draw) -> Arguments:
    value = draw.tensor(draw.shape(1))
    return value, tuple(size + draw.integer(0, 2) for size in value.shape)


def _padded_to(x: Value, shape: tuple[int, ...]) -> Value:
    return np.pad(x, [(0, want - have) for have, want in zip(x.shape, shape, strict=True)])


def _rearranged(draw: Draw) -> Arguments:
    return draw.tensor(draw.shape(3, 3)), "a b (c d) -> (d a) b c", {"c": 1}


def _rearrange(x: Value, _formula: str, c: int) -> Value:
    first, second, third = x.shape
    return x.transpose(2, 0, 1).reshape(third * first, second, c)


_FACTOR = Row(
    "inverse",
    lambda draw: (_square(draw),),
    np.linalg.inv,
    "inverse",
    FACTORED,
    edges=False,
    tolerance=512,
)
_POOL = Row("lp_pool2d", _normed, _norm_pool, dtypes=FLOATS, edges=False, tolerance=16)

ROWS = (
    _FACTOR,
    replace(
        _FACTOR,
        method="solve",
        draw=_system,
        numpy=np.linalg.solve,
        torch=lambda x, y: torch.linalg.solve(x, y),
    ),
    replace(
        _FACTOR,
        method="solve_triangular",
        draw=_triangular,
        numpy=_solve_triangular,
        torch=lambda x, y, **names: torch.linalg.solve_triangular(x, y, **names),
    ),
    replace(
        _FACTOR,
        method="cholesky",
        draw=_positive,
        # Only one triangle is read, and both take the gradient.
        numpy=lambda x: np.linalg.cholesky((x + np.swapaxes(x, -1, -2)) / 2),
        torch=lambda x: torch.linalg.cholesky(x),
    ),
    replace(
        _FACTOR,
        method="qr",
        draw=_tall_or_wide,
        numpy=np.linalg.qr,
        torch=lambda x: torch.linalg.qr(x),
    ),
    # The singular values alone: vectors have a sign that is free.
    replace(
        _FACTOR,
        method="svd",
        draw=_tall_or_wide,
        numpy=_singular_values,
        torch=lambda x: torch.linalg.svdvals(x),
        call=lambda x: x.svd()[1],
    ),
    replace(
        _FACTOR,
        method="newton_schulz",
        draw=lambda draw: (_square(draw), 3, (1.5, -0.5)),
        numpy=_orthogonal,
        torch=None,
    ),
    Row("kron", _any_two, np.kron, dtypes=FLOATS, edges=False),
    _POOL,
    replace(_POOL, method="max_unpool2d", draw=_unpooled, numpy=_unpool),
    replace(_POOL, method="fold", draw=_folded, numpy=_fold),
    Row("pad_to", _wider, _padded_to, None),
    Row("shrink_to", _smaller, lambda x, shape: x[tuple(map(slice, shape))], None),
    Row("rearrange", _rearranged, _rearrange, None),
)
