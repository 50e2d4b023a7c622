"""Optimizers: formulas that move parameters against their gradients.

In:  parameters, and the gradients that `backward` left on them.
Out: new values of the parameters and of the optimizer's own state, in the same memory.

The learning rate is a tensor too, so that changing it recompiles nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import final

from kernelet import holdings
from kernelet.base.config import current
from kernelet.base.dtype import DType, dtypes
from kernelet.base.errors import ArgumentError, GradientError
from kernelet.frontend import live
from kernelet.frontend.tensor import Tensor
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.graph.walk import split_view
from kernelet.nn.parameter import filled


class Optimizer(ABC):
    """Parameters, a learning rate, and a formula for one step.

    Tensors with ``requires_grad=False`` (a batch norm's running statistics) are not moved; what is
    pending for them runs with the step, given here or not.
    """

    def __init__(self, params: Iterable[Tensor], lr: float | Tensor) -> None:
        self.params, self.buffers = _sorted_out(type(self).__name__, params)
        for each in self.params:
            each.requires_grad = True
        # With memory from the start, the first step runs the same kernels as all others.
        Tensor.realize(*self.params)
        self.device = self.params[0].device
        self._lr = _stored(lr) if isinstance(lr, Tensor) else self._state_value(lr)

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
        self._check_gradients()
        changed = self._update()
        return [*self.params, *changed, *self.buffers, *_pending_state()]

    def _check_gradients(self) -> None:
        without = [at for at, each in enumerate(self.params) if each.grad is None]
        if without:
            shown = [f"number {at} of shape {self.params[at].shape}" for at in without[:3]]
            more = f" and {len(without) - 3} more" if len(without) > 3 else ""
            raise GradientError(
                f"{type(self).__name__}.step: {len(without)} of the {len(self.params)} parameters "
                f"have no gradient: {', '.join(shown)}{more}. Call backward() on a loss that "
                "depends on them; leave out what the loss does not use."
            )

    @abstractmethod
    def _update(self) -> list[Tensor]:
        """Assign new values to the parameters; the state tensors that changed with them."""

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

    def _state_value(self, *values: float) -> Tensor:
        return Tensor(values, device=self.device, dtype=dtypes.float32, requires_grad=False)

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


def _stored(rate: Tensor) -> Tensor:
    """`rate` with memory of its own: a constant would be written into captured kernels."""
    copied = Tensor(rate.data(), device=rate.device, dtype=rate.dtype)
    return rate.replace(copied.reshape(rate.shape))


def _pending_state() -> list[Tensor]:
    """Untrained tensors with a write that has not run, as running statistics after a forward pass.

    Left alone they would grow from step to step, and a captured step would not replay them.
    """
    return [
        each
        for each in live.live_tensors()
        if isinstance(each, Tensor) and each.required is False and _is_pending(each.uop)
    ]


def _is_pending(node: UOp) -> bool:
    return split_view(node)[1].op is Op.AFTER and holdings.realized(node) is None


def _state_dtype(dtype: DType) -> DType:
    # The steps are far smaller than the values: 16 bits would round them away.
    return dtypes.float32 if dtype.itemsize < 4 else dtype


@final
class OptimizerGroup:
    """Several optimizers that step together, as for parts with rates of their own."""

    def __init__(self, *optimizers: Optimizer) -> None:
        self.optimizers = optimizers

    @property
    def params(self) -> list[Tensor]:
        """The parameters of all of them."""
        return [each for optimizer in self.optimizers for each in optimizer.params]

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def step(self) -> None:
        """Move all parameters once."""
        Tensor.realize(*self.schedule_step())

    def schedule_step(self) -> list[Tensor]:
        """The tensors that a step changes, with the new values pending: realize them to step."""
        return [each for optimizer in self.optimizers for each in optimizer.schedule_step()]


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

    def _update(self) -> list[Tensor]:
        for at in range(len(self.params)):
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
        return self.velocity


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
        self.m, self.v = self._zeros(), self._zeros()
        # 1 - beta**steps, kept as such: near 0 a difference of floats would be rough.
        self.corrections = self._state_value(0.0, 0.0)
        self._kept = self._state_value(*betas)
        self._added = self._state_value(1 - self.b1, 1 - self.b2)

    def _update(self) -> list[Tensor]:
        self.corrections.assign(self.corrections * self._kept + self._added)
        for at in range(len(self.params)):
            step = self._step_of(at, self._direction(at))
            value = self._value(at) - step
            self.params[at].assign(value.cast(self.params[at].dtype))
        return [self.corrections, *self.m, *self.v]

    def _direction(self, at: int) -> Tensor:
        """``m / (1 - b1**t) / (sqrt(v / (1 - b2**t)) + eps)`` after this gradient."""
        gradient = self._decayed(at)
        scale = self.corrections.to(self.params[at].device)
        first = self.m[at] * self.b1 + gradient * (1 - self.b1)
        second = self.v[at] * self.b2 + gradient * gradient * (1 - self.b2)
        self.m[at].assign(first)
        self.v[at].assign(second)
        return first / scale[0] / ((second / scale[1]).sqrt() + self.eps)

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
