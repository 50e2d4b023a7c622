"""Tensors from nothing: constants, ranges, and the same shape as another.

In:  shapes and numbers.
Out: lazy nodes that take no memory until they are needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self, TypedDict, Unpack

from kernelet.base.dtype import DType, Scalar, dtypes
from kernelet.base.errors import ArgumentError, ShapeError
from kernelet.frontend.arguments import Size
from kernelet.frontend.elementwise import Elementwise
from kernelet.frontend.host import plain_number
from kernelet.frontend.movement import Dims, flat_shape
from kernelet.frontend.primitives import DeviceLike, show_shape
from kernelet.frontend.promotion import DTypeLike, accumulator_dtype, as_dtype, scalar_dtype
from kernelet.graph.infer import Dim, Shape
from kernelet.graph.movement import add_dims
from kernelet.graph.uop import UOp


def checked_shape(arguments: Sequence[Dims]) -> Shape:
    """A shape given as several sizes or as one sequence, with no size below 0."""
    shape = flat_shape(arguments)
    bad = [dim for dim in shape if isinstance(dim, int) and dim < 0]
    if bad:
        raise ShapeError(f"shape {show_shape(shape)}: a size is {bad[0]}. Give sizes from 0.")
    return tuple(int(dim) if hasattr(dim, "__index__") else dim for dim in shape)


class Options(TypedDict, total=False):
    """What every creation method takes: a type other than its usual one, a device, and whether
    the new tensor is to have a gradient."""

    dtype: DTypeLike
    device: DeviceLike
    requires_grad: bool | None


class Creation(Elementwise):
    """zeros, ones, full, arange, linspace, eye and the `_like` forms."""

    __slots__ = ()

    @classmethod
    def full(cls, shape: Dims, fill_value: Scalar, **options: Unpack[Options]) -> Self:
        """`fill_value` in every place; ``np.full(shape, fill_value)``."""
        value = plain_number(fill_value)
        kind = dtype_of(options, scalar_dtype(value))
        return cls._full(value, checked_shape((shape,)), kind)._created(options)

    @classmethod
    def zeros(cls, *shape: Dims, **options: Unpack[Options]) -> Self:
        """``np.zeros(shape)``."""
        return cls.full(flat_shape(shape), 0.0, **options)

    @classmethod
    def ones(cls, *shape: Dims, **options: Unpack[Options]) -> Self:
        """``np.ones(shape)``."""
        return cls.full(flat_shape(shape), 1.0, **options)

    @classmethod
    def arange(
        cls,
        start: Scalar | UOp = 0,
        stop: Scalar | UOp | None = None,
        step: Scalar = 1,
        **options: Unpack[Options],
    ) -> Self:
        """start, start + step, ... up to but without stop; ``np.arange(start, stop, step)``.

        With step 1, start and stop may depend on bound variables.
        """
        if stop is None:
            start, stop = 0, start
        count = _count_between(start, stop, step)
        is_whole = not any(isinstance(value, float) for value in (start, stop, step))
        farthest = max(abs(end) for end in (0, start, stop) if not isinstance(end, UOp))
        kind = dtype_of(options, scalar_dtype(farthest if is_whole else 0.5))
        work = accumulator_dtype(kind)
        if kind.is_bool or not (kind.is_float or is_whole):
            work = dtypes.default_float
        values = cls._arange(count, work)
        values = values if step == 1 else values * step
        values = values if start == 0 else values + values._operand(start)
        return values.cast(kind)._created(options)

    @classmethod
    def linspace(cls, start: Scalar, stop: Scalar, steps: Size, **options: Unpack[Options]) -> Self:
        """`steps` numbers from start to stop, both included; ``np.linspace``."""
        kind = dtype_of(options)
        work = accumulator_dtype(kind if kind.is_float else dtypes.default_float)
        place = cls._arange(steps, work)
        values = place * ((stop - start) / max(steps - 1, 1)) + float(start)
        if steps > 1:
            values = place.eq(steps - 1).where(float(stop), values)
        return values.cast(kind)._created(options)

    @classmethod
    def _diagonals(cls, rows: int, columns: int | None) -> Self:
        """How far each place of a matrix is to the right of the main diagonal."""
        high, wide = checked_shape((rows, rows if columns is None else columns))
        return cls._arange(wide) - cls._arange(high)._reshape((high, 1))

    @classmethod
    def eye(cls, rows: int, columns: int | None = None, **options: Unpack[Options]) -> Self:
        """1 on the diagonal, else 0; ``np.eye(rows, columns)``."""
        return cls._diagonals(rows, columns).eq(0).cast(dtype_of(options))._created(options)

    @classmethod
    def tri(
        cls, rows: int, columns: int | None = None, k: int = 0, **options: Unpack[Options]
    ) -> Self:
        """1 on and below the k-th diagonal, else 0; ``np.tri(rows, columns, k)``."""
        return (cls._diagonals(rows, columns) <= k).cast(dtype_of(options))._created(options)

    # ---- like another tensor ----

    def full_like(self, fill_value: Scalar, **options: Unpack[Options]) -> Self:
        """`fill_value` in this shape and type; ``np.full_like(x, fill_value)``."""
        return self.full(self.shape, fill_value, **self._like(options))

    def zeros_like(self, **options: Unpack[Options]) -> Self:
        """``np.zeros_like(x)``."""
        return self.full_like(0, **options)

    def ones_like(self, **options: Unpack[Options]) -> Self:
        """``np.ones_like(x)``."""
        return self.full_like(1, **options)

    # Values that nobody chose are 0: nothing here depends on what memory held before.
    empty, empty_like = zeros, zeros_like

    def _like(self, options: Options) -> Options:
        """The options with this tensor's type and device where they name no other."""
        kind = dtype_of(options, self.dtype)
        return {"device": self.uop.device, **options, "dtype": kind}

    def _created(self, options: Options) -> Self:
        """This value as a new leaf."""
        return self._create(self.uop, options.get("device"), options.get("requires_grad"))


def _count_between(start: Scalar | UOp, stop: Scalar | UOp, step: Scalar) -> Dim:
    """How many numbers there are in steps from `start` to `stop`."""
    if isinstance(start, UOp) or isinstance(stop, UOp):
        if step != 1 or isinstance(start, float) or isinstance(stop, float):
            raise ArgumentError(
                f"arange: step {step!r} with an end that is a bound variable. Use whole numbers "
                "and step 1, and multiply the result."
            )
        return add_dims(stop, -start if start != 0 else 0)
    if step == 0 or not all(map(math.isfinite, (start, stop, step))):
        raise ArgumentError(
            f"arange: from {start} to {stop} in steps of {step}. Give a step that leads there."
        )
    return max(math.ceil((stop - start) / step), 0)


def dtype_of(options: Options, usual: DType | None = None) -> DType:
    """The type that the options ask for."""
    return as_dtype(options.get("dtype"), usual or dtypes.default_float)
