"""Optimizers: formulas that move parameters against their gradients.

In:  parameters, and the gradients that `backward` left on them.
Out: new values of the parameters and of the optimizer's own state, in the same memory.

The learning rate is a tensor too, so that changing it recompiles nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import final

from kernelet.base.config import current
from kernelet.base.dtype import DType, dtypes
from kernelet.base.errors import ArgumentError, GradientError
from kernelet.frontend.tensor import Tensor
from kernelet.nn.parameter import filled


class Optimizer(ABC):
    """Parameters, a learning rate, and a formula for one step.

    Parameters with ``requires_grad=False`` (a batch norm's running statistics) are not moved;
    `schedule_step` includes them so that what is pending for them runs with the step.
    """

    def __init__(self, params: Iterable[Tensor], lr: float | Tensor) -> None:
        self.params, self.buffers = _sorted_out(type(self).__name__, params)
        for each in self.params:
            each.requires_grad = True
        # With memory from the start, the first step runs the same kernels as all others.
        Tensor.realize(*self.params)
        self.device = self.params[0].device
        self._lr = lr if isinstance(lr, Tensor) else self._state_value(lr)

    @property
    def lr(self) -> Tensor:
        """The learning rate; assign a number or a tensor to change it."""
        return self._lr

    @lr.setter
    def lr(self, value: float | Tensor) -> None:
        if value is not self._lr:
            self._lr.assign(value).realize()

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for each in self.params:
            each.grad = None

    def step(self) -> None:
        """Move the parameters once."""
        Tensor.realize(*self.schedule_step())

    def schedule_step(self) -> list[Tensor]:
        """The tensors that a step changes, with the new values pending: realize them to step."""
        if not current().training:
            raise GradientError(
                f"{type(self).__name__}.step: TRAINING is 0, so dropout and batch statistics were "
                "off in the forward pass. Put the step in `with Tensor.train():`."
            )
        moved = [at for at, each in enumerate(self.params) if each.grad is not None]
        if not moved:
            raise GradientError(
                f"{type(self).__name__}.step: none of the {len(self.params)} parameters has a "
                "gradient. Call backward() on a loss that depends on them first."
            )
        changed = self._update(moved)
        return [*[self.params[at] for at in moved], *changed, *self.buffers]

    @abstractmethod
    def _update(self, moved: list[int]) -> list[Tensor]:
        """Assign new values to the parameters at `moved`; the state tensors that changed."""

    # ---- for the formulas ----

    def _gradient(self, at: int) -> Tensor:
        """The gradient of a parameter, in the type that the formulas compute in."""
        found = self.params[at].grad
        assert found is not None
        return found.detach().cast(_state_dtype(found.dtype))

    def _value(self, at: int) -> Tensor:
        value = self.params[at].detach()
        return value.cast(_state_dtype(value.dtype))

    def _rate(self, at: int) -> Tensor:
        """The learning rate where the parameter is."""
        return self._lr.to(self.params[at].device)

    def _state_value(self, value: float) -> Tensor:
        return Tensor([value], device=self.device, dtype=dtypes.float32, requires_grad=False)

    def _zeros(self) -> list[Tensor]:
        """A tensor of zeros for each parameter."""
        states = []
        for each in self.params:
            shape = [dim for dim in each.shape if isinstance(dim, int)]
            kind = _state_dtype(each.dtype)
            device = each.device
            states.append(filled(0, *shape, dtype=kind, device=device, requires_grad=False))
        return states


def _sorted_out(name: str, given: Iterable[object]) -> tuple[list[Tensor], list[Tensor]]:
    """What is trained and what is not, each once."""
    trained: dict[int, Tensor] = {}
    kept: dict[int, Tensor] = {}
    for each in given:
        if not isinstance(each, Tensor):
            raise ArgumentError(
                f"{name}: a parameter is of type {type(each).__name__}, not Tensor. "
                "Give a list, as nn.state.get_parameters(model) does."
            )
        is_trained = each.dtype.is_float and each.requires_grad is not False
        # By identity: == of tensors compares elements.
        (trained if is_trained else kept)[id(each)] = each
    if not trained:
        raise ArgumentError(
            f"{name}: {len(kept)} tensors were given and none can be trained. "
            "Give float tensors whose requires_grad is not False."
        )
    return list(trained.values()), list(kept.values())


def _state_dtype(dtype: DType) -> DType:
    # The steps are far smaller than the values: 16 bits would round them away.
    return dtypes.float32 if dtype.itemsize < 4 else dtype


@final
class SGD(Optimizer):
    """Stochastic gradient descent: ``w -= lr * (g + weight_decay * w)``, with momentum.

    `classic` multiplies the velocity's increments by the learning rate, instead of the velocity.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float | Tensor = 0.001,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        classic: bool = False,
    ) -> None:
        super().__init__(params, lr)
        if nesterov and not momentum:
            raise ArgumentError("SGD(nesterov=True): momentum is 0. Give a momentum, as 0.9.")
        self.momentum, self.weight_decay = momentum, weight_decay
        self.nesterov, self.classic = nesterov, classic
        self.velocity = self._zeros() if momentum else []

    def _update(self, moved: list[int]) -> list[Tensor]:
        for at in moved:
            step = self._gradient(at)
            if self.weight_decay:
                step = step + self._value(at) * self.weight_decay
            if self.classic:
                step = step * self._rate(at)
            if self.momentum:
                velocity = self.velocity[at] * self.momentum + step
                self.velocity[at].assign(velocity)
                step = velocity * self.momentum + step if self.nesterov else velocity
            if not self.classic:
                step = step * self._rate(at)
            self.params[at].assign((self._value(at) - step).cast(self.params[at].dtype))
        return [self.velocity[at] for at in moved] if self.momentum else []


