"""Tensors from nothing: constants, ranges, and the same shape as another.

In:  shapes and numbers.
Out: lazy nodes that take no memory until they are needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

from kernelet.base.dtype import DType, Scalar, dtypes
from kernelet.base.errors import ArgumentError, ShapeError
from kernelet.frontend.elementwise import Elementwise
from kernelet.frontend.primitives import DTypeLike, as_dtype, scalar_dtype, show_shape
from kernelet.frontend.shaping import flat_shape
from kernelet.graph.infer import Dim, Shape


def checked_shape(arguments: Sequence[Dim | Sequence[Dim]]) -> Shape:
    """A shape given as several sizes or as one sequence, with no size below 0."""
    shape = flat_shape(arguments)
    bad = [dim for dim in shape if isinstance(dim, int) and dim < 0]
    if bad:
        raise ShapeError(
            f"shape {show_shape(shape)}: a size is {bad[0]}. Sizes must be at least 0."
        )
    return tuple(int(dim) if hasattr(dim, "__index__") else dim for dim in shape)


class Creation(Elementwise):
    """zeros, ones, full, arange, linspace, eye and the `_like` forms."""

    __slots__ = ()

    @classmethod
    def _made(
        cls,
        value: Scalar,
        shape: Shape,
        dtype: DTypeLike | None,
        device: str | None,
        requires_grad: bool | None,
    ) -> Self:
        kind = scalar_dtype(value) if dtype is None else as_dtype(dtype)
        return cls._full(value, shape, kind)._created(device, requires_grad)

    @classmethod
    def full(
        cls,
        shape: Dim | Sequence[Dim],
        fill_value: Scalar,
        *,
        dtype: DTypeLike | None = None,
        device: str | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """`fill_value` in every place; ``np.full(shape, fill_value)``."""
        return cls._made(fill_value, checked_shape((shape,)), dtype, device, requires_grad)

    @classmethod
    def zeros(
        cls,
        *shape: Dim | Sequence[Dim],
        dtype: DTypeLike = dtypes.default_float,
        device: str | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """``np.zeros(shape)``."""
        return cls._made(0, checked_shape(shape), dtype, device, requires_grad)

    @classmethod
    def ones(
        cls,
        *shape: Dim | Sequence[Dim],
        dtype: DTypeLike = dtypes.default_float,
        device: str | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """``np.ones(shape)``."""
        return cls._made(1, checked_shape(shape), dtype, device, requires_grad)

    @classmethod
    def arange(
        cls,
        start: Scalar,
        stop: Scalar | None = None,
        step: Scalar = 1,
        *,
        dtype: DTypeLike | None = None,
        device: str | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """start, start + step, ... up to but without stop; ``np.arange(start, stop, step)``."""
        if stop is None:
            start, stop = 0, start
        if step == 0:
            raise ArgumentError("arange: step is 0. Give a step that leads from start to stop.")
        count = max(math.ceil((stop - start) / step), 0)
        whole = not any(isinstance(value, float) for value in (start, stop, step))
        kind = scalar_dtype(max(abs(start), abs(stop)) if whole else 0.5)
        kind = kind if dtype is None else as_dtype(dtype)
        work = dtypes.float32 if kind.is_float and kind.itemsize < 4 else kind
        if kind.is_bool or not (kind.is_float or whole):
            work = dtypes.default_float
        values = cls._arange(count, work)
        values = values if step == 1 else values * step
        values = values if start == 0 else values + start
        return values.cast(kind)._created(device, requires_grad)

    @classmethod
    def linspace(
        cls,
        start: Scalar,
        stop: Scalar,
        steps: int,
        *,
        dtype: DTypeLike = dtypes.default_float,
        device: str | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """`steps` numbers from start to stop, both included; ``np.linspace``."""
        kind = as_dtype(dtype)
        if steps < 0:
            raise ArgumentError(f"linspace: {steps} steps. Give at least 0.")
        work = kind if kind.is_float and kind.itemsize >= 4 else dtypes.default_float
        place = cls._arange(steps, work)
        values = place * ((stop - start) / max(steps - 1, 1)) + float(start)
        if steps > 1:
            values = place.eq(steps - 1).where(float(stop), values)
        return values.cast(kind)._created(device, requires_grad)

    @classmethod
    def eye(
        cls,
        rows: int,
        columns: int | None = None,
        *,
        dtype: DTypeLike = dtypes.default_float,
        device: str | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """1 on the diagonal, else 0; ``np.eye(rows, columns)``."""
        down = cls._arange(rows)._reshape((rows, 1))
        across = cls._arange(rows if columns is None else columns)
        return down.eq(across).cast(dtype)._created(device, requires_grad)

    @classmethod
    def tri(
        cls, rows: int, columns: int | None = None, k: int = 0, *, dtype: DTypeLike = dtypes.float32
    ) -> Self:
        """1 on and below the k-th diagonal, else 0; ``np.tri(rows, columns, k)``."""
        down = cls._arange(rows)._reshape((rows, 1))
        across = cls._arange(rows if columns is None else columns)
        return (across <= down + k).cast(dtype)._created(None, None)

    # ---- like another tensor ----

    def full_like(
        self,
        fill_value: Scalar,
        *,
        dtype: DTypeLike | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """`fill_value` in this shape and type; ``np.full_like(x, fill_value)``."""
        kind: DType = self.dtype if dtype is None else as_dtype(dtype)
        return self._made(fill_value, self.shape, kind, self.uop.device, requires_grad)

    def zeros_like(
        self, *, dtype: DTypeLike | None = None, requires_grad: bool | None = None
    ) -> Self:
        """``np.zeros_like(x)``."""
        return self.full_like(0, dtype=dtype, requires_grad=requires_grad)

    def ones_like(
        self, *, dtype: DTypeLike | None = None, requires_grad: bool | None = None
    ) -> Self:
        """``np.ones_like(x)``."""
        return self.full_like(1, dtype=dtype, requires_grad=requires_grad)

    def _created(self, device: str | None, requires_grad: bool | None) -> Self:
        """This value as a new leaf."""
        return self._create(self.uop, device, requires_grad)
