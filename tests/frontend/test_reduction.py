"""Reductions agree with numpy, widen, and survive NaN and infinities."""

import math

import numpy as np
import pytest

from kernelet.base.dtype import DType, dtypes
from kernelet.base.errors import ArgumentError, IndexingError, ShapeError
from kernelet.frontend.tensor import Tensor

AXES = [None, 0, 1, -1, (0, 2), (-1, -2)]
inf, nan = math.inf, math.nan


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def close(got: Tensor, want: object, **tolerance: float) -> None:
    found, expected = got.numpy(), np.asarray(want)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean"])
def test_reductions_are_those_of_numpy(name: str, axis: object) -> None:
    x = values(2, 3, 4)
    close(getattr(Tensor(x), name)(axis), getattr(np, name)(x, axis))
    kept = getattr(np, name)(x, axis, keepdims=True)
    close(getattr(Tensor(x), name)(axis, keepdim=True), kept)
    close(getattr(Tensor(x), name)(dim=axis), getattr(np, name)(x, axis))


@pytest.mark.parametrize("axis", AXES)
def test_moments_are_those_of_numpy(axis: object) -> None:
    x = values(2, 3, 4)
    close(Tensor(x).var(axis), x.var(axis, ddof=1))
    close(Tensor(x).var(axis, True, 0), x.var(axis, ddof=0, keepdims=True))
    close(Tensor(x).var(axis, unbiased=False), x.var(axis))
    close(Tensor(x).std(axis), x.std(axis, ddof=1))
    deviation, mean = Tensor(x).std_mean(axis)
    close(deviation, x.std(axis, ddof=1))
    close(mean, x.mean(axis))
    close(Tensor(x).var_mean(axis, True)[1], x.mean(axis, keepdims=True))


def test_variance_of_one_element_is_nan_and_without_correction_zero() -> None:
    assert math.isnan(Tensor([3.0]).var().item())
    assert Tensor([3.0]).var(correction=0).item() == 0


@pytest.mark.parametrize(
    ("data", "dtype", "total", "kind"),
    [
        ([200, 100], dtypes.uint8, 300, dtypes.uint32),
        ([100, 100, -1], dtypes.int8, 199, dtypes.int32),
        ([True] * 300, dtypes.bool, 300, dtypes.int32),
        ([1 << 40, 1], dtypes.int64, (1 << 40) + 1, dtypes.int64),
        ([1.0] * 3000, dtypes.float16, 3000.0, dtypes.float16),
        ([1.0] * 300, dtypes.bfloat16, 300.0, dtypes.bfloat16),
    ],
)
def test_sums_widen(data: list[float], dtype: object, total: float, kind: object) -> None:
    result = Tensor(data, dtype=dtype).sum()
    assert result.dtype is kind
    assert result.item() == total


def test_a_sum_takes_the_type_that_is_asked_for() -> None:
    x = Tensor([1.5, 2.5])
    assert x.sum(dtype=dtypes.int32).item() == 3
    assert x.sum(acc_dtype="float64").dtype is dtypes.float64


def test_means_of_integers_are_floats_and_halves_do_not_overflow() -> None:
    assert Tensor([200, 100], dtype=dtypes.uint8).mean().item() == 150.0
    assert Tensor.full((70000,), 1.0, dtype=dtypes.half).mean().item() == 1.0
    assert Tensor([1, 2]).mean().dtype is dtypes.float32


def test_nan_wins_extremes() -> None:
    x = Tensor([1.0, nan, 0.0])
    assert math.isnan(x.max().item())
    assert math.isnan(x.min().item())
    close(Tensor([[1.0, nan], [2.0, 3.0]]).max(1), [nan, 3.0])
    assert x.argmax().item() == 1
    assert x.argmin().item() == 1


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8, dtypes.int64, dtypes.uint64])
def test_extremes_of_integers_reach_the_ends_of_the_type(dtype: object) -> None:
    x = Tensor([3, dtype.min, dtype.max], dtype=dtype)
    assert (x.min().item(), x.max().item()) == (dtype.min, dtype.max)
    assert (x.argmin().item(), x.argmax().item()) == (1, 2)


def test_extremes_of_bools_are_any_and_all() -> None:
    x = Tensor([[True, False], [False, False]])
    assert x.max(1).tolist() == [True, False]
    assert x.min().item() is False


def test_first_of_equals_is_the_place_of_an_extreme() -> None:
    x = np.array([[1, 3, 3], [2, 2, 0]], np.float32)
    assert Tensor(x).argmax(1).tolist() == [1, 0]
    assert Tensor(x).argmax().item() == 1
    assert Tensor(x).argmin(0).tolist() == [0, 1, 1]
    assert Tensor(x).argmax(1, keepdim=True).shape == (2, 1)
    assert Tensor(x).argmax(keepdim=True).shape == (1, 1)
    assert Tensor(2.0).argmax(0).item() == 0


def test_any_all_and_count_see_nan_as_true() -> None:
    x = np.array([[0, 0, 2], [1, nan, 3]], np.float32)
    assert Tensor(x).any(0).tolist() == x.any(0).tolist()
    assert Tensor(x).all(1).tolist() == x.all(1).tolist()
    assert Tensor(x).count_nonzero(1).tolist() == [1, 3]


def test_sums_of_nothing_are_neutral_and_extremes_of_nothing_refuse() -> None:
    x = Tensor.zeros(0, 3)
    assert x.sum(0).tolist() == [0, 0, 0]
    assert x.prod().item() == 1
    assert math.isnan(x.mean().item())
    with pytest.raises(ShapeError, match=r"max.*\(0, 3\)"):
        x.max(0)
    with pytest.raises(ShapeError, match="argmin|argmax"):
        x.argmin()


