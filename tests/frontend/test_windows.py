"""Windows cover what they say, and their movements read and write without divisions."""

import itertools

import numpy as np
import pytest

from kernelet.base.errors import ArgumentError
from kernelet.frontend.tensor import Tensor
from kernelet.frontend.windows import Window, paddings, per_axis, window_list
from kernelet.graph.division import ZERO, index_of
from kernelet.graph.movement import movement_index
from kernelet.graph.ops import MOVEMENT, Op
from kernelet.graph.uop import RangeArg, UOp


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
    assert paddings("conv2d", 1, windows) == ((1, 1), (1, 1))
    assert paddings("conv2d", (1, 2), windows) == ((1, 1), (2, 2))
    assert paddings("conv2d", (1, 2, 3, 4), windows) == ((3, 4), (1, 2))
    assert paddings("conv2d", ((3, 4), (1, 2)), windows) == ((3, 4), (1, 2))
    assert paddings("conv2d", "valid", windows) == ((0, 0), (0, 0))
    assert paddings("conv2d", "same", windows) == ((1, 1), (0, 1))


@pytest.mark.parametrize("padding", [(1, 2, 3), "big", ((1,), (2,)), (1, (2, 3))])
def test_other_paddings_are_refused(padding: object) -> None:
    with pytest.raises(ArgumentError, match="conv2d: padding"):
        paddings("conv2d", padding, [Window(3), Window(3)])


def test_same_padding_needs_stride_one() -> None:
    with pytest.raises(ArgumentError, match="stride"):
        window_list("conv1d", (3,), 2, 1, "same")


def test_numbers_for_each_axis_must_be_as_many_and_positive() -> None:
    assert per_axis("pool", "stride", 2, 2) == (2, 2)
    with pytest.raises(ArgumentError, match=r"stride=\(1, 2, 3\)"):
        per_axis("pool", "stride", (1, 2, 3), 2)
    with pytest.raises(ArgumentError, match="at least 1"):
        window_list("pool", (2, 2), 0, 1, 0)
