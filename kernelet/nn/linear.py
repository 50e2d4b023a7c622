"""Layers that multiply by a matrix or look a row of one up."""

from __future__ import annotations

import struct
from typing import final

from kernelet import holdings
from kernelet.base.errors import IndexingError
from kernelet.frontend.arguments import Size
from kernelet.frontend.tensor import Tensor
from kernelet.graph.walk import split_view
from kernelet.nn.parameter import fan_in_bound, normal, uniform

_FEW = 4096


@final
class Linear:
    """``x @ weight.T + bias``.

    >>> Linear(3, 2)(Tensor.ones(5, 3)).shape
    (5, 2)
    """

    def __init__(self, in_features: Size, out_features: Size, bias: bool = True) -> None:
        bound = fan_in_bound(in_features)
        self.weight = uniform(bound, out_features, in_features)
        self.bias = uniform(bound, out_features) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        return x.linear(self.weight.transpose(), self.bias)


@final
class Bilinear:
    """``x1 @ weight[k] @ x2 + bias[k]`` for each feature k of the result.

    >>> Bilinear(3, 4, 2)(Tensor.ones(5, 3), Tensor.ones(5, 4)).shape
    (5, 2)
    """

    def __init__(
        self, in1_features: Size, in2_features: Size, out_features: Size, bias: bool = True
    ) -> None:
        bound = fan_in_bound(in1_features)
        self.weight = uniform(bound, out_features, in1_features, in2_features)
        self.bias = uniform(bound, out_features) if bias else None

    def __call__(self, x1: Tensor, x2: Tensor) -> Tensor:
        found = Tensor.einsum("...i,kij,...j->...k", x1, self.weight, x2)
        return found if self.bias is None else found + self.bias


@final
class Embedding:
    """The row of `weight` for each number.

    Numbers without a row are refused where they are few and lie in memory that can be read; looking
    at others would cost more than the rows, and they give zeros. The row `padding_idx` starts as
    zeros and has no gradient.

    >>> Embedding(10, 4)(Tensor([[1, 2, 3]])).shape
    (1, 3, 4)
    """

    def __init__(self, vocab_size: Size, embed_size: Size, padding_idx: int | None = None) -> None:
        self.vocab_size, self.embed_size = vocab_size, embed_size
        if padding_idx is not None and not -vocab_size <= padding_idx < vocab_size:
            raise IndexingError(
                f"Embedding({vocab_size}, {embed_size}): padding_idx={padding_idx} has no row. "
                f"Use {-vocab_size} to {vocab_size - 1}."
            )
        self.padding_idx = None if padding_idx is None else padding_idx % vocab_size
        self.weight = normal(vocab_size, embed_size)
        if padding_idx is not None:
            self.weight[padding_idx] = 0

    def __call__(self, index: Tensor) -> Tensor:
        self._check(index)
        found = self.weight[index]
        if self.padding_idx is None:
            return found
        is_padding = (index % self.vocab_size).eq(self.padding_idx).unsqueeze(-1)
        return is_padding.where(found.detach(), found)

    def _check(self, index: Tensor) -> None:
        node, count = holdings.realized(index.uop), index.numel()
        is_known = node is not None and isinstance(index.device, str) and index.dtype.is_integer
        if (
            not is_known
            or holdings.current_recorder.get()
            or not isinstance(count, int)
            or count > _FEW
        ):
            return
        assert node is not None
        if not holdings.memories[split_view(node)[1]].driver.is_host:
            return
        numbers = struct.unpack(f"{count}{index.dtype.code}", index.data())
        wrong = [each for each in numbers if not -self.vocab_size <= each < self.vocab_size]
        if wrong:
            raise IndexingError(
                f"Embedding({self.vocab_size}, {self.embed_size}): {len(wrong)} of {count} numbers "
                f"have no row, as {wrong[0]}. Give numbers below {self.vocab_size}."
            )
