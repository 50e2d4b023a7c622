"""Learning rates that change from step to step.

In:  an optimizer.
Out: a new learning rate after each `step()`, computed by the device from a counter, so that a
     captured training step goes on changing it when it is replayed.

Names, arguments and values are those of `torch.optim.lr_scheduler`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, final

from kernelet.base.dtype import dtypes
from kernelet.base.errors import ArgumentError
from kernelet.frontend.arguments import Count, Positive, Share
from kernelet.frontend.tensor import Tensor
from kernelet.nn.optimizer import Optimizer


@dataclass(eq=False)
class Scheduler(ABC):
    """A learning rate as a function of the number of steps; call `step` after the optimizer's."""

    optimizer: Optimizer

    def __post_init__(self) -> None:
        optimizer = self.optimizer
        if optimizer.initial_lr is None:
            optimizer.initial_lr = _kept(optimizer.lr)
        self.count = _kept(Tensor(0.0, device=optimizer.device))
        optimizer.lr = self.rate(self.count, optimizer.initial_lr)

    @abstractmethod
    def rate(self, count: Tensor, start: Tensor) -> Tensor:
        """The learning rate after `count` steps, from what it is without this scheduler."""

    def step(self) -> None:
        """Count a step and change the learning rate."""
        Tensor.realize(*self.schedule_step())

    def schedule_step(self) -> list[Tensor]:
        """The tensors that a step changes, with the new values pending: realize them to step."""
        assert self.optimizer.initial_lr is not None
        self.count.assign(self.count + 1)
        rate = self.optimizer.lr
        return [self.count, rate.assign(self.rate(self.count, self.optimizer.initial_lr))]

    def get_last_lr(self) -> list[float]:
        """The learning rate of the next optimizer step."""
        return [float(self.optimizer.lr.numpy().item())]


def _kept(value: Tensor) -> Tensor:
    return Tensor(value.detach().clone().realize(), requires_grad=False)


def _power(base: float, exponent: Tensor) -> Tensor:
    """``base ** exponent``, exact to a few units in the last place for large exponents too."""
    return (exponent * math.log2(base)).exp2()


def _share(count: Tensor, total: float) -> Tensor:
    """How much of `total` steps is done, 1 at most."""
    return (count / total).minimum(1.0)


def _halfway(share: Tensor) -> Tensor:
    """From 1 down to 0 along half a wave."""
    return ((share * math.pi).cos() + 1) / 2


@final
@dataclass(eq=False)
class LambdaLR(Scheduler):
    """``start * lr_lambda(count)``; the function is given a tensor."""

    lr_lambda: Callable[[Tensor], Tensor]

    def rate(self, count: Tensor, start: Tensor) -> Tensor:
        """As the class says."""
        return start * self.lr_lambda(count)


@final
@dataclass(eq=False)
class MultiStepLR(Scheduler):
    """``start * gamma ** (how many of the milestones are reached)``"""

    milestones: Sequence[int]
    gamma: Positive = 0.1

    def rate(self, count: Tensor, start: Tensor) -> Tensor:
        """As the class says."""
        for milestone in self.milestones:
            start = (count >= milestone).where(start * self.gamma, start)
        return start


