"""Pools agree with a loop over their windows."""

import itertools
import math

import numpy as np
import pytest

from kernelet.base.errors import ArgumentError, ShapeError
from kernelet.frontend.pooling import Window, paddings, per_axis, window_list
from kernelet.frontend.tensor import Tensor
from kernelet.graph.division import ZERO, index_of
from kernelet.graph.movement import movement_index
from kernelet.graph.ops import MOVEMENT, Op
from kernelet.graph.uop import RangeArg, UOp


def values(*shape: int) -> np.ndarray:
    # Negative, so that zeros of the padding would win a maximum.
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32) - 5


def pooled(
    x: np.ndarray, size: int, stride: int, pad: int, gap: int, ceil: bool, counts_pad: bool | None
) -> np.ndarray:
    """The maximum of each window (counts_pad None) or the mean, over a square image."""
    length, rounded = x.shape[0], math.ceil if ceil else math.floor
    count = rounded((length + 2 * pad - gap * (size - 1) - 1) / stride) + 1
    if ceil and (count - 1) * stride >= length + pad:
        count -= 1
    result = np.zeros((count, count))
    for i, j in itertools.product(range(count), repeat=2):
        offsets = itertools.product(range(size), repeat=2)
        places = [(i * stride - pad + a * gap, j * stride - pad + b * gap) for a, b in offsets]
        inside = [x[at] for at in places if min(at) >= 0 and max(at) < length]
        within = len(inside) if not counts_pad else sum(max(at) < length + pad for at in places)
        result[i, j] = max(inside) if counts_pad is None else sum(inside) / within
    return result


CASES = [(3, 2, 1, 1), (2, 2, 0, 1), (3, 2, 1, 2), (2, 3, 1, 1), (3, 3, 0, 1), (3, 1, 1, 1)]


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize(("size", "stride", "pad", "gap"), CASES)
def test_pools_of_one_image(size: int, stride: int, pad: int, gap: int, ceil: bool) -> None:
    x = values(7, 7)
    image = Tensor(x).reshape(1, 1, 7, 7)
    got = image.max_pool2d(size, stride, gap, pad, ceil).numpy()[0, 0]
    np.testing.assert_allclose(got, pooled(x, size, stride, pad, gap, ceil, None), rtol=1e-5)
    for counted in (False, True) if gap == 1 else ():
        got = image.avg_pool2d(size, stride, 1, pad, ceil, counted).numpy()[0, 0]
        want = pooled(x, size, stride, pad, 1, ceil, counted)
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_the_default_stride_is_the_window_and_batches_are_kept() -> None:
    x = values(2, 3, 4, 6)
    want = x.reshape(2, 3, 2, 2, 3, 2)
    np.testing.assert_allclose(Tensor(x).max_pool2d((2, 2)).numpy(), want.max((3, 5)))
    np.testing.assert_allclose(Tensor(x).avg_pool2d().numpy(), want.mean((3, 5)), rtol=1e-5)


def test_a_tuple_of_any_length_pools_that_many_axes() -> None:
    x = values(1, 2, 6)
    assert Tensor(x).max_pool2d((3,)).tolist() == x.reshape(1, 2, 2, 3).max(3).tolist()
    assert Tensor(values(1, 2, 4, 4, 4)).avg_pool2d((2, 2, 2)).shape == (1, 2, 2, 2, 2)


def test_a_window_of_padding_alone_is_nowhere() -> None:
    x = Tensor([[[1.0, 2.0, 3.0]]])
    found, places = x.max_pool2d((1,), padding=(1,), return_indices=True)
    assert found.tolist() == [[[-math.inf, 1.0, 2.0, 3.0, -math.inf]]]
    assert places.tolist() == [[[3, 0, 1, 2, 3]]]
    assert found.max_unpool2d(places, (1,), padding=(1,)).tolist() == x.tolist()


