"""Attention is its formula, for masks of every kind and lengths that are bound later."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from kernelet.base.counters import GlobalCounters
from kernelet.base.dtype import DType, dtypes
from kernelet.base.errors import ShapeError
from kernelet.frontend.tensor import Tensor
from kernelet.graph.uop import UOp
from kernelet.runtime import device


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def attended(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, added: object = 0.0, scale: float | None = None
) -> np.ndarray:
    wide = scale if scale is not None else 1 / math.sqrt(q.shape[-1])
    scores = q.astype(np.float64) @ np.swapaxes(k, -1, -2) * wide + added
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def close(got: Tensor, want: np.ndarray) -> None:
    assert got.shape == want.shape
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-5)


Q, K, V = values(2, 3, 4, 8), values(2, 3, 5, 8, seed=1), values(2, 3, 5, 6, seed=2)


def test_attention_is_a_weighted_mean() -> None:
    close(Tensor(Q).scaled_dot_product_attention(Tensor(K), Tensor(V)), attended(Q, K, V))
    got = Tensor(Q).scaled_dot_product_attention(Tensor(K), Tensor(V), scale=0.1)
    close(got, attended(Q, K, V, scale=0.1))


def test_causal_queries_see_the_keys_up_to_them() -> None:
    hidden = np.where(np.tri(4, 5), 0, -np.inf)
    got = Tensor(Q).scaled_dot_product_attention(Tensor(K), Tensor(V), is_causal=True)
    close(got, attended(Q, K, V, hidden))


def test_masks_are_allowed_keys_or_added_numbers() -> None:
    allowed = np.random.default_rng(3).random((4, 5)) < 0.7
    allowed[:, 0] = True
    got = Tensor(Q).scaled_dot_product_attention(Tensor(K), Tensor(V), Tensor(allowed))
    close(got, attended(Q, K, V, np.where(allowed, 0, -np.inf)))
    added = values(2, 1, 4, 5, seed=4)
    got = Tensor(Q).scaled_dot_product_attention(Tensor(K), Tensor(V), attn_mask=Tensor(added))
    close(got, attended(Q, K, V, added))


def test_a_query_that_sees_nothing_gets_zeros_and_no_gradient() -> None:
    allowed = np.ones((4, 5), bool)
    allowed[2] = False
    query = Tensor(Q)
    got = query.scaled_dot_product_attention(Tensor(K), Tensor(V), Tensor(allowed))
    assert (got.numpy()[:, :, 2] == 0).all()
    slope = got.sum().gradient(query)[0].numpy()
    assert (slope[:, :, 2] == 0).all()
    assert np.isfinite(slope).all()


def test_a_row_without_anything_left_is_zeros_in_a_masked_softmax() -> None:
    x = Tensor(values(3, 4))
    mask = np.array([[True, False, True, True], [False] * 4, [False, True, False, False]])
    found = x.masked_softmax(Tensor(mask))
    left = np.where(mask, np.exp(x.numpy()), 0)
    want = left / np.maximum(left.sum(-1, keepdims=True), 1e-30)
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-5)
    (gradient,) = (found * Tensor(values(3, 4, seed=1))).sum().gradient(x)
    assert np.isfinite(gradient.numpy()).all()
    assert gradient.numpy()[1].tolist() == [0.0] * 4
    added = Tensor(np.where(mask, 0, -np.inf).astype(np.float32))
    np.testing.assert_allclose(x.masked_softmax(added).numpy(), want, rtol=1e-5)


def test_heads_share_keys_and_values() -> None:
    query = values(2, 6, 4, 8, seed=5)
    got = Tensor(query).scaled_dot_product_attention(Tensor(K), Tensor(V), enable_gqa=True)
    close(got, attended(query, K.repeat(2, 1), V.repeat(2, 1)))
    with pytest.raises(ShapeError, match=r"\(2, 3, .*as many of 4 query heads"):
        Tensor.ones(2, 4, 4, 8).scaled_dot_product_attention(Tensor(K), Tensor(V), enable_gqa=True)


def test_halves_are_computed_in_float32() -> None:
    halves = [Tensor(each).half() for each in (Q, K, V)]
    got = halves[0].scaled_dot_product_attention(*halves[1:])
    assert got.dtype is dtypes.half
    want = attended(*(each.numpy().astype(np.float32) for each in halves))
    np.testing.assert_allclose(got.numpy(), want, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("length", [1, 3, 5])
def test_the_number_of_keys_may_be_bound_later(length: int) -> None:
    bound = UOp.variable("length", 1, 5).bind(length)
    key, value = Tensor(K).realize()[:, :, :bound], Tensor(V).realize()[:, :, :bound]
    got = Tensor(Q).scaled_dot_product_attention(key, value)
    close(got, attended(Q, K[:, :, :length], V[:, :, :length]))


def test_dropout_acts_in_training_only() -> None:
    query, key, value = Tensor(Q), Tensor(K), Tensor(V)
    close(query.scaled_dot_product_attention(key, value, dropout_p=0.5), attended(Q, K, V))
    with Tensor.train():
        got = query.scaled_dot_product_attention(key, value, dropout_p=0.5)
        assert not np.allclose(got.numpy(), attended(Q, K, V))


def test_widths_and_lengths_must_fit() -> None:
    with pytest.raises(ShapeError, match=r"query \(2, 3, 4, 8\), key \(2, 3, 5, 7\)"):
        Tensor(Q).scaled_dot_product_attention(Tensor.ones(2, 3, 5, 7), Tensor(V))


# ---- one kernel ----


@pytest.fixture
def native() -> str:
    """A device that runs machine code: the Python device takes minutes for large tensors."""
    for name in ("LLVM", "CPU"):
        if not device.driver(name).problem():
            return name
    pytest.skip("no device runs machine code")


def launches(ask: Callable[[], Tensor]) -> tuple[Tensor, int, int]:
    """The result, the number of kernels, and the most bytes held beyond what was held before."""
    GlobalCounters.reset()
    before = GlobalCounters.mem_used
    found = ask().realize()
    return found, GlobalCounters.kernel_count, GlobalCounters.peak_mem - before


@pytest.mark.parametrize("is_causal", [False, True])
def test_long_attention_is_one_kernel_and_takes_memory_for_its_result_alone(
    is_causal: bool, native: str
) -> None:
    q, k, v = (values(1, 8192, 8, seed=seed) for seed in range(3))
    given = [Tensor(x, device=native).realize() for x in (q, k, v)]
    got, count, peak = launches(
        lambda: given[0].scaled_dot_product_attention(*given[1:], is_causal=is_causal)
    )
    assert count == 1
    assert peak <= 2 * q.nbytes
    rows = np.array([0, 1, 31, 32, 4097, 8191])
    hidden = np.arange(8192)[None] > rows[:, None]
    added = np.where(hidden, -np.inf, 0.0) if is_causal else 0.0
    np.testing.assert_allclose(
        got.numpy()[0, rows], attended(q[0, rows], k[0], v[0], added), rtol=1e-4, atol=1e-5
    )


def test_attention_written_by_hand_is_one_kernel(native: str) -> None:
    q, k, v = (values(2, 300, 32, seed=seed) for seed in range(3))
    added = values(300, 300, seed=3)
    given = [Tensor(x, device=native).realize() for x in (q, k, v, added)]

    def ask() -> Tensor:
        scores = given[0] @ given[1].transpose(-2, -1) / math.sqrt(32) + given[3]
        return scores.softmax(-1) @ given[2]

    got, count, _ = launches(ask)
    assert count == 1
    close(got, attended(q, k, v, added))


def test_heads_cut_from_one_projection_and_joined_again_are_one_kernel(native: str) -> None:
    packed = values(2, 200, 3, 2, 32)
    whole = Tensor(packed, device=native).realize()

    def ask() -> Tensor:
        q, k, v = (whole[:, :, part].transpose(1, 2) for part in range(3))
        found = q.scaled_dot_product_attention(k, v, is_causal=True)
        return found.transpose(1, 2).reshape(2, 200, 64)

    got, count, _ = launches(ask)
    assert count == 1
    q, k, v = (packed[:, :, part].swapaxes(1, 2) for part in range(3))
    want = attended(q, k, v, np.triu(np.full((200, 200), -np.inf), 1))
    close(got, want.swapaxes(1, 2).reshape(2, 200, 64))


@pytest.mark.parametrize("length", [1, 2, 31, 33, 257])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16, dtypes.bfloat16])
def test_attention_of_any_length_and_type(length: int, dtype: DType, native: str) -> None:
    arrays = [values(2, 2, length, 16, seed=seed) for seed in range(3)]
    given = [Tensor(x, device=native).cast(dtype).realize() for x in arrays]
    got = given[0].scaled_dot_product_attention(*given[1:], is_causal=True)
    added = np.triu(np.full((length, length), -np.inf), 1)
    want = attended(*[x.cast(dtypes.float32).numpy() for x in given], added)
    assert got.dtype is dtype
    worst = np.abs(got.cast(dtypes.float32).numpy() - want).max()
    assert worst < {4: 1e-5, 2: 2e-2}[dtype.itemsize]
