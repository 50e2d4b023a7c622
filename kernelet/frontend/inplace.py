"""Operators that write their result into the tensor: ``x += y`` and its relatives.

In:  tensors that can be written.
Out: `InPlace`, whose operators return the tensor itself.
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Self, TypeVar

from kernelet.base.dtype import Scalar
from kernelet.frontend.linalg import LinearAlgebra

TensorT = TypeVar("TensorT", bound="InPlace")


def _written(combine: Callable[[Any, Any], Any]) -> Callable[[TensorT, TensorT | Scalar], TensorT]:
    """The operator in place that belongs to an operator of two tensors."""
    return lambda tensor, other: tensor._in_place(combine(tensor, other))


class InPlace(LinearAlgebra):
    """An operator in place for each operator of two tensors."""

    __slots__ = ()

    @abstractmethod
    def _in_place(self, result: Self) -> Self:
        """Write `result` into this tensor; returns it."""

    __iadd__, __isub__, __imul__ = map(_written, (operator.add, operator.sub, operator.mul))
    __itruediv__, __ifloordiv__ = _written(operator.truediv), _written(operator.floordiv)
    __imod__, __ipow__, __imatmul__ = map(_written, (operator.mod, operator.pow, operator.matmul))
    __iand__, __ior__, __ixor__ = map(_written, (operator.and_, operator.or_, operator.xor))
    __ilshift__, __irshift__ = _written(operator.lshift), _written(operator.rshift)
