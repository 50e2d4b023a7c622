"""Layers with a state that goes from one step to the next.

In:  one step, (batch, features), or a sequence of them.
Out: the state after it; for a sequence also the hidden state of every step.

Parameters have PyTorch's names and order of gates.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, final

from kernelet.base.errors import ShapeError
from kernelet.frontend.arguments import Count, Share, Size
from kernelet.frontend.tensor import Tensor
from kernelet.nn.parameter import fan_in_bound, uniform

# The state of a step: hidden alone, or hidden and cell.
State = tuple[Tensor, ...]
Plain = Literal["tanh", "relu"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A formula for one step: of how many gates and how many parts of a state.

    `step` takes what the input and the hidden state add to the gates, and the state before.
    """

    gates: int
    states: int
    step: Callable[[Tensor, Tensor, State], State]


def _tanh_step(entering: Tensor, kept: Tensor, _: State) -> State:
    return ((entering + kept).tanh(),)


def _relu_step(entering: Tensor, kept: Tensor, _: State) -> State:
    return ((entering + kept).relu(),)


def _lstm_step(entering: Tensor, kept: Tensor, state: State) -> State:
    enter, keep, value, leave = (entering + kept).chunk(4, dim=-1)
    cell = keep.sigmoid() * state[1] + enter.sigmoid() * value.tanh()
    return leave.sigmoid() * cell.tanh(), cell


def _gru_step(entering: Tensor, kept: Tensor, state: State) -> State:
    gates = zip(entering.chunk(3, dim=-1), kept.chunk(3, dim=-1), strict=True)
    (reset, reset_kept), (update, update_kept), (value, value_kept) = gates
    value = (value + (reset + reset_kept).sigmoid() * value_kept).tanh()
    share = (update + update_kept).sigmoid()
    return (value + share * (state[0] - value),)


_PLAIN = {"tanh": Kind(1, 1, _tanh_step), "relu": Kind(1, 1, _relu_step)}
_LSTM = Kind(4, 2, _lstm_step)
_GRU = Kind(3, 1, _gru_step)
_PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class Cell(ABC):
    """One step."""

    kind: Kind

    def __init__(self, input_size: Size, hidden_size: Size, bias: bool = True) -> None:
        bound, rows = fan_in_bound(hidden_size), self.kind.gates * hidden_size
        self.hidden_size = hidden_size
        self.weight_ih = uniform(bound, rows, input_size)
        self.weight_hh = uniform(bound, rows, hidden_size)
        self.bias_ih = uniform(bound, rows) if bias else None
        self.bias_hh = uniform(bound, rows) if bias else None

    def _next(self, x: Tensor, state: State | None) -> State:
        if state is None:
            zero = Tensor.zeros(*x.shape[:-1], self.hidden_size, dtype=x.dtype, device=x.device)
            state = (zero,) * self.kind.states
        entering = x.linear(self.weight_ih.transpose(), self.bias_ih)
        kept = state[0].linear(self.weight_hh.transpose(), self.bias_hh)
        return self.kind.step(entering, kept, state)


class HiddenCell(Cell):
    """One step whose state is the hidden state alone."""

    def __call__(self, x: Tensor, hidden: Tensor | None = None) -> Tensor:
        return self._next(x, None if hidden is None else (hidden,))[0]


@final
class RNNCell(HiddenCell):
    """``tanh(x @ weight_ih.T + bias_ih + hidden @ weight_hh.T + bias_hh)``"""

    def __init__(
        self, input_size: Size, hidden_size: Size, bias: bool = True, nonlinearity: Plain = "tanh"
    ) -> None:
        self.kind = _PLAIN[nonlinearity]
        super().__init__(input_size, hidden_size, bias)


@final
class GRUCell(HiddenCell):
    """One step of a gated recurrent unit; the gates are reset, update, value.

    >>> GRUCell(3, 5)(Tensor.ones(2, 3)).shape
    (2, 5)
    """

    kind = _GRU


