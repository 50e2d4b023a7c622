"""Random matrix products and convolutions, and plans that copy and cut them in any way.

Values are small multiples of 1/4 or small whole numbers, so that no order of a sum rounds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

from kernelet.base.dtype import DType, Scalar, dtypes
from kernelet.base.target import Target
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.lower.transforms import BlockSum, Plan, StageLoad
from tests.properties.graph_runs import Problem
from tests.properties.random_graphs import (
    broadcast,
    drop,
    expand,
    pad,
    permute,
    reduce,
    reshape,
    shrink,
    sliding,
)
from tests.properties.random_plans import random_plan

DTYPES: tuple[DType, ...] = (
    *(dtypes.float32,) * 6,
    dtypes.float64,
    dtypes.float16,
    dtypes.bfloat16,
    dtypes.int8,
    dtypes.int32,
    dtypes.bool,
)
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17)


class Contraction:
    """Makes one random sum of products."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.problem = Problem([])

    def ask(self) -> Problem:
        """The problem with one contraction, and what is done with its result."""
        kinds = (self.matmul, self.matmul, self.convolution, self.convolution, self.picked)
        node = self.random.choice((*kinds, self.gradient, self.summed))()
        self.problem.asked.append(self.finished(node))
        return self.problem

    # ---- parts ----

    def size(self, most: int = 17) -> int:
        return self.random.choice([size for size in SIZES if size <= most])

    def leaf(self, *shape: int, dtype: DType | None = None) -> UOp:
        """Memory of any dtype, seen in an order of its own, cut out of more, turned round."""
        choose = self.random
        dtype = dtype or choose.choice(DTYPES)
        order = choose.sample(range(len(shape)), len(shape))
        order = order if choose.random() < 0.4 else list(range(len(shape)))
        before = [choose.choice((0, 0, 0, 1)) for _ in shape]
        after = [choose.choice((0, 0, 0, 2)) for _ in shape]
        held = [before[axis] + shape[axis] + after[axis] for axis in order]
        elements = [self.element(dtype) for _ in range(math.prod(held))]
        node = reshape(self.problem.leaf(dtype, elements), held)
        if order != sorted(order):
            node = permute(node, [order.index(axis) for axis in range(len(shape))])
        if any(before) or any(after):
            pairs = [(skip, skip + size) for skip, size in zip(before, shape, strict=True)]
            node = shrink(node, pairs)
        turned = tuple(axis for axis in range(len(shape)) if choose.random() < 0.15)
        return UOp(Op.FLIP, dtype, (node,), turned) if turned else node

    def element(self, dtype: DType) -> Scalar:
        if dtype.is_bool:
            return self.random.random() < 0.5
        if dtype.is_float:
            return self.random.randrange(-8, 9) / 4
        return self.random.randrange(-3, 4)

    def total(self, left: UOp, right: UOp, axes: Sequence[int]) -> UOp:
        """The sum, or another reduction, of products over some axes."""
        dtype = dtypes.float32 if self.random.random() < 0.8 else dtypes.float64
        if not left.dtype.is_float and not right.dtype.is_float:
            dtype = self.random.choice((dtypes.int32, dtypes.int64))
        op = Op.MAX if self.random.random() < 0.15 else Op.ADD
        combined = left.cast(dtype) * right.cast(dtype)
        if self.random.random() < 0.1:
            combined = left.cast(dtype) + right.cast(dtype)
        if self.random.random() < 0.1:
            combined = combined * self.like(combined, dtype)
        return drop(reduce(combined, op, axes))

    def like(self, node: UOp, dtype: DType) -> UOp:
        """Memory that is read along some axes of a value."""
        shape = [1 if self.random.random() < 0.5 else size for size in node.shape]
        return broadcast(self.leaf(*shape, dtype=dtype), node.shape)

    def finished(self, node: UOp) -> UOp:
        """A bias, an activation, a cast."""
        choose = self.random
        if choose.random() < 0.3:
            node = node + self.like(node, node.dtype)
        if choose.random() < 0.3:
            node = node.maximum(node.const_like(0))
        if choose.random() < 0.1:
            node = permute(node, choose.sample(range(len(node.shape)), len(node.shape)))
        return node

    # ---- contractions ----

    def matmul(self) -> UOp:
        batch = [self.size(4) for _ in range(self.random.choice((0, 0, 1, 2)))]
        rows, inner, columns = self.size(), self.size(), self.size()
        first = [1 if self.random.random() < 0.3 else size for size in batch]
        left = self.leaf(*first, rows, 1, inner)
        right = self.leaf(*batch, 1, columns, inner)
        if self.random.random() < 0.1 and len(batch) == 0:
            right = reshape(left, (1, rows, inner))
            columns = rows
        shape = (*batch, rows, columns, inner)
        return self.total(expand(left, shape), expand(right, shape), (len(shape) - 1,))

    def windows(self, x: UOp, taps: int) -> UOp:
        """(..., size) -> (..., taps, places), padded, some steps apart."""
        choose = self.random
        rest = ((0, 0),) * (len(x.shape) - 1)
        if choose.random() < 0.6:
            x = pad(x, (*rest, (choose.randrange(taps), choose.randrange(taps))))
        dilation = choose.choice((1, 1, 2))
        seen = sliding(x, taps, dilation)
        if seen is None:
            seen = sliding(pad(x, (*rest, (taps, taps))), taps, 1)
        assert seen is not None
        step, count = choose.choice((1, 1, 2, 3)), seen.shape[-1]
        if step == 1:
            return seen
        rest = ((0, 0),) * (len(seen.shape) - 1)
        rows = -(-count // step)
        longer = pad(seen, (*rest, (0, rows * step - count)))
        apart = reshape(longer, (*seen.shape[:-1], rows, step))
        first = shrink(apart, (*((0, n) for n in apart.shape[:-1]), (0, 1)))
        return reshape(first, (*seen.shape[:-1], rows))

    def convolution(self) -> UOp:
        """One or two axes with windows, groups, channels."""
        choose = self.random
        n, g, c, o = self.size(3), choose.choice((1, 1, 1, 2, 4)), self.size(4), self.size(9)
        if choose.random() < 0.5:
            size, taps = self.size(), choose.choice((1, 2, 3, 3))
            seen = self.windows(self.leaf(n, g, c, size), taps)
            x = reshape(permute(seen, (0, 1, 4, 2, 3)), (n, g, 1, seen.shape[-1], c, taps))
            w = self.leaf(1, g, o, 1, c, taps)
            shape = (n, g, o, seen.shape[-1], c, taps)
            return self.total(expand(x, shape), expand(w, shape), (4, 5))
        height, width = self.size(9), self.size(9)
        ky, kx = choose.choice((1, 2, 3)), choose.choice((1, 2, 3))
        rows = self.windows(permute(self.leaf(n, g, c, height, width), (0, 1, 2, 4, 3)), ky)
        rows = permute(rows, (0, 1, 2, 4, 5, 3))  # n, g, c, ky, y, width
        seen = self.windows(rows, kx)  # n, g, c, ky, y, kx, x
        y, x = seen.shape[4], seen.shape[6]
        shape = (n, g, o, y, x, c, ky, kx)
        left = reshape(permute(seen, (0, 1, 4, 6, 2, 3, 5)), (n, g, 1, y, x, c, ky, kx))
        right = self.leaf(1, g, o, 1, 1, c, ky, kx)
        return self.total(expand(left, shape), expand(right, shape), (5, 6, 7))

    def gradient(self) -> UOp:
        """Of a convolution, in its weights: a sum over images and pixels."""
        n, c, o, size, taps = self.size(3), self.size(4), self.size(9), self.size(), 3
        seen = self.windows(self.leaf(n, c, size), taps)  # n, c, taps, x
        count = seen.shape[-1]
        shape = (o, c, taps, n, count)
        left = reshape(permute(seen, (1, 2, 0, 3)), (1, c, taps, n, count))
        right = permute(self.leaf(n, o, count), (1, 0, 2))
        right = reshape(right, (o, 1, 1, n, count))
        return self.total(expand(left, shape), expand(right, shape), (3, 4))

    def summed(self) -> UOp:
        """Sums in a sum, padding between."""
        rows, columns, inner, more = self.size(5), self.size(), self.size(5), self.size(4)
        shape = (rows, columns, more, inner)
        left = expand(self.leaf(rows, 1, more, inner, dtype=dtypes.float32), shape)
        right = expand(self.leaf(1, columns, more, inner, dtype=dtypes.float32), shape)
        first = reduce(left * right, Op.ADD, (3,))
        if self.random.random() < 0.5:
            first = pad(first, ((0, 0), (1, 1), (0, 2), (0, 0)))
        return drop(reduce(reshape(first, first.shape[:3]), Op.ADD, (2,)))

    def picked(self) -> UOp:
        """Rows at places that are read from memory."""
        rows, inner, columns, known = self.size(9), self.size(9), self.size(), self.size(9)
        table = self.leaf(known, inner)
        places = [self.random.randrange(-1, known + 1) for _ in range(rows)]
        wanted = reshape(self.problem.leaf(dtypes.int32, places), (1, rows, 1))
        copies = expand(reshape(table, (known, 1, inner)), (known, rows, inner))
        left = UOp(Op.GATHER, table.dtype, (copies, expand(wanted, (1, rows, inner))), 0)
        shape = (rows, columns, inner)
        right = expand(reshape(self.leaf(columns, inner), (1, columns, inner)), shape)
        return self.total(expand(reshape(left, (rows, 1, inner)), shape), right, (2,))


def random_copies(choose: random.Random, kernel: UOp, target: Target) -> Plan:
    """A random plan that also copies loads and cuts the sum, at any depth."""
    plan = random_plan(choose, kernel, target)
    if plan.held:
        # A box of a held value that is too small for one step may be large enough for lanes.
        plan = replace(plan, grouped=())
    slots = [node.arg.slot for node in kernel.toposort() if node.op is Op.PARAM]
    staged = tuple(
        StageLoad(choose.choice(slots), choose.randrange(6)) for _ in range(choose.randrange(4))
    )
    blocked = BlockSum(
        choose.randrange(4), choose.choice((1, 2, 3, 4, 8)), choose.choice((0, 0, 1, 2))
    )
    return replace(plan, staged=staged, blocked=blocked if choose.random() < 0.5 else None)
