"""Formulas that name axes: einsum agrees with numpy, rearrange with reshape and transpose."""

import numpy as np
import pytest

from kernelet.base.dtype import dtypes
from kernelet.base.errors import ArgumentError, ShapeError
from kernelet.frontend.labels import parse_equation, parse_groups
from kernelet.frontend.tensor import Tensor


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def close(got: Tensor, want: object) -> None:
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-5)


# ---- rearrange ----

X = np.arange(48).reshape(2, 6, 4)
ORDERS = [
    ("a b c -> c a b", {}, X.transpose(2, 0, 1)),
    ("b (h w) c -> b c h w", {"h": 2}, X.reshape(2, 2, 3, 4).transpose(0, 3, 1, 2)),
    ("... c -> c ...", {}, X.transpose(2, 0, 1)),
    ("b ... -> (... b)", {}, X.transpose(1, 2, 0).reshape(-1)),
    ("b ... c->(... c) 1 b ()", {}, X.transpose(1, 2, 0).reshape(24, 1, 2, 1)),
    ("a (b d) (c e) -> (a d e) (b c)", {"d": 3, "c": 4}, None),
]


@pytest.mark.parametrize(("formula", "sizes", "want"), ORDERS)
def test_axes_are_split_ordered_and_merged(formula: str, sizes: dict, want: object) -> None:
    if want is None:
        want = X.reshape(2, 2, 3, 4, 1).transpose(0, 2, 4, 1, 3).reshape(6, 8)
    got = Tensor(X).rearrange(formula, **sizes)
    assert got.tolist() == np.asarray(want).tolist()


@pytest.mark.parametrize(
    ("formula", "sizes", "why"),
    [
        ("a b -> b a", {}, "names 2 axes and the tensor has 3"),
        ("a b c", {}, "one '->'"),
        ("a b c -> a b", {}, "different axes"),
        ("a b c -> a b c c", {}, "one twice"),
        ("a (b d) c -> a b c d", {}, r"does not split into parts of sizes \[-1, -1\]"),
        ("a (b d) c -> a b c d", {"b": 4}, "does not split"),
        ("a b c -> a b c", {"b": 5}, "does not split"),
        ("a b c -> c b a", {"q": 2}, "no axis q"),
        ("a, b c -> b", {}, "is not made of names"),
        ("a (b (d)) c -> a b c d", {}, "is not made of names"),
    ],
)
def test_orders_that_make_no_sense_are_refused(formula: str, sizes: dict, why: str) -> None:
    with pytest.raises((ArgumentError, ShapeError), match=f"rearrange '.*{why}"):
        Tensor(X).rearrange(formula, **sizes)


def test_others_are_numbered_under_the_ellipsis() -> None:
    assert parse_groups("a ... -> ... a", 3) == (
        [("a",), ("_0",), ("_1",)],
        [("_0",), ("_1",), ("a",)],
    )


# ---- einsum ----

FORMULAS = [
    ("iij->ij", [(3, 3, 4)]),
    ("iij->i", [(3, 3, 4)]),
    ("iij,j->i", [(3, 3, 4), (4,)]),
    ("ii", [(3, 3)]),
    ("ii->i", [(3, 3)]),
    ("iii->i", [(2, 2, 2)]),
    ("iij,ii->j", [(3, 3, 4), (3, 3)]),
    ("...ij,j->...i", [(2, 3, 4), (4,)]),
    ("i...->...", [(3, 4)]),
    ("...,...", [(2, 3), (3,)]),
    ("ba", [(3, 4)]),
    ("ij,jk", [(3, 4), (4, 2)]),
    ("i,j,k->kij", [(2,), (3,), (4,)]),
    ("abc,abd,ce->de", [(2, 3, 4), (2, 3, 5), (4, 2)]),
    ("i,i->", [(4,), (4,)]),
    ("ij->", [(3, 4)]),
    ("b...d, b...d -> b...", [(2, 3, 4), (2, 3, 4)]),
]


@pytest.mark.parametrize(("formula", "shapes"), FORMULAS)
def test_einsum_is_that_of_numpy(formula: str, shapes: list) -> None:
    arrays = [values(*shape) for shape in shapes]
    tensors = [Tensor(array) for array in arrays]
    close(Tensor.einsum(formula, *tensors), np.einsum(formula, *arrays))
    close(Tensor.einsum(formula, tensors), np.einsum(formula, *arrays))


def test_einsum_of_halves_rounds_once() -> None:
    x = Tensor([1.0] * 3000, dtype=dtypes.half)
    result = Tensor.einsum("i,i->", x, x)
    assert result.dtype is dtypes.half
    assert result.item() == 3000


# ---- formulas of einsum ----


def test_letters_that_occur_once_are_the_output() -> None:
    assert parse_equation("kj,ji", [(2, 3), (3, 4)])[1] == ("i", "k")
    assert parse_equation("ii", [(3, 3)])[1] == ()


def test_axes_under_the_ellipsis_count_from_the_last() -> None:
    found = parse_equation("a...,...b->...ab", [(2, 3, 4), (4, 5)])
    assert found == ([("a", -2, -1), (-1, "b")], (-2, -1, "a", "b"))
    assert parse_equation("...a->a...", [(5, 2)])[1] == ("a", -1)
    assert parse_equation("a...", [(2, 3)])[1] == (-1, "a")


def test_an_explicit_output_without_ellipsis_sums_over_it() -> None:
    assert parse_equation("...a->a", [(5, 2)])[1] == ("a",)


@pytest.mark.parametrize(
    ("formula", "shapes", "why"),
    [
        ("ij,jk", [(2, 3)], "2 operands and 1"),
        ("ij->k", [(2, 3)], "no input has it"),
        ("ij->ii", [(2, 3)], "twice"),
        ("i2", [(2, 3)], "letter"),
        ("ij->i*", [(2, 3)], "letters"),
    ],
)
def test_formulas_that_make_no_sense_are_refused(formula: str, shapes: list, why: str) -> None:
    with pytest.raises(ArgumentError, match=why):
        parse_equation(formula, shapes)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"names 2 axes.*\(3, 3, 4\)"):
        parse_equation("ij", [(3, 3, 4)])
    with pytest.raises(ShapeError, match="'j' has sizes 3 and 4"):
        parse_equation("ij,jk", [(3, 3), (4, 1)])
    with pytest.raises(ShapeError, match="under '...'"):
        parse_equation("...,...", [(3,), (4,)])
