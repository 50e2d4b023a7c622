"""Running means of parameters, which often do better than the parameters of the last step.

In:  parameters, after each step of training.
Out: their exponential moving average, to evaluate and to save.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import final

from kernelet.frontend.arguments import Share
from kernelet.frontend.tensor import Tensor


@final
class EMA:
    """``average = decay * average + (1 - decay) * parameter``, in memory of its own.

    Tensors of integers are left out. `update` may be part of a captured step.
    """

    def __init__(self, params: Iterable[Tensor], decay: Share = 0.999) -> None:
        self.decay = decay
        self.params = list({id(each): each for each in params if each.dtype.is_float}.values())
        self.averages = [
            Tensor(each.detach().clone(), requires_grad=False).realize() for each in self.params
        ]

    def update(self) -> None:
        """Move the averages towards the parameters."""
        Tensor.realize(*self.schedule_update())

    def schedule_update(self) -> list[Tensor]:
        """The averages with their new values pending: realize them with the step."""
        return [
            average.assign(average * self.decay + each.detach() * (1 - self.decay))
            for average, each in zip(self.averages, self.params, strict=True)
        ]

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Inside, the parameters have the values of the averages."""
        kept = [each.detach().clone().realize() for each in self.params]
        _fill(self.params, self.averages)
        try:
            yield
        finally:
            _fill(self.params, kept)


def _fill(targets: list[Tensor], values: list[Tensor]) -> None:
    for target, value in zip(targets, values, strict=True):
        target.assign(value)
    Tensor.realize(*targets)
