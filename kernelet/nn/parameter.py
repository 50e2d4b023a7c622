"""How layers and optimizers make the tensors that they keep.

In:  first values.
Out: tensors with memory of their own, where gradients end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernelet.base.dtype import DType, dtypes
from kernelet.frontend.tensor import Tensor


def uniform(bound: float, *shape: int) -> Tensor:
    """A parameter whose elements lie evenly in -bound..bound."""
    return Tensor(Tensor.uniform(*shape, low=-bound, high=bound).contiguous())


def normal(*shape: int) -> Tensor:
    """A parameter whose elements have mean 0 and deviation 1."""
    return Tensor(Tensor.randn(*shape).contiguous())


def fan_in_bound(fan_in: int) -> float:
    """PyTorch's bound for weights and biases: kaiming uniform with a = sqrt(5)."""
    return 1 / math.sqrt(fan_in) if fan_in else 0.0


def filled(
    value: int,
    *shape: int,
    dtype: DType | None = None,
    device: str | Sequence[str] | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """A tensor of one small whole number, written by the host: no kernel is compiled for it."""
    kind = dtype or dtypes.default_float
    one = Tensor([value], dtype=kind).data() if value else bytes(kind.itemsize)
    data = bytes(one) * math.prod(shape)
    tensor = Tensor(data, device=device, dtype=kind, requires_grad=requires_grad)
    return Tensor(tensor.reshape(shape), requires_grad=requires_grad)
