"""Layers that leave values out while training.

In:  tensors.
Out: the same with some elements, or whole channels, 0, and the others larger to make up for it.
"""

from __future__ import annotations

from typing import final

from kernelet.frontend.arguments import Share
from kernelet.frontend.tensor import Tensor


@final
class Dropout:
    """In training each element is 0 with probability p and else x / (1 - p).

    >>> Dropout(0.5)(Tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """

    def __init__(self, p: Share = 0.5) -> None:
        self.p = p

    def __call__(self, x: Tensor) -> Tensor:
        return x.dropout(self.p)


@final
class ChannelDropout:
    """In training each channel of (batch, channels, *space) is 0 with probability p."""

    def __init__(self, p: Share = 0.5) -> None:
        self.p = p

    def __call__(self, x: Tensor) -> Tensor:
        shape = (*x.shape[:2], *(1 for _ in x.shape[2:]))
        return x * Tensor.ones(*shape, dtype=x.dtype, device=x.device).dropout(self.p)


Dropout1d = Dropout2d = Dropout3d = ChannelDropout
