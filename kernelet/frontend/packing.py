"""Small integers, several to a byte: storage for weights of 4, 2 or 1 bits.

In:  tensors of integers.
Out: bytes that hold them, and the integers again, as an expression that fuses into what reads it.
"""

from __future__ import annotations

from typing import Literal, Self

from kernelet.base.dtype import dtypes
from kernelet.base.errors import DTypeError
from kernelet.frontend.primitives import known
from kernelet.frontend.reduction import Reduction

Width = Literal[1, 2, 4]


class Packing(Reduction):
    """pack_bits and unpack_bits."""

    __slots__ = ()

    def pack_bits(self, width: Width = 4) -> Self:
        """The low `width` bits of each integer, 8 / width of them in a byte, the first lowest.

        The last axis gets shorter by that factor, which must divide it; the result is uint8.

        >>> from kernelet import Tensor
        >>> Tensor([1, -1, 7, -8]).pack_bits().tolist()
        [241, 135]
        """
        count = 8 // width
        self._need(not self.dtype.is_float, "integers", DTypeError)
        fits = self.ndim and known(self.shape[-1]) % count == 0
        self._need(fits, f"a last axis that is a multiple of {count}")
        rows = self.cast(dtypes.uint8)._reshape(
            (*self.shape[:-1], known(self.shape[-1]) // count, count)
        )
        fields = (rows & ((1 << width) - 1)) << self._shifts(width)
        return fields.sum(-1).cast(dtypes.uint8)

    def unpack_bits(self, width: Width = 4, signed: bool = True) -> Self:
        """The integers that `pack_bits` put into bytes: int8 from -2**(width - 1), or uint8 from 0.

        >>> from kernelet import Tensor
        >>> Tensor([241, 135], dtype="uint8").unpack_bits().tolist()
        [1, -1, 7, -8]
        """
        is_bytes = self.dtype is dtypes.uint8 and self.ndim
        self._need(is_bytes, "the bytes that pack_bits made", DTypeError)
        fields = (self.unsqueeze(-1) >> self._shifts(width)) & ((1 << width) - 1)
        values = fields._reshape((*self.shape[:-1], self.shape[-1] * (8 // width)))
        if not signed:
            return values
        sign = 1 << (width - 1)
        return (values.cast(dtypes.int8) ^ sign) - sign

    def _shifts(self, width: int) -> Self:
        """Where in a byte each number begins."""
        return self._arange(8 // width, dtypes.uint8) * width
