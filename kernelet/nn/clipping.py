"""Keep gradients small.

In:  parameters with gradients.
Out: the same gradients, scaled or cut off.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from kernelet.base.dtype import dtypes
from kernelet.frontend.tensor import Tensor


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0
) -> Tensor:
    """Scale all gradients so that their common norm is `max_norm` at most; returns what it was.

    The factor is ``min(1, max_norm / (norm + 1e-6))``, as with PyTorch.
    """
    trained = _with_gradients(parameters)
    total = _norm([grad.abs() for _, grad in trained], norm_type)
    factor = (max_norm / (total + 1e-6)).minimum(1.0)
    for parameter, grad in trained:
        parameter.grad = (grad * factor.to(grad.device)).cast(grad.dtype)
    return total


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Cut each element of the gradients off at ``-clip_value`` and ``clip_value``."""
    for parameter, grad in _with_gradients(parameters):
        parameter.grad = grad.clip(-clip_value, clip_value)


def _with_gradients(parameters: Tensor | Iterable[Tensor]) -> list[tuple[Tensor, Tensor]]:
    given = [parameters] if isinstance(parameters, Tensor) else parameters
    return [(each, each.grad.detach()) for each in given if each.grad is not None]


def _norm(sizes: list[Tensor], norm_type: float) -> Tensor:
    """The norm of all of these non-negative numbers together."""
    if not sizes:
        return Tensor(0.0)
    wide = [each.cast(dtypes.float32) if each.dtype.itemsize < 4 else each for each in sizes]
    if norm_type == math.inf:
        return Tensor.stack(*[each.max().to(wide[0].device) for each in wide]).max()
    powers = [each.pow(norm_type).sum().to(wide[0].device) for each in wide]
    return Tensor.stack(*powers).sum().pow(1 / norm_type)
