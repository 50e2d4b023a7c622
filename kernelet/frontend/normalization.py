"""Normalisations: subtract a mean, divide by a deviation, scale and shift.

In:  tensors and optional weights.
Out: `Normalization`: layer and batch norm as plain formulas, from which `nn` makes its layers.

16-bit floats are normalised in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from kernelet.frontend.reduction import Reduction


class Normalization(Reduction):
    """Norms with statistics of their own, and with given ones."""

    __slots__ = ()

    def layernorm(
        self,
        axis: int | Sequence[int] = -1,
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
