"""Short names for casts; apart from the others because they are also names of Python types.

In:  tensors.
Out: CAST nodes.
"""

from __future__ import annotations

from typing import Self

from kernelet.base.dtype import dtypes
from kernelet.frontend.primitives import Primitives


class Casts(Primitives):
    """float(), half(), int() and the like."""

    __slots__ = ()

    def bfloat16(self) -> Self:
        """As bfloat16."""
        return self.cast(dtypes.bfloat16)

    def half(self) -> Self:
        """As float16."""
        return self.cast(dtypes.float16)

    def double(self) -> Self:
        """As float64."""
        return self.cast(dtypes.float64)

    def long(self) -> Self:
        """As int64."""
        return self.cast(dtypes.int64)

    def short(self) -> Self:
        """As int16."""
        return self.cast(dtypes.int16)

    def float(self) -> Self:
        """As float32."""
        return self.cast(dtypes.float32)

    def int(self) -> Self:
        """As int32."""
        return self.cast(dtypes.int32)

    def bool(self) -> Self:
        """Whether each value is not 0."""
        return self.cast(dtypes.bool)
