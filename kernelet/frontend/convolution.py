"""Convolutions: windows times weights, then one sum.

In:  tensors (batch, channels, *space) and weights (channels out, channels in / groups, *window).
Out: `Convolution`, for any number of space axes.

16-bit floats multiply and add up in float32 and are rounded once.

There are no Winograd products: for windows of 3 by 3 they take 2.25 times fewer multiplications, but
write each input four times over to memory, where this is one kernel whose panels stay in the cache,
and their sums of transformed values lose digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from kernelet.base.dtype import DType
from kernelet.base.errors import ArgumentError, ShapeError
from kernelet.frontend.arguments import Count
from kernelet.frontend.labels import Labels
from kernelet.frontend.pooling import Padding, PerAxis, Pooling, Window, per_axis, window_list
from kernelet.frontend.primitives import known, show_shape
from kernelet.frontend.promotion import DTypeLike, accumulator_dtype, as_dtype, sum_dtype
from kernelet.graph.infer import Dim
from kernelet.graph.ops import Op


class Convolution(Pooling, Labels):
    """Convolutions, transposed convolutions, and the shuffle of pixels."""

    __slots__ = ()

    def conv2d(
        self,
        weight: Self,
        bias: Self | None = None,
        groups: Count = 1,
        stride: PerAxis = 1,
        dilation: PerAxis = 1,
        padding: Padding = 0,
        dtype: DTypeLike = None,
    ) -> Self:
        """Each window times each filter, summed; as many space axes as `weight` has.

        `padding` is one number, one for each axis, pairs, "same" or "valid".
        """
        depth = known(weight.shape[1]) if weight.ndim > 1 else 0
        self._check_filters(weight, groups, depth * groups)
        sizes = [known(dim) for dim in weight.shape[2:]]
        windows = window_list(sizes, stride, dilation, padding)
        kind = as_dtype(dtype, self._common_dtype(self, weight, bias))
        return self._convolved(weight, bias, windows, groups, kind)

    def conv1d(
        self,
        weight: Self,
        bias: Self | None = None,
        stride: PerAxis = 1,
        padding: Padding = 0,
        dilation: PerAxis = 1,
        groups: Count = 1,
    ) -> Self:
        """`conv2d` with PyTorch's order of arguments."""
        return self.conv2d(weight, bias, groups, stride, dilation, padding)

    conv3d = conv1d

    def conv_transpose2d(
        self,
        weight: Self,
        bias: Self | None = None,
        groups: Count = 1,
        stride: PerAxis = 1,
        dilation: PerAxis = 1,
        padding: Padding = 0,
        output_padding: int | Sequence[int] = 0,
    ) -> Self:
        """What the gradient of `conv2d` does; `weight` is (channels in, out / groups, *window).

        It is a convolution of the input with `stride` - 1 zeros between its elements.
        """
        self._check_filters(weight, groups, weight.shape[0] if weight.ndim else 0)
        sizes = [known(dim) for dim in weight.shape[2:]]
        spread = window_list(sizes, stride, dilation, padding)
        extra = per_axis("output_padding", output_padding, len(sizes))
        for window, more in zip(spread, extra, strict=True):
            limit = max(window.stride, window.dilation)
            wanted = f"an output_padding below stride or dilation, not {more} of {limit}"
            self._need(0 <= more < limit, wanted, ArgumentError)
        turned = weight._flip(tuple(range(2, weight.ndim)))
        turned = turned.rearrange("(g i) o ... -> (g o) i ...", g=groups)
        windows = [window.turned(more) for window, more in zip(spread, extra, strict=True)]
        wide = self._spread([window.stride for window in spread])
        return wide._convolved(
            turned, bias, windows, groups, self._common_dtype(self, weight, bias)
        )

    def _convolved(
        self, weight: Self, bias: Self | None, windows: list[Window], groups: int, dtype: DType
    ) -> Self:
        """(batch, channels out, *counts), added up in the type that sums of `dtype` are kept in."""
        self._with_room(windows)
        wide, space = accumulator_dtype(sum_dtype(dtype)), len(windows)
        batch = self.shape[0]
        filters, depth, *sizes = weight.shape
        per_group = known(filters) // groups
        cut = self.cast(wide)._windows(windows)  # (batch, channels, *counts, *sizes)
        counts = cut.shape[2 : 2 + space]
        cut = cut._reshape((batch, groups, 1, depth, *counts, *sizes))
        cut = cut._permute((0, 1, 2, *range(4, 4 + space), 3, *range(4 + space, 4 + 2 * space)))
        ones = (1,) * space
        filtered = weight.cast(wide)._reshape((1, groups, per_group, *ones, depth, *sizes))
        terms = cut * filtered  # (batch, group, filter, *counts, depth, *sizes)
        total = terms._reduce(Op.ADD, tuple(range(3 + space, terms.ndim)))
        total = total._reshape((batch, filters, *counts))
        if bias is None:
            return total.cast(dtype)
        wanted = f"a bias of one number for each channel of {show_shape(total.shape)}"
        bias._need(bias.shape == (filters,), wanted)
        return (total + bias._reshape((1, filters, *(1,) * space))).cast(dtype)

    def _check_filters(self, weight: Self, groups: int, channels: Dim) -> None:
        """ShapeError unless channels, groups and axes of input and weight fit."""
        shapes = f"input {show_shape(self.shape)} with weight {show_shape(weight.shape)}"
        fits = 3 <= weight.ndim == self.ndim
        weight._need(fits, f"weights (out, in, *space) for (batch, channels, *space): {shapes}")
        if known(weight.shape[0]) % groups or self.shape[1] != channels:
            raise ShapeError(
                f"{shapes} and groups={groups}: the weight is for {channels} channels in, "
                f"the input has {self.shape[1]}. Make them equal; groups must divide both sides."
            )

    def _spread(self, strides: Sequence[int]) -> Self:
        """`stride` - 1 zeros between the elements of each of the last axes."""
        result = self
        for axis, stride in enumerate(strides, self.ndim - len(strides)):
            apart = result.unsqueeze(axis + 1)._beside_zeros(axis + 1, 0, stride - 1)
            length = (known(self.shape[axis]) - 1) * stride + 1
            result = apart.flatten(axis, axis + 1)._slice(axis, 0, length)
        return result

    # ---- pixels and channels ----

    def pixel_shuffle(self, upscale_factor: Count) -> Self:
        """(batch, c * r * r, h, w) -> (batch, c, h * r, w * r)."""
        self._need_ndim(3)
        order = "... (c i j) h w -> ... c (h i) (w j)"
        return self.rearrange(order, i=upscale_factor, j=upscale_factor)

    def pixel_unshuffle(self, downscale_factor: Count) -> Self:
        """(batch, c, h * r, w * r) -> (batch, c * r * r, h, w)."""
        self._need_ndim(3)
        order = "... c (h i) (w j) -> ... (c i j) h w"
        return self.rearrange(order, i=downscale_factor, j=downscale_factor)