@final
class LSTMCell(Cell):
    """One step of a long short-term memory; the gates are input, forget, cell, output.

    >>> hidden, cell = LSTMCell(3, 5)(Tensor.ones(2, 3))
    >>> hidden.shape
    (2, 5)
    """

    kind = _LSTM

    def __call__(
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        hidden, cell = self._next(x, state)
        return hidden, cell


class Recurrent(ABC):
    """Steps over sequences (time, batch, features), or (batch, time, features) with `batch_first`.

    Each of `num_layers` reads the hidden states of the one below, with `dropout` between them;
    `bidirectional` reads the sequence from its end too and puts both results side by side.
    """

    kind: Kind

    def __init__(
        self,
        input_size: Size,
        hidden_size: Size,
        num_layers: Count = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: Share = 0.0,
        bidirectional: bool = False,
    ) -> None:
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.batch_first, self.dropout = batch_first, dropout
        self.suffixes = ("", "_reverse") if bidirectional else ("",)
        bound, rows = fan_in_bound(hidden_size), self.kind.gates * hidden_size
        for layer in range(num_layers):
            width = hidden_size * len(self.suffixes) if layer else input_size
            for suffix in self.suffixes:
                for part, size in zip(_PARTS, (width, hidden_size, 0, 0), strict=True):
                    shape = (rows, size) if size else (rows,)
                    made = uniform(bound, *shape) if size or bias else None
                    setattr(self, f"{part}_l{layer}{suffix}", made)

    def _run(self, x: Tensor, given: Sequence[Tensor] | None) -> tuple[Tensor, State]:
        """All hidden states, and each part of the last state as (layers * directions, batch, hidden)."""
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size:
            raise ShapeError(
                f"{type(self).__name__}: the sequence has shape {x.shape}. Give 3 axes (2 without a "
                f"batch), the last of {self.input_size} features."
            )
        if x.ndim == 2:
            states = None if given is None else [each.unsqueeze(1) for each in given]
            axis = 0 if self.batch_first else 1
            found, last = self._run(x.unsqueeze(axis), states)
            return found.squeeze(axis), tuple(each.squeeze(1) for each in last)
        values = x.transpose(0, 1) if self.batch_first else x
        if given is None:
            rows = self.num_layers * len(self.suffixes)
            shape = (rows, values.shape[1], self.hidden_size)
            given = [Tensor.zeros(*shape, dtype=x.dtype, device=x.device)] * self.kind.states
        finals: list[State] = []
        for layer in range(self.num_layers):
            if layer and self.dropout:
                values = values.dropout(self.dropout)
            sides = []
            for suffix in self.suffixes:
                start = tuple(part[len(finals)] for part in given)
                side, final_state = self._scan(values, start, f"_l{layer}{suffix}", bool(suffix))
                sides.append(side)
                finals.append(final_state)
            values = sides[0] if len(sides) == 1 else sides[0].cat(sides[1], dim=-1)
        last = tuple(Tensor.stack(*parts) for parts in zip(*finals, strict=True))
        return (values.transpose(0, 1) if self.batch_first else values), last

    def _scan(self, x: Tensor, state: State, name: str, is_reverse: bool) -> tuple[Tensor, State]:
        weight_ih, weight_hh, bias_ih, bias_hh = (getattr(self, part + name) for part in _PARTS)
        # What the inputs add to the gates is one product for all steps.
        entering = x.linear(weight_ih.transpose(), bias_ih)
        found = []
        steps = range(len(x))
        for at in reversed(steps) if is_reverse else steps:
            kept = state[0].linear(weight_hh.transpose(), bias_hh)
            state = self.kind.step(entering[at], kept, state)
            found.append(state[0])
        return Tensor.stack(*(found[::-1] if is_reverse else found)), state


class HiddenLayer(Recurrent):
    """A layer whose state is the hidden state alone."""

    def __call__(self, x: Tensor, hidden: Tensor | None = None) -> tuple[Tensor, Tensor]:
        found, last = self._run(x, None if hidden is None else [hidden])
        return found, last[0]


@final
class RNN(HiddenLayer):
    """`RNNCell` over sequences."""

    def __init__(
        self,
        input_size: Size,
        hidden_size: Size,
        num_layers: Count = 1,
        nonlinearity: Plain = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: Share = 0.0,
        bidirectional: bool = False,
    ) -> None:
        self.kind = _PLAIN[nonlinearity]
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        )


@final
class GRU(HiddenLayer):
    """`GRUCell` over sequences.

    >>> found, hidden = GRU(3, 5, bidirectional=True)(Tensor.ones(4, 2, 3))
    >>> found.shape, hidden.shape
    ((4, 2, 10), (2, 2, 5))
    """

    kind = _GRU


@final
class LSTM(Recurrent):
    """`LSTMCell` over sequences."""

    kind = _LSTM

    def __call__(
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        found, (hidden, cell) = self._run(x, state)
        return found, (hidden, cell)
