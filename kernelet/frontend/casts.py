"""Elements as other types: casts by name, bits read anew, small integers several to a byte.

In:  tensors.
Out: CAST and BITCAST nodes, and shifts of bits, which fuse into what reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Self, TypeVar

from kernelet.base.dtype import DType, dtypes
from kernelet.base.errors import DTypeError
from kernelet.frontend.movement import Movement
from kernelet.frontend.primitives import Primitives, known
from kernelet.frontend.promotion import DTypeLike, as_dtype
from kernelet.graph.ops import Op

Width = Literal[1, 2, 4]
TensorT = TypeVar("TensorT", bound=Primitives)

_UNSIGNED = {kind.itemsize: kind for kind in dtypes.all if kind.is_unsigned}


class Bits(Movement):
    """bitcast, pack_bits and unpack_bits."""

    __slots__ = ()

    def bitcast(self, dtype: DTypeLike) -> Self:
        """The bits read as another type; ``x.view(dtype)`` in numpy.

        Of another width, the last axis becomes as much longer or shorter; the low bits come first.
        """
        wanted = as_dtype(dtype)
        mine, theirs = self.dtype.itemsize, wanted.itemsize
        if mine == theirs:
            return self if wanted is self.dtype else self._wrap(self.uop.bitcast(wanted))
        size = known(self.shape[-1]) * mine if self.ndim else mine
        width = f"{size} bytes of a last axis, not {theirs}"
        fits = self.ndim and size % theirs == 0
        self._need(fits, f"a type whose width divides {width}", DTypeError)
        narrow, wide = (_UNSIGNED[each] for each in sorted((mine, theirs)))
        if mine > theirs:
            parts = self.bitcast(wide)._unpacked(8 * theirs)
            return parts.cast(narrow).bitcast(wanted).flatten(-2)
        return self.bitcast(narrow).cast(wide)._packed(8 * mine).bitcast(wanted)

    def pack_bits(self, width: Width = 4) -> Self:
        """The low `width` bits of each integer, 8 / width of them in a byte, the first lowest.

        The last axis gets shorter by that factor, which must divide it; the result is uint8.

        >>> from kernelet import Tensor
        >>> Tensor([1, -1, 7, -8]).pack_bits().tolist()
        [241, 135]
        """
        self._need(not self.dtype.is_float, "integers", DTypeError)
        fits = self.ndim and known(self.shape[-1]) * width % 8 == 0
        self._need(fits, f"a last axis that is a multiple of {8 // width}")
        return (self.cast(dtypes.uint8) & ((1 << width) - 1))._packed(width)

    def unpack_bits(self, width: Width = 4, signed: bool = True) -> Self:
        """The integers that `pack_bits` put into bytes: int8 from -2**(width - 1), or uint8 from 0.

        >>> from kernelet import Tensor
        >>> Tensor([241, 135], dtype="uint8").unpack_bits().tolist()
        [1, -1, 7, -8]
        """
        is_bytes = self.dtype is dtypes.uint8 and self.ndim
        self._need(is_bytes, "the bytes that pack_bits made", DTypeError)
        values, sign = self._unpacked(width) & ((1 << width) - 1), 1 << (width - 1)
        values = (values.cast(dtypes.int8) ^ sign) - sign if signed else values
        return values.flatten(-2)

    def _packed(self, width: int) -> Self:
        """Numbers of `width` bits, as many to an element as it has room for, the first lowest."""
        shifts = self._shifts(width)
        rows, places = self.unflatten(-1, (-1, *shifts.shape))._matched(shifts)
        return rows._alu(Op.SHL, places)._reduce(Op.ADD, (self.ndim,)).squeeze(-1)

    def _unpacked(self, width: int) -> Self:
        """A last axis of the numbers of `width` bits in each element, with others' bits above."""
        rows, places = self.unsqueeze(-1)._matched(self._shifts(width))
        return rows._alu(Op.SHR, places)

    def _shifts(self, width: int) -> Self:
        """Where in an element each number begins."""
        return self._arange(8 * self.dtype.itemsize // width, self.dtype) * width


def _cast_to(dtype: DType) -> Callable[[TensorT], TensorT]:
    """The method that casts to a type."""

    def cast(tensor: TensorT) -> TensorT:
        return tensor.cast(dtype)

    cast.__doc__ = f"The values as {dtype.name}."
    return cast


class Casts(Primitives):
    """float(), half(), int() and the like; apart, for they are also names of Python's types."""

    __slots__ = ()

    bool, short = _cast_to(dtypes.bool), _cast_to(dtypes.int16)
    int, long = _cast_to(dtypes.int32), _cast_to(dtypes.int64)
    half, bfloat16 = _cast_to(dtypes.float16), _cast_to(dtypes.bfloat16)
    float, double = _cast_to(dtypes.float32), _cast_to(dtypes.float64)
