"""Layers that bring values to mean 0 and deviation 1, then scale and shift them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from kernelet.base.dtype import EXACT_BITS, dtypes
from kernelet.base.errors import ShapeError
from kernelet.frontend.arguments import Count, Size
from kernelet.frontend.promotion import accumulator_dtype
from kernelet.frontend.tensor import Tensor
from kernelet.nn.parameter import filled


@final
class BatchNorm:
    """Each channel normalised over the batch and the space axes.

    While training the statistics are those of the batch and the running ones move by `momentum`
    towards them (None: become the mean of all so far); otherwise the running ones are used, where they are kept.
    """

    def __init__(
        self,
        num_features: Size,
        eps: float = 1e-5,
        affine: bool = True,
        track_running_stats: bool = True,
        momentum: float | None = 0.1,
    ) -> None:
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.track_running_stats = track_running_stats
        self.weight, self.bias = _scales(affine, num_features)
        if track_running_stats:
            self.num_batches_tracked = filled(0, dtype=dtypes.int64, requires_grad=False)
            self.running_mean = filled(0, num_features, requires_grad=False)
            self.running_var = filled(1, num_features, requires_grad=False)

    def calc_stats(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and the biased variance to normalise with."""
        if self.track_running_stats and not Tensor.training:
            return self.running_mean, self.running_var
        axes = tuple(axis for axis in range(x.ndim) if axis != 1)
        mean = x.mean(axes, keepdim=True)
        away = x - mean
        return mean.reshape(self.num_features), (away * away).mean(axes)

    def __call__(self, x: Tensor) -> Tensor:
        if x.ndim < 2 or x.shape[1] != self.num_features:
            raise ShapeError(
                f"BatchNorm({self.num_features}): the tensor has shape {x.shape}. "
                f"Its second axis must have {self.num_features} channels."
            )
        mean, variance = self.calc_stats(x)
        if self.track_running_stats and Tensor.training:
            self._track(mean.detach(), variance.detach(), x)
        return x.batchnorm(self.weight, self.bias, mean, (variance + self.eps).rsqrt())

    def _track(self, mean: Tensor, variance: Tensor, x: Tensor) -> None:
        count = x.numel() // self.num_features
        # One element has no unbiased variance: dividing by 0 would lose the running one for good.
        unbiased = variance * (count / max(count - 1, 1)) if isinstance(count, int) else variance
        self.num_batches_tracked += 1
        share: Tensor | float
        if self.momentum is None:
            share = 1 / self.num_batches_tracked.cast(self.running_mean.dtype)
        else:
            share = self.momentum
        kept = 1 - share
        self.running_mean.assign(self.running_mean * kept + mean * share)
        self.running_var.assign(self.running_var * kept + unbiased * share)


BatchNorm1d = BatchNorm2d = BatchNorm3d = BatchNorm


@final
class LayerNorm:
    """The last axes normalised together.

    >>> LayerNorm(4)(Tensor.ones(2, 4)).shape
    (2, 4)
    """

    def __init__(
        self,
        normalized_shape: Size | Sequence[Size],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
    ) -> None:
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        self.normalized_shape, self.eps = tuple(shape), eps
        self.weight, self.bias = _scales(elementwise_affine, *shape)

    def __call__(self, x: Tensor) -> Tensor:
        axes = _last_axes("LayerNorm", x, self.normalized_shape)
        return x.layernorm(axes, self.eps, self.weight, self.bias)


@final
class LayerNorm2d:
    """The channels of each place of an image normalised together."""

    def __init__(self, channels: Size, eps: float = 1e-5, elementwise_affine: bool = True) -> None:
        self.channels, self.eps = channels, eps
        self.weight, self.bias = _scales(elementwise_affine, channels)

    def __call__(self, x: Tensor) -> Tensor:
        scales = [
            None if each is None else each.reshape(self.channels, 1, 1)
            for each in (self.weight, self.bias)
        ]
        return x.layernorm(1, self.eps, *scales)


@final
class GroupNorm:
    """Each group of channels of each image normalised together."""

    def __init__(
        self, num_groups: Count, num_channels: Size, eps: float = 1e-5, affine: bool = True
    ) -> None:
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight, self.bias = _scales(affine, num_channels)

    def __call__(self, x: Tensor) -> Tensor:
        return _by_groups(x, self.num_groups, self)


@final
class InstanceNorm:
    """Each channel of each image normalised by itself."""

    def __init__(self, num_features: Size, eps: float = 1e-5, affine: bool = True) -> None:
        self.num_features, self.eps = num_features, eps
        self.weight, self.bias = _scales(affine, num_features)

    def __call__(self, x: Tensor) -> Tensor:
        return _by_groups(x, self.num_features, self)


@final
class RMSNorm:
    """The last axis divided by its root mean square; None is the `eps` of its type, or float32's.

    >>> RMSNorm(2, eps=0)(Tensor([[2.0, 2.0]])).tolist()
    [[1.0, 1.0]]
    """

    def __init__(
        self, dim: Size, eps: float | None = 1e-6, elementwise_affine: bool = True
    ) -> None:
        self.dim, self.eps = dim, eps
        self.weight = filled(1, dim) if elementwise_affine else None

    def __call__(self, x: Tensor) -> Tensor:
        (last,) = _last_axes("RMSNorm", x, (self.dim,))
        kind = x.dtype if x.is_floating_point() else dtypes.default_float
        wide = x.cast(accumulator_dtype(kind))
        eps = 2.0 ** (1 - EXACT_BITS[wide.dtype.name]) if self.eps is None else self.eps
        normal = wide * ((wide * wide).mean(last, keepdim=True) + eps).rsqrt()
        return (normal if self.weight is None else normal * self.weight).cast(kind)


def _scales(is_affine: bool, *shape: int) -> tuple[Tensor | None, Tensor | None]:
    """The first weight and bias of a layer, if it has some."""
    return (filled(1, *shape), filled(0, *shape)) if is_affine else (None, None)


def _last_axes(name: str, x: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The last axes of `x`; ShapeError unless they have this shape."""
    if x.shape[max(x.ndim - len(shape), 0) :] != shape:
        raise ShapeError(
            f"{name}({shape}): the tensor has shape {x.shape}. Give one whose last sizes are these."
        )
    return tuple(range(-len(shape), 0))


def _by_groups(x: Tensor, groups: int, layer: GroupNorm | InstanceNorm) -> Tensor:
    """Each group of channels of (batch, channels, *space) normalised; then scaled by channel."""
    channels = x.shape[1] if x.ndim > 1 else 0
    if groups < 1 or not isinstance(channels, int) or channels % groups or not channels:
        raise ShapeError(
            f"{type(layer).__name__}({groups}): the tensor has shape {x.shape}. "
            "The groups must divide its second axis."
        )
    each = (groups, channels // groups, *(1,) * (x.ndim - 2))
    grouped = x.reshape(x.shape[0], *each[:2], *x.shape[2:])
    scales = [
        None if scale is None else scale.reshape(each) for scale in (layer.weight, layer.bias)
    ]
    return grouped.layernorm(tuple(range(2, grouped.ndim)), layer.eps, *scales).reshape(x.shape)
