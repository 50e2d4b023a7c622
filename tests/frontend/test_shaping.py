"""Shapes change as in numpy and PyTorch, in both spellings, without a kernel."""

import numpy as np
import pytest

from kernelet.base.counters import GlobalCounters
from kernelet.base.errors import IndexingError, ShapeError
from kernelet.frontend.shaping import flat_shape
from kernelet.frontend.tensor import Tensor
from kernelet.graph.uop import UOp

A = np.arange(24, dtype=np.int32).reshape(2, 3, 4)


def same(got: Tensor, want: np.ndarray) -> None:
    assert got.numpy().shape == want.shape
    assert (got.numpy() == want).all()


def test_shapes_come_as_numbers_or_as_a_sequence() -> None:
    assert flat_shape((2, 3)) == flat_shape(([2, 3],)) == (2, 3)


def test_reshape_infers_one_size() -> None:
    t = Tensor(A)
    same(t.reshape(6, -1), A.reshape(6, -1))
    same(t.view((4, 6)), A.reshape(4, 6))
    same(t.reshape_as(Tensor.zeros(8, 3)), A.reshape(8, 3))
    assert Tensor.zeros(0, 3).reshape(-1, 3).shape == (0, 3)
    assert Tensor([5]).reshape(()).shape == ()


@pytest.mark.parametrize("shape", [(5,), (5, -1), (-1, -1), (-2, 12), (25,)])
def test_reshape_refuses_other_counts(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="24 elements"):
        Tensor(A).reshape(shape)


def test_axes_merge_and_split() -> None:
    t = Tensor(A)
    same(t.flatten(), A.reshape(-1))
    same(t.flatten(1), A.reshape(2, 12))
    same(t.flatten(0, 1), A.reshape(6, 4))
    same(t.flatten(0, 1).unflatten(0, (2, -1)), A)
    assert Tensor(3).flatten().shape == (1,)


def test_axes_of_size_one_come_and_go() -> None:
    t = Tensor(A)
    same(t.unsqueeze(1), A[:, None])
    same(t.unsqueeze(-1), A[..., None])
    same(t.unsqueeze(0).unsqueeze(2).squeeze(), A)
    same(t.unsqueeze(0).unsqueeze(2).squeeze(0), A[:, None])
    same(t.unsqueeze(0).squeeze((0, 1)), A)
    assert Tensor(1).unsqueeze(0).shape == (1,)
    with pytest.raises(IndexingError, match="4"):
        t.unsqueeze(4)


def test_axes_are_reordered() -> None:
    t = Tensor(A)
    same(t.permute(2, 0, 1), A.transpose(2, 0, 1))
    same(t.permute((-1, 0, 1)), A.transpose(2, 0, 1))
    same(t.transpose(0, 2), A.swapaxes(0, 2))
    same(t.transpose(), A.swapaxes(0, 1))
    same(t.swapaxes(-1, 0), A.swapaxes(0, 2))
    same(t.T, A.T)
    same(t.mT, A.swapaxes(1, 2))
    same(t.movedim(0, 2), np.moveaxis(A, 0, 2))
    same(t.movedim((0, 1), (-1, 0)), np.moveaxis(A, (0, 1), (-1, 0)))
    with pytest.raises(ShapeError, match="permute"):
        t.permute(0, 1)


def test_axes_repeat() -> None:
    t = Tensor(A[:, :1])
    same(t.expand(2, 5, 4), np.broadcast_to(A[:, :1], (2, 5, 4)))
    same(t.expand(3, -1, 5, -1), np.broadcast_to(A[:, :1], (3, 2, 5, 4)))
    same(t.broadcast_to((2, 3, 4)), np.broadcast_to(A[:, :1], (2, 3, 4)))
    same(t.expand_as(Tensor(A)), np.broadcast_to(A[:, :1], (2, 3, 4)))
    same(Tensor(A).repeat(2, 1, 3), np.tile(A, (2, 1, 3)))
    same(Tensor(A).repeat((2, 1, 1, 2)), np.tile(A, (2, 1, 1, 2)))
    same(Tensor(A).repeat_interleave(2, 1), np.repeat(A, 2, 1))
    same(Tensor(A).repeat_interleave(3), np.repeat(A, 3))
    with pytest.raises(ShapeError, match="expand"):
        Tensor(A).expand(2, 5, 4)


def test_moving_runs_no_kernel() -> None:
    t = Tensor(A).realize()
    before = GlobalCounters.kernel_count
    t.permute(2, 0, 1).unsqueeze(0).expand(3, -1, -1, -1).flatten(2).realize()
    t.T.realize()
    assert GlobalCounters.kernel_count == before


def test_bound_variables_are_sizes() -> None:
    n = UOp.variable("n", 1, 4).bind(2)
    t = Tensor(np.arange(12)).reshape(4, 3)[:n]
    assert t.reshape(-1).shape == t.flatten().shape
    assert t.reshape(n, 3, 1).squeeze(-1).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert t.unsqueeze(0).expand(2, -1, -1).sum().item() == 30