def test_no_axes_change_nothing_and_scalars_reduce_to_themselves() -> None:
    assert Tensor([1.0, 2.0]).sum(()).tolist() == [1.0, 2.0]
    assert Tensor(3.0).sum().item() == 3.0
    assert Tensor(3.0).max(0).item() == 3.0


def test_an_axis_that_is_not_there_is_named() -> None:
    with pytest.raises(IndexingError, match="axis 2"):
        Tensor([[1.0]]).sum(2)
    with pytest.raises(IndexingError, match="twice"):
        Tensor([[1.0]]).sum((0, -2))


@pytest.mark.parametrize("p", [0, 1, 2, 3, 0.5, inf, -inf])
def test_norms_are_those_of_numpy(p: float) -> None:
    x = values(3, 4)
    close(Tensor(x).norm(p, 1), np.linalg.norm(x, p, 1), rtol=1e-4)


def test_norm_refuses_what_it_does_not_know() -> None:
    close(Tensor(values(3, 4)).norm("fro"), np.linalg.norm(values(3, 4)))
    with pytest.raises(ArgumentError, match="nuc"):
        Tensor([1.0]).norm("nuc")


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.fp8e4m3])
def test_rows_of_zeros_are_normalized_to_zeros_in_every_dtype(dtype: DType) -> None:
    rows = Tensor([[0.0, 0.0], [3.0, 4.0]], dtype=dtype).normalize()
    assert rows.dtype is dtype
    assert rows.float().numpy().tolist()[0] == [0.0, 0.0]
    assert rows.float().numpy()[1] == pytest.approx([0.6, 0.8], rel=0.1)


def test_normalized_rows_have_length_one() -> None:
    close(Tensor(values(3, 4)).normalize(dim=1).norm(2, 1), np.ones(3))
    assert Tensor([[0.0, 0.0]]).normalize().tolist() == [[0.0, 0.0]]


def test_softmax_and_its_relatives() -> None:
    x = values(3, 5) * 10
    wide = x.astype(np.float64)
    exponential = np.exp(wide - wide.max(1, keepdims=True))
    want = exponential / exponential.sum(1, keepdims=True)
    close(Tensor(x).softmax(), want)
    close(Tensor(x).log_softmax(1), np.log(want), rtol=1e-4)
    close(Tensor(-x).softmin(dim=-1), want)
    close(Tensor(x).logsumexp(1), np.log(np.exp(wide).sum(1)))
    assert Tensor(x).softmax(dtype=dtypes.float64).dtype is dtypes.float64
    close(Tensor([1000.0, 1000.0]).softmax(), [0.5, 0.5])


def test_logsumexp_of_masked_rows() -> None:
    x = Tensor([[1.0, 2.0], [-inf, -inf], [0.0, inf], [-inf, 3.0], [nan, 0.0]])
    close(x.logsumexp(1), [np.logaddexp(1, 2), -inf, inf, 3.0, nan])
    assert x.logsumexp(1, keepdim=True).shape == (5, 1)


def test_softmax_of_halves_is_rounded_once() -> None:
    x = values(4, 9).astype(np.float16)
    wide = x.astype(np.float64)
    exponential = np.exp(wide)
    want = (exponential / exponential.sum(-1, keepdims=True)).astype(np.float16)
    got = Tensor(x).softmax()
    assert got.dtype is dtypes.float16
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-3)


def test_the_mean_of_equal_numbers_is_that_number() -> None:
    for count in (41, 47, 82):
        assert Tensor([1.0] * count).mean().item() == 1.0


def test_all_elements_may_be_close() -> None:
    x = Tensor([1.0, nan])
    assert not x.allclose(x).item()
    assert x.allclose(Tensor([1.000001, nan]), equal_nan=True).item()


def test_softmax_of_nothing_is_nothing() -> None:
    x = Tensor.zeros(2, 0)
    assert x.softmax(1).shape == x.log_softmax(1).shape == (2, 0)
    assert x.logsumexp(1).tolist() == [-inf, -inf]


def normal(x: np.ndarray, axes: object) -> np.ndarray:
    wide = x.astype(np.float64)
    away = wide - wide.mean(axes, keepdims=True)
    return away / np.sqrt(wide.var(axes, keepdims=True) + 1e-5)


def near(got: Tensor, want: np.ndarray) -> None:
    close(got, want, rtol=1e-4, atol=1e-5)


def test_layer_norm() -> None:
    x, weight, bias = values(2, 6, 3, 4), values(4), values(4)
    near(Tensor(x).layernorm(), normal(x, -1))
    near(Tensor(x).layernorm((1, 2)), normal(x, (1, 2)))
    scaled = Tensor(x).layernorm(-1, 1e-5, Tensor(weight), Tensor(bias))
    near(scaled, normal(x, -1) * weight + bias)
    assert Tensor(x).half().layernorm().dtype is dtypes.half


def test_batch_norm_uses_the_statistics_it_is_given() -> None:
    x, mean, scale = values(2, 6, 3, 4), values(6), np.abs(values(6))
    weight, bias = values(6) + 1, values(6) * 2
    tall = [each.reshape(1, 6, 1, 1) for each in (mean, scale, weight, bias)]
    want = (x - tall[0]) * tall[1]
    near(Tensor(x).batchnorm(None, None, Tensor(mean), Tensor(scale)), want)
    whole = Tensor(x).batchnorm(*(Tensor(each) for each in (weight, bias, mean, scale)))
    near(whole, want * tall[2] + tall[3])
