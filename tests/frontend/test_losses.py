"""Losses are their formulas, with weights, ignored targets and smoothing."""

import math

import numpy as np
import pytest

from kernelet.base.errors import ArgumentError, DTypeError, ShapeError
from kernelet.frontend.tensor import Tensor

REDUCTIONS = {"mean": np.mean, "sum": np.sum, "none": lambda each: each}


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def shares(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).uniform(0.05, 0.95, shape).astype(np.float32)


def close(got: Tensor, want: object) -> None:
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-5)


def log_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    wide = x.astype(np.float64)
    return wide - np.log(np.exp(wide).sum(axis, keepdims=True))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_distances(reduction: str) -> None:
    x, y = values(4, 3), values(3, 4).reshape(4, 3) * 2
    fold, away = REDUCTIONS[reduction], np.abs(x - y)
    close(Tensor(x).mse_loss(Tensor(y), reduction), fold(away**2))
    close(Tensor(x).l1_loss(Tensor(y), reduction), fold(away))
    huber = np.where(away < 0.5, away**2 / 2, 0.5 * (away - 0.25))
    close(Tensor(x).huber_loss(Tensor(y), reduction, 0.5), fold(huber))
    close(Tensor(x).smooth_l1_loss(Tensor(y), reduction, 0.5), fold(huber / 0.5))
    close(Tensor(x).smooth_l1_loss(Tensor(y), reduction, 0), fold(away))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_probabilities(reduction: str) -> None:
    p, y, z = shares(4, 3), shares(3, 4).reshape(4, 3), values(4, 3) * 5
    fold = REDUCTIONS[reduction]
    close(
        Tensor(p).binary_crossentropy(Tensor(y), reduction),
        fold(-y * np.log(p) - (1 - y) * np.log(1 - p)),
    )
    yes, no = -np.log1p(np.exp(-z)), -np.log1p(np.exp(z))
    got = Tensor(z).binary_crossentropy_logits(Tensor(y), reduction)
    close(got, fold(-y * yes - (1 - y) * no))
    weighted = Tensor(z).binary_crossentropy_logits(Tensor(y), reduction, Tensor([3.0, 1.0, 0.5]))
    close(weighted, fold(-y * yes * np.array([3, 1, 0.5]) - (1 - y) * no))


def test_certain_predictions_have_a_bounded_loss() -> None:
    p, y = Tensor([0.0, 1.0, 0.0]), Tensor([1.0, 0.0, 0.0])
    assert p.binary_crossentropy(y, "none").tolist() == [100.0, 100.0, 0.0]
    z = Tensor([1000.0, -1000.0])
    assert z.binary_crossentropy_logits(Tensor([0.0, 0.0]), "none").tolist() == [1000.0, 0.0]


def test_divergence_of_distributions() -> None:
    x, y = log_softmax(values(4, 3), 1).astype(np.float32), shares(4, 3)
    y[1] = 0
    with np.errstate(divide="ignore", invalid="ignore"):
        want = np.where(y > 0, y * (np.log(y) - x), 0)
    close(Tensor(x).kl_div(Tensor(y), "sum"), want.sum())
    close(Tensor(x).kl_div(Tensor(y), "batchmean"), want.sum() / 4)
    close(Tensor(x).kl_div(Tensor(x), log_target=True), 0.0)


SAMPLES = {"rows": ((6, 5), (6,)), "images": ((2, 5, 3), (2, 3)), "one": ((5,), ())}


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sample", SAMPLES)
def test_classes(sample: str, weighted: bool, smoothing: float) -> None:
    shape, rest = SAMPLES[sample]
    axis = min(1, len(shape) - 1)
    x, logs = values(*shape), log_softmax(values(*shape), axis)
    labels = np.random.default_rng(1).integers(0, 5, rest)
    if rest:
        labels.flat[1] = -100
    weight = shares(5) if weighted else np.ones(5)
    tall = weight.reshape(-1, *(1,) * (len(shape) - axis - 1))
    kept = labels != -100
    index = np.expand_dims(np.where(kept, labels, 0), axis)
    chosen = np.take_along_axis(logs, index, axis).squeeze(axis)
    share = np.where(kept, weight[np.where(kept, labels, 0)], 0)
    spread = np.where(kept, -(logs * tall).mean(axis), 0)
    each = -chosen * share * (1 - smoothing) + spread * smoothing
    given = Tensor(weight.astype(np.float32)) if weighted else None
    for reduction, want in [
        ("mean", each.sum() / share.sum()),
        ("sum", each.sum()),
        ("none", each),
    ]:
        got = Tensor(x).cross_entropy(Tensor(labels), reduction, smoothing, weight=given)
        close(got, want)
        if axis == len(shape) - 1 and not weighted:
            got = Tensor(x).sparse_categorical_crossentropy(
                Tensor(labels), -100, smoothing, reduction
            )
            close(got, want)
    if not smoothing:
        plain = Tensor(logs.astype(np.float32)).nll_loss(Tensor(labels), given, -100)
        close(plain, each.sum() / share.sum())


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_targets_may_be_probabilities(reduction: str) -> None:
    x, target = values(2, 5, 3), shares(2, 5, 3)
    smooth = target * 0.9 + 0.1 / 5
    each = -(smooth * log_softmax(x, 1)).sum(1)
    close(Tensor(x).cross_entropy(Tensor(target), reduction, 0.1), REDUCTIONS[reduction](each))


def test_unlikely_classes_have_a_finite_loss() -> None:
    x = Tensor([[1000.0, 0.0], [0.0, -math.inf]])
    assert x.cross_entropy(Tensor([1, 0]), "none").tolist() == [1000.0, 0.0]


def test_everything_ignored_has_no_mean() -> None:
    assert math.isnan(Tensor([[1.0, 2.0]]).cross_entropy(Tensor([-100])).item())


def test_what_does_not_fit_is_said() -> None:
    x = Tensor.ones(2, 3)
    with pytest.raises(ShapeError, match=r"shape \(3,\).*\(2,\): classes are along axis 1"):
        x.cross_entropy(Tensor([0, 1, 2]))
    with pytest.raises(DTypeError, match="float32"):
        x.cross_entropy(Tensor([0.0, 1.0]))
    with pytest.raises(ArgumentError, match="average"):
        x.cross_entropy(Tensor([0, 1]), "average")
    with pytest.raises(ArgumentError, match="label_smoothing=2"):
        x.sparse_categorical_crossentropy(Tensor([0, 1]), label_smoothing=2)


def test_the_slope_of_a_loss_of_logits_at_zero() -> None:
    x = Tensor([0.0, 0.0])
    loss = x.binary_crossentropy_logits(Tensor([1.0, 0.0]), reduction="sum")
    assert loss.gradient(x)[0].tolist() == [-0.5, 0.5]
