"""Big reductions to few results are done in two steps, over as few axes as memory has."""

from __future__ import annotations

import numpy as np
import pytest

from kernelet.frontend.tensor import Tensor
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.kernelize import parts
from kernelet.kernelize.parts import in_parts
from tests.lower.pseudocode import expand, flip, memory, pad, permute, product, reduce, reshape


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "SPLIT_SIZE", 256)
    monkeypatch.setattr(parts, "SERIAL_ELEMENTS", 64)


def stored(value: UOp) -> list[UOp]:
    return [node for node in in_parts(value).toposort() if node.op is Op.CONTIGUOUS]


# ---- two steps ----


def test_a_big_reduction_is_done_in_parts() -> None:
    value = reduce(memory(0, 3, 320), Op.ADD, 1)
    (inner,) = stored(value)
    assert inner.shape == (3, 64, 1)
    assert in_parts(value).shape == (3, 1)


def test_what_no_number_of_parts_divides_has_a_rest() -> None:
    value = reduce(memory(0, 1, 331), Op.MAX, 1)
    (inner,) = stored(value)
    assert inner.shape == (1, 64, 1)
    assert in_parts(value).op is Op.MAX


def test_a_short_sum_inside_is_done_again_for_each_part() -> None:
    mean = expand(reduce(memory(0, 1, 3), Op.ADD, 0), 320, 3)
    assert len(stored(reduce(memory(1, 320, 3) - mean, Op.ADD, 0, 1))) == 1


def test_columns_are_added_up_in_parts_though_they_are_many() -> None:
    (inner,) = stored(reduce(memory(0, 320, 100), Op.ADD, 0))
    assert inner.shape == (64, 1, 100)


@pytest.mark.parametrize(
    "value",
    [
        reduce(memory(0, 3, 80), Op.ADD, 1),  # small
        reduce(memory(0, 20, 320), Op.ADD, 1),  # many results
        reduce(memory(0, 320, 600), Op.ADD, 0),  # many columns
        reduce(memory(0, 6, 331), Op.ADD, 1),  # a long rest
        reduce(expand(reduce(memory(0, 100, 3), Op.ADD, 0), 200, 3), Op.MAX, 0),  # of long sums
    ],
)
def test_other_reductions_stay_whole(value: UOp) -> None:
    assert stored(value) == []


# ---- merged axes ----


def reduced_sizes(value: UOp) -> list[int]:
    """The sizes that the reductions of a graph run over."""
    nodes = [node for node in in_parts(value).toposort() if node.op is Op.REDUCE]
    return [int(node.src[0].shape[axis]) for node in nodes for axis in node.arg.axes]


TABLE = memory(0, 50, 7, 5, 3)


def test_axes_one_after_the_other_in_memory_are_one() -> None:
    assert reduced_sizes(reduce(TABLE, Op.ADD, 0, 2, 3)) == [1, 15, 50]  # in parts
    assert reduced_sizes(reduce(TABLE, Op.ADD, 1, 2, 3)) == [105]
    assert reduced_sizes(
        reduce(TABLE * expand(memory(1, 1, 7, 1, 1), 50, 7, 5, 3), Op.ADD, 2, 3)
    ) == [15]
    assert reduced_sizes(reduce(flip(TABLE, 2, 3), Op.ADD, 2, 3)) == [15]


@pytest.mark.parametrize(
    "value",
    [
        permute(TABLE, 0, 1, 3, 2),
        flip(TABLE, 3),
        TABLE + expand(memory(1, 1, 1, 1, 3), 50, 7, 5, 3),
        pad(memory(0, 50, 7, 4, 3), (0, 0), (0, 0), (0, 1), (0, 0)),
    ],
    ids=["turned", "mirrored", "broadcast", "padded"],
)
def test_other_axes_stay_apart(value: UOp) -> None:
    assert len(reduced_sizes(reduce(value, Op.ADD, 2, 3))) == 2


def test_contractions_keep_their_axes() -> None:
    value = product(memory(0, 20, 30), memory(1, 20, 30))
    assert in_parts(value) is value


def test_results_keep_their_shape() -> None:
    value = reduce(reshape(TABLE, 50, 7, 15), Op.ADD, 0, 1, 2)
    assert in_parts(value).shape == (1, 1, 1)


# ---- values ----


@pytest.mark.parametrize("shape", [(331,), (3, 997), (1021, 5), (40, 3, 28, 28), (64, 100)])
def test_values_are_those_of_numpy(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)
    node = Tensor(x).realize()
    every = tuple(range(len(shape)))
    for axes in {every, every[:1], every[1:] or every, (0, *every[2:])}:
        np.testing.assert_allclose(node.sum(axes).numpy(), x.sum(axes), rtol=1e-4, atol=1e-3)
        np.testing.assert_array_equal(node.max(axes).numpy(), x.max(axes))
        np.testing.assert_allclose(node.var(axes).numpy(), x.var(axes, ddof=1), rtol=1e-4)
