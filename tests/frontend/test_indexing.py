"""Indexing, gathering and scattering agree with numpy, on both sides of the equals sign."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelet.base.counters import GlobalCounters
from kernelet.base.dtype import dtypes
from kernelet.base.errors import ArgumentError, DTypeError, IndexingError, ShapeError
from kernelet.frontend.tensor import Tensor
from kernelet.graph.uop import UOp

A = np.arange(60, dtype=np.int32).reshape(3, 4, 5)
MASK = A % 3 == 0
BASIC = [
    1,
    -1,
    (slice(None), 2),
    (Ellipsis, -2),
    (None, 1, None, slice(1, 3)),
    slice(None, None, -1),
    (slice(None), slice(3, 0, -2), slice(-100, 100, 3)),
    (slice(2, 1), Ellipsis),
    (slice(None, -1), slice(1, None), slice(-3, -1)),
    (0, 1, 2),
    (Ellipsis,),
    (slice(None), slice(None), slice(4, None, -3)),
    (np.int64(2), slice(0, np.int32(2))),
]
ADVANCED = [
    [0, 2],
    np.array([2, 0, -1, 2]),
    (slice(None), [0, -1, -3]),
    ([0, 1], slice(None), [3, -4]),
    (slice(None), [[0], [1]], [[2, 0, 1]]),
    ([[0], [1]], [[2, 0, 1]]),
    (slice(None, None, -1), [0, 1], slice(1, 4)),
    (Ellipsis, [1, 1, 4]),
    (None, [1, 2], None, slice(None, 2)),
    (slice(0, 2), [3, 1], [2, 2]),
    [],
    MASK,
    MASK[:, :, 0],
    (1, MASK[0]),
    (slice(None), MASK[0, :, 0], [1, 2]),
    True,
    (slice(1, None), False, 2),
    (np.array(True), [2, 0]),
    ([True, False, True], None, 1),
]


def tensors(index: object) -> object:
    """The same index with arrays as tensors."""
    if isinstance(index, tuple):
        return tuple(tensors(item) for item in index)
    return Tensor(index) if isinstance(index, np.ndarray) else index


def same(got: Tensor, want: np.ndarray) -> None:
    assert got.shape == want.shape
    assert (got.numpy() == want).all()


@pytest.mark.parametrize("index", BASIC + ADVANCED, ids=str)
def test_reading_is_that_of_numpy(index: object) -> None:
    same(Tensor(A)[tensors(index)], A[index])


@pytest.mark.parametrize("realized", [True, False])
@pytest.mark.parametrize("index", BASIC + ADVANCED, ids=str)
def test_writing_is_that_of_numpy(index: object, realized: bool) -> None:
    want = A.copy()
    got = Tensor(A.copy()) if realized else Tensor(A) * 1
    values = -np.arange(want[index].size, dtype=np.int32).reshape(want[index].shape)
    want[index] = values
    got[tensors(index)] = Tensor(values)
    same(got, want)
    want[index] = 7
    got[tensors(index)] = 7
    same(got, want)


@st.composite
def slices(draw: st.DrawFn, size: int) -> slice:
    ends = st.none() | st.integers(-size - 2, size + 2)
    step = draw(st.sampled_from([None, 1, 2, 3, -1, -2, -3]))
    return slice(draw(ends), draw(ends), step)


@settings(max_examples=60, deadline=None)
@given(st.tuples(slices(3), slices(4), slices(5)))
def test_any_slices_read_and_write_like_numpy(index: tuple[slice, ...]) -> None:
    same(Tensor(A)[index], A[index])
    want, got = A.copy(), Tensor(A.copy())
    want[index] += 100
    got[index] += 100
    same(got, want)


@st.composite
def indices(draw: st.DrawFn, shape: tuple[int, ...] = A.shape) -> tuple[object, ...]:
    """Slices, new axes, arrays that broadcast and masks, in any order."""
    items: list[object] = []
    lead = draw(st.sampled_from([(), (1,), (3,), (2, 1), (0,)]))
    for axis, size in enumerate(shape):
        kind = draw(st.sampled_from(["slice", "array", "mask", "list", "bool"]))
        if kind == "bool":
            items += [draw(st.sampled_from([None, True, False])), slice(None)]
        elif kind == "mask":
            items.append(np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size))))
        elif kind == "slice":
            items.append(draw(slices(size)))
        else:
            sizes = lead[draw(st.integers(0, len(lead))) :] if kind == "array" else (1,)
            count = math.prod(sizes)
            numbers = st.lists(st.integers(-size, size - 1), min_size=count, max_size=count)
            items.append(np.array(draw(numbers), np.int32).reshape(sizes))
        if axis and draw(st.booleans()):
            break
    return tuple(items)


@settings(max_examples=80, deadline=None)
@given(indices())
def test_any_index_reads_writes_and_derives_like_numpy(index: tuple[object, ...]) -> None:
    base = A.astype(np.float32)
    try:
        want = base[index]
    except IndexError:
        with pytest.raises((IndexingError, ShapeError)):
            Tensor(base)[tensors(index)]
        return
    x = Tensor(base.copy())
    got = x[tensors(index)]
    same(got, want)
    weight = np.arange(1, want.size + 1, dtype=np.float32).reshape(want.shape)
    slope = np.zeros_like(base)
    np.add.at(slope, index, weight)
    same((got * Tensor(weight)).sum().gradient(x)[0], slope)
    changed = base.copy()
    changed[index] = -weight
    x[tensors(index)] = Tensor(-weight)
    same(x, changed)


def test_numbers_and_slices_run_no_kernel() -> None:
    t = Tensor(A).realize()
    before = GlobalCounters.kernel_count
    t[1, ::-1, 1:3].realize()
    t[:, 2].realize()
    assert GlobalCounters.kernel_count == before


def test_picking_by_a_tensor_is_one_kernel() -> None:
    t, index = Tensor(A).realize(), Tensor([2, 0, 1]).realize()
    before = GlobalCounters.kernel_count
    t[:, index].realize()
    assert GlobalCounters.kernel_count == before + 1


def test_values_that_are_not_picked_do_not_leak() -> None:
    t = Tensor([math.inf, 1.0, math.nan, 2.0])
    assert t[Tensor([1, 3])].tolist() == [1.0, 2.0]
    assert Tensor([True, False])[Tensor([0, 1, 0])].tolist() == [True, False, True]


def test_entries_outside_read_zero_and_write_nothing() -> None:
    t = Tensor([1, 2, 3])
    assert t[Tensor([0, 3, -4, 2**20])].tolist() == [1, 0, 0, 0]
    t[Tensor([1, 3, -4])] = 9
    assert t.tolist() == [1, 9, 3]
    m = Tensor([[1, 2], [3, 4]])
    assert m[Tensor([0, 1, 2]), Tensor([2, 1, 0])].tolist() == [0, 4, 0]


def test_the_last_of_several_writers_stays() -> None:
    t = Tensor([0, 0, 0])
    t[Tensor([1, 1, 0, 1])] = Tensor([5, 6, 7, 8])
    assert t.tolist() == [7, 8, 0]


def test_a_mask_with_a_number_needs_no_look_at_the_mask() -> None:
    t, mask = Tensor(A).realize(), Tensor(MASK).realize()
    before = GlobalCounters.kernel_count
    t[mask] = -1
    assert GlobalCounters.kernel_count == before
    same(t, np.where(MASK, -1, A))


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (3, "axis 0"),
        (-4, "axis 0"),
        ((0, 0, 0, 0), "not 4"),
        ((Ellipsis, Ellipsis), "two ellipses"),
        ("a", "str"),
        (1.5, "float"),
        (slice(None, None, 0), "step is 0"),
        (slice("a", None), "whole numbers"),
        (slice(None, None, 1.5), "whole numbers"),
    ],
)
def test_bad_indices_say_what_to_use(index: object, message: str) -> None:
    with pytest.raises(IndexingError, match=message):
        Tensor(A)[index]


def test_floats_cannot_index() -> None:
    with pytest.raises(IndexingError, match="float32"):
        Tensor(A)[Tensor([1.0])]


def test_values_must_fit_their_places() -> None:
    t = Tensor(A)
    with pytest.raises(ShapeError, match="setitem"):
        t[0] = Tensor.zeros(3, dtype="int32")
    with pytest.raises(ShapeError, match="setitem"):
        t[Tensor([0, 1])] = Tensor.zeros(7, dtype="int32")


def test_bound_variables_index_and_slice() -> None:
    n, at = UOp.variable("n", 1, 3), UOp.variable("at", 0, 2)
    t = Tensor(A).realize()
    same(t[at.bind(2)], A[2])
    part = t[: n.bind(2)]
    assert part.numpy().shape == (2, 4, 5)
    same(t[at.bind(1) :, 0][0], A[1, 0])
    assert t[0, n.bind(1) : n.bind(1) + 1].shape == (1, 5)
    t[0, n.bind(3)] = 0
    assert t[0].numpy()[3].tolist() == [0] * 5
    with pytest.raises(IndexingError, match="smaller maximum"):
        t[: UOp.variable("m", 1, 9).bind(2)]


def test_gather_reads_along_an_axis() -> None:
    index = np.array([[[0, 3, 1], [1, 2, -1]]])
    want = np.take_along_axis(A[:1, :2], index, 2)
    same(Tensor(A).gather(2, Tensor(index)), want)
    index = np.array([[[2, 0], [1, 1]]])
    same(Tensor(A).gather(0, Tensor(index)), np.take_along_axis(A[:, :2, :2], index, 0))
    with pytest.raises(ShapeError, match="gather"):
        Tensor(A).gather(0, Tensor([1]))
    with pytest.raises(ShapeError, match=r"no longer than \(3, 4, 5\) but along axis 0"):
        Tensor(A).gather(0, Tensor.zeros(1, 5, 1, dtype="int32"))


def test_taking_is_that_of_numpy() -> None:
    same(Tensor(A).index_select(1, Tensor([3, 0])), np.take(A, [3, 0], 1))
    same(Tensor(A).take(Tensor([[0, 59], [-1, 7]])), np.take(A, [[0, 59], [-1, 7]]))
    index = np.argsort(-A, 2)[:1]
    same(Tensor(A).take_along_dim(Tensor(index), 2), np.take_along_axis(A, index, 2))
    same(Tensor(A).take_along_dim(Tensor([5, 1])), A.reshape(-1)[[5, 1]])


def test_one_hot_marks_the_index() -> None:
    same(Tensor([0, 2, 1]).one_hot(4), np.eye(4, dtype=np.int32)[[0, 2, 1]])
    same(Tensor([[0], [2]]).one_hot(), np.eye(3, dtype=np.int32)[[[0], [2]]])
    with pytest.raises(DTypeError, match="one_hot"):
        Tensor([1.0]).one_hot(2)


def test_scatter_writes_along_an_axis() -> None:
    x = np.zeros((3, 5), np.float32)
    index, source = np.array([[0, 1, 2, 0, 0], [2, 0, 0, 1, 2]]), np.arange(10.0).reshape(2, 5)
    want = x.copy()
    np.put_along_axis(want, index[:1], source[:1].astype(np.float32), 0)
    np.put_along_axis(want, index[1:], source[1:].astype(np.float32), 0)
    same(Tensor(x).scatter(0, Tensor(index), Tensor(source)), want)
    same(
        Tensor(x).scatter(1, Tensor([[1], [3]]), 7),
        np.float32([[0, 7, 0, 0, 0], [0, 0, 0, 7, 0], [0] * 5]),
    )
    assert Tensor([1, 2, 3]).scatter(0, Tensor([1, 1]), Tensor([5, 6])).tolist() == [1, 6, 3]
    assert Tensor([1, 2, 3]).scatter(0, Tensor([0, 0]), Tensor([5, 6]), "add").tolist() == [
        12,
        2,
        3,
    ]
    assert Tensor([1, 2]).scatter(0, Tensor([1]), 4, reduce="multiply").tolist() == [1, 8]
    with pytest.raises(ArgumentError, match="subtract"):
        Tensor([1]).scatter(0, Tensor([0]), 1, reduce="subtract")  # type: ignore[arg-type]


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_scatter_reduce_combines(reduce: str, include_self: bool, dtype: type) -> None:
    x, index = np.array([[5, 5], [-4, 2], [3, 1]], dtype), np.array([[0, 1], [0, 1], [1, 1]])
    source = np.array([[1, 8], [2, -3], [9, 6]], dtype)
    combine = {"sum": np.sum, "prod": np.prod, "amax": np.max, "amin": np.min}.get(reduce)
    want = x.copy()
    for column in range(2):
        for row in range(3):
            found = list(source[:, column][index[:, column] == row])
            if found:
                found += [x[row, column]] if include_self else []
                mean = np.mean(found) if dtype is np.float32 else sum(found) // len(found)
                want[row, column] = combine(found) if combine else mean
    got = Tensor(x).scatter_reduce(
        0, Tensor(index), Tensor(source), reduce, include_self=include_self
    )
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)


@pytest.mark.parametrize("value", [2.5, np.float32(2.5), np.array(2.5), 2, True])
def test_a_number_is_scattered_to_every_place(value: float) -> None:
    x, index = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([[0, 1, 0]])
    wanted = x.copy()
    np.put_along_axis(wanted, index, value, 0)
    same(Tensor(x).scatter(0, Tensor(index), value), wanted)
    same(Tensor(x).scatter(0, Tensor(index), Tensor(value)), wanted)


def test_scatter_leaves_what_the_index_does_not_cover() -> None:
    x = Tensor([[1, 2, 3], [4, 5, 6]])
    assert x.scatter_add(1, Tensor([[2, 0]]), Tensor([[10, 20]])).tolist() == [
        [21, 2, 13],
        [4, 5, 6],
    ]


def test_masks_select_a_vector() -> None:
    same(Tensor(A).masked_select(Tensor(MASK)), A[MASK])
    same(Tensor(A).masked_select(Tensor(MASK[0, 0])), A[np.broadcast_to(MASK[0, 0], A.shape)])
    same(Tensor(MASK).nonzero(), np.argwhere(MASK))


def test_masks_select_a_number_of_elements_that_is_given() -> None:
    mask = Tensor([[True, False], [True, True]])
    assert mask.nonzero(size=4, fill_value=-1).tolist() == [[0, 0], [1, 0], [1, 1], [-1, -1]]
    assert mask.nonzero(size=2).tolist() == [[0, 0], [1, 0]]
    assert Tensor([[5, 6], [7, 8]]).masked_select(mask, 4, 9).tolist() == [5, 7, 8, 9]
    assert Tensor(3).nonzero().shape == (1, 0)
    assert Tensor.zeros(0, 2).nonzero().shape == (0, 2)


def test_putting_writes_or_adds_a_copy() -> None:
    x, places = Tensor([1.0, 2.0, 3.0]), Tensor([2, 0, 2])
    y = Tensor([10.0, 20.0, 30.0])
    assert x.index_put((places,), y).tolist() == [20.0, 2.0, 30.0]
    assert x.index_put((places,), y, accumulate=True).tolist() == [21.0, 2.0, 43.0]
    assert x.tolist() == [1.0, 2.0, 3.0]
    found = x.index_put((places,), y).sum().gradient(x, y)
    assert [each.tolist() for each in found] == [[0.0, 1.0, 0.0], [0.0, 1.0, 1.0]]
    m = Tensor([[1, 2], [3, 4]])
    assert m.index_put((None, Tensor([1])), 7).tolist() == [[1, 7], [3, 7]]


@pytest.mark.parametrize("index", [[], [[]], False, slice(2, 2)], ids=str)
def test_what_is_read_nowhere_has_gradient_zero(index: object) -> None:
    x = Tensor([[1.0, math.inf], [3.0, 4.0]], requires_grad=True)
    x[index].sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_narrow_floats_scatter_in_float32() -> None:
    x = Tensor([1.0, 0.0], dtype=dtypes.float16)
    ones = Tensor([0.0004] * 8, dtype=dtypes.float16)
    total = x.scatter_reduce(0, Tensor([0] * 8), ones, "sum")
    assert total.dtype is dtypes.float16
    assert total.tolist()[0] == np.float16(1.0032)
    flags = Tensor([True, False]).scatter_reduce(0, Tensor([0, 1]), Tensor([False, True]), "amin")
    assert flags.tolist() == [False, False]


def test_repeated_picks_add_up_in_the_gradient() -> None:
    x = Tensor([1.0, 2.0, 3.0])
    assert x[Tensor([0, 0, 2, -3])].sum().gradient(x)[0].tolist() == [3.0, 0.0, 1.0]
    assert x[::-2].sum().gradient(x)[0].tolist() == [1.0, 0.0, 1.0]


def test_gradients_pass_through_writes() -> None:
    x, y = Tensor([1.0, 2.0, 3.0]), Tensor([5.0, 6.0])
    z = x * 2
    z[1:] = y * 3
    found = (z * z).sum().gradient(x, y)
    assert found[0].tolist() == [8.0, 0.0, 0.0]
    assert found[1].tolist() == [90.0, 108.0]
    z = x * 2
    z[Tensor([0, 2])] = y
    found = z.sum().gradient(x, y)
    assert [each.tolist() for each in found] == [[0.0, 2.0, 0.0], [1.0, 1.0]]


def test_writes_happen_as_if_the_right_side_was_read_first() -> None:
    want, got = np.arange(12).reshape(4, 3), Tensor(np.arange(12).reshape(4, 3)).realize()
    want[1:], got[1:] = want[:-1].copy(), got[:-1]
    want[:, :], got[:, :] = want[::-1, ::-1].copy(), got[::-1, ::-1]
    want[:3], got[:3] = want[:3].T.copy(), got[:3].T
    got[1:3] += 5
    want[1:3] += 5
    same(got, want)


def test_masks_have_the_sizes_of_the_axes_they_choose_from() -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    for mask in ([True], [True, False, True], [[True, False]]):
        with pytest.raises(IndexingError, match="a mask of the shape"):
            x[Tensor(mask)]
        with pytest.raises(IndexingError, match="a mask of the shape"):
            x[Tensor(mask)] = 1.0
    assert x[..., Tensor([False, True])].tolist() == [[2.0], [4.0]]


def test_narrow_indices_count_from_the_end_of_long_axes() -> None:
    x = Tensor(np.arange(300))
    assert x[Tensor([-1, 127], dtype=dtypes.int8)].tolist() == [299, 127]
    assert x[Tensor([255], dtype=dtypes.uint8)].tolist() == [255]
