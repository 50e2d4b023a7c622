"""Normalisations: subtract a mean, divide by a deviation, scale and shift.

In:  tensors and optional weights.
Out: `Normalization`: layer, RMS, batch, group and instance norm as plain formulas.

16-bit floats are normalised in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from kernelet.base.errors import ArgumentError, ShapeError
from kernelet.frontend.primitives import show_shape
from kernelet.frontend.reduction import Reduction
from kernelet.graph.infer import Dim


class Normalization(Reduction):
    """Norms over the last axes, over the batch, and over groups of channels."""

    __slots__ = ()

    def layernorm(self, axis: int | Sequence[int] = -1, eps: float = 1e-5) -> Self:
        """``(x - mean) / sqrt(var + eps)`` over `axis`, with the biased variance."""
        return self._widened()._normalized(self.axes(axis), eps).cast(self._floating().dtype)

    def layer_norm(
        self,
        normalized_shape: int | Sequence[int],
        weight: Self | None = None,
        bias: Self | None = None,
        eps: float = 1e-5,
    ) -> Self:
        """`layernorm` over the last axes, which have this shape, scaled and shifted."""
        axes = self._last_axes("layer_norm", normalized_shape)
        normal = self._widened()._normalized(axes, eps)
        return normal._scaled(weight, bias).cast(self._floating().dtype)

    def rms_norm(
        self,
        normalized_shape: int | Sequence[int] | None = None,
        weight: Self | None = None,
        eps: float = 1e-6,
    ) -> Self:
        """``x / sqrt(mean(x * x) + eps) * weight`` over the last axes; None is the last one."""
        axes = self.axes(-1)
        if normalized_shape is not None:
            axes = self._last_axes("rms_norm", normalized_shape)
        wide = self._widened()
        scale = ((wide * wide).mean(axes, True) + eps).rsqrt()
        return (wide * scale)._scaled(weight, None).cast(self._floating().dtype)

    def batchnorm(
        self,
        weight: Self | None,
        bias: Self | None,
        mean: Self,
        invstd: Self,
        axis: int | Sequence[int] = 1,
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

    def group_norm(
        self,
        num_groups: int,
        weight: Self | None = None,
        bias: Self | None = None,
        eps: float = 1e-5,
    ) -> Self:
        """Each group of channels of (batch, channels, *space) normalised; then scaled by channel."""
        channels = self.shape[1] if self.ndim > 1 else 0
        if num_groups < 1 or not isinstance(channels, int) or channels % num_groups:
            raise ArgumentError(
                f"group_norm({num_groups}): the tensor has shape {show_shape(self.shape)}. "
                "The groups must divide its second axis."
            )
        grouped = (self.shape[0], num_groups, channels // num_groups, *self.shape[2:])
        wide = self._widened()._reshape(grouped)
        normal = wide._normalized(tuple(range(2, wide.ndim)), eps)._reshape(self.shape)
        sizes: tuple[Dim, ...] = (channels, *(1,) * (self.ndim - 2))
        scales = [None if each is None else each._reshape(sizes) for each in (weight, bias)]
        return normal._scaled(*scales).cast(self._floating().dtype)

    def instance_norm(
        self, weight: Self | None = None, bias: Self | None = None, eps: float = 1e-5
    ) -> Self:
        """Each channel of each image normalised by itself: `group_norm` with a group a channel."""
        channels = self.shape[1] if self.ndim > 1 else 0
        return self.group_norm(channels if isinstance(channels, int) else 0, weight, bias, eps)

    def _normalized(self, axes: tuple[int, ...], eps: float) -> Self:
        away = self - self.mean(axes, True)
        return away * ((away * away).mean(axes, True) + eps).rsqrt()

    def _scaled(self, weight: Self | None, bias: Self | None) -> Self:
        result = self if weight is None else self * weight
        return result if bias is None else result + bias

    def _last_axes(self, call: str, shape: int | Sequence[int]) -> tuple[int, ...]:
        wanted = (shape,) if isinstance(shape, int) else tuple(shape)
        first = self.ndim - len(wanted)
        if first < 0 or self.shape[first:] != wanted:
            raise ShapeError(
                f"{call}: the tensor has shape {show_shape(self.shape)} and its last axes are to "
                f"be {show_shape(wanted)}. Give the sizes of its last axes."
            )
        return tuple(range(first, self.ndim))