@final
@dataclass(eq=False)
class StepLR(Scheduler):
    """``start * gamma ** (count // step_size)``"""

    step_size: Count
    gamma: Positive = 0.1

    def rate(self, count: Tensor, start: Tensor) -> Tensor:
        """As the class says."""
        return start * _power(self.gamma, count // self.step_size)


@final
@dataclass(eq=False)
class ExponentialLR(Scheduler):
    """``start * gamma ** count``"""

    gamma: Positive

    def rate(self, count: Tensor, start: Tensor) -> Tensor:
        """As the class says."""
        return start * _power(self.gamma, count)


@final
@dataclass(eq=False)
class LinearLR(Scheduler):
    """A warm-up: `start` times a factor that goes along a line from one number to another."""

    start_factor: float = 1 / 3
    end_factor: float = 1.0
    total_iters: Count = 5

    def rate(self, count: Tensor, start: Tensor) -> Tensor:
        """As the class says."""
        climb = self.end_factor - self.start_factor
        return start * (_share(count, self.total_iters) * climb + self.start_factor)


@final
@dataclass(eq=False)
class ConstantLR(Scheduler):
    """`start` times a factor until `total_iters` steps are done."""

    factor: float = 1 / 3
    total_iters: Count = 5

    def rate(self, count: Tensor, start: Tensor) -> Tensor:
        """As the class says."""
        return (count < self.total_iters).where(start * self.factor, start)


@final
@dataclass(eq=False)
class PolynomialLR(Scheduler):
    """``start * (1 - count / total_iters) ** power``"""

    total_iters: Count = 5
    power: float = 1.0

    def rate(self, count: Tensor, start: Tensor) -> Tensor:
        """As the class says."""
        return start * (1 - _share(count, self.total_iters)) ** self.power


@final
@dataclass(eq=False)
class CosineAnnealingLR(Scheduler):
    """From `start` to `eta_min` along half a wave of `T_max` steps (and back, if it goes on)."""

    T_max: Count
    eta_min: float = 0.0

    def rate(self, count: Tensor, start: Tensor) -> Tensor:
        """As the class says."""
        return (start - self.eta_min) * _halfway(count / self.T_max) + self.eta_min


@final
@dataclass(eq=False)
class CosineAnnealingWarmRestarts(Scheduler):
    """Half a wave from `start` to `eta_min` in `length` steps, PyTorch's `T_0`, again and again from its beginning.

    Each is `T_mult` times as long as the one before.
    """

    length: Count
    T_mult: Count = 1
    eta_min: float = 0.0

    def rate(self, count: Tensor, start: Tensor) -> Tensor:
        """As the class says."""
        share = count / self.length
        if self.T_mult == 1:
            return self._along(share - share.floor(), start)
        # Wave n begins at (T_mult**n - 1) / (T_mult - 1); half a step keeps n off the rounding.
        grown = (share + 0.5 / self.length) * (self.T_mult - 1) + 1
        times = _power(self.T_mult, (grown.log2() / math.log2(self.T_mult)).floor()).round()
        return self._along(share / times - (1 - 1 / times) / (self.T_mult - 1), start)

    def _along(self, share: Tensor, start: Tensor) -> Tensor:
        return (start - self.eta_min) * _halfway(share) + self.eta_min


@final
@dataclass(eq=False)
class OneCycleLR(Scheduler):
    """Up to `max_lr` in the first `pct_start` of all steps, then down to next to nothing.

    It starts at ``max_lr / div_factor`` and ends at that divided by `final_div_factor`; the
    momentum stays as it is (Smith and Topin, 2019).
    """

    max_lr: float
    total_steps: Count
    pct_start: Share = 0.3
    anneal_strategy: Literal["cos", "linear"] = "cos"
    div_factor: Positive = 25.0
    final_div_factor: Positive = 1e4

    def rate(self, count: Tensor, start: Tensor) -> Tensor:
        """As the class says."""
        first, top = self.max_lr / self.div_factor, self.pct_start * self.total_steps - 1
        up = self._between(first, self.max_lr, _share(count, top))
        rest = _share(count - top, self.total_steps - 1 - top)
        down = self._between(self.max_lr, first / self.final_div_factor, rest)
        return (count <= top).where(up, down) + start * 0

    def _between(self, begin: float, end: float, share: Tensor) -> Tensor:
        left = _halfway(share) if self.anneal_strategy == "cos" else 1 - share
        return left * (begin - end) + end


@final
class ChainedScheduler(Scheduler):
    """Each scheduler changes the rate that the ones before it give."""

    def __init__(self, schedulers: Sequence[Scheduler]) -> None:
        if not schedulers:
            raise ArgumentError("ChainedScheduler: schedulers is empty. Give at least one.")
        self.schedulers = list(schedulers)
        super().__init__(schedulers[0].optimizer)

    def rate(self, count: Tensor, start: Tensor) -> Tensor:
        """As the class says."""
        for each in self.schedulers:
            start = each.rate(count, start)
        return start


@final
class SequentialLR(Scheduler):
    """One scheduler after the other; each starts to count at its milestone."""

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[Scheduler], milestones: Sequence[int]
    ) -> None:
        if len(schedulers) != len(milestones) + 1:
            raise ArgumentError(
                f"SequentialLR: {len(schedulers)} schedulers and {len(milestones)} milestones. "
                "Give one milestone for each scheduler but the first."
            )
        self.schedulers, self.milestones = list(schedulers), [0, *milestones]
        super().__init__(optimizer)

    def rate(self, count: Tensor, start: Tensor) -> Tensor:
        """As the class says."""
        found = start
        for each, begin in zip(self.schedulers, self.milestones, strict=True):
            found = (count >= begin).where(each.rate(count - begin, start), found)
        return found


@final
@dataclass(eq=False)
class ReduceLROnPlateau:
    """The rate times `factor` when `step` was told no better value for more than `patience` steps."""

    optimizer: Optimizer
    mode: Literal["min", "max"] = "min"
    factor: float = 0.1
    patience: int = 10
    threshold: float = 1e-4
    threshold_mode: Literal["rel", "abs"] = "rel"
    cooldown: int = 0
    min_lr: float = 0.0
    eps: float = 1e-8

    def __post_init__(self) -> None:
        self.best, self.bad, self.waiting = (
            _kept(Tensor(value, device=self.optimizer.device)) for value in (math.inf, 0.0, 0.0)
        )

    def step(self, metrics: Tensor | float) -> None:
        """Look at a value; change the learning rate if it has stopped to get better."""
        Tensor.realize(*self.schedule_step(metrics))

    def schedule_step(self, metrics: Tensor | float) -> list[Tensor]:
        """The tensors that a step changes, with the new values pending: realize them to step."""
        value = (
            metrics.detach().cast(dtypes.float32)
            if isinstance(metrics, Tensor)
            else Tensor(metrics)
        )
        value = value.reshape(()) * (1.0 if self.mode == "min" else -1.0)
        scale = self.best.abs() if self.threshold_mode == "rel" else 1.0
        margin = scale * self.threshold
        is_better = (value < self.best - margin) | ((self.best == math.inf) & (value < math.inf))
        bad = ((self.waiting > 0) | is_better).where(0.0, self.bad + 1)
        is_due = bad > self.patience
        rate = self.optimizer.lr
        lower = (rate * self.factor).maximum(self.min_lr)
        lower = (is_due & (rate - lower > self.eps)).where(lower, rate)
        waiting = is_due.where(float(self.cooldown), (self.waiting - 1).maximum(0.0))
        return [
            rate.assign(lower),
            self.best.assign(is_better.where(value, self.best)),
            self.bad.assign(is_due.where(0.0, bad)),
            self.waiting.assign(waiting),
        ]
