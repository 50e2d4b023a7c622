"""Running reductions: element i of the result combines the elements up to i.

In:  tensors.
Out: `Cumulative`: cumsum, cumprod, logcumsumexp, and what running extremes are made from.

Each is its plain formula: a reduction of what a triangular mask leaves of the axis. Lowering finds
that such a reduction goes on from result to result, so it is one pass (`graph/scan.py`). A long
axis alone is cut into parts, which threads share.

Where the derivative of the formula is no such pass, and for the logarithm of sums, the axis is cut
into short blocks instead: inside a block every element reduces a triangle, what all blocks before
add up to is the same problem over the blocks' totals.
"""

from __future__ import annotations

import math
from typing import Self

from kernelet.base.dtype import Scalar
from kernelet.base.helpers import ceiling_divide
from kernelet.frontend.promotion import accumulator_dtype, sum_dtype
from kernelet.frontend.reduction import Reduction
from kernelet.graph.ops import Op

_BLOCK = 16
_LONG = 1 << 17
_PARTS = 64


class Cumulative(Reduction):
    """Running sums and products."""

    __slots__ = ()

    def cumsum(self, axis: int = 0) -> Self:
        """The sum of the elements up to each one, in the type of `sum`; ``numpy.cumsum(x, axis)``."""
        return self._accumulated(Op.ADD, axis)

    def cumprod(self, axis: int = 0) -> Self:
        """The product of the elements up to each one; ``numpy.cumprod(x, axis)``."""
        return self._accumulated(Op.MUL, axis)

    def _accumulated(self, op: Op, axis: int) -> Self:
        wanted = sum_dtype(self.dtype)
        return self.cast(accumulator_dtype(wanted))._running(op, axis).cast(wanted)

    def logcumsumexp(self, axis: int = 0) -> Self:
        """``log(cumsum(exp(x)))`` without overflow."""
        return self._widened()._running(None, axis).cast(self._floating().dtype)

    # ---- how elements combine: by an op, or None for the logarithm of a sum ----

    def _of_all(self, op: Op | None, axis: int) -> Self:
        return self.logsumexp(axis) if op is None else self._fold(op, (axis,), False)

    def _with(self, op: Op | None, other: Self) -> Self:
        left, right = self._matched(other)
        return left.logaddexp(right) if op is None else left._alu(op, right)

    def _identity_of(self, op: Op | None) -> Scalar:
        """What changes nothing."""
        return {Op.ADD: 0, Op.MUL: 1, Op.MAX: self.dtype.min, None: -math.inf}[op]

    def _running(self, op: Op | None, axis: int) -> Self:
        """The scan as its plain formula: element i folds what is at most at i."""
        place = self.axis(axis)
        if self.ndim == 0 or 0 in self.shape:
            return self
        if op in (Op.ADD, Op.MAX) or not self.dtype.is_float:
            return self._in_parts(op, place)
        # The derivative of the blocks takes less work than that of the formula.
        blocks = self.movedim(place, -1)._scan_last(op).movedim(-1, place)
        is_pass = op is Op.MUL
        return self._in_parts(op, place)._known_as("identity", blocks) if is_pass else blocks

    def _in_parts(self, op: Op | None, axis: int) -> Self:
        """A long axis alone is cut into parts to work on side by side, to which is added later."""
        size = self.shape[axis]
        if not isinstance(size, int) or size < _LONG or self._count(self.axes(None)) != size:
            return self._folded(op, axis, False)
        parts = next((p for p in range(_PARTS, 1, -1) if size % p == 0), 1)
        return self._reshape((size,))._scan_last(op, block=size // parts)._reshape(self.shape)

    def _folded(self, op: Op | None, axis: int, strict: bool) -> Self:
        """Each element of an axis folds the part of the axis up to it, or before it if `strict`."""
        first, length, last = self.shape[:axis], self.shape[axis], self.shape[axis + 1 :]
        ones = (1,) * len(last)
        row = self._arange(length)._reshape((length, 1, *ones))
        seen = self._arange(length)._reshape((length, *ones)) < (row if strict else row + 1)
        rows = self._reshape((*first, 1, length, *last))._expand((*first, length, length, *last))
        masked = seen.where(rows, self._full(self._identity_of(op), (), self.dtype))
        return masked._of_all(op, axis + 1)

    def _scan_last(self, op: Op | None, strict: bool = False, block: int = _BLOCK) -> Self:
        """The scan over the last axis, by blocks; `strict` leaves out the element itself."""
        *batch, length = self.shape
        if not isinstance(length, int) or length <= 2 * block:
            return self._folded(op, len(batch), strict)
        whole = ceiling_divide(length, block) * block
        padded = self.pad_to(*batch, whole, value=self._identity_of(op))
        cut = padded.unflatten(-1, (-1, block))
        before = cut._of_all(op, len(batch) + 1)._scan_last(op, True, block)
        flat = cut._folded(op, len(batch) + 1, strict)._with(op, before.unsqueeze(-1))
        return flat.flatten(-2)._slice(len(batch), 0, length)
