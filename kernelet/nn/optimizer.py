"""What all optimizers share: parameters, their gradients, a learning rate and one step.

In:  parameters, and the gradients that `backward` left on them.
Out: new values of the parameters and of the optimizer's own state, in the same memory.

The learning rate is a tensor too, so that changing it recompiles nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Annotated, ClassVar, final

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

Parameters = Annotated[Iterable[Tensor], "of one optimizer; OptimizerGroup joins several"]


class Optimizer(ABC):
    """Parameters, a learning rate, and a formula for one step.

    Tensors with ``requires_grad=False`` (a batch norm's running statistics) are not moved; what is
    pending for them runs with the step, given here or not. `weight_decay` times the parameter is
    added to the gradient or, where `decouples_decay`, to the direction that the formula gives.
    """

    decouples_decay: ClassVar[bool] = False
    # A flag of one element: where it is true, the next step changes nothing.
    skipped: Tensor | None = None
    # The learning rate before any scheduler changed it.
    initial_lr: Tensor | None = None

    def __init__(self, params: Parameters, lr: float | Tensor, weight_decay: float = 0.0) -> None:
        self._changed: list[Tensor] = []
        self.params, self.buffers = _sorted_out(type(self).__name__, params)
        for each in self.params:
            each.requires_grad = True
        # With memory from the start, the first step runs the same kernels as all others.
        Tensor.realize(*self.params)
        self.device, self.weight_decay = self.params[0].device, weight_decay
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
        self._begin()
        for at in range(len(self.params)):
            self._write(self.params[at], self._moved(at))
        changed, self._changed = self._changed, []
        return [*changed, *self.buffers, *_pending_state()]

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

    def _moved(self, at: int) -> Tensor:
        """The next value of a parameter."""
        given = self.params[at].grad
        assert given is not None
        value, gradient = _wide(self.params[at]), _wide(given)
        if self.weight_decay and not self.decouples_decay:
            gradient = gradient + value * self.weight_decay
        direction = self._direction(at, gradient, value)
        if self.weight_decay and self.decouples_decay:
            direction = direction + value * self.weight_decay
        return value - self._step_of(at, direction, value)

    # ---- the formula ----

    def _begin(self) -> None:
        """Start a step: move what all parameters share."""
        self._changed = []

    @abstractmethod
    def _direction(self, at: int, gradient: Tensor, value: Tensor) -> Tensor:
        """Where parameter number `at` comes from; writes the state that goes with it."""

    def _step_of(self, at: int, direction: Tensor, value: Tensor) -> Tensor:
        """What is taken from the parameter."""
        return direction * self._rate(at)

    # ---- for the formulas ----

    def _write(self, target: Tensor, value: Tensor) -> None:
        """Give a parameter or a state its next value, unless this step is skipped."""
        if self.skipped is not None:
            value = self.skipped.to(target.device).where(_wide(target), value)
        target.assign(value.cast(target.dtype))
        self._changed.append(target)

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


def _sorted_out(name: str, given: Iterable[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """What is trained and what is not, each once."""
    trained: dict[int, Tensor] = {}
    kept: dict[int, Tensor] = {}
    for each in given:
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


def _wide(tensor: Tensor) -> Tensor:
    """The value in the type that the formulas compute in."""
    return tensor.detach().cast(_state_dtype(tensor.dtype))


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
