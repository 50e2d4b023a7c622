"""Reductions: many elements along some axes become one.

In:  tensors.
Out: `Reduction`, the methods that combine elements, all from REDUCE with ADD, MUL or MAX, and what
     divides by them: normalisations and the softmax family. 16-bit floats are rounded once.

Every method takes `axis`, or `dim` as PyTorch calls it: a number, several, or None for all axes.
"""

from __future__ import annotations

import math
from typing import Literal, Self

from kernelet.base.dtype import dtypes
from kernelet.frontend.casts import Bits
from kernelet.frontend.functions import Functions
from kernelet.frontend.primitives import Axes, product
from kernelet.frontend.promotion import DTypeLike, accumulator_dtype, as_dtype, sum_dtype
from kernelet.graph.infer import Dim
from kernelet.graph.ops import Op


class Reduction(Bits, Functions):
    """Sums, extremes, moments, norms with statistics of their own or given ones, softmax."""

    __slots__ = ()

    # ---- helpers of this and the later topics ----

    def _fold(self, op: Op, axes: tuple[int, ...], keepdim: bool) -> Self:
        """REDUCE; the axes go away unless `keepdim`."""
        result = self._reduce(op, axes)
        kept = (size for axis, size in enumerate(self.shape) if axis not in axes)
        return result if keepdim else result._reshape(tuple(kept))

    def _count(self, axes: tuple[int, ...]) -> Dim:
        return product([self.shape[axis] for axis in axes])

    def _need_elements(self, axes: tuple[int, ...]) -> None:
        if self._count(axes) == 0:
            self._need(False, f"at least one element to choose from along {axes}")

    # ---- sums and products ----

    def sum(self, axis: Axes = None, keepdim: bool = False, dtype: DTypeLike = None) -> Self:
        """The sum; ``numpy.sum(x, axis, dtype)``.

        bool and narrow integers add up in 32 bits; 16-bit floats in float32, rounded once.
        """
        return self._accumulate(Op.ADD, axis, keepdim, dtype)

    def prod(self, axis: Axes = None, keepdim: bool = False, dtype: DTypeLike = None) -> Self:
        """The product, in the type that `sum` would have; ``numpy.prod(x, axis, dtype)``."""
        return self._accumulate(Op.MUL, axis, keepdim, dtype)

    def _accumulate(self, op: Op, axis: Axes, keepdim: bool, dtype: DTypeLike) -> Self:
        wanted = as_dtype(dtype, sum_dtype(self.dtype))
        wide = self.cast(accumulator_dtype(wanted))
        return wide._fold(op, self.axes(axis), keepdim).cast(wanted)

    def count_nonzero(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """How many elements are not zero; ``numpy.count_nonzero(x, axis)``."""
        return self.ne(0).sum(axis, keepdim)

    # ---- extremes ----

    def max(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """The greatest element, NaN if there is one; ``numpy.max(x, axis)``."""
        axes = self.axes(axis)
        self._need_elements(axes)
        return self._fold(Op.MAX, axes, keepdim)

    def min(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """The least element, NaN if there is one; ``numpy.min(x, axis)``."""
        axes = self.axes(axis)
        self._need_elements(axes)
        return self._mirrored().max(axes, keepdim)._mirrored()

    def any(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """Whether some element is not zero; ``numpy.any(x, axis)``."""
        return self._truth()._fold(Op.MAX, self.axes(axis), keepdim)

    def all(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """Whether no element is zero; ``numpy.all(x, axis)``."""
        return ~self.eq(0).any(axis, keepdim)

    def allclose(
        self, other: Self, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> Self:
        """Whether all elements are close; ``numpy.allclose(x, other, rtol, atol, equal_nan)``."""
        return self.isclose(other, rtol, atol, equal_nan).all()

    def argmax(self, axis: int | None = None, keepdim: bool = False) -> Self:
        """Where the greatest element is, the first of equals or the first NaN, as int32.

        ``numpy.argmax(x, axis)``; without an axis, the place in the flattened tensor.
        """
        if axis is None or self.ndim == 0:
            place = self._reshape((self._count(self.axes(None)),)).argmax(axis or 0)
            return place._reshape((1,) * self.ndim) if keepdim else place
        axes = (self.axis(axis),)
        self._need_elements(axes)
        best = self._is_best(self.max(axes, True))
        # Counting down makes the first one the greatest.
        length = self._operand(self.shape[axes[0]], dtypes.int32)
        down = length - self._positions(axes[0])
        return length - best.where(down, 0)._fold(Op.MAX, axes, keepdim)

    def argmin(self, axis: int | None = None, keepdim: bool = False) -> Self:
        """Where the least element is, the first of equals or the first NaN, as int32."""
        return self._mirrored().argmax(axis, keepdim)

    def _is_best(self, best: Self) -> Self:
        """Which elements are the extreme `best`; NaN is."""
        same = self == best
        return same | self.isnan() if self.dtype.is_float else same

    # ---- moments ----

    def mean(self, axis: Axes = None, keepdim: bool = False, dtype: DTypeLike = None) -> Self:
        """The mean, as floats; ``numpy.mean(x, axis)``. floats of 8 and 16 bits add up in float32."""
        axes = self.axes(axis)
        source = self if dtype is None else self.cast(dtype)
        wide = source._widened()
        total = wide._fold(Op.ADD, axes, keepdim)
        mean = total / self._operand(self._count(axes), wide.dtype)
        return mean.cast(source._floating().dtype)

    def var(self, axis: Axes = None, keepdim: bool = False, correction: int = 1) -> Self:
        """The variance; ``numpy.var(x, axis, ddof=correction)``; PyTorch's unbiased=False is 0."""
        return self.var_mean(axis, keepdim, correction)[0]

    def var_mean(
        self, axis: Axes = None, keepdim: bool = False, correction: int = 1
    ) -> tuple[Self, Self]:
        """The variance and the mean."""
        axes = self.axes(axis)
        wide, kind = self._widened(), self._floating().dtype
        mean = wide.mean(axes, True)
        count = self._count(axes)
        freedom = max(count - correction, 0) if isinstance(count, int) else count - correction
        total = (wide - mean).square()._fold(Op.ADD, axes, keepdim)
        variance = total / self._operand(freedom, wide.dtype)
        return variance.cast(kind), (mean if keepdim else mean.squeeze(axes)).cast(kind)

    def std(self, axis: Axes = None, keepdim: bool = False, correction: int = 1) -> Self:
        """The standard deviation; its gradient at equal elements is 0."""
        return self.std_mean(axis, keepdim, correction)[0]

    def std_mean(
        self, axis: Axes = None, keepdim: bool = False, correction: int = 1
    ) -> tuple[Self, Self]:
        """The standard deviation and the mean."""
        variance, mean = self._widened().var_mean(axis, keepdim, correction)
        kind = self._floating().dtype
        return variance._flat_sqrt().cast(kind), mean.cast(kind)

    def _flat_sqrt(self) -> Self:
        """The square root, with gradient 0 instead of infinity at 0."""
        flat = self.eq(0)
        return flat.where(0.0, flat.where(1.0, self).sqrt())

    def norm(
        self, p: float | Literal["fro"] = 2.0, axis: Axes = None, keepdim: bool = False
    ) -> Self:
        """The length ``sum(abs(x) ** p) ** (1 / p)``; p may be 0, inf and -inf too.

        The gradient of the 2-norm at the zero vector is 0.
        """
        axes = self.axes(axis)
        wide = self._widened()
        kind = self._floating().dtype
        p = 2.0 if isinstance(p, str) else p
        if p == 2:
            return (wide * wide)._fold(Op.ADD, axes, keepdim)._flat_sqrt().cast(kind)
        size = wide.abs()
        if math.isinf(p):
            found = (size.max if p > 0 else size.min)(axes, keepdim)
        elif p == 0:
            found = wide.ne(0).sum(axes, keepdim)
        else:
            found = (size**p)._fold(Op.ADD, axes, keepdim) ** (1 / p)
        return found.cast(kind)

    def normalize(self, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Self:
        """Divided by its norm along `dim`, or by `eps` where that is less."""
        wide = self._widened()
        return (wide / wide.norm(p, dim, True).maximum(eps)).cast(self._floating().dtype)

    # ---- normalisations ----

    def layernorm(
        self,
        axis: Axes = -1,
        eps: float = 1e-5,
        weight: Self | None = None,
        bias: Self | None = None,
    ) -> Self:
        """``(x - mean) / sqrt(var + eps) * weight + bias`` over `axis`, with the biased variance."""
        wide = self._widened()
        away = wide - wide.mean(axis, True)
        normal = away * ((away * away).mean(axis, True) + eps).rsqrt()
        normal = normal if weight is None else normal * weight
        normal = normal if bias is None else normal + bias
        return normal.cast(self._floating().dtype)

    def batchnorm(
        self, weight: Self | None, bias: Self | None, mean: Self, invstd: Self, axis: Axes = 1
    ) -> Self:
        """``(x - mean) * invstd * weight + bias``; the vectors lie along `axis`."""
        axes = self.axes(axis)
        sizes = tuple(dim if each in axes else 1 for each, dim in enumerate(self.shape))
        away = self - mean._reshape(sizes)
        scale = invstd._reshape(sizes) if invstd.ndim == len(axes) else invstd
        if weight is not None:
            scale = scale * weight._reshape(sizes)
        result = away * scale
        return result if bias is None else result + bias._reshape(sizes)

    # ---- the softmax family ----

    def logsumexp(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """``log(sum(exp(x)))`` without overflow; -inf, with gradient 0, where all of x is."""
        axes = self.axes(axis)
        wide = self._widened()
        peak = wide._peak(axes)
        total = (wide - peak).exp()._fold(Op.ADD, axes, True)
        empty = total.eq(0)
        result = empty.where(-math.inf, empty.where(1.0, total).log()) + peak
        result = result if keepdim else result.squeeze(axes)
        return result.cast(self._floating().dtype)

    def _peak(self, axes: tuple[int, ...]) -> Self:
        """The greatest element without gradient; 0 where that is not finite."""
        if self._count(axes) == 0:
            return self._fold(Op.ADD, axes, True)
        peak = self.detach().max(axes, True)
        return (peak.abs() < math.inf).where(peak, 0.0)

    def _shifted(self, axis: Axes, dtype: DTypeLike) -> tuple[Self, tuple[int, ...]]:
        axes = self.axes(axis)
        wide = (self if dtype is None else self.cast(dtype))._widened()
        if self._count(axes) == 0:
            return wide, axes
        # Any shift gives the same result, so no gradient needs to pass through this one.
        return wide - wide.detach().max(axes, True), axes

    def softmax(self, axis: Axes = -1, dtype: DTypeLike = None) -> Self:
        """``exp(x) / sum(exp(x))`` along `axis`."""
        shifted, axes = self._shifted(axis, dtype)
        exponential = shifted.exp()
        result = exponential / exponential._fold(Op.ADD, axes, True)
        return result.cast(dtype or self._floating().dtype)

    def softmin(self, axis: Axes = -1, dtype: DTypeLike = None) -> Self:
        """``softmax(-x)`` along `axis`."""
        return (-self).softmax(axis, dtype)

    def log_softmax(self, axis: Axes = -1, dtype: DTypeLike = None) -> Self:
        """``log(softmax(x))`` along `axis`, without overflow."""
        shifted, axes = self._shifted(axis, dtype)
        result = shifted - shifted.exp()._fold(Op.ADD, axes, True).log()
        return result.cast(dtype or self._floating().dtype)
