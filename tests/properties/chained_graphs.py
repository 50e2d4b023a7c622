"""Chains of products: softmax or others between two, masks of several shapes, heads and batches."""

from __future__ import annotations

import math
import random

from kernelet.base.dtype import dtypes
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from tests.properties.graph_runs import Problem
from tests.properties.random_graphs import reduce
from tests.properties.symbolic_graphs import expand, reshape, softmax

SIZES = (1, 5, 7, 8, 9, 13, 16, 21)


class RandomChain:
    """One problem: middle(q @ k) @ v, with what is between the products chosen at random."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.problem = Problem([])

    def ask(self) -> Problem:
        """The problem."""
        pick = self.choose.choice
        batch, rows, keys, inner, width = (pick(SIZES) for _ in range(5))
        batch = pick((1, 1, 2, 3))
        shared = batch if self.choose.random() < 0.7 else 1
        query = self.leaf(batch, rows, inner)
        key, value = self.leaf(shared, keys, inner), self.leaf(shared, width, keys)
        scores = self.product(query, self.repeated(key, batch))
        for _ in range(self.choose.randrange(3)):
            scores = self.step(scores)
        kind = self.choose.randrange(4)
        if kind == 0:
            self.problem.asked.append(softmax(scores, 2))
            return self.problem
        weights = softmax(scores, 2) if kind < 3 else scores
        if self.choose.random() < 0.3:
            weights = self.masked(weights, 0.0)
        result = self.product(weights, self.repeated(value, batch))
        self.problem.asked.append(result if kind != 2 else result + number(1.0, result))
        return self.problem

    def leaf(self, *shape: int) -> UOp:
        elements = [self.choose.randrange(-8, 9) / 8 for _ in range(math.prod(shape))]
        return reshape(self.problem.leaf(dtypes.float32, elements), *shape)

    def repeated(self, x: UOp, batch: int) -> UOp:
        """One head for all."""
        return x if x.shape[0] == batch else expand(x, (batch, *x.shape[1:]))

    def product(self, x: UOp, y: UOp) -> UOp:
        """x @ y.T of batches of matrices."""
        (batch, rows, inner), columns = x.shape, y.shape[1]
        whole = (batch, rows, columns, inner)
        left = expand(reshape(x, batch, rows, 1, inner), whole)
        right = expand(reshape(y, batch, 1, columns, inner), whole)
        return reshape(reduce(left * right, Op.ADD, (3,)), batch, rows, columns)

    def step(self, x: UOp) -> UOp:
        """Something that is done to scores."""
        kind = self.choose.randrange(4)
        if kind == 0:
            return x * number(0.5, x)
        if kind == 1:
            return x.maximum(number(-1.0, x))
        if kind == 2:
            return x + self.leaf(*(int(size) for size in x.shape))
        return self.masked(x, -math.inf)

    def masked(self, x: UOp, value: float) -> UOp:
        """where(a * row + b * column < c, value, x), or the other way round; column 0 is left."""
        row, column = position(x, 1), position(x, 2)
        slope = self.choose.choice((1, 1, 2, 3))
        offset = number(self.choose.randrange(4), row)
        limit = row * number(slope, row) + offset
        if self.choose.random() < 0.5:
            return limit.alu(Op.CMPLT, column).where(number(value, x), x)
        return column.alu(Op.CMPLT, limit + number(1, row)).where(x, number(value, x))


def number(value: float, like: UOp) -> UOp:
    return UOp.const(value, like.dtype).broadcast_to(like.shape)


def position(like: UOp, axis: int) -> UOp:
    """Where each element of `like` stands along an axis."""
    line = UOp(Op.ARANGE, dtypes.int32, (), (like.shape[axis],))
    shape = tuple(size if n == axis else 1 for n, size in enumerate(like.shape))
    return expand(reshape(line, *shape), like.shape)
