"""Created tensors have numpy's values, and no memory until it is needed."""

import numpy as np
import pytest

from kernelet import Variable
from kernelet.base.counters import GlobalCounters
from kernelet.base.dtype import dtypes
from kernelet.base.errors import ArgumentError, ShapeError
from kernelet.frontend.tensor import Tensor
from kernelet.graph.uop import UOp


def same(got: Tensor, want: np.ndarray) -> None:
    found = got.numpy()
    assert found.shape == want.shape
    np.testing.assert_allclose(found, want, rtol=1e-6)


def test_constants_take_shapes_in_both_spellings() -> None:
    same(Tensor.zeros(2, 3), np.zeros((2, 3)))
    same(Tensor.ones((2, 3)), np.ones((2, 3)))
    same(Tensor.full((2,), 7), np.full(2, 7))
    same(Tensor.full(2, 7.5), np.full(2, 7.5))
    assert Tensor.zeros().shape == ()
    assert Tensor.full((1,), True).dtype is dtypes.bool
    assert Tensor.ones(2, dtype="int8").dtype is dtypes.int8
    assert Tensor.zeros(0, 3).numpy().shape == (0, 3)


def test_constants_take_no_memory_when_they_are_used() -> None:
    x = Tensor([1.0, 2.0]).realize()
    before = GlobalCounters.kernel_count
    assert (x + Tensor.ones(2)).tolist() == [2.0, 3.0]
    assert GlobalCounters.kernel_count == before + 1


def test_equal_constants_have_gradients_of_their_own() -> None:
    x, y = Tensor.zeros(2), Tensor.zeros(2)
    found = (x * 2 + y * 3).sum().gradient(x, y)
    assert [each.tolist() for each in found] == [[2.0, 2.0], [3.0, 3.0]]


@pytest.mark.parametrize(
    "arguments", [(5,), (2, 7), (7, 2), (2, 9, 3), (9, 2, -3), (0, 1, 0.25), (1.5, 4), (3, 3)]
)
def test_arange_is_that_of_numpy(arguments: tuple[float, ...]) -> None:
    got = Tensor.arange(*arguments)
    same(got, np.arange(*arguments))
    whole = all(isinstance(value, int) for value in arguments)
    assert got.dtype is (dtypes.int32 if whole else dtypes.float32)


def test_arange_has_the_type_asked_for() -> None:
    assert Tensor.arange(4, dtype="half").dtype is dtypes.float16
    assert Tensor.arange(2**40, 2**40 + 2).tolist() == [2**40, 2**40 + 1]
    with pytest.raises(ArgumentError, match="step"):
        Tensor.arange(0, 3, 0)


def test_linspace_ends_exactly_at_its_ends() -> None:
    same(Tensor.linspace(-1, 2, 7), np.linspace(-1, 2, 7))
    assert Tensor.linspace(0, 0.1, 11).tolist()[-1] == float(np.float32(0.1))
    assert Tensor.linspace(3, 9, 1).tolist() == [3.0]
    assert Tensor.linspace(3, 9, 0).shape == (0,)


def test_eye_and_tri_are_those_of_numpy() -> None:
    same(Tensor.eye(3), np.eye(3))
    same(Tensor.eye(2, 4), np.eye(2, 4))
    same(Tensor.tri(3, 4, 1), np.tri(3, 4, 1))


def test_likes_follow_shape_and_type() -> None:
    x = Tensor([[1, 2]], dtype="int16")
    assert x.zeros_like().dtype is dtypes.int16
    assert x.ones_like(dtype="half").tolist() == [[1.0, 1.0]]
    assert x.full_like(9).tolist() == [[9, 9]]


def test_empty_tensors_have_a_shape() -> None:
    assert Tensor.empty(2, 3).shape == Tensor.ones(2, 3).empty_like().shape == (2, 3)


def test_shapes_may_be_bound_variables() -> None:
    n = UOp.variable("n", 1, 8).bind(3)
    assert Tensor.ones(n, 2).tolist() == [[1.0, 1.0]] * 3


def test_negative_sizes_are_refused() -> None:
    with pytest.raises(ShapeError, match="-1"):
        Tensor.zeros(2, -1)


def test_ranges_end_at_bound_variables() -> None:
    variable = Variable("n", 1, 12)
    for number in (3, 5):
        n = variable.bind(number)
        assert (Tensor.arange(n) + 0).tolist() == list(range(number))
        assert Tensor.arange(n, n + 3).tolist() == list(range(number, number + 3))
    with pytest.raises(ArgumentError, match="bound variable"):
        Tensor.arange(0, variable.bind(4), 2)


def test_empty_tensors_have_a_shape_and_a_type() -> None:
    x = Tensor.empty(2, 3, dtype=dtypes.int8)
    assert (x.shape, x.dtype) == (x.empty_like().shape, x.empty_like().dtype)
    assert x.numpy().shape == (2, 3)


def test_everything_created_follows_the_default_float(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dtypes, "default_float", dtypes.bfloat16)
    creators = (Tensor.rand, Tensor.randn, Tensor.uniform, Tensor.kaiming_uniform, Tensor.eye)
    for create in (*creators, Tensor.zeros, Tensor.ones, Tensor.empty):
        assert create(2, 2).dtype is dtypes.bfloat16
    assert Tensor.linspace(0, 1, 3).dtype is dtypes.bfloat16
