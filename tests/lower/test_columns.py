"""Sums along columns read long pieces of a few rows."""

from __future__ import annotations

import numpy as np
import pytest

from kernelet import Tensor
from kernelet.base.target import Target
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.lower.heuristics import plan_kernel
from kernelet.lower.nest import write_nest
from kernelet.lower.stage import Staging, root_nest
from kernelet.lower.transforms import BlockSum
from tests.lower.pseudocode import VOID, expand, memory, reduce, reshape, written

WIDE = Target("CPU", vector_bytes=32, threads=2)
ROWS, LENGTH = 500, 4096
X, Y = memory(2, ROWS, LENGTH), memory(3, ROWS, LENGTH)


def columns(*values: UOp) -> UOp:
    """A kernel that stores a sum over the rows of each value."""
    stores = []
    for slot, value in enumerate(values):
        total = reduce(value, Op.ADD, 0)
        size = total.shape[1]
        assert isinstance(size, int)
        stores.append(UOp(Op.STORE, VOID, (memory(slot, size), reshape(total, size))))
    return UOp.sink(*stores)


@pytest.mark.parametrize("values", [(X,), (X, X * Y)], ids=["one", "two"])
def test_sums_wait_in_the_nearest_cache(values: tuple[UOp, ...]) -> None:
    graph = columns(*values)
    plan = plan_kernel(graph, WIDE)
    kinds = [(loop.size, loop.kind) for loop in root_nest(graph, plan)]
    assert kinds == [(2, "thread"), (64, "loop"), (4, "unroll"), (8, "vector")]
    assert plan.blocked == BlockSum(1, 10)
    text = written(write_nest(graph, plan))
    assert text.count(" reduce:") == 2  # fifty times ten rows, for all sums together


def test_a_sum_that_another_one_needs_is_no_column() -> None:
    mean = reduce(X, Op.ADD, 0)
    assert plan_kernel(columns(X - expand(mean, ROWS, LENGTH)), WIDE).blocked is None


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_what_is_held_is_the_dear_value_also_where_axes_are_merged(first: bool) -> None:
    total = reshape(reduce(memory(2, 256, 8, 512), Op.ADD, 0), 8, 512)
    dear = expand(reshape(memory(3, 512).alu(Op.EXP2), 1, 512), 8, 512)
    value = dear * total if first else total * dear
    graph = UOp.sink(UOp(Op.STORE, VOID, (memory(0, 8, 512), value)))
    plan = plan_kernel(graph, WIDE)
    assert plan.merged == ((0, 1),)
    assert [node.src[0].op for node in Staging(graph, plan).held] == [Op.EXP2]


@pytest.mark.parametrize("shape", [(64, 512), (100, 1000), (97, 2048)])
def test_gradients_of_scale_and_offset_are_those_of_numpy(shape: tuple[int, int]) -> None:
    x, y = (np.random.default_rng(n).standard_normal(shape, np.float32) for n in (0, 1))
    scale, offset = Tensor(np.ones(shape[1], np.float32)), Tensor(np.zeros(shape[1], np.float32))
    loss = ((Tensor(x) * scale + offset) * Tensor(y)).sum()
    slopes = [found.numpy() for found in loss.gradient(scale, offset)]
    np.testing.assert_allclose(slopes[0], (x * y).sum(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(slopes[1], y.sum(0), rtol=1e-4, atol=1e-4)