class Moments(Optimizer):
    """Optimizers that keep running means of the gradient and of its square."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float | Tensor,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
    ) -> None:
        super().__init__(params, lr)
        self.b1, self.b2 = betas
        self.eps, self.weight_decay = eps, weight_decay
        # The betas to the power of the number of steps.
        self.b1_t, self.b2_t = self._state_value(1.0), self._state_value(1.0)
        self.m, self.v = self._zeros(), self._zeros()

    def _update(self, moved: list[int]) -> list[Tensor]:
        powers = (self.b1_t * self.b1, self.b2_t * self.b2)
        for at in moved:
            step = self._step_of(at, self._direction(at, powers))
            value = self._value(at) - step
            self.params[at].assign(value.cast(self.params[at].dtype))
        self.b1_t.assign(powers[0])
        self.b2_t.assign(powers[1])
        return [self.b1_t, self.b2_t, *[self.m[at] for at in moved], *[self.v[at] for at in moved]]

    def _direction(self, at: int, powers: tuple[Tensor, Tensor]) -> Tensor:
        """``m / (1 - b1**t) / (sqrt(v / (1 - b2**t)) + eps)`` after this gradient."""
        gradient = self._decayed(at)
        device = self.params[at].device
        first = self.m[at] * self.b1 + gradient * (1 - self.b1)
        second = self.v[at] * self.b2 + gradient * gradient * (1 - self.b2)
        self.m[at].assign(first)
        self.v[at].assign(second)
        first, second = (
            moment / (1 - power.to(device))
            for moment, power in zip((first, second), powers, strict=True)
        )
        return first / (second.sqrt() + self.eps)

    def _decayed(self, at: int) -> Tensor:
        return self._gradient(at)

    @abstractmethod
    def _step_of(self, at: int, direction: Tensor) -> Tensor:
        """What is taken from the parameter."""


@final
class Adam(Moments):
    """Adam; `weight_decay` is added to the gradient."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float | Tensor = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr, (b1, b2), eps, weight_decay)

    def _decayed(self, at: int) -> Tensor:
        gradient = self._gradient(at)
        return gradient + self._value(at) * self.weight_decay if self.weight_decay else gradient

    def _step_of(self, at: int, direction: Tensor) -> Tensor:
        return direction * self._rate(at)


@final
class AdamW(Moments):
    """Adam with decoupled weight decay: ``w -= lr * (direction + weight_decay * w)``."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float | Tensor = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, lr, (b1, b2), eps, weight_decay)

    def _step_of(self, at: int, direction: Tensor) -> Tensor:
        return (direction + self._value(at) * self.weight_decay) * self._rate(at)


@final
class LAMB(Moments):
    """AdamW whose step is scaled to the norm of each parameter."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float | Tensor = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr, (b1, b2), eps, weight_decay)

    def _step_of(self, at: int, direction: Tensor) -> Tensor:
        value = self._value(at)
        step = direction + value * self.weight_decay
        size, length = (value * value).sum().sqrt(), (step * step).sum().sqrt()
        usable = (size > 0) & (length > 0)
        ratio = usable.where(size / usable.where(length, 1.0), 1.0)
        return step * ratio * self._rate(at)
