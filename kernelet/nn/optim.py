"""Optimizers: formulas that move parameters against their gradients, and what goes with them.

In:  parameters, and the gradients that `backward` left on them.
Out: new values of the parameters and of the optimizer's own state, in the same memory.
"""

from __future__ import annotations

import math
from typing import ClassVar, final

from kernelet.base.errors import ArgumentError
from kernelet.frontend.host import known_shape
from kernelet.frontend.tensor import Tensor
from kernelet.nn import schedulers as lr_scheduler
from kernelet.nn.averaging import EMA
from kernelet.nn.clipping import clip_grad_norm_, clip_grad_value_
from kernelet.nn.optimizer import Optimizer, OptimizerGroup, Parameters
from kernelet.nn.precision import GradScaler, mixed_precision

__all__ = [
    "EMA",
    "LAMB",
    "LARS",
    "SGD",
    "Adam",
    "AdamW",
    "Lion",
    "Muon",
    "Optimizer",
    "OptimizerGroup",
    "RMSprop",
    "GradScaler",
    "clip_grad_norm_",
    "clip_grad_value_",
    "lr_scheduler",
    "mixed_precision",
]


class Momentum(Optimizer):
    """Optimizers with a velocity: ``v = momentum * v + (1 - dampening) * g``.

    `classic` multiplies what is added to the velocity by the learning rate, instead of the velocity.
    """

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 0.001,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        classic: bool = False,
        dampening: float = 0.0,
    ) -> None:
        super().__init__(params, lr, weight_decay)
        if nesterov and (not momentum or dampening):
            raise ArgumentError(
                f"{type(self).__name__}(nesterov=True): momentum is {momentum:g} and dampening "
                f"{dampening:g}. Give a momentum, as 0.9, and no dampening."
            )
        self.momentum, self.dampening = momentum, dampening
        self.nesterov, self.classic = nesterov, classic
        self.velocity = self._zeros() if momentum else []
        self.steps = self._state_value(0.0) if dampening else None

    def _begin(self) -> None:
        super()._begin()
        if self.steps is not None:
            self._write(self.steps, self.steps + 1)

    def _direction(self, at: int, gradient: Tensor, value: Tensor) -> Tensor:
        step = gradient * self._rate(at) if self.classic else gradient
        if not self.momentum:
            return step
        added = step
        if self.steps is not None:  # as with PyTorch, the first gradient is added whole
            is_first = self.steps.to(step.device) < 2
            added = step * is_first.where(1.0, 1 - self.dampening)
        velocity = self.velocity[at] * self.momentum + added
        self._write(self.velocity[at], velocity)
        return velocity * self.momentum + step if self.nesterov else velocity

    def _step_of(self, at: int, direction: Tensor, value: Tensor) -> Tensor:
        return direction if self.classic else direction * self._rate(at)


@final
class SGD(Momentum):
    """Stochastic gradient descent: ``w -= lr * (g + weight_decay * w)``, with momentum."""


@final
class LARS(Momentum):
    """SGD whose learning rate for each parameter follows its norm (You et al., 2017).

    It is ``lr * tcoef * |w| / (|g| + weight_decay * |w|)``.
    """

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 0.001,
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        nesterov: bool = False,
        classic: bool = True,
        tcoef: float = 0.001,
    ) -> None:
        super().__init__(params, lr, momentum, 0.0, nesterov, classic)
        self.decay, self.tcoef = weight_decay, tcoef

    def _direction(self, at: int, gradient: Tensor, value: Tensor) -> Tensor:
        size, slope = _norm(value), _norm(gradient)
        ratio = _ratio(size * self.tcoef, slope + size * self.decay, size, slope)
        return super()._direction(at, (gradient + value * self.decay) * ratio, value)


@final
class Muon(Momentum):
    """The nearest orthogonal matrix to the velocity (Jordan et al., 2024), decoupled weight decay.

    A step is ``lr * sqrt(max(1, rows / columns))`` times it. For matrices and filters, whose axes
    after the first are taken as one; give other parameters to AdamW.
    """

    decouples_decay = True

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 0.001,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
        ns_steps: int = 5,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        nesterov: bool = True,
    ) -> None:
        super().__init__(params, lr, momentum, weight_decay, nesterov)
        self.ns_steps, self.ns_coefficients = ns_steps, ns_coefficients
        small = [each.shape for each in self.params if each.ndim < 2]
        if small:
            raise ArgumentError(
                f"Muon: {len(small)} of {len(self.params)} parameters are no matrices, one of "
                f"shape {small[0]}. Give them to AdamW; OptimizerGroup steps both together."
            )

    def _direction(self, at: int, gradient: Tensor, value: Tensor) -> Tensor:
        velocity = super()._direction(at, gradient, value).flatten(1)
        rows, columns = known_shape(velocity.shape)
        turned = velocity.newton_schulz(self.ns_steps, self.ns_coefficients)
        return (turned * math.sqrt(max(1, rows / columns))).reshape(value.shape)


