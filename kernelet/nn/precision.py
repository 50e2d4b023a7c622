"""Training with 16-bit numbers: half-width copies of the parameters, and a scale for the loss.

In:  a model and an optimizer with float32 parameters.
Out: forward and backward passes in 16 bits, float32 steps.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import final

from kernelet.base.dtype import DType, dtypes
from kernelet.base.errors import ArgumentError
from kernelet.frontend.arguments import Count
from kernelet.frontend.tensor import Tensor
from kernelet.nn.optimizer import Optimizer, OptimizerGroup
from kernelet.nn.parameter import filled
from kernelet.nn.state import parts


@contextlib.contextmanager
def mixed_precision(model: object, dtype: DType = dtypes.float16) -> Iterator[None]:
    """Inside, the model computes with its float32 parameters cast to `dtype`.

    Gradients pass through the casts to the parameters, which stay float32. Tensors with
    ``requires_grad=False`` (running statistics) are left as they are.
    """
    changed: list[tuple[object, object, Tensor]] = []
    try:
        for holder, key, tensor in _places(model, set()):
            if tensor.dtype is dtypes.float32 and tensor.requires_grad is not False:
                _put(holder, key, tensor.cast(dtype))
                changed.append((holder, key, tensor))
        yield
    finally:
        for holder, key, tensor in changed:
            _put(holder, key, tensor)


def _places(holder: object, seen: set[int]) -> Iterator[tuple[object, object, Tensor]]:
    """Each tensor below `holder`, with what holds it and under which name."""
    if id(holder) in seen:
        return
    seen.add(id(holder))
    for key, value in parts(holder):
        if isinstance(value, Tensor):
            yield holder, key, value
        else:
            yield from _places(value, seen)


def _put(holder: object, key: object, tensor: Tensor) -> None:
    if isinstance(holder, dict):
        holder[key] = tensor
    elif isinstance(holder, list):
        assert isinstance(key, int)
        holder[key] = tensor
    elif isinstance(holder, tuple):
        raise ArgumentError(
            f"mixed_precision: a parameter of shape {tensor.shape} is held by a tuple, which cannot "
            "be changed. Hold it in a list, a dict or an attribute."
        )
    else:
        setattr(holder, str(key), tensor)


@final
class GradScaler:
    """A factor on the loss that keeps small gradients above the least number of 16 bits.

    ``scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()``. A step with a
    gradient that is not finite is skipped and the scale falls; after `growth_interval` good ones
    it rises. All of it is decided by the device, also when a captured step is replayed.
    """

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: Count = 2000,
    ) -> None:
        self.growth_factor, self.backoff_factor = growth_factor, backoff_factor
        self.growth_interval = growth_interval
        self.factor = Tensor(Tensor(init_scale).clone().realize(), requires_grad=False)
        self.good_steps = filled(0, dtype=dtypes.int32, requires_grad=False)
        # Whether gradients were not finite, of each optimizer since the last update.
        self._found: dict[int, Tensor] = {}

    def scale(self, loss: Tensor) -> Tensor:
        """The loss times the scale."""
        return loss * self.factor.to(loss.device)

    def unscale_(self, optimizer: Optimizer | OptimizerGroup) -> None:
        """Divide the gradients by the scale, as clipping needs it; `step` does so otherwise."""
        for each in _members(optimizer):
            self._unscale(each)

    def _unscale(self, optimizer: Optimizer) -> None:
        flags = []
        for parameter in optimizer.params:
            if parameter.grad is not None:
                grad = parameter.grad.detach().cast(dtypes.float32)
                flags.append((~grad.isfinite()).any().to(self.factor.device))
                parameter.grad = grad / self.factor.to(grad.device)
        if flags:
            self._found[id(optimizer)] = Tensor.stack(*flags).any()

    def step(self, optimizer: Optimizer | OptimizerGroup) -> None:
        """A step of the optimizer that changes nothing if a gradient is not finite."""
        for each in _members(optimizer):
            if id(each) not in self._found:
                self._unscale(each)
            each.skipped = self._found.get(id(each))
            try:
                each.step()
            finally:
                each.skipped = None

    def update(self) -> None:
        """Lower or raise the scale after the steps of all optimizers."""
        found = Tensor.stack(*self._found.values()).any() if self._found else Tensor(False)
        self._found = {}
        steps = found.where(0, self.good_steps + 1)
        is_due = steps >= self.growth_interval
        grown = is_due.where(self.factor * self.growth_factor, self.factor)
        self.factor.assign(found.where(self.factor * self.backoff_factor, grown))
        self.good_steps.assign(is_due.where(0, steps))
        Tensor.realize(self.factor, self.good_steps)


def _members(optimizer: Optimizer | OptimizerGroup) -> tuple[Optimizer, ...]:
    return optimizer.optimizers if isinstance(optimizer, OptimizerGroup) else (optimizer,)
