"""Graphs whose sizes are variables: sums, softmax, attention, windows, padding, a growing cache."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from kernelet.base.dtype import dtypes
from kernelet.graph.infer import Dim, Shape
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from tests.properties.graph_runs import Problem
from tests.properties.random_graphs import reduce

MOST = 20
F32 = dtypes.float32
Case = Callable[["Source", UOp], list[UOp]]


class Source:
    """Makes leaves for one problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.random = random.Random(7)

    def leaf(self, size: Dim, *rest: int, most: int = MOST) -> UOp:
        """Memory for `most` rows, of which the first `size` are seen."""
        elements = [self.random.randrange(-8, 9) / 4 for _ in range(most * math.prod(rest))]
        whole = reshape(self.problem.leaf(F32, elements), most, *rest)
        return shrink(whole, (0, size), *((0, dim) for dim in rest))


def reshape(x: UOp, *shape: Dim) -> UOp:
    return UOp(Op.RESHAPE, x.dtype, (x,), shape)


def expand(x: UOp, shape: Shape) -> UOp:
    return UOp(Op.EXPAND, x.dtype, (x,), tuple(shape))


def shrink(x: UOp, *pairs: tuple[Dim, Dim]) -> UOp:
    return UOp(Op.SHRINK, x.dtype, (x,), pairs)


def softmax(x: UOp, axis: int) -> UOp:
    top = reduce(x, Op.MAX, (axis,))
    power = (x - expand(top, x.shape)).alu(Op.EXP2)
    total = reduce(power, Op.ADD, (axis,))
    return power * expand(total, x.shape).alu(Op.RECIPROCAL)


def product(x: UOp, y: UOp) -> UOp:
    """x @ y.T of two matrices."""
    (rows, inner), (columns, _) = x.shape, y.shape
    left = expand(reshape(x, rows, 1, inner), (rows, columns, inner))
    right = expand(reshape(y, 1, columns, inner), (rows, columns, inner))
    return reshape(reduce(left * right, Op.ADD, (2,)), rows, columns)


def transposed(x: UOp) -> UOp:
    return UOp(Op.PERMUTE, x.dtype, (x,), (1, 0))


# ---- the graphs ----


def arithmetic(make: Source, n: UOp) -> list[UOp]:
    x = make.leaf(n, 3)
    return [x + x * x, UOp(Op.FLIP, F32, (x,), (0,)) + x]


def sums(make: Source, n: UOp) -> list[UOp]:
    x = make.leaf(n, 3)
    return [reduce(x, Op.ADD, (0,)), reduce(x, Op.MAX, (0, 1)), reduce(x, Op.ADD, (1,))]


def columns(make: Source, n: UOp) -> list[UOp]:
    return [softmax(make.leaf(n, 5), 0)]


def turned(make: Source, n: UOp) -> list[UOp]:
    power = softmax(make.leaf(n), 0)
    return [power + UOp(Op.FLIP, F32, (power,), (0,)), softmax(power * 4.0, 0)]


def attention(make: Source, n: UOp) -> list[UOp]:
    query, key, value = (make.leaf(n, 8) for _ in range(3))
    scores = product(query, key)
    return [product(softmax(scores, 1), transposed(value)), scores]


def flat(make: Source, n: UOp) -> list[UOp]:
    row = reshape(make.leaf(n, 6), n * 6)
    cube = reshape(row, n, 2, 3)
    return [row * row, UOp(Op.PERMUTE, F32, (cube,), (2, 0, 1)), reduce(row, Op.ADD, (0,))]


def padded(make: Source, n: UOp) -> list[UOp]:
    whole = UOp(Op.PAD, F32, (make.leaf(n, 4),), ((1, MOST - n), (0, 1)))
    return [whole, reduce(whole, Op.ADD, (0,))]


def neighbours(make: Source, n: UOp) -> list[UOp]:
    x = make.leaf(n)
    first, second = shrink(x, (0, n + -1)), shrink(x, (1, n))
    return [first + second, reduce(first * second, Op.ADD, (0,))]


def cache(make: Source, n: UOp) -> list[UOp]:
    memory = make.problem.leaf(F32, [0.25] * (MOST * 4))
    last = shrink(reshape(memory, MOST, 4), (n + -1, n), (0, 4))
    row = make.leaf(1, 4, most=1)
    write = UOp(Op.ASSIGN, F32, (last, reshape(row, 1, 4) + 1.0))
    after = UOp(Op.AFTER, F32, (memory, write))
    seen = shrink(reshape(after, MOST, 4), (0, n), (0, 4))
    return [reduce(seen, Op.ADD, (0,)), after]


def masked(make: Source, n: UOp) -> list[UOp]:
    x = make.leaf(7, 9, most=7)
    count = UOp(Op.ARANGE, dtypes.int32, (), (9,))
    place = expand(reshape(count, 1, 9), (7, 9))
    limit = expand(reshape(n.cast(dtypes.int32), 1, 1), (7, 9))
    inside = (place < limit).where(x, -math.inf)
    return [reduce(inside, Op.MAX, (1,)), place * limit]


def counted(make: Source, n: UOp) -> list[UOp]:
    count = UOp(Op.ARANGE, dtypes.int32, (), (n,))
    weights = expand(reshape(count.cast(F32), n, 1), (n, 3))
    return [count * 2 + 1, make.leaf(n, 3) * weights]


def two_variables(make: Source, n: UOp) -> list[UOp]:
    other = UOp.variable("other", 1, 16)
    make.problem.values[other] = min(16, make.problem.values[n] // 2 + 1)
    both = product(make.leaf(n, 7), make.leaf(other, 7, most=16))
    return [both, reduce(both, Op.MAX, (1,))]


def moving_window(make: Source, n: UOp) -> list[UOp]:
    x = make.leaf(2 * MOST, 3, most=2 * MOST)
    rows = shrink(x, (n, n + 10), (0, 3))
    part = shrink(reshape(x, 6 * MOST), (n * 3, n * 3 + 17))
    return [rows * 2.0, reduce(part, Op.ADD, (0,)), part + part]


def stored(make: Source, n: UOp) -> list[UOp]:
    x = make.leaf(n, 3)
    kept = UOp(Op.CONTIGUOUS, F32, (x + x,))
    after = UOp(Op.AFTER, F32, (kept, UOp(Op.ASSIGN, F32, (kept, kept * 2.0))))
    return [after, reduce(kept * 3.0, Op.ADD, (0, 1)), kept]


_CASES: Sequence[Case] = (
    *(
        arithmetic,
        sums,
        columns,
        turned,
        attention,
        flat,
        padded,
        neighbours,
        cache,
        masked,
        counted,
    ),
    *(two_variables, moving_window, stored),
)
SYMBOLIC = {case.__name__: case for case in _CASES}


def symbolic_problem(name: str, value: int) -> Problem:
    """One of the graphs with a value for its variable."""
    problem = Problem([])
    size = UOp.variable("n", 1, MOST)
    problem.values[size] = value
    problem.asked = SYMBOLIC[name](Source(problem), size)
    return problem
