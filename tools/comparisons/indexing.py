"""Rows of reading and writing at places that indices and masks name."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelet import Tensor
from tools.comparisons.draws import NUMBERS, Draw, Operand
from tools.comparisons.row import Reference, Row, Value, torch


def _places(draw: Draw) -> tuple[Any, ...]:
    """A tensor, an axis, and indices along it in a shape that is nowhere longer."""
    shape = draw.pick((4,), (3, 5), (2, 3, 4))
    axis = draw.integer(-len(shape), len(shape) - 1)
    sizes = [draw.integer(1, dim) for dim in shape]
    sizes[axis] = draw.integer(0, 6)
    index = draw.indices(tuple(sizes), shape[axis])
    return draw.tensor(shape), axis, Operand(index.values.astype(np.int64), "int64")


def _gathered(x: Value, axis: int, index: Value) -> Value:
    cut = tuple(slice(0, size) for size in index.shape)
    cut = (*cut[: axis % x.ndim], slice(None), *cut[axis % x.ndim + 1 :])
    return np.take_along_axis(x[cut], index, axis)


def _distinct(draw: Draw) -> tuple[Any, ...]:
    """As `_places`, with no place named twice."""
    value, axis, index = _places(draw)
    length = value.shape[axis]
    shape = [*index.shape]
    shape[axis] = draw.integer(0, length)
    moved = [shape[at] for at in range(len(shape)) if at != axis % len(shape)]
    rows = [draw.random.permutation(length)[: shape[axis]] for _ in range(int(np.prod(moved)))]
    found = np.array(rows, np.int64).reshape((*moved, shape[axis]))
    return value, axis, Operand(np.moveaxis(found, -1, axis).copy(), "int64")


def _with_source(draw: Draw) -> tuple[Any, ...]:
    value, axis, index = _distinct(draw)
    return value, axis, index, draw.tensor(index.shape)


def _adding(draw: Draw) -> tuple[Any, ...]:
    value, axis, index = _places(draw)
    return value, axis, index, draw.tensor(index.shape, extremes=False)


def _reducing(draw: Draw) -> tuple[Any, ...]:
    # A mean of integers is rounded down in torch, and to 0 in ours.
    how = draw.pick("sum", "prod", "amax", "amin", "mean" if draw.is_float else "sum")
    value, axis, index = _places(draw)
    small = draw.plain(value.shape, -2, 2)
    named = {"reduce": how, "include_self": draw.pick(True, False)}
    return small, axis, index, draw.plain(index.shape, -2, 2), named


def _scattered(x: Value, axis: int, index: Value, source: Value) -> Value:
    result = x.copy()
    for place in np.ndindex(index.shape):
        target = [*place]
        target[axis] = index[place]
        result[tuple(target)] = source[place]
    return result


_COMBINED: dict[str, Reference] = {
    "sum": np.add.reduce,
    "prod": np.multiply.reduce,
    "mean": np.mean,
    "amax": np.maximum.reduce,
    "amin": np.minimum.reduce,
}


def _reduced(
    x: Value, axis: int, index: Value, source: Value, reduce: str, include_self: bool
) -> Value:
    met: dict[tuple[int, ...], list[Value]] = {}
    for place in np.ndindex(index.shape):
        target = [*place]
        target[axis] = index[place]
        found = met.setdefault(tuple(target), [x[tuple(target)]] if include_self else [])
        found.append(source[place])
    result = x.copy()
    for target_place, found in met.items():
        result[target_place] = _COMBINED[reduce](np.array(found))
    return result


def _added(x: Value, axis: int, index: Value, source: Value) -> Value:
    return _reduced(x, axis, index, source, "sum", True)


def _selected(draw: Draw) -> tuple[Any, ...]:
    value = draw.tensor((3, 5))
    axis = draw.pick(0, 1, -1)
    return value, axis, draw.indices((draw.integer(0, 6),), value.shape[axis])


def _flat_places(draw: Draw) -> tuple[Any, ...]:
    index = draw.indices(draw.pick((), (4,), (2, 3)), 15)
    return draw.tensor((3, 5)), Operand(index.values.astype(np.int64), "int64")


def _sorted_places(draw: Draw) -> tuple[Any, ...]:
    value = draw.tensor((3, 5))
    axis = draw.pick(0, 1, -1)
    order = np.argsort(draw.random.random(value.shape), axis)
    return value, Operand(order, "int64"), axis


def _masked(draw: Draw) -> tuple[Any, ...]:
    value = draw.tensor(draw.shape(least=1))
    return value, draw.mask(value.shape)


def _classes(draw: Draw) -> tuple[Any, ...]:
    count = draw.integer(1, 5)
    index = draw.indices(draw.shape(), count)
    return Operand(index.values.astype(np.int64), "int64"), count


def _put(draw: Draw) -> tuple[Any, ...]:
    rows, columns = draw.indices((4,), 3, negative=True), draw.indices((4,), 5)
    return draw.plain((3, 5)), (rows, columns), draw.plain((4,)), True


def _put_in(x: Value, indices: Value, values: Value, accumulate: bool) -> Value:
    result = x.copy()
    np.add.at(result, tuple(indices), values)
    return result


def _put_by_torch(x: Value, indices: Value, values: Value, accumulate: bool) -> Value:
    return x.index_put(tuple(each.long() for each in indices), values, accumulate)


# ---- indices of every kind ----


def _index(draw: Draw) -> tuple[Any, ...]:
    value = draw.tensor((3, 4, 5))
    ints = draw.indices((2,), 3, negative=True)
    pairs = draw.indices((2, 1), 4), draw.indices((1, 3), 5)
    mask, row_mask = draw.mask((3, 4)), draw.mask((3,))
    index = draw.pick(
        draw.integer(-3, 2),
        (draw.integer(0, 2), slice(None), -1),
        (slice(None, None, -1), slice(1, None, 2)),
        (..., None, slice(-3, -1)),
        (ints,),
        (slice(None), *pairs),
        (ints, slice(None), draw.indices((2,), 5)),
        (mask,),
        (row_mask, draw.integer(0, 3)),
        ([0, 2, 0],),
        (slice(5, 1), 0),
    )
    return value, index


def _written(draw: Draw) -> tuple[Any, ...]:
    value = draw.tensor((3, 4, 5))
    index = draw.pick(
        (draw.integer(-3, 2),),
        (slice(None, None, 2), ..., slice(1, 4)),
        (draw.mask((3, 4)),),
        (Operand(draw.random.permutation(3)[:2].astype(np.int64), "int64"),),
        (slice(None), slice(None, None, -1), 2),
    )
    return value, index, draw.scalar()


def _set_in_ours(x: Tensor, index: Value, number: Value) -> Tensor:
    x[index] = number
    return x


def _set(x: Value, index: Value, number: Value) -> Value:
    result = x.copy()
    result[tuple(index)] = number
    return result


ROWS = (
    Row("gather", _places, _gathered),
    Row("take_along_dim", _sorted_places, np.take_along_axis),
    Row("take", _flat_places, np.take),
    Row("index_select", _selected, lambda x, axis, index: np.take(x, index, axis)),
    Row("masked_select", _masked, lambda x, mask: x[mask]),
    Row("nonzero", lambda draw: (draw.tensor(draw.shape(least=1)),), np.argwhere),
    Row(
        "one_hot",
        _classes,
        lambda x, count: (x[..., None] == np.arange(count)).astype(np.int64),
        torch and torch.nn.functional.one_hot,
    ),
    Row("scatter", _with_source, _scattered),
    Row("scatter_add", _adding, _added, dtypes=NUMBERS),
    Row("scatter_reduce", _reducing, _reduced, None, NUMBERS),
    Row("index_put", _put, _put_in, _put_by_torch, NUMBERS),
    Row("__getitem__", _index, lambda x, at: x[tuple(at) if isinstance(at, tuple) else at], None),
    Row("__setitem__", _written, _set, None, has_gradient=False, call=_set_in_ours),
)