class Moments(Optimizer):
    """Optimizers that keep running means of the gradient and of its square.

    The direction is ``m / (1 - b1**t) / (sqrt(v / (1 - b2**t)) + eps)``; with `amsgrad` v is the
    greatest that was seen.
    """

    default_eps: ClassVar[float] = 1e-8
    default_decay: ClassVar[float] = 0.0

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float | None = None,
        weight_decay: float | None = None,
        amsgrad: bool = False,
        betas: tuple[float, float] | None = None,
    ) -> None:
        decay = self.default_decay if weight_decay is None else weight_decay
        super().__init__(params, lr, decay)
        self.eps = self.default_eps if eps is None else eps
        self.b1, self.b2 = betas or (b1, b2)
        self.m, self.v = self._zeros(), self._zeros()
        self.peaks = self._zeros() if amsgrad else []
        # 1 - beta**steps, kept as such: near 0 a difference of floats would be rough.
        self.corrections = self._state_value(0.0, 0.0)
        self._kept = self._state_value(self.b1, self.b2)
        self._added = self._state_value(1 - self.b1, 1 - self.b2)

    def _begin(self) -> None:
        super()._begin()
        self._write(self.corrections, self.corrections * self._kept + self._added)

    def _direction(self, at: int, gradient: Tensor, value: Tensor) -> Tensor:
        scale = self.corrections.to(self.params[at].device)
        first = self.m[at] * self.b1 + gradient * (1 - self.b1)
        second = self.v[at] * self.b2 + gradient * gradient * (1 - self.b2)
        self._write(self.m[at], first)
        self._write(self.v[at], second)
        if self.peaks:
            second = self.peaks[at].maximum(second)
            self._write(self.peaks[at], second)
        return first / scale[0] / ((second / scale[1]).sqrt() + self.eps)


@final
class Adam(Moments):
    """Adam (Kingma and Ba, 2015); `weight_decay` is added to the gradient."""


@final
class AdamW(Moments):
    """Adam with decoupled weight decay: ``w -= lr * (direction + weight_decay * w)``."""

    decouples_decay = True
    default_decay = 0.01


@final
class LAMB(Moments):
    """AdamW whose step is scaled to the norm of each parameter (You et al., 2020)."""

    decouples_decay = True
    default_eps = 1e-6

    def _step_of(self, at: int, direction: Tensor, value: Tensor) -> Tensor:
        size, length = _norm(value), _norm(direction)
        return direction * _ratio(size, length, size, length) * self._rate(at)


@final
class RMSprop(Optimizer):
    """``g / (sqrt(v) + eps)`` with v the running mean of ``g**2``, or of its variance (`centered`)."""

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 0.01,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
    ) -> None:
        super().__init__(params, lr, weight_decay)
        self.alpha, self.eps, self.momentum = alpha, eps, momentum
        self.v = self._zeros()
        self.means = self._zeros() if centered else []
        self.velocity = self._zeros() if momentum else []

    def _direction(self, at: int, gradient: Tensor, value: Tensor) -> Tensor:
        square = self.v[at].lerp(gradient * gradient, 1 - self.alpha)
        self._write(self.v[at], square)
        if self.means:
            mean = self.means[at].lerp(gradient, 1 - self.alpha)
            self._write(self.means[at], mean)
            square = square - mean * mean
        step = gradient / (square.sqrt() + self.eps)
        if self.velocity:
            step = self.velocity[at] * self.momentum + step
            self._write(self.velocity[at], step)
        return step


@final
class Lion(Optimizer):
    """``sign(b1 * m + (1 - b1) * g)``, then ``m = b2 * m + (1 - b2) * g`` (Chen et al., 2023)."""

    decouples_decay = True

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr, weight_decay)
        self.betas = betas
        self.m = self._zeros()

    def _direction(self, at: int, gradient: Tensor, value: Tensor) -> Tensor:
        mixed, following = (self.m[at] * beta + gradient * (1 - beta) for beta in self.betas)
        self._write(self.m[at], following)
        return mixed.sign()


def _norm(values: Tensor) -> Tensor:
    return (values * values).sum().sqrt()


def _ratio(above: Tensor, below: Tensor, *sizes: Tensor) -> Tensor:
    """``above / below``; 1 where one of the sizes is 0."""
    usable = (sizes[0] > 0) & (sizes[1] > 0)
    return usable.where(above / usable.where(below, 1.0), 1.0)
