"""Rows of products of matrices."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from tools.comparisons.draws import FLOATS, NUMBERS, Draw, Operand
from tools.comparisons.row import Row, Value, torch


def _matrix(draw: Draw, *shape: int) -> Operand:
    return draw.tensor(shape, -3, 3, extremes=False)


def _products(draw: Draw) -> tuple[Any, ...]:
    rows, inner, columns = (draw.integer(1, 5) for _ in range(3))
    lead = draw.pick((), (2,), (1, 3))
    left = draw.pick((inner,), (rows, inner), (*lead, rows, inner))
    right = draw.pick((inner,), (inner, columns), (*lead, inner, columns))
    return _matrix(draw, *left), _matrix(draw, *right)


def _matrices(draw: Draw) -> tuple[Any, ...]:
    rows, inner, columns = (draw.integer(1, 5) for _ in range(3))
    return _matrix(draw, rows, inner), _matrix(draw, inner, columns)


def _square(draw: Draw) -> tuple[Any, ...]:
    size = draw.integer(1, 4)
    return _matrix(draw, draw.integer(1, 4), size), _matrix(draw, size, size)


def _batches(draw: Draw) -> tuple[Any, ...]:
    left, right = _matrices(draw)
    return _matrix(draw, 3, *left.shape), _matrix(draw, 3, *right.shape)


def _vectors(draw: Draw) -> tuple[Any, ...]:
    return _matrix(draw, draw.integer(1, 5)), _matrix(draw, draw.integer(1, 5))


def _rows(draw: Draw) -> tuple[Any, ...]:
    size = draw.integer(1, 5)
    return _matrix(draw, 2, size), _matrix(draw, 3, size)


def _vector(draw: Draw) -> tuple[Any, ...]:
    size = draw.integer(1, 5)
    return _matrix(draw, 3, size), _matrix(draw, size)


def _added(draw: Draw) -> tuple[Any, ...]:
    left, right = _matrices(draw)
    total = _matrix(draw, left.shape[0], right.shape[1])
    return total, left, right, {"beta": draw.pick(1, 2), "alpha": draw.pick(1, 3)}


def _addmm(total: Value, left: Value, right: Value, beta: int, alpha: int) -> Value:
    return beta * total + alpha * (left @ right)


def _layer(draw: Draw) -> tuple[Any, ...]:
    inner, outer = draw.integer(1, 4), draw.integer(1, 4)
    lead = draw.pick((2,), (2, 3), ())
    bias = draw.pick(None, _matrix(draw, outer))
    return _matrix(draw, *lead, inner), _matrix(draw, inner, outer), bias


def _linear(x: Value, weight: Value, bias: Value) -> Value:
    found = x @ weight
    return found if bias is None else found + bias


def _formula(draw: Draw) -> tuple[Any, ...]:
    formula, shapes = draw.pick(
        ("ij,jk->ik", ((2, 3), (3, 4))),
        ("bij,bjk->bik", ((2, 2, 3), (2, 3, 2))),
        ("ii->i", ((3, 3),)),
        ("ij->ji", ((2, 3),)),
        ("ij,j->", ((2, 3), (3,))),
        ("...i,i->...", ((2, 3, 4), (4,))),
        ("i,j,k->ijk", ((2,), (3,), (2,))),
    )
    return formula, *(_matrix(draw, *shape) for shape in shapes)


def _contracted(draw: Draw) -> tuple[Any, ...]:
    return draw.pick(
        (_matrix(draw, 2, 3, 4), _matrix(draw, 3, 4, 2), 2),
        (_matrix(draw, 2, 3), _matrix(draw, 3, 2), 1),
        (_matrix(draw, 2, 3), _matrix(draw, 2, 2), ((0,), (1,))),
    )


ROWS = (
    Row("matmul", _products, np.matmul, dtypes=NUMBERS),
    Row("dot", _matrices, np.dot, "matmul", NUMBERS),
    Row("mm", _matrices, np.matmul, dtypes=NUMBERS),
    Row("bmm", _batches, np.matmul, dtypes=NUMBERS),
    Row("mv", _vector, np.matmul, dtypes=NUMBERS),
    Row("outer", _vectors, np.outer, dtypes=NUMBERS),
    Row("inner", _rows, np.inner, dtypes=NUMBERS),
    Row("addmm", _added, _addmm, dtypes=NUMBERS),
    Row("linear", _layer, _linear, _linear, NUMBERS),
    Row("einsum", _formula, np.einsum, torch and torch.einsum, NUMBERS),
    Row("tensordot", _contracted, np.tensordot, dtypes=NUMBERS),
    Row(
        "__rmatmul__",
        lambda draw: _matrices(draw)[::-1],
        lambda x, y: y @ x,
        lambda x, y: y @ x,
        FLOATS,
        call=lambda x, y: y @ x,
    ),
    Row("__imatmul__", _square, np.matmul, "matmul", FLOATS, False, call=operator.imatmul),
)
