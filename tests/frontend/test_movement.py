"""Padding, joining, splitting and rolling agree with numpy."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from kernelet.base.counters import GlobalCounters
from kernelet.base.dtype import dtypes
from kernelet.base.errors import ArgumentError, IndexingError, ShapeError
from kernelet.frontend.movement import flat_shape
from kernelet.frontend.tensor import Tensor
from kernelet.graph.uop import UOp

A = np.arange(24, dtype=np.int32).reshape(2, 3, 4)


def same(got: Tensor, want: np.ndarray) -> None:
    assert got.numpy().shape == want.shape
    assert (got.numpy() == want).all()


def test_shrink_keeps_a_box() -> None:
    same(Tensor(A).shrink(((0, 1), None, (1, 3))), A[0:1, :, 1:3])
    with pytest.raises(ShapeError, match=r"1\.\.5"):
        Tensor(A).shrink((None, None, (1, 5)))


def test_padding_takes_pairs_or_the_flat_form() -> None:
    pairs = ((1, 0), (0, 2), (3, 1))
    want = np.pad(A, pairs)
    same(Tensor(A).pad(pairs), want)
    same(Tensor(A).pad((3, 1, 0, 2, 1, 0)), want)
    same(Tensor(A).pad((3, 1)), np.pad(A, ((0, 0), (0, 0), (3, 1))))
    same(Tensor(A).pad((None, (1, 1), None)), np.pad(A, ((0, 0), (1, 1), (0, 0))))
    same(Tensor(A).pad(pairs, value=7), np.pad(A, pairs, constant_values=7))
    same(Tensor(A).pad((-1, 2)), np.pad(A[:, :, 1:], ((0, 0), (0, 0), (0, 2))))


def test_padding_with_infinity_leaves_values_alone() -> None:
    assert Tensor([1.0, math.inf]).pad((1, 0), value=-math.inf).tolist() == [-math.inf, 1, math.inf]


@pytest.mark.parametrize(
    ("mode", "numpy_mode"), [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")]
)
def test_padding_repeats_what_is_inside(mode: str, numpy_mode: str) -> None:
    same(Tensor(A).pad((2, 3, 1, 2), mode=mode), np.pad(A, ((0, 0), (1, 2), (2, 3)), numpy_mode))


def test_padding_may_crop_and_repeat_at_once() -> None:
    x = Tensor(np.arange(5))
    assert x.pad((-1, 2), "reflect").tolist() == [1, 2, 3, 4, 3, 2]
    assert x.pad((2, -2), "replicate").tolist() == [0, 0, 0, 1, 2]
    assert x.pad((-1, 2), "circular").tolist() == [1, 2, 3, 4, 1, 2]
    with pytest.raises(ShapeError, match="as both ends of each axis lose"):
        x.pad((-3, -3))


def test_sizes_are_reached_by_padding_or_cutting_the_ends() -> None:
    x = Tensor([[1, 2], [3, 4]])
    assert x.pad_to(None, 3).tolist() == [[1, 2, 0], [3, 4, 0]]
    assert x.pad_to((3, 2), value=7).tolist() == [[1, 2], [3, 4], [7, 7]]
    assert x.shrink_to(1, None).tolist() == [[1, 2]]
    for call in (x.pad_to, x.shrink_to):
        with pytest.raises(ShapeError, match="an item for each axis"):
            call(2)
    with pytest.raises(ShapeError, match="shrink_to: .* not 0..3"):
        x.shrink_to(3, 2)


def test_padding_refuses_what_does_not_fit() -> None:
    with pytest.raises(ShapeError, match="reflect"):
        Tensor(A).pad((4, 0), mode="reflect")
    with pytest.raises(ShapeError, match="pad"):
        Tensor(A).pad((1, 2, 3))
    with pytest.raises(ArgumentError, match="mirror"):
        Tensor(A).pad((1, 2), mode="mirror")  # type: ignore[arg-type]


def test_flip_runs_backwards() -> None:
    same(Tensor(A).flip(0), np.flip(A, 0))
    same(Tensor(A).flip((0, -1)), np.flip(A, (0, -1)))
    same(Tensor(A).flip(1, 2), np.flip(A, (1, 2)))


def test_cat_joins_along_an_axis() -> None:
    t = Tensor(A)
    same(t.cat(t, t, dim=1), np.concatenate([A, A, A], 1))
    same(Tensor.cat(t, t[:, :, :2], dim=-1), np.concatenate([A, A[:, :, :2]], -1))
    assert t.cat(Tensor.ones(2, 3, 4), dim=0).dtype is dtypes.float32
    assert Tensor([True]).cat(Tensor([False])).tolist() == [True, False]
    assert Tensor([1.0]).cat(Tensor([math.nan, math.inf])).tolist()[2] == math.inf
    same(t.cat(Tensor(A[:0])), A)
    with pytest.raises(ShapeError, match="axis 0"):
        t.cat(Tensor.ones(2, 3, 5))


def test_many_tensors_join_without_a_deep_graph() -> None:
    assert Tensor.cat(*[Tensor([i]) for i in range(40)]).tolist() == list(range(40))


@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_a_list_of_tensors_may_be_followed_by_the_axis(kind: Callable) -> None:
    x, y = Tensor(A), Tensor(A + 24)
    same(Tensor.cat(kind([x, y]), 1), np.concatenate([A, A + 24], 1))
    same(Tensor.cat(kind([x, y]), dim=-1), np.concatenate([A, A + 24], -1))
    same(Tensor.stack(kind([x, y]), 1), np.stack([A, A + 24], 1))
    same(Tensor.stack(kind([x, y])), np.stack([A, A + 24]))
    same(x.cat(y, 2), np.concatenate([A, A + 24], 2))


def test_stack_makes_an_axis() -> None:
    t = Tensor(A)
    same(t.stack(t, dim=1), np.stack([A, A], 1))
    same(Tensor.stack(t, t, t, dim=-1), np.stack([A, A, A], -1))
    same(Tensor.stack([Tensor([1, 2]), Tensor([3, 4])]), np.array([[1, 2], [3, 4]]))
    with pytest.raises(ShapeError, match="stack"):
        t.stack(t[0])


def test_split_and_chunk_cut_an_axis() -> None:
    t = Tensor(A)
    for got, want in zip(t.split(3, 2), np.split(A, [3], 2), strict=True):
        same(got, want)
    for got, want in zip(t.split([1, 2], 1), np.split(A, [1], 1), strict=True):
        same(got, want)
    for got, want in zip(t.chunk(3, 2), np.split(A, [2], 2), strict=True):
        same(got, want)
    for got, want in zip(t.unbind(1), [A[:, 0], A[:, 1], A[:, 2]], strict=True):
        same(got, want)
    assert [part.shape for part in t[:0].chunk(2)] == [(0, 3, 4)] * 2
    for sizes in ([1, 1], [4, -1]):
        with pytest.raises(ShapeError, match="sum"):
            t.split(sizes, 1)


def test_roll_brings_back_what_leaves() -> None:
    t = Tensor(A)
    same(t.roll(1, 2), np.roll(A, 1, 2))
    same(t.roll((-1, 5), (1, 2)), np.roll(A, (-1, 5), (1, 2)))
    same(t.roll(7), np.roll(A, 7))
    same(t.roll(0, 0), A)


@pytest.mark.parametrize("offset", [-3, -1, 0, 1, 4])
def test_parts_of_matrices_are_those_of_numpy(offset: int) -> None:
    same(Tensor(A).tril(offset), np.tril(A, offset))
    same(Tensor(A).triu(offset), np.triu(A, offset))
    same(Tensor(A[0]).diagonal(offset), np.diagonal(A[0], offset))
    same(Tensor(A).diagonal(offset, 2, 1), np.diagonal(A, offset, 2, 1))


def test_diag_turns_vectors_into_matrices_and_back() -> None:
    same(Tensor([1, 2, 3]).diag(), np.diag([1, 2, 3]))
    same(Tensor(A[0]).diag(), np.diag(A[0]))


@pytest.mark.parametrize(("size", "step"), [(1, 1), (3, 1), (3, 2), (2, 3), (7, 1), (2, 2)])
def test_unfold_makes_windows(size: int, step: int) -> None:
    x = np.arange(14).reshape(2, 7)
    want = np.lib.stride_tricks.sliding_window_view(x, size, 1)[:, ::step]
    same(Tensor(x).unfold(1, size, step), want)
    same(Tensor(x.T.copy()).unfold(0, size, step), want.transpose(1, 0, 2))
    with pytest.raises(ShapeError, match="unfold"):
        Tensor(x).unfold(1, 8, 1)


def test_meshgrid_is_that_of_numpy() -> None:
    x, y = np.arange(3), np.arange(4)
    for indexing in ("ij", "xy"):
        want = np.meshgrid(x, y, indexing=indexing)
        for got, grid in zip(
            Tensor.meshgrid(Tensor(x), Tensor(y), indexing=indexing), want, strict=True
        ):
            same(got, grid)


def test_joining_bound_lengths_adds_them() -> None:
    n = UOp.variable("n", 1, 4).bind(2)
    t = Tensor([1, 2, 3, 4])[:n]
    joined = t.cat(Tensor([9]))
    assert joined.tolist() == [1, 2, 9]
    assert joined.shape == Tensor([9]).cat(t).shape


# ---- shapes and orders ----


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
    with pytest.raises(ArgumentError, match="movedim"):
        t.movedim((0, 1), 2)
    with pytest.raises(ArgumentError, match="roll"):
        t.roll((1, 2), 0)


def test_axes_repeat() -> None:
    t = Tensor(A[:, :1])
    same(t.expand(2, 5, 4), np.broadcast_to(A[:, :1], (2, 5, 4)))
    same(t.expand(3, -1, 5, -1), np.broadcast_to(A[:, :1], (3, 2, 5, 4)))
    same(t.broadcast_to((2, 3, 4)), np.broadcast_to(A[:, :1], (2, 3, 4)))
    same(t.expand_as(Tensor(A)), np.broadcast_to(A[:, :1], (2, 3, 4)))
    same(Tensor(A).repeat(2, 1, 3), np.tile(A, (2, 1, 3)))
    same(Tensor(A).tile((2, 1, 1, 2)), np.tile(A, (2, 1, 1, 2)))
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
