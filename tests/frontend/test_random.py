"""Random numbers follow the published generator, its counters, and the shapes asked for."""

import math

import numpy as np
import pytest

from kernelet import holdings
from kernelet.base.config import Context
from kernelet.base.counters import GlobalCounters
from kernelet.base.dtype import dtypes
from kernelet.base.errors import ArgumentError, DTypeError, ShapeError
from kernelet.frontend import random
from kernelet.frontend.tensor import Tensor
from kernelet.graph.uop import UOp
from tests.reference.evaluate import evaluate_all


@pytest.fixture(autouse=True)
def seeded() -> None:
    Tensor.manual_seed(7)


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_known_answers(
    key: tuple[int, int], counter: tuple[int, int], words: tuple[int, int]
) -> None:
    """The vectors published with Random123."""
    word = [UOp.const(value, dtypes.uint32) for value in (*key, *counter)]
    pair = random.threefry((word[0], word[1]), (word[2], word[3]))
    assert [value for (value,) in evaluate_all(pair)] == list(words)


def test_a_seed_repeats_the_stream() -> None:
    first = [Tensor.rand(5).tolist(), Tensor.randn(3).tolist()]
    assert first[0] != Tensor.rand(5).tolist()
    Tensor.manual_seed(7)
    assert [Tensor.rand(5).tolist(), Tensor.randn(3).tolist()] == first


def test_the_stream_does_not_depend_on_how_it_is_cut() -> None:
    whole = Tensor.rand(6).tolist()
    Tensor.manual_seed(7)
    assert Tensor.rand(2).tolist() + Tensor.rand(4).tolist() == whole


def test_counters_carry_into_the_second_word() -> None:
    random._stream.drawn = 2**32 - 2
    late = Tensor.rand(4).tolist()
    random._stream.drawn = 2**32
    assert Tensor.rand(2).tolist() == late[2:]


def test_drawing_runs_no_kernel() -> None:
    before = GlobalCounters.kernel_count
    x = Tensor.rand(4)
    assert GlobalCounters.kernel_count == before
    x.realize()
    assert GlobalCounters.kernel_count == before + 1


def test_a_tensor_of_random_numbers_keeps_its_values() -> None:
    x = Tensor.rand(4)
    assert (x - x).tolist() == [0.0] * 4
    assert x.tolist() == x.tolist()


def test_recorded_draws_are_refilled_with_the_next_counters() -> None:
    want = [Tensor.rand(4).tolist(), Tensor.rand(4).tolist()]
    Tensor.manual_seed(7)
    recorder = holdings.Recorder()
    with holdings.recording(recorder):
        realized, lazy = Tensor.rand(4).realize(), None
    Tensor.manual_seed(7)
    with holdings.recording(recorder):
        lazy = Tensor.rand(4)
    assert [count for _, count in recorder.draws] == [4, 4]
    random.refill(recorder.draws[1:])
    assert [realized.tolist(), lazy.tolist()] == want


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_uniform_numbers_fill_their_range(dtype: str) -> None:
    x = Tensor.rand(600, dtype=dtype)
    values = x.numpy().astype(np.float64)
    assert x.dtype is dtypes.from_name(dtype)
    assert values.min() >= 0
    assert values.max() < 1
    assert abs(values.mean() - 0.5) < 0.05
    assert abs(values.var() - 1 / 12) < 0.02


def test_normal_numbers_have_their_moments() -> None:
    values = Tensor.randn(700).numpy()
    assert abs(values.mean()) < 0.15
    assert abs(values.std() - 1) < 0.1
    moved = Tensor.normal(700, mean=3.0, std=0.5).numpy()
    assert abs(moved.mean() - 3) < 0.1
    assert abs(moved.std() - 0.5) < 0.05
    assert np.isfinite(values).all()


def test_whole_numbers_fill_their_range() -> None:
    x = Tensor.randint(300, low=-2, high=3)
    assert x.dtype is dtypes.int32
    assert set(x.tolist()) == {-2, -1, 0, 1, 2}
    assert set(Tensor.randint(0, 4, (200,)).tolist()) == {0, 1, 2, 3}
    assert Tensor.randint(4, (2, 3)).shape == (2, 3)
    with pytest.raises(ArgumentError, match="randint"):
        Tensor.randint(3, low=5, high=5)


