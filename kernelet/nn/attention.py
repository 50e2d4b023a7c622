"""Attention with weights of its own.

In:  queries, keys and values.
Out: for each query a mean of the values, weighted by how well the keys fit.
"""

from __future__ import annotations

import math
from typing import final

from kernelet.base.errors import ArgumentError
from kernelet.frontend.arguments import Count, Share
from kernelet.frontend.primitives import known
from kernelet.frontend.tensor import Tensor
from kernelet.nn.linear import Linear
from kernelet.nn.parameter import filled, uniform


@final
class MultiheadAttention:
    """``concatenated heads of softmax(q @ k.T / sqrt(width)) @ v``, projected before and after.

    Tensors are (time, batch, features), (batch, time, features) with `batch_first`, or without a
    batch. As with PyTorch a bool mask is true where a key must *not* be seen, any other mask is
    added, and the result is (values, weights); a query that may see no key gets zeros.
    """

    def __init__(
        self,
        embed_dim: Count,
        num_heads: Count,
        dropout: Share = 0.0,
        bias: bool = True,
        kdim: Count | None = None,
        vdim: Count | None = None,
        batch_first: bool = False,
    ) -> None:
        if num_heads < 1 or embed_dim % num_heads:
            raise ArgumentError(
                f"MultiheadAttention: {embed_dim} features do not share out to {num_heads} heads. "
                "Give a number of heads that divides the features."
            )
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.batch_first = batch_first
        widths = (
            embed_dim,
            embed_dim if kdim is None else kdim,
            embed_dim if vdim is None else vdim,
        )
        if widths == (embed_dim,) * 3:
            bound = math.sqrt(6 / (4 * embed_dim))
            self.in_proj_weight = uniform(bound, 3 * embed_dim, embed_dim)
        else:
            self.q_proj_weight, self.k_proj_weight, self.v_proj_weight = (
                uniform(math.sqrt(6 / (embed_dim + width)), embed_dim, width) for width in widths
            )
        self.in_proj_bias = filled(0, 3 * embed_dim) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias)
        if bias:
            self.out_proj.bias = filled(0, embed_dim)

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """`key_padding_mask` is (batch, keys), `attn_mask` (queries, keys) or that for each head.

        The weights are those before dropout.
        """
        if query.ndim == 2:
            axis = 0 if self.batch_first else 1
            padding = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
            query, key, value = (each.unsqueeze(axis) for each in (query, key, value))
            values, weights = self(
                *(query, key, value, padding, need_weights, attn_mask),
                average_attn_weights=average_attn_weights,
                is_causal=is_causal,
            )
            return values.squeeze(axis), None if weights is None else weights.squeeze(0)
        queries, keys, values = (
            self._heads(each, weight, at)
            for at, (each, weight) in enumerate(
                zip((query, key, value), self._weights(), strict=True)
            )
        )  # (batch, heads, time, width)
        mask = self._mask(queries, key_padding_mask, attn_mask)
        mixed = queries.scaled_dot_product_attention(keys, values, mask, self.dropout, is_causal)
        found = self.out_proj(mixed.transpose(1, 2).flatten(2))
        found = found if self.batch_first else found.transpose(0, 1)
        if not need_weights:
            return found, None
        # What picks each key alone out of the values shows its weight.
        count = known(keys.shape[-2])
        each_alone = Tensor.eye(count, dtype=keys.dtype, device=keys.device)
        each_alone = each_alone.expand(*keys.shape[:2], count, count)
        weights = queries.scaled_dot_product_attention(keys, each_alone, mask, 0.0, is_causal)
        return found, weights.mean(1) if average_attn_weights else weights

    def _weights(self) -> list[Tensor]:
        if hasattr(self, "in_proj_weight"):
            return list(self.in_proj_weight.chunk(3))
        return [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight]

    def _heads(self, x: Tensor, weight: Tensor, at: int) -> Tensor:
        bias = None if self.in_proj_bias is None else self.in_proj_bias.chunk(3)[at]
        rows = x if self.batch_first else x.transpose(0, 1)
        projected = rows.linear(weight.transpose(), bias)
        return projected.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def _mask(self, query: Tensor, padding: Tensor | None, mask: Tensor | None) -> Tensor | None:
        """Both masks as one that is added to the scores."""
        parts = []
        if mask is not None:
            fits = mask.ndim < 3 or mask.shape[0] != query.shape[0] * self.num_heads
            parts.append(mask if fits else mask.unflatten(0, (-1, self.num_heads)))
        if padding is not None:
            parts.append(padding.unsqueeze(1).unsqueeze(1))
        added = [
            each.where(-math.inf, 0.0).cast(query.dtype) if each.dtype.is_bool else each
            for each in parts
        ]
        return sum(added[1:], added[0]) if added else None
