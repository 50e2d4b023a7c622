"""Operators that write their result into the tensor: ``x += y`` and its relatives.

In:  tensors that can be written.
Out: `InPlace`, whose operators return the tensor itself.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

from kernelet.base.dtype import Scalar
from kernelet.frontend.linalg import LinearAlgebra


class InPlace(LinearAlgebra):
    """An operator in place for each operator of two tensors."""

    __slots__ = ()

    @abstractmethod
    def _in_place(self, result: Self) -> Self:
        """Write `result` into this tensor; returns it."""

    def __iadd__(self, other: Self | Scalar) -> Self:
        return self._in_place(self + other)

    def __isub__(self, other: Self | Scalar) -> Self:
        return self._in_place(self - other)

    def __imul__(self, other: Self | Scalar) -> Self:
        return self._in_place(self * other)

    def __itruediv__(self, other: Self | Scalar) -> Self:
        return self._in_place(self / other)

    def __ifloordiv__(self, other: Self | Scalar) -> Self:
        return self._in_place(self // other)

    def __imod__(self, other: Self | Scalar) -> Self:
        return self._in_place(self % other)

    def __ipow__(self, other: Self | Scalar) -> Self:
        return self._in_place(self**other)

    def __iand__(self, other: Self | Scalar) -> Self:
        return self._in_place(self & other)

    def __ior__(self, other: Self | Scalar) -> Self:
        return self._in_place(self | other)

    def __ixor__(self, other: Self | Scalar) -> Self:
        return self._in_place(self ^ other)

    def __ilshift__(self, other: Self | Scalar) -> Self:
        return self._in_place(self << other)

    def __irshift__(self, other: Self | Scalar) -> Self:
        return self._in_place(self >> other)

    def __imatmul__(self, other: Self) -> Self:
        return self._in_place(self @ other)
