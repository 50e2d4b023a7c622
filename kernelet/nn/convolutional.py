"""Layers that slide filters over a signal, an image or a volume."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Sequence
from typing import ClassVar, Literal, final

from kernelet.base.errors import ArgumentError
from kernelet.frontend.arguments import Count, Size
from kernelet.frontend.pooling import PerAxis
from kernelet.frontend.tensor import Tensor
from kernelet.nn.parameter import fan_in_bound, uniform

Sizes = int | Sequence[int]


class Filters(ABC):
    """What all of these layers have: the sizes of their filters and how they slide."""

    axes: ClassVar[int]

    def __init__(
        self, channels: tuple[int, int], kernel_size: PerAxis, slide: Sequence[PerAxis], groups: int
    ) -> None:
        sizes = (kernel_size,) * self.axes if isinstance(kernel_size, int) else tuple(kernel_size)
        name = f"{type(self).__name__}{channels}"
        if len(sizes) != self.axes:
            raise ArgumentError(f"{name}: kernel_size={kernel_size}; give {self.axes} or 1 number.")
        if any(count % groups for count in channels):
            raise ArgumentError(f"{name}: groups={groups} is no divisor of both. Give one that is.")
        self.kernel_size, self.groups = sizes, groups
        self.stride, self.dilation = slide

    def _make_parameters(self, first: int, second: int, outputs: int, bias: bool) -> None:
        # PyTorch takes the second axis of the weight for the fan-in, transposed or not.
        bound = fan_in_bound(second * math.prod(self.kernel_size))
        self.weight = uniform(bound, first, second, *self.kernel_size)
        self.bias = uniform(bound, outputs) if bias else None


class Convolution(Filters):
    """Each window times each filter, summed."""

    def __init__(
        self,
        in_channels: Size,
        out_channels: Size,
        kernel_size: PerAxis,
        stride: PerAxis = 1,
        padding: Sizes | Literal["same", "valid"] = 0,
        dilation: PerAxis = 1,
        groups: Count = 1,
        bias: bool = True,
        padding_mode: Literal["zeros", "reflect", "replicate", "circular"] = "zeros",
    ) -> None:
        super().__init__((in_channels, out_channels), kernel_size, (stride, dilation), groups)
        self.padding, self.padding_mode = padding, padding_mode
        self._make_parameters(out_channels, in_channels // groups, out_channels, bias)

    def __call__(self, x: Tensor) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros" and padding != "valid":
            pairs = [each for axis in reversed(range(self.axes)) for each in self._around(axis)]
            x, padding = x.pad(pairs, self.padding_mode), 0
        return x.conv2d(self.weight, self.bias, self.groups, self.stride, self.dilation, padding)

    def _around(self, axis: int) -> tuple[int, int]:
        """How much is added before and after a space axis."""
        if isinstance(self.padding, str):
            total = _at(self.dilation, axis) * (self.kernel_size[axis] - 1)
            return total // 2, total - total // 2
        return (_at(self.padding, axis),) * 2


def _at(given: Sizes, axis: int) -> int:
    return given if isinstance(given, int) else given[axis]


class TransposedConvolution(Filters):
    """What the gradient of a convolution does: each element writes a window of the result."""

    def __init__(
        self,
        in_channels: Size,
        out_channels: Size,
        kernel_size: PerAxis,
        stride: PerAxis = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        dilation: PerAxis = 1,
        groups: Count = 1,
        bias: bool = True,
    ) -> None:
        super().__init__((in_channels, out_channels), kernel_size, (stride, dilation), groups)
        self.padding, self.output_padding = padding, output_padding
        self._make_parameters(in_channels, out_channels // groups, out_channels, bias)

    def __call__(self, x: Tensor) -> Tensor:
        return x.conv_transpose2d(
            self.weight,
            self.bias,
            self.groups,
            self.stride,
            self.dilation,
            self.padding,
            self.output_padding,
        )


@final
class Conv1d(Convolution):
    """A convolution over (batch, channels, time)."""

    axes = 1


@final
class Conv2d(Convolution):
    """A convolution over (batch, channels, height, width).

    >>> Conv2d(3, 8, 3, padding=1)(Tensor.ones(2, 3, 6, 6)).shape
    (2, 8, 6, 6)
    """

    axes = 2


@final
class Conv3d(Convolution):
    """A convolution over (batch, channels, depth, height, width)."""

    axes = 3


@final
class ConvTranspose1d(TransposedConvolution):
    """A transposed convolution over (batch, channels, time)."""

    axes = 1


@final
class ConvTranspose2d(TransposedConvolution):
    """A transposed convolution over (batch, channels, height, width).

    >>> ConvTranspose2d(8, 3, 2, stride=2)(Tensor.ones(1, 8, 4, 4)).shape
    (1, 3, 8, 8)
    """

    axes = 2


@final
class ConvTranspose3d(TransposedConvolution):
    """A transposed convolution over (batch, channels, depth, height, width)."""

    axes = 3
