"""Factors multiply to the matrix, have the form that their name says, and derivatives."""

from collections.abc import Callable

import numpy as np
import pytest

from kernelet.base.errors import ArgumentError, ShapeError
from kernelet.frontend.tensor import Tensor


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def positive(*shape: int) -> np.ndarray:
    x = values(*shape)
    return x @ x.swapaxes(-1, -2) + np.eye(shape[-1])


def close(got: Tensor, want: object) -> None:
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-6, atol=1e-6)


SQUARES = [(1, 1), (3, 3), (2, 4, 4), (0, 0)]


@pytest.mark.parametrize("shape", SQUARES)
def test_solutions_are_those_of_numpy(shape: tuple[int, ...]) -> None:
    x, y = values(*shape), values(*shape[:-1], 2)
    close(Tensor(x).solve(Tensor(y)), np.linalg.solve(x, y))
    close(Tensor(x).solve(Tensor(y[..., 0])), np.linalg.solve(x, y)[..., 0])
    close(Tensor(x).inverse(), np.linalg.inv(x))


def test_as_many_matrices_as_rows_are_not_taken_for_vectors() -> None:
    x = values(2, 2, 2)
    close(Tensor(x).inverse(), np.linalg.inv(x))


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("shape", SQUARES)
def test_triangles_are_solved_without_a_look_at_the_rest(
    shape: tuple[int, ...], upper: bool
) -> None:
    x, y = values(*shape) + 3 * np.eye(shape[-1]), values(*shape[:-1], 2)
    triangle = np.triu(x) if upper else np.tril(x)
    close(Tensor(x).solve_triangular(Tensor(y), upper=upper), np.linalg.solve(triangle, y))
    side = y.swapaxes(-1, -2)
    want = np.linalg.solve(triangle.swapaxes(-1, -2), y).swapaxes(-1, -2)
    close(Tensor(x).solve_triangular(Tensor(side), upper=upper, left=False), want)
    ones = triangle / 4
    ones[..., range(shape[-1]), range(shape[-1])] = 1
    got = Tensor(x / 4).solve_triangular(Tensor(y), upper=upper, unitriangular=True)
    close(got, np.linalg.solve(ones, y))


@pytest.mark.parametrize("shape", SQUARES)
def test_the_root_of_a_positive_matrix_is_that_of_numpy(shape: tuple[int, ...]) -> None:
    x = positive(*shape)
    want = np.linalg.cholesky(x)
    close(Tensor(np.tril(x)).cholesky(), want)
    close(Tensor(x).cholesky(upper=True), want.swapaxes(-1, -2))


@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 2, 3), (1, 3), (3, 1), (0, 2), (2, 0)])
def test_reflections_have_the_signs_of_numpy(shape: tuple[int, ...], mode: str) -> None:
    x = values(*shape)
    for got, want in zip(Tensor(x).qr(mode), np.linalg.qr(x, mode), strict=True):  # type: ignore[arg-type]
        close(got, want)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (2, 2, 3)])
def test_singular_values_and_vectors_rebuild_the_matrix(shape: tuple[int, ...], full: bool) -> None:
    x = values(*shape)
    left, found, right = (each.numpy() for each in Tensor(x).svd(full))
    want = np.linalg.svd(x, full)
    assert [each.shape for each in (left, found, right)] == [each.shape for each in want]
    np.testing.assert_allclose(found, want[1], rtol=1e-5)
    size = min(shape[-2:])
    rebuilt = left[..., :size] * found[..., None, :] @ right[..., :size, :]
    np.testing.assert_allclose(rebuilt, x, atol=1e-6)
    for each in (left.swapaxes(-1, -2), right):
        one = np.broadcast_to(np.eye(each.shape[-2]), (*shape[:-2], *each.shape[-2:-1] * 2))
        np.testing.assert_allclose(each @ each.swapaxes(-1, -2), one, atol=1e-6)


def test_vectors_of_a_matrix_of_low_rank_are_whole() -> None:
    left, found, right = Tensor(np.ones((3, 2))).svd()
    np.testing.assert_allclose(found.numpy(), [np.sqrt(6), 0], atol=1e-6)
    np.testing.assert_allclose((left.mT @ left).numpy(), np.eye(3), atol=1e-6)
    np.testing.assert_allclose((right @ right.mT).numpy(), np.eye(2), atol=1e-6)


def test_halves_are_factored_in_float32() -> None:
    x = positive(3, 3).astype(np.float16)
    found = Tensor(x).cholesky()
    assert found.numpy().dtype == np.float16
    want = np.linalg.cholesky(x.astype(np.float32))
    np.testing.assert_allclose(found.numpy(), want, rtol=2e-3, atol=1e-3)


def test_a_polynomial_of_singular_values_leads_to_an_orthogonal_matrix() -> None:
    for shape in ((3, 2), (2, 3)):
        x = values(*shape)
        left, _, right = np.linalg.svd(x, full_matrices=False)
        close(Tensor(x).newton_schulz(20, (1.5, -0.5)), left @ right)


SIDES = values(3, 2)
SLOPES: dict[str, tuple[Callable[[Tensor], Tensor], np.ndarray]] = {
    "solve": (lambda x: x.solve(Tensor(SIDES)), values(3, 3)),
    "right side": (lambda x: Tensor(positive(3, 3)).solve(x), SIDES),
    "lower": (lambda x: x.solve_triangular(Tensor(SIDES), upper=False), positive(3, 3)),
    "cholesky": (lambda x: (x + x.mT).cholesky(), positive(3, 3)),
    "qr": (lambda x: Tensor.cat(*x.qr(), dim=-2), values(3, 2)),
    "wide qr": (lambda x: Tensor.cat(*x.qr(), dim=-1), values(2, 3)),
    "svd": (lambda x: Tensor.cat(*[part.abs().flatten(1) for part in x.svd(False)], dim=1), SIDES),
}
STEP = 1e-5


def check(function: Callable[[Tensor], Tensor], x: np.ndarray) -> None:
    """Compare the slope of a weighted sum along one direction with a central difference."""
    direction = values(*x.shape, 1)[..., 0]
    moved = Tensor(np.stack([x, x + STEP * direction, x - STEP * direction]))
    found = function(moved)
    weights = values(*found.shape[1:], 1)[..., 0]
    slope = (found * Tensor(weights)).sum().gradient(moved)[0].numpy()[0]
    _, above, below = (found.numpy() * weights).reshape(3, -1).sum(1)
    np.testing.assert_allclose((slope * direction).sum(), (above - below) / (2 * STEP), rtol=1e-5)


@pytest.mark.parametrize("name", SLOPES)
def test_slopes_are_those_of_finite_differences(name: str) -> None:
    check(*SLOPES[name])


@pytest.mark.parametrize("name", ["lower", "cholesky", "qr"])
def test_slopes_have_slopes(name: str) -> None:
    function, x = SLOPES[name]
    check(lambda at: (function(at) ** 3).sum().gradient(at)[0], x)


def test_matrices_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"solve: .*\(2, 3\).*square"):
        Tensor(values(2, 3)).solve(Tensor(values(2)))
    with pytest.raises(ShapeError, match=r"solve: shape \(3, 1\).*\(2, 2\)"):
        Tensor(values(2, 2)).solve(Tensor(values(3)))
    with pytest.raises(ShapeError, match="qr: .*2 or more axes"):
        Tensor(values(2)).qr()
    with pytest.raises(ArgumentError, match="full"):
        Tensor(values(2, 2)).qr("full")  # type: ignore[arg-type]