def test_indices_name_the_first_greatest_element() -> None:
    x = values(1, 2, 5, 5)
    found, places = Tensor(x).max_pool2d(3, 2, padding=1, return_indices=True)
    flat = x.reshape(1, 2, 25)
    picked = np.take_along_axis(flat, places.numpy().reshape(1, 2, -1), 2)
    np.testing.assert_array_equal(picked.reshape(found.shape), found.numpy())
    assert Tensor.ones(1, 1, 2, 2).max_pool2d(2, return_indices=True)[1].item() == 0


def test_integers_pool_too() -> None:
    x = np.array([[[-5, -6], [-7, -8]]], np.int32)
    assert Tensor(x).max_pool2d(2, padding=1, stride=1).numpy().max() == -5


@pytest.mark.parametrize("size", [1, 2, 3, 5, (3, None), (7, 4)])
def test_adaptive_pools_cut_axes_into_even_pieces(size: object) -> None:
    x = values(2, 7, 6)
    sizes = (size, size) if isinstance(size, int) else (size[0], size[1] or 6)
    pieces = [
        [(i * length // count, -(-(i + 1) * length // count)) for i in range(count)]
        for length, count in zip((7, 6), sizes, strict=True)
    ]
    for name, fold in [("adaptive_avg_pool2d", np.mean), ("adaptive_max_pool2d", np.max)]:
        want = [
            [[fold(plane[a:b, c:d]) for c, d in pieces[1]] for a, b in pieces[0]] for plane in x
        ]
        np.testing.assert_allclose(getattr(Tensor(x), name)(size).numpy(), want, rtol=1e-5)


def test_rounding_up_makes_room_for_a_window_of_its_own() -> None:
    assert Tensor([[[3.0]]]).max_pool2d((2,), ceil_mode=True).tolist() == [[[3.0]]]
    assert Tensor([[[3.0]]]).avg_pool2d((2,), ceil_mode=True).tolist() == [[[3.0]]]


def test_norms_of_windows() -> None:
    x = values(1, 2, 4, 6)
    cells = x.reshape(1, 2, 2, 2, 3, 2)
    want = np.sqrt((cells**2).sum((3, 5)))
    np.testing.assert_allclose(Tensor(x).lp_pool2d(2, 2).numpy(), want, rtol=1e-5)


def test_unpooling_puts_elements_back() -> None:
    x = values(2, 3, 4, 5)
    found, places = Tensor(x).max_pool2d(2, return_indices=True)
    back = found.max_unpool2d(places, 2, output_size=(4, 5)).numpy()
    kept = back != 0
    assert kept.sum() == found.numpy().size
    np.testing.assert_array_equal(back[kept], x[kept])
    assert found.max_unpool2d(places, 2).shape == (2, 3, 4, 4)
    with pytest.raises(ShapeError, match="the indices of max_pool2d"):
        found.max_unpool2d(places[:1], 2)


def test_folding_adds_windows_up() -> None:
    x = Tensor(values(2, 3, 5, 4))
    windows = [Window(2, 1, 2, 1, 1), Window(3)]
    cells = x._windows(windows)  # (2, 3, *counts, *sizes)
    flat = cells.permute(0, 1, 4, 5, 2, 3).flatten(1, 3).flatten(2)
    folded = flat.fold((5, 4), (2, 3), (2, 1), (1, 0))
    times = x._windows(windows).sum().gradient(x)[0]
    np.testing.assert_allclose(folded.numpy(), (x * times).numpy(), rtol=1e-5)
    with pytest.raises(ShapeError, match=r"fold: .*12 places of windows \(2, 2\)"):
        flat.fold((5, 4), 2)


def test_windows_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match="max_pool2d.*smaller windows than 5 of 3"):
        Tensor.ones(1, 1, 3, 3).max_pool2d(5)
    with pytest.raises(ShapeError, match=r"avg_pool2d: shape \(3,\).*2 or more axes"):
        Tensor.ones(3).avg_pool2d(2)


# ---- windows ----


def cut(values: np.ndarray, window: Window) -> np.ndarray:
    """What windows over one axis hold, element by element."""
    padded = np.pad(values, (max(window.before, 0), max(window.after, 0)))
    padded = padded[max(-window.before, 0) : len(padded) - max(-window.after, 0)]
    count = (len(padded) - window.reach) // window.stride + 1
    rows = range(count), range(window.size)
    return np.array(
        [[padded[i * window.stride + k * window.dilation] for k in rows[1]] for i in rows[0]]
    )


@pytest.mark.parametrize("length", [5, 8])
@pytest.mark.parametrize("before", [0, 2, -1])
def test_windows_hold_the_elements_they_name(length: int, before: int) -> None:
    x = np.arange(1, length + 1).astype(np.float32)
    for size, stride, dilation, after in itertools.product((1, 2, 3), (1, 2, 4), (1, 2), (0, 1)):
        window = Window(size, stride, dilation, before, after)
        if length + before + after >= window.reach:
            np.testing.assert_array_equal(Tensor(x)._windows([window]).numpy(), cut(x, window))


def test_two_axes_are_cut_at_once() -> None:
    x = np.arange(42).reshape(1, 6, 7).astype(np.float32)
    got = Tensor(x)._windows([Window(3, 1, 1, 1, 1), Window(2, 2)]).numpy()
    assert got.shape == (1, 6, 3, 3, 2)
    padded = np.pad(x[0], ((1, 1), (0, 0)))
    want = [[padded[i : i + 3, 2 * j : 2 * j + 2] for j in range(3)] for i in range(6)]
    np.testing.assert_array_equal(got[0], want)


WINDOWS = [
    Window(3),
    Window(3, 1, 2, 2, 2),
    Window(3, 2, 1, 1, 1),
    Window(5, 1, 1, 2, 2),
    Window(7, 2, 1, 3, 3),
    Window(4, 3, 2, 5, 1),
]


@pytest.mark.parametrize("window", WINDOWS)
def test_reading_a_window_takes_no_division(window: Window) -> None:
    node = Tensor.zeros(2, 9, 9).contiguous().realize()._windows([window, window]).uop
    index = tuple(
        UOp(Op.RANGE, index_of(0).dtype, (index_of(size),), RangeArg(place, "loop"))
        if size != 1
        else ZERO
        for place, size in enumerate(node.shape)
    )
    while node.op in MOVEMENT:
        index, _ = movement_index(node, index)
        node = node.src[0]
    ops = {each.op for part in index for each in part.toposort()}
    assert not ops & {Op.IDIV, Op.MOD}


def test_rounding_up_adds_a_window_that_starts_inside() -> None:
    assert Window(2, 2).rounded_up(7) == Window(2, 2, 1, 0, 1)
    assert Window(3, 3).rounded_up(7) == Window(3, 3, 1, 0, 2)
    assert Window(2, 3, 1, 1, 1).rounded_up(7).count(7) == 3
    assert Window(2, 2).rounded_up(8) == Window(2, 2)


def test_paddings_are_read_in_every_form() -> None:
    windows = [Window(3), Window(2)]
    assert paddings(1, windows) == ((1, 1), (1, 1))
    assert paddings((1, 2), windows) == ((1, 1), (2, 2))
    assert paddings((1, 2, 3, 4), windows) == ((3, 4), (1, 2))
    assert paddings(((3, 4), (1, 2)), windows) == ((3, 4), (1, 2))
    assert paddings("valid", windows) == ((0, 0), (0, 0))
    assert paddings("same", windows) == ((1, 1), (0, 1))


@pytest.mark.parametrize("padding", [(1, 2, 3), "big", ((1,), (2,)), (1, (2, 3))])
def test_other_paddings_are_refused(padding: object) -> None:
    with pytest.raises(ArgumentError, match="padding"):
        paddings(padding, [Window(3), Window(3)])


def test_same_padding_needs_stride_one() -> None:
    with pytest.raises(ArgumentError, match="stride"):
        window_list((3,), 2, 1, "same")


def test_numbers_for_each_axis_must_be_as_many_and_positive() -> None:
    assert per_axis("stride", 2, 2) == (2, 2)
    with pytest.raises(ArgumentError, match=r"stride=\(1, 2, 3\)"):
        per_axis("stride", (1, 2, 3), 2)
    with pytest.raises(ArgumentError, match="stride=0.*at least 1"):
        Tensor.ones(1, 1, 4, 4).avg_pool2d(2, stride=0)
