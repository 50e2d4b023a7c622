"""Graphs that are hard on a compiler: deep, wide, shared many times, empty, full of padding."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from kernelet.base.dtype import DType, dtypes
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from tests.properties.graph_runs import Problem
from tests.properties.random_graphs import (
    broadcast,
    drop,
    expand,
    pad,
    permute,
    random_movement,
    reduce,
    reshape,
    shrink,
    sliding,
)

F32, I32 = dtypes.float32, dtypes.int32
Case = Callable[[Problem], list[UOp]]


def leaf(problem: Problem, *shape: int, dtype: DType = F32) -> UOp:
    """Memory with small numbers."""
    choose = random.Random(len(problem.data))
    scale = 4 if dtype.is_float else 1
    count = math.prod(shape)
    elements = [choose.randrange(-8, 9) / scale for _ in range(count)]
    if not dtype.is_float:
        return reshape(problem.leaf(dtype, [int(e) for e in elements]), shape)
    return reshape(problem.leaf(dtype, elements), shape)


def flip(x: UOp, *axes: int) -> UOp:
    return UOp(Op.FLIP, x.dtype, (x,), axes)


def count_to(size: int) -> UOp:
    return UOp(Op.ARANGE, I32, (), (size,))


def product(x: UOp, y: UOp) -> UOp:
    """x @ y"""
    (rows, inner), (_, columns) = x.shape, y.shape
    left = expand(reshape(x, (rows, 1, inner)), (rows, columns, inner))
    right = expand(reshape(permute(y, (1, 0)), (1, columns, inner)), (rows, columns, inner))
    return drop(reduce(left * right, Op.ADD, (2,)))


def softmax(x: UOp, axis: int) -> UOp:
    power = (x - broadcast(reduce(x, Op.MAX, (axis,)), x.shape)).alu(Op.EXP2)
    return power * broadcast(reduce(power, Op.ADD, (axis,)), x.shape).alu(Op.RECIPROCAL)


def norm(x: UOp, *axes: int) -> UOp:
    share = 1 / max(1, math.prod(x.shape[axis] for axis in axes))
    apart = x - broadcast(reduce(x, Op.ADD, axes) * share, x.shape)
    variance = reduce(apart * apart, Op.ADD, axes) * share
    return apart * broadcast((variance + 1e-2).alu(Op.SQRT).alu(Op.RECIPROCAL), x.shape)


# ---- deep ----


def chain(problem: Problem) -> list[UOp]:
    x = leaf(problem, 37)
    y = x
    for step in range(2000):
        y = y * 0.5 + x if step % 3 else y.maximum(x)
    return [y]


def recurrence(problem: Problem) -> list[UOp]:
    x, y = leaf(problem, 64), leaf(problem, 64)
    for _ in range(400):
        x = x * 0.25 + y
    return [x]


def folded(problem: Problem) -> list[UOp]:
    x = leaf(problem, 20)
    for _ in range(200):
        x = (x + flip(x, 0)) * 0.5
    return [x]


def shifted(problem: Problem) -> list[UOp]:
    x = leaf(problem, 64)
    for _ in range(200):
        x = (x + pad(shrink(x, ((1, 64),)), ((0, 1),))) * 0.5
    return [x]


def shifted_both_ways(problem: Problem) -> list[UOp]:
    x = leaf(problem, 12, 12)
    for _ in range(30):
        down = pad(shrink(x, ((1, 12), (0, 12))), ((0, 1), (0, 0)))
        right = pad(shrink(x, ((0, 12), (0, 11))), ((0, 0), (1, 0)))
        x = (x + down + right) * 0.3
    return [x]


def reduced_again_and_again(problem: Problem) -> list[UOp]:
    x = leaf(problem, 24, 24)
    for step in range(60):
        x = x * 0.5 + broadcast(reduce(x, Op.MAX, (step % 2,)), x.shape) * 0.5
    return [x]


def products(problem: Problem) -> list[UOp]:
    x = leaf(problem, 12, 12)
    for _ in range(20):
        x = (product(x, leaf(problem, 12, 12) * 0.25) * 0.25).maximum(x.const_like(-1.0))
    return [x]


def convolutions(problem: Problem) -> list[UOp]:
    x = leaf(problem, 4, 64)
    for _ in range(6):
        seen = sliding(pad(x, ((0, 0), (2, 2))), 3, 2)
        assert seen is not None
        weight = broadcast(leaf(problem, 3, 1) * 0.25, seen.shape)
        x = drop(reduce(seen * weight, Op.ADD, (1,)))
    return [x]


def movements(problem: Problem) -> list[UOp]:
    choose = random.Random(5)
    x, found = leaf(problem, 12, 10), []
    for step in range(50):
        x = random_movement(choose, x, 3000)
        if math.prod(x.shape) < 40:
            x = expand(reshape(x, (1, *x.shape)), (7, *x.shape))
        if step % 10 == 9:
            found.append(reduce(x, Op.ADD, tuple(range(len(x.shape)))))
    return [x, *found]


# ---- wide ----


def sum_of_300(problem: Problem) -> list[UOp]:
    total = leaf(problem, 50)
    for _ in range(299):
        total = total + leaf(problem, 50)
    return [total]


def twenty_reductions_in_one(problem: Problem) -> list[UOp]:
    x = leaf(problem, 20, 33)
    total = reduce(x, Op.ADD, (1,))
    for step in range(20):
        total = total + reduce(x * float(step + 1), Op.ADD if step % 2 else Op.MAX, (1,))
    return [total]


def twenty_results(problem: Problem) -> list[UOp]:
    x = leaf(problem, 20, 33)
    return [reduce(x * float(step + 1), Op.ADD, (step % 2,)) for step in range(20)]


def three_hundred_results(problem: Problem) -> list[UOp]:
    x = leaf(problem, 5)
    return [x + float(step) for step in range(300)]


# ---- reductions ----


def all_and_back(problem: Problem) -> list[UOp]:
    x = leaf(problem, 33, 17)
    return [x - broadcast(reduce(x, Op.ADD, (0, 1)), x.shape)]


def softmaxes(problem: Problem) -> list[UOp]:
    x = leaf(problem, 13, 40)
    along, across = x, x
    for step in range(6):
        along, across = softmax(along, 1), softmax(across, step % 2)
    return [along, across]


def norms(problem: Problem) -> list[UOp]:
    x = leaf(problem, 8, 16, 24)
    for axes in ((2,), (0,), (0, 1), (1, 2), (0, 1, 2)):
        x = norm(x, *axes)
    return [x, norm(leaf(problem, 65, 33), 0)]


def masked_attention(problem: Problem) -> list[UOp]:
    query, key, value = (leaf(problem, 33, 16) for _ in range(3))
    scores = product(query, permute(key, (1, 0)))
    place = count_to(33)
    row = expand(reshape(place, (33, 1)), (33, 33))
    column = expand(reshape(place, (1, 33)), (33, 33))
    seen = (row < column).where(scores.const_like(-math.inf), scores)
    return [product(softmax(seen, 1), value)]


def primes(problem: Problem) -> list[UOp]:
    x, y, z = leaf(problem, 1009), leaf(problem, 1009), leaf(problem, 101, 103)
    flat = [x * y + x, reduce(x, Op.ADD, (0,))]
    return [*flat, reduce(z, Op.ADD, (0,)), reduce(z, Op.MAX, (1,)), permute(z, (1, 0)) * 2.0]


def first_of_maxima(problem: Problem) -> list[UOp]:
    x = reshape(leaf(problem, 4, 32), (4, 16, 2))
    top = broadcast(reduce(x, Op.MAX, (2,)), x.shape)
    ties = x.not_equal(top).logical_not().cast(F32)
    return [ties * broadcast(reduce(ties, Op.ADD, (2,)), x.shape).alu(Op.RECIPROCAL)]


def picks_of_reductions(problem: Problem) -> list[UOp]:
    x, y = leaf(problem, 9, 31), leaf(problem, 6, 9, dtype=I32)
    rows, picks = reduce(x, Op.MAX, (1,)), reduce(y, Op.ADD, (1,))
    spread = expand(rows, (9, 6))
    found = UOp(Op.GATHER, F32, (spread, reshape(picks, (1, 6))), 0)
    itself = reduce(x, Op.MAX, (1,)).cast(I32)
    again = UOp(Op.GATHER, F32, (expand(rows, (9, 9)), reshape(itself, (1, 9))), 0)
    return [found, again, found + expand(shrink(rows, ((0, 1), (0, 1))), (1, 6))]


def picks_at_the_end_of_a_chain(problem: Problem) -> list[UOp]:
    x, place = leaf(problem, 30), leaf(problem, 16, dtype=I32)
    start = place
    for step in range(1500):
        place = place + 1 if step % 3 else place ^ start
    index = reshape(place & 31, (1, 16))
    return [UOp(Op.GATHER, F32, (expand(reshape(x, (30, 1)), (30, 16)), index), 0)]


# ---- padding ----


def gates_under_reductions(problem: Problem) -> list[UOp]:
    x = leaf(problem, 9, 9)
    near, far = pad(x, ((2, 3), (1, 1))), pad(x + 1.0, ((3, 2), (2, 0)))
    either = (near < 0.5).where(near, far)
    inverse = pad(either.alu(Op.RECIPROCAL), ((1, 1), (1, 1)))
    both = (0, 1)
    return [
        reduce(either, Op.ADD, (0,)),
        reduce(either, Op.MAX, (1,)),
        reduce(inverse, Op.MAX, both),
    ]


def division_by_padding(problem: Problem) -> list[UOp]:
    x, y = leaf(problem, 40, dtype=I32), leaf(problem, 40, dtype=I32)
    inside = pad(x.alu(Op.IDIV, y), ((3, 5),))
    outside = pad(x, ((3, 5),)).alu(Op.MOD, pad(y, ((3, 5),)))
    apart = pad(x, ((3, 5),)).alu(Op.IDIV, pad(y, ((0, 8),)))
    return [inside, outside, apart, reduce(inside, Op.ADD, (0,)), reduce(outside, Op.MAX, (0,))]


# ---- nothing, and one ----


def scalars(problem: Problem) -> list[UOp]:
    x = leaf(problem)
    total = reduce(reshape(x, (1, 1, 1)), Op.ADD, (0, 1, 2))
    return [x + x, total, x.alu(Op.SIN), UOp.const(3, I32)]


def axes_of_one(problem: Problem) -> list[UOp]:
    x = leaf(problem, 1, 5, 1)
    sums = [reduce(x, Op.ADD, (0,)), reduce(x, Op.MAX, (0, 2)), reduce(x, Op.ADD, (0, 1, 2)) * 2.0]
    return [*sums, norm(x, 0), norm(x, 1, 2)]


def nothing(problem: Problem) -> list[UOp]:
    x, rows = leaf(problem, 0), leaf(problem, 0, 3)
    sums = [reduce(rows, op, (0,)) for op in (Op.ADD, Op.MAX, Op.MUL)]
    sums += [reduce(rows, Op.ADD, (1,)), reduce(rows, Op.ADD, (0, 1))]
    grown = pad(rows, ((2, 1), (0, 0)))
    part = shrink(leaf(problem, 4, 3), ((2, 2), (0, 3))) + 1.0
    spread = [expand(reshape(x, (0, 1)), (0, 7)), expand(leaf(problem, 1, 3), (0, 3))]
    return [x + x, rows * 2.0, *sums, grown, part, *spread]


def nothing_among_numbers(problem: Problem) -> list[UOp]:
    gone, x = leaf(problem, 3, 0), leaf(problem, 3, 4)
    part = shrink(x, ((0, 3), (1, 1)))
    kept = broadcast(reduce(gone, Op.ADD, (1,)), (3, 4)) + x
    write = UOp(Op.ASSIGN, F32, (part, gone * 1.0))
    after = UOp(Op.AFTER, F32, (x.src[0], write))
    least = reduce(reduce(part, Op.MAX, (1,)) + 0.0, Op.ADD, (0,))
    turned = [permute(gone, (1, 0)) + 0.0, flip(gone, 0, 1) * 2.0]
    empty = [product(gone, leaf(problem, 0, 5)), product(leaf(problem, 3, 2), leaf(problem, 2, 0))]
    return [kept, after, least, *turned, *empty, UOp(Op.CONTIGUOUS, F32, (gone,))]


def nothing_in_between(problem: Problem) -> list[UOp]:
    x = leaf(problem, 2, 0, 3)
    seen = sliding(x, 2, 1)
    assert seen is not None
    counted = [count_to(0) * 2, reduce(count_to(0), Op.ADD, (0,))]
    shapes = [reshape(x, (0, 6)) + 1.0, reshape(x, (3, 0, 4)) + 1.0]
    windows = drop(reduce(seen, Op.ADD, (2,)))
    return [windows, *counted, *shapes, norm(x, 1), x.cast(I32).cast(dtypes.bool)]


# ---- writes ----


def old_contents(problem: Problem) -> list[UOp]:
    memory = problem.leaf(F32, [float(n) for n in range(40)])
    readers = [memory * float(n) for n in range(4)]
    state, sums = memory, []
    for step in range(8):
        view = shrink(state, ((step, step + 20),))
        write = UOp(Op.ASSIGN, F32, (view, shrink(state, ((10, 30),)) + 1.0))
        sums.append(reduce(state, Op.ADD, (0,)))
        state = UOp(Op.AFTER, F32, (state, write))
    return [state, *readers, *sums, readers[1] + state]


def old_and_latest_in_one(problem: Problem) -> list[UOp]:
    memory = leaf(problem, 30)
    before = memory * 2.0
    once = UOp(Op.AFTER, F32, (memory, UOp(Op.ASSIGN, F32, (memory, before + 1.0))))
    twice = UOp(Op.AFTER, F32, (once, UOp(Op.ASSIGN, F32, (once, flip(once, 0)))))
    return [before + once, before + twice, once + twice, twice]


def in_place_and_turned_around(problem: Problem) -> list[UOp]:
    first, second = leaf(problem, 7), leaf(problem, 7)
    found = []
    for memory, turned_first in ((first, True), (second, False)):
        twice = memory * 2.0
        parts = (flip(twice, 0), twice) if turned_first else (twice, flip(twice, 0))
        write = UOp(Op.ASSIGN, F32, (memory, parts[0] + parts[1]))
        found.append(UOp(Op.AFTER, F32, (memory, write)))
    return found


def copies_of_what_is_written(problem: Problem) -> list[UOp]:
    x = leaf(problem, 10)
    computed = x + x
    first = UOp(Op.CONTIGUOUS, F32, (computed,))
    second = UOp(Op.CONTIGUOUS, F32, (first,))
    after = UOp(Op.AFTER, F32, (first, UOp(Op.ASSIGN, F32, (first, first * 3.0))))
    eight = UOp.const(8, I32)
    stored = UOp(Op.CONTIGUOUS, I32, (reshape(eight, (1,)),))
    ten = UOp(Op.ASSIGN, I32, (stored, stored + 2))
    return [computed, first, second, after, eight, stored, UOp(Op.AFTER, I32, (stored, ten))]


def what_simplifies_to_memory(problem: Problem) -> list[UOp]:
    x = leaf(problem, 17)
    same = UOp(Op.DETACH, F32, (x.maximum(x),))
    after = UOp(Op.AFTER, F32, (x, UOp(Op.ASSIGN, F32, (x, x + x))))
    return [same, x * 1.0, after]


_CASES: Sequence[Case] = (
    *(chain, recurrence, folded, shifted, shifted_both_ways, reduced_again_and_again, products),
    *(convolutions, movements, sum_of_300, twenty_reductions_in_one, twenty_results),
    *(three_hundred_results, all_and_back, softmaxes, norms, masked_attention, primes),
    *(
        first_of_maxima,
        picks_of_reductions,
        picks_at_the_end_of_a_chain,
        gates_under_reductions,
        division_by_padding,
        scalars,
        axes_of_one,
    ),
    *(nothing, nothing_among_numbers, nothing_in_between, old_contents, old_and_latest_in_one),
    *(in_place_and_turned_around, copies_of_what_is_written, what_simplifies_to_memory),
)
HARD = {case.__name__: case for case in _CASES}


def hard_problem(name: str) -> Problem:
    """One of the graphs, with its data."""
    problem = Problem([])
    problem.asked = HARD[name](problem)
    return problem
