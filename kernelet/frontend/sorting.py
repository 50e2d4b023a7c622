"""Sorting, and what follows from it: order, the largest few, quantiles.

In:  tensors.
Out: `Sorting`: sort, argsort, topk, running extremes, median, quantile.

Each element becomes one 64-bit integer: its place in the order of values above, its index below.
So no two are equal, and the order is stable. Short rows are sorted by counting: an element's place
is the number of smaller ones. Long rows are cut into columns, of which only the columns are
sorted, four times, with fixed movements between (Leighton's columnsort, 1985).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Self

from kernelet.base.dtype import dtypes
from kernelet.base.errors import ArgumentError
from kernelet.frontend.arguments import Share
from kernelet.frontend.indexing import Indexing
from kernelet.frontend.primitives import known, product
from kernelet.graph.ops import Op
from kernelet.graph.walk import split_view

_COUNTED = 4096
_INDEX_BITS = 32
_FILLER_BITS = 27
_DEPTHS = 8


class Sorting(Indexing):
    """Order along an axis."""

    __slots__ = ()

    def sort(self, dim: int = -1, descending: bool = False) -> tuple[Self, Self]:
        """The elements in order, and where each was; ``numpy.sort``.

        Equal elements keep their order. NaN counts as greater than any number.
        """
        stored = self._computed_once()
        order = stored.argsort(dim, descending)
        return stored.gather(dim, order), order

    def argsort(self, dim: int = -1, descending: bool = False) -> Self:
        """Where each element of the sorted axis was; ``numpy.argsort(x, kind="stable")``."""
        place = self.axis(dim)
        if self.ndim == 0 or 0 in self.shape:
            return self._full(0, self.shape, dtypes.int32)
        return self._computed_once().movedim(place, -1)._row_order(descending).movedim(-1, place)

    def _computed_once(self) -> Self:
        """In memory where it is computed: of an element that is computed again, as for each that it
        is compared with, the last digit may be another one.
        """
        is_computed = split_view(self.uop)[1].op not in (Op.BUFFER, Op.AFTER, Op.MULTI)
        return self.contiguous() if is_computed and self.dtype.is_float else self

    def topk(
        self, k: int, dim: int = -1, largest: bool = True, sorted_: bool = True
    ) -> tuple[Self, Self]:
        """The `k` largest (or smallest) elements in order, and where they are."""
        place = self.axis(dim)
        length = self._known_size(place) if self.ndim else 1
        self._need(0 <= k <= length, f"k from 0 to {length}, not {k}", ArgumentError)
        stored = self._computed_once()
        order = stored.argsort(place, descending=largest)
        order = order._slice(place, 0, k) if self.ndim else order
        return stored.gather(place, order), order

    def cummax(self, axis: int = 0) -> tuple[Self, Self]:
        """The greatest element so far, and where it was last met; NaN wins."""
        place = self.axis(axis)
        if self.ndim == 0:
            return self, self._full(0, (), dtypes.int32)
        values = self.detach()._running(Op.MAX, place)
        places = self._is_best(values).where(self._positions(place), 0)._running(Op.MAX, place)
        # The element that was met last takes the gradient.
        return values._known_as("identity", self.gather(place, places)), places

    def cummin(self, axis: int = 0) -> tuple[Self, Self]:
        """The least element so far, and where it was last met; NaN wins."""
        values, places = self._mirrored().cummax(axis)
        return values._mirrored(), places

    def median(self, axis: int | None = None, keepdim: bool = False) -> Self:
        """The middle element, the lower of two; NaN if there is one."""
        return self._at_place(axis, keepdim, lambda size: (size - 1) // 2)

    def quantile(
        self, q: Share | Sequence[Share], axis: int | None = None, keepdim: bool = False
    ) -> Self:
        """The value that the share `q` of the elements is below; ``numpy.quantile(x, q, axis)``.

        Those of several shares lie along a new first axis.
        """
        if isinstance(q, Sequence):
            self._need(q, "at least one share q", ArgumentError)
            first, *others = [self.quantile(share, axis, keepdim) for share in q]
            return first.stack(*others)
        return self._floating()._at_place(axis, keepdim, lambda size: q * (size - 1))

    def _at_place(self, axis: int | None, keepdim: bool, place: Callable[[int], float]) -> Self:
        """The value at a place in the sorted axis, on a line from one element to the next."""
        self._need_elements(self.axes(axis))
        flat, along = axis is None or self.ndim == 0, axis or 0
        rows = self._reshape((product(self.shape),)) if flat else self.movedim(along, -1)
        last = rows.ndim - 1
        at = place(known(rows.shape[last]))
        low = math.floor(at)
        ordered = rows.sort(last)[0]
        values = ordered._slice(last, low, low + 1)
        if at != low:
            values = values + (ordered._slice(last, low + 1, low + 2) - values) * (at - low)
        if rows.dtype.is_float:
            values = rows.isnan().any(last, True).where(math.nan, values)
        if flat:
            return values._reshape((1,) * self.ndim if keepdim else ())
        return values.movedim(-1, along) if keepdim else values.squeeze(last)

    # ---- the order of each row ----

    def _row_order(self, descending: bool) -> Self:
        """Where the elements of the sorted last axis were, as int32."""
        length = known(self.shape[-1])
        keys = self._order_keys(descending)
        order: Self | None = None
        for key in keys:
            turned = key if order is None else key.gather(key.ndim - 1, order)
            packed = turned * (1 << _INDEX_BITS) + self._arange(length, dtypes.int64)
            sorted_rows = packed._sorted_rows()
            found = (sorted_rows & ((1 << _INDEX_BITS) - 1)).cast(dtypes.int32)
            order = found if order is None else order.gather(order.ndim - 1, found)
        assert order is not None
        return order

    def _order_keys(self, descending: bool) -> list[Self]:
        """int64 numbers of 32 bits that are in the order of the values, the least digit first."""
        values = self.detach()
        if self.dtype.is_float and self.dtype is not dtypes.float64:
            values = values.cast(dtypes.float32)
        if values.dtype.is_float:
            signed = dtypes.int64 if values.dtype is dtypes.float64 else dtypes.int32
            # Both zeros are equal. Bits of negative floats are in the opposite order.
            bits = values.eq(0).where(0.0, values).bitcast(signed)
            key = (bits < 0).where(bits ^ signed.max, bits)
            key = values.isnan().where(int(signed.max), key)
        else:
            key = values.cast(dtypes.int64)
            if values.dtype.is_unsigned:
                key = key - (1 << (8 * values.dtype.itemsize - 1))
        key = (~key if descending else key).cast(dtypes.int64)
        if values.dtype.itemsize < 8:
            return [key]
        return [(key & ((1 << 32) - 1)) - (1 << 31), key >> 32]

    def _sorted_rows(self, counted: int = _COUNTED, depth: int = 0) -> Self:
        """The last axis in rising order; no two of its elements are equal.

        The greatest 2**30 integers are free: fillers of short columns come from there.
        """
        length = known(self.shape[-1])
        if length <= counted:
            return self._sorted_by_counting()
        columns, rows = _column_shape(length)
        *batch, _ = self.shape
        missing = columns * rows - length
        # Fillers differ from each other and from those that an outer call has put in.
        place = self._arange(length + missing, dtypes.int64)
        filler = place + (int(dtypes.int64.max) - (_DEPTHS - depth) * (1 << _FILLER_BITS))
        padded = (place < length).where(self._beside_zeros(len(batch), 0, missing), filler)
        result = padded._columnsort(columns, rows, counted, depth + 1)
        return result._slice(len(batch), 0, length)

    def _sorted_by_counting(self) -> Self:
        mine, others, last = self.unsqueeze(-1), self.unsqueeze(-2), (self.ndim,)
        rank = (others < mine).cast(dtypes.int32)._fold(Op.ADD, last, False)
        placed = rank.unsqueeze(-2) == self._arange(self.shape[-1]).unsqueeze(1)
        return placed.where(others, 0)._fold(Op.ADD, last, False)

    def _columnsort(self, columns: int, rows: int, counted: int, depth: int) -> Self:
        """The last axis, `columns` times `rows` elements, in order."""
        *batch, length = self.shape
        tall, wide, half = (*batch, rows, columns), (*batch, columns, rows), rows // 2
        result = self._reshape(wide)._sorted_rows(counted, depth)
        # Deal the columns out over the rows, and back.
        result = result._reshape(tall).mT._sorted_rows(counted, depth)
        result = result.mT._reshape(wide)._sorted_rows(counted, depth)
        # Columns that begin in the middle of one and end in the middle of the next.
        first, inner, last = result.flatten(-2).split([half, columns * rows - rows, half], -1)
        inner = inner.unflatten(-1, (-1, rows))._sorted_rows(counted, depth).flatten(-2)
        return first.cat(inner, last, dim=-1)


def _column_shape(length: int) -> tuple[int, int]:
    """(columns, rows) that columnsort is right for: rows >= 2 * (columns - 1)**2, even, divisible.

    >>> _column_shape(70000)
    (33, 2178)
    """
    columns = 2
    while 2 * columns**3 <= length:
        columns += 1
    step = columns * 2
    rows = max(math.ceil(length / columns), 2 * (columns - 1) ** 2)
    return columns, math.ceil(rows / step) * step