def test_bounds_of_weights_follow_the_papers() -> None:
    bound = math.sqrt(6 / ((1 + 0.01**2) * 20))
    assert 0.9 * bound < np.abs(Tensor.kaiming_uniform(30, 20).numpy()).max() <= bound
    bound = math.sqrt(6 / 50)
    assert 0.9 * bound < np.abs(Tensor.glorot_uniform(30, 20).numpy()).max() <= bound
    assert np.abs(Tensor.scaled_uniform(10, 10).numpy()).max() <= 0.1
    assert abs(Tensor.kaiming_normal(40, 20, a=0).numpy().std() - math.sqrt(2 / 20)) < 0.03
    low_high = Tensor.uniform(200, low=2, high=3).numpy()
    assert (low_high >= 2).all()
    assert (low_high < 3).all()


def test_likes_follow_shape_and_type() -> None:
    x = Tensor.zeros(2, 3, dtype="half")
    assert (x.rand_like().shape, x.rand_like().dtype) == ((2, 3), dtypes.float16)
    assert x.randn_like(dtype="float32").dtype is dtypes.float32


def test_shapes_may_be_bound_variables() -> None:
    n = UOp.variable("n", 1, 8).bind(3)
    assert len(Tensor.rand(n).tolist()) == 3  # type: ignore[arg-type]


def test_permutations_hold_every_number_once() -> None:
    order = Tensor.randperm(40).tolist()
    assert sorted(order) == list(range(40))
    assert order != list(range(40))


def test_samples_follow_the_weights() -> None:
    weights = Tensor([1.0, 0.0, 3.0])
    picks = [weights.multinomial().item() for _ in range(5)]
    assert 1 not in picks
    many = Tensor([[1.0, 0.0, 3.0], [0.0, 1.0, 0.0]]).multinomial(200, replacement=True)
    assert many.shape == (2, 200)
    first, second = many.numpy()
    assert set(second) == {1}
    assert set(first) == {0, 2}
    assert 0.6 < (first == 2).mean() < 0.9
    without = Tensor([[1.0, 2.0, 3.0, 4.0]]).multinomial(4).tolist()
    assert sorted(without[0]) == [0, 1, 2, 3]
    with pytest.raises(ShapeError, match="multinomial"):
        Tensor(1.0).multinomial()


def test_dropout_works_in_training_only() -> None:
    x = Tensor.ones(400)
    assert x.dropout(0.5) is x
    with Context(TRAINING=1):
        values = x.dropout(0.25).numpy()
        assert x.dropout(0) is x
        assert x.dropout(1).numpy().sum() == 0
    assert set(np.round(values, 4)) == {0.0, np.float32(1.3333)}
    assert 0.15 < (values == 0).mean() < 0.35
    with pytest.raises(ArgumentError, match="1.5"):
        x.dropout(1.5)


def test_rand_needs_floats() -> None:
    with pytest.raises(DTypeError, match="int32"):
        Tensor.rand(2, dtype="int32")


def test_bits_follow_key_and_counter() -> None:
    key = Tensor([7, 9], dtype="uint32")
    long = Tensor.random_bits(key, Tensor([3], dtype="uint32"), 8)
    assert long.dtype is dtypes.uint32
    assert Tensor.random_bits(key, Tensor([5], dtype="uint32"), 3).tolist() == long.tolist()[2:5]
    last = Tensor([2**32 - 1, 0], dtype="uint32")
    carried = Tensor([0, 1], dtype="uint32")
    assert (
        Tensor.random_bits(key, last, 2).tolist()[1:]
        == Tensor.random_bits(key, carried, 1).tolist()
    )
    with pytest.raises(ShapeError, match="a key of 2 words"):
        Tensor.random_bits(Tensor([1]), last, 2)


def test_chances_decide_between_zero_and_one() -> None:
    chances = Tensor([0.0, 1.0, 0.25]).reshape(3, 1).expand(3, 2000)
    drawn = chances.bernoulli().numpy()
    assert set(drawn[2].tolist()) == {0.0, 1.0}
    assert drawn[0].max() == 0.0
    assert drawn[1].min() == 1.0
    assert abs(drawn[2].mean() - 0.25) < 0.05


@pytest.mark.parametrize("dtype", ["fp8e4m3", "fp8e5m2", "float16", "bfloat16"])
def test_uniform_numbers_of_few_bits_stay_inside_their_limits(dtype: str) -> None:
    for low, high in ((-1.1, -0.6), (0.3, 0.45), (-5.0, 7.0)):
        ends = Tensor([low, high]).cast(dtype).tolist()
        found = Tensor.uniform(500, low=low, high=high, dtype=dtype)
        assert ends[0] <= found.min().item()
        assert found.max().item() <= ends[1]
