"""Attention, as its plain formula.

In:  queries, keys and values: (*batch, heads, time, width).
Out: `Attention`, whose one method is a softmax between two matrix products.
"""

from __future__ import annotations

import math
from typing import Self

from kernelet.base.errors import ShapeError
from kernelet.frontend.linalg import LinearAlgebra
from kernelet.frontend.primitives import known, show_shape
from kernelet.frontend.random import Random
from kernelet.graph.ops import Op


class Attention(LinearAlgebra, Random):
    """Weighted means of values, by how well queries match keys."""

    __slots__ = ()

    def scaled_dot_product_attention(
        self,
        key: Self,
        value: Self,
        attn_mask: Self | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        enable_gqa: bool = False,
        scale: float | None = None,
    ) -> Self:
        """``softmax(x @ key.T * scale + mask) @ value``; scale is 1 / sqrt(width) unless given.

        A bool mask says which keys a query may see; any other mask is added. A query that may see
        no key at all gets zeros. With `is_causal` query i sees the keys up to i. `enable_gqa` lets
        several query heads share one key and value head. Dropout acts while training only.
        """
        _check_heads(self, key, value)
        if enable_gqa:
            key, value = self._shared_heads(key), self._shared_heads(value)
        kind = self._common_dtype(self, key, value)
        factor = 1 / math.sqrt(known(self.shape[-1])) if scale is None else scale
        scores = self._multiplied(key.transpose(-2, -1), kind) * factor  # (*batch, queries, keys)
        if is_causal:
            query, place = scores._positions(scores.ndim - 2), scores._positions(scores.ndim - 1)
            scores = (query < place).where(-math.inf, scores)
        weights = scores.softmax(-1) if attn_mask is None else scores.masked_softmax(attn_mask)
        weights = weights.dropout(dropout_p) if dropout_p else weights
        return weights._multiplied(value, kind).cast(kind)

    def _shared_heads(self, heads: Self) -> Self:
        """Each head as often as there are query heads for it."""
        for each in (self, heads):
            each._need_ndim(3)
        mine, theirs = self.shape[-3], heads.shape[-3]
        even = known(mine) % known(theirs) == 0
        heads._need(even, f"key heads of which each serves as many of {mine} query heads")
        return heads.repeat_interleave(known(mine) // known(theirs), -3)

    def masked_softmax(self, mask: Self, axis: int = -1) -> Self:
        """``softmax`` along `axis` of what a bool `mask` leaves, or of ``x + mask``.

        Zeros, with gradient 0, where nothing is left.
        """
        wide = self._widened()
        is_kept = mask.dtype.is_bool
        left = mask.where(wide, -math.inf) if is_kept else wide + mask.cast(wide.dtype)
        axes = left.axes(axis)
        exponential = (left - left._peak(axes)).exp()
        total = exponential._fold(Op.ADD, axes, True)
        return (exponential / total.eq(0).where(1.0, total)).cast(self._floating().dtype)


def _check_heads(query: Attention, key: Attention, value: Attention) -> None:
    """ShapeError unless each query can be compared with each key, and each key has a value."""
    is_even = min(query.ndim, key.ndim, value.ndim) > 1
    if not is_even or query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise ShapeError(
            f"scaled_dot_product_attention: query {show_shape(query.shape)}, key "
            f"{show_shape(key.shape)}, value {show_shape(value.shape)}. Each is (*batch, time, "
            "width); query and key need the same width, key and value the same time."
        )
