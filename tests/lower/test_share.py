"""Loops over the same run as one where no statement between them minds."""

import numpy as np
import pytest

from kernelet import Tensor
from kernelet.graph.ops import Op
from kernelet.graph.spec import LOOPS, verify
from kernelet.graph.uop import UOp
from kernelet.lower.nest import write_nest
from kernelet.lower.share import share_loops
from kernelet.lower.transforms import GroupLanes, Plan
from tests.lower.pseudocode import VOID, memory, reduce, reshape, written

X, Y = memory(2, 4, 6), memory(3, 4, 6)


def kernel_of(*values: UOp) -> UOp:
    targets = [memory(at, 4) for at in range(len(values))]
    rows = zip(targets, values, strict=True)
    return UOp.sink(*[UOp(Op.STORE, VOID, (target, reshape(value, 4))) for target, value in rows])


def shared(*values: UOp, plan: Plan | None = None) -> str:
    block = write_nest(kernel_of(*values), plan or Plan())
    verify(block, LOOPS, "share loops")
    assert share_loops(block) is block or written(share_loops(block)) == written(block)
    return written(block)


def test_two_sums_over_the_same_axis_have_one_loop() -> None:
    assert shared(reduce(X, Op.ADD, 1), reduce(X * Y, Op.ADD, 1)) == (
        "for r0 in 4:\n"
        "  s1[0] = 0.0\n"
        "  s2[0] = 0.0\n"
        "  for r2 in 6 reduce:\n"
        "    s1[0] = (s1[0] + p2[(r0 * 6) + r2])\n"
        "    s2[0] = (s2[0] + (p2[(r0 * 6) + r2] * p3[(r0 * 6) + r2]))\n"
        "  at once:\n"
        "    p0[r0] = s1[0]\n"
        "    p1[r0] = s2[0]"
    )


def test_sums_of_different_length_keep_their_loops() -> None:
    longer = memory(3, 4, 7)
    text = shared(reduce(X, Op.ADD, 1), reduce(longer, Op.ADD, 1))
    assert text.count("in 6") == text.count("in 7") == 1


def test_a_sum_that_needs_the_other_comes_after_it() -> None:
    total = reduce(X, Op.ADD, 1)
    spread = UOp(Op.EXPAND, total.dtype, (total,), (4, 6))
    assert shared(total, reduce(X * spread, Op.ADD, 1)).count("for r") == 3


def test_partial_results_in_lanes_are_added_up_in_one_loop() -> None:
    plan = Plan(grouped=((1, GroupLanes(1, 1, 2)), (2, GroupLanes(1, 1, 2))))
    text = shared(reduce(X, Op.ADD, 1), reduce(X * Y, Op.ADD, 1), plan=plan)
    assert text.count("in 3 reduce:") == 1


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 4), (40, 70), (2, 1), (3, 0)])
@pytest.mark.parametrize("axis", [0, -1])
def test_values_are_those_of_separate_sums(shape, axis):
    x, y = (np.random.default_rng(n).standard_normal(shape).astype(np.float32) for n in range(2))
    a, b = Tensor(x).realize(), Tensor(y).realize()
    asked = [a.sum(axis), (a * b).sum(axis), (a - b).square().sum(axis) + 1]
    Tensor.realize(*asked)
    wanted = [x.sum(axis), (x * y).sum(axis), np.square(x - y).sum(axis) + 1]
    for mine, want in zip(asked, wanted, strict=True):
        np.testing.assert_allclose(mine.numpy(), want, rtol=1e-4, atol=1e-5)
