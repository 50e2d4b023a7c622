"""Derivatives of composed methods agree with finite differences."""

from collections.abc import Callable

import numpy as np
import pytest

from kernelet import nn
from kernelet.frontend.tensor import Tensor

STEP = 1e-5


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def check(function: Callable[[Tensor], Tensor], x: np.ndarray) -> None:
    """Compare the slope of a weighted sum of the result with central differences."""
    weights = values(*function(Tensor(x)).shape, seed=9)

    def total(at: Tensor) -> Tensor:
        return (function(at) * Tensor(weights)).sum()

    leaf = Tensor(x)
    slope = total(leaf).gradient(leaf)[0].numpy()
    moves = STEP * np.eye(x.size).reshape(-1, *x.shape)
    # All moved points in one go: the results are computed by the same few kernels.
    above = [total(Tensor(x + move)) for move in moves]
    below = [total(Tensor(x - move)) for move in moves]
    Tensor.realize(*above, *below)
    pairs = zip(above, below, strict=True)
    want = np.array([(high.item() - low.item()) / (2 * STEP) for high, low in pairs])
    np.testing.assert_allclose(slope, want.reshape(x.shape), rtol=1e-5, atol=1e-6)


W, IMAGE = values(2, 1, 2, 2, seed=1), values(1, 1, 3, 4, seed=2)
KEYS, MANY = values(3, 2, seed=3), values(40, seed=4)
LABELS = Tensor([1, 0])

CASES: dict[str, tuple[Callable[[Tensor], Tensor], np.ndarray]] = {
    "prod": (lambda x: x.prod(1), values(2, 3)),
    "max": (lambda x: x.max(0), values(2, 3)),
    "min": (lambda x: x.min(), values(2, 3)),
    "var": (lambda x: x.var(1), values(2, 3)),
    "std": (lambda x: x.std(), values(2, 3)),
    "norm": (lambda x: x.norm(2, 1), values(2, 3)),
    "norm 3": (lambda x: x.norm(3), values(2, 3)),
    "softmax": (lambda x: x.softmax(), values(2, 3)),
    "log_softmax": (lambda x: x.log_softmax(0), values(2, 3)),
    "logsumexp": (lambda x: x.logsumexp(1), values(2, 3)),
    "cumsum": (lambda x: x.cumsum(0), values(34)),
    "cumprod": (lambda x: x.cumprod(1), values(2, 3)),
    "cummax": (lambda x: x.cummax(0)[0], values(5)),
    "logcumsumexp": (lambda x: x.logcumsumexp(0), values(5)),
    "sort": (lambda x: x.sort()[0], values(5)),
    "topk": (lambda x: x.topk(2)[0], values(2, 3)),
    "matmul": (lambda x: x @ Tensor(KEYS), values(2, 3)),
    "einsum": (lambda x: Tensor.einsum("ii,ij->j", x, x), values(3, 3)),
    "attention": (
        lambda x: x.scaled_dot_product_attention(Tensor(KEYS), Tensor(KEYS), is_causal=True),
        values(3, 2),
    ),
    "conv2d": (lambda x: x.conv2d(Tensor(W), padding=1), IMAGE),
    "conv2d stride": (lambda x: x.conv2d(Tensor(W), stride=2, padding=1), IMAGE),
    "conv2d weight": (lambda x: Tensor(IMAGE).conv2d(x, padding=1), W),
    "conv_transpose2d": (lambda x: x.conv_transpose2d(Tensor(W[:1]), stride=2), IMAGE),
    "max_pool2d": (lambda x: x.max_pool2d(2, 1, padding=1), IMAGE),
    "avg_pool2d": (lambda x: x.avg_pool2d(2, ceil_mode=True), IMAGE),
    "interpolate": (lambda x: x.interpolate((5,)), values(1, 2, 3)),
    "layernorm": (lambda x: x.layernorm(), values(2, 3)),
    "rms_norm": (nn.RMSNorm(3), values(2, 3)),
    "cross_entropy": (lambda x: x.cross_entropy(LABELS, label_smoothing=0.1), values(2, 3)),
    "bce": (lambda x: x.binary_crossentropy_logits(Tensor([0.3, 1.0])), values(2)),
    "huber": (lambda x: x.huber_loss(Tensor([0.1, 2.0])), values(2)),
}


@pytest.mark.parametrize("name", CASES)
def test_slopes_are_those_of_finite_differences(name: str) -> None:
    function, x = CASES[name]
    check(function, x)


def test_a_long_running_sum_passes_gradients_back() -> None:
    leaf = Tensor(np.ones(300, np.float32))
    slope = leaf.cumsum(0).sum().gradient(leaf)[0].numpy()
    np.testing.assert_allclose(slope, np.arange(300, 0, -1), rtol=1e-5)


def test_equal_elements_have_no_slope_in_their_deviation() -> None:
    leaf = Tensor([3.0, 3.0, 3.0])
    assert leaf.std().gradient(leaf)[0].tolist() == [0, 0, 0]
    zero = Tensor([0.0, 0.0])
    assert zero.norm().gradient(zero)[0].tolist() == [0, 0]


def test_masked_rows_have_no_slope() -> None:
    leaf = Tensor([[-np.inf, -np.inf], [0.0, -np.inf]])
    assert leaf.logsumexp(1).sum().gradient(leaf)[0].tolist() == [[0, 0], [1, 0]]
    zero = Tensor([0.0, 1.0])
    loss = zero.binary_crossentropy(Tensor([1.0, 1.0]), "sum")
    assert loss.gradient(zero)[0].tolist() == [0, -1]
