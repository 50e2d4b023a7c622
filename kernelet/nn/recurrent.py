"""Layers with a state that goes from one step to the next."""

from __future__ import annotations

from typing import final

from kernelet.frontend.tensor import Tensor
from kernelet.nn.parameter import fan_in_bound, uniform


@final
class LSTMCell:
    """One step of a long short-term memory; the gates are input, forget, cell, output.

    >>> hidden, cell = LSTMCell(3, 5)(Tensor.ones(2, 3))
    >>> hidden.shape
    (2, 5)
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        bound = fan_in_bound(hidden_size)
        gates = 4 * hidden_size
        self.weight_ih = uniform(bound, gates, input_size)
        self.weight_hh = uniform(bound, gates, hidden_size)
        self.bias_ih = uniform(bound, gates) if bias else None
        self.bias_hh = uniform(bound, gates) if bias else None

    def __call__(
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        if state is None:
            zero = Tensor.zeros(x.shape[0], self.weight_hh.shape[1], dtype=x.dtype)
            state = (zero, zero)
        hidden, cell = state
        gates = x.linear(self.weight_ih.transpose(), self.bias_ih)
        gates = gates + hidden.linear(self.weight_hh.transpose(), self.bias_hh)
        enter, keep, value, leave = gates.chunk(4, dim=1)
        cell = keep.sigmoid() * cell + enter.sigmoid() * value.tanh()
        return leave.sigmoid() * cell.tanh(), cell
