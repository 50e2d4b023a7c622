"""Layers that multiply by a matrix or look a row of one up."""

from __future__ import annotations

from typing import final

from kernelet.frontend.tensor import Tensor
from kernelet.nn.parameter import fan_in_bound, normal, uniform


@final
class Linear:
    """``x @ weight.T + bias``.

    >>> Linear(3, 2)(Tensor.ones(5, 3)).shape
    (5, 2)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        bound = fan_in_bound(in_features)
        self.weight = uniform(bound, out_features, in_features)
        self.bias = uniform(bound, out_features) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        return x.linear(self.weight.transpose(), self.bias)


@final
class Embedding:
    """The row of `weight` for each number.

    >>> Embedding(10, 4)(Tensor([[1, 2, 3]])).shape
    (1, 3, 4)
    """

    def __init__(self, vocab_size: int, embed_size: int) -> None:
        self.vocab_size, self.embed_size = vocab_size, embed_size
        self.weight = normal(vocab_size, embed_size)

    def __call__(self, index: Tensor) -> Tensor:
        return self.weight[index]
