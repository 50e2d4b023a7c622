"""Products agree with numpy, for every combination of axes, and refuse what does not fit."""

import numpy as np
import pytest

from kernelet.base.dtype import dtypes
from kernelet.base.errors import ShapeError
from kernelet.frontend.tensor import Tensor


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape) + 1).standard_normal(shape).astype(np.float32)


def close(got: Tensor, want: object) -> None:
    found, expected = got.numpy(), np.asarray(want)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


SHAPES = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((2, 1, 2, 3), (5, 3, 4)),
    ((3,), (5, 3, 4)),
    ((5, 2, 3), (3,)),
    ((1, 1), (1, 1)),
    ((2, 0), (0, 3)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_matrix_products_are_those_of_numpy(left: tuple, right: tuple) -> None:
    x, y = values(*left), values(*right)
    close(Tensor(x) @ Tensor(y), x @ y)
    close(Tensor(x).dot(Tensor(y)), x @ y)
    close(Tensor(y).matmul(Tensor(x), reverse=True), x @ y)


@pytest.mark.parametrize(
    ("left", "right"), [((2, 3), (4, 5)), ((3,), (4,)), ((2, 2, 3), (3, 3, 4)), ((), (3,))]
)
def test_what_does_not_fit_shows_both_shapes(left: tuple, right: tuple) -> None:
    with pytest.raises(ShapeError) as error:
        Tensor.zeros(*left) @ Tensor.zeros(*right)
    assert str(left) in str(error.value)
    assert str(right) in str(error.value)


def test_halves_multiply_and_add_up_in_float32() -> None:
    x = values(3, 300).astype(np.float16)
    wide = x.astype(np.float32)
    got = Tensor(x) @ Tensor(x).T
    assert got.dtype is dtypes.half
    want = (wide.astype(np.float64) @ wide.T.astype(np.float64)).astype(np.float16)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-3)
    assert (Tensor(x) @ Tensor(x).T.float()).dtype is dtypes.float32
    assert Tensor(x).matmul(Tensor(x).T, dtype="float32").dtype is dtypes.float32


def test_products_of_integers_keep_their_type_and_wrap() -> None:
    x = np.random.default_rng(0).integers(-100, 100, (3, 4)).astype(np.int8)
    got = Tensor(x) @ Tensor(x.T.copy())
    assert got.dtype is dtypes.int8
    assert (got.numpy() == x @ x.T).all()


def test_named_products() -> None:
    x, y, v = values(2, 3), values(3, 4), values(3)
    close(Tensor(x).mm(Tensor(y)), x @ y)
    close(Tensor(x).mv(Tensor(v)), x @ v)
    close(Tensor(values(2, 2, 3)).bmm(Tensor(values(2, 3, 2))), values(2, 2, 3) @ values(2, 3, 2))
    bias = values(2, 4)
    close(Tensor(bias).addmm(Tensor(x), Tensor(y), beta=0.5, alpha=2), bias * 0.5 + 2 * (x @ y))
    close(Tensor(bias).addmm(Tensor(x), Tensor(y)), bias + x @ y)
    close(Tensor(x).outer(Tensor(v)), np.outer(x, v))
    close(Tensor(x).inner(Tensor(v)), np.inner(x, v))
    close(Tensor(values(3, 3)).trace(), np.trace(values(3, 3)))
    with pytest.raises(ShapeError, match="bmm"):
        Tensor(x).bmm(Tensor(y))
    with pytest.raises(ShapeError, match="trace"):
        Tensor(v).trace()


def test_linear_scales_by_a_vector_and_multiplies_by_a_matrix() -> None:
    x, w, b = values(2, 3), values(3, 4), values(4)
    close(Tensor(x).linear(Tensor(w), Tensor(b)), x @ w + b)
    close(Tensor(x).linear(Tensor(w)), x @ w)
    close(Tensor(x).linear(Tensor(values(3))), x * values(3))
    assert Tensor(x).linear(Tensor(w), Tensor(b), "float64").dtype is dtypes.float64


@pytest.mark.parametrize("dims", [0, 1, 2, ((0, 1), (1, 0)), ((0,), (-1,))])
def test_tensordot_is_that_of_numpy(dims: object) -> None:
    x, y = values(3, 4, 4), values(4, 4, 3)
    if dims == ((0, 1), (1, 0)):
        y = values(4, 3, 2)
    close(Tensor(x).tensordot(Tensor(y), dims), np.tensordot(x, y, dims))


def test_tensordot_pairs_axes_of_equal_size() -> None:
    with pytest.raises(ShapeError, match="tensordot"):
        Tensor(values(2, 3)).tensordot(Tensor(values(2, 3)), 1)


@pytest.mark.parametrize(
    "shapes", [((2, 3), (4, 5)), ((3,), (2, 2)), ((2, 1, 3), (2,)), ((), (2,))]
)
def test_kron_is_that_of_numpy(shapes: tuple) -> None:
    x, y = (values(*shape) for shape in shapes)
    close(Tensor(x).kron(Tensor(y)), np.kron(x, y))
