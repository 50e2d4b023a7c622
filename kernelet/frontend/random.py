"""Random numbers from a counter: Threefry-2x32 with 20 rounds (Salmon et al., 2011).

In:  a seed, and how many numbers were drawn so far.
Out: tensors that compute their numbers from eight words of memory (key and counter), so that
     kernels are reused and a captured step replays with fresh numbers.

Each draw makes one small buffer on the host; no kernel runs for it. While a function is captured
its recorder notes these buffers, and `refill` gives them the next counters before a replay, so that
the stream is the same with and without capture.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, Unpack

from kernelet import holdings
from kernelet.base import config
from kernelet.base.dtype import EXACT_BITS, DType, dtypes
from kernelet.base.errors import ArgumentError, DTypeError
from kernelet.frontend.arguments import Count, Share, Size
from kernelet.frontend.creation import Creation, Options, checked_shape, dtype_of
from kernelet.frontend.host import device_name
from kernelet.frontend.movement import Dims
from kernelet.frontend.primitives import DeviceLike, product
from kernelet.frontend.promotion import accumulator_dtype
from kernelet.frontend.sorting import Sorting
from kernelet.graph.infer import Shape, max_dim
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.runtime.buffer import Buffer

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_WORD = (1 << 32) - 1


@dataclass(slots=True)
class _Stream:
    """Where the process is in its stream of random words."""

    seed: int
    drawn: int = 0


_stream = _Stream(time.time_ns() & (1 << 63) - 1)


def _words(count: int) -> bytes:
    """Key and counter of the next draw of `count` words, as eight words of 32 bits."""
    seed, at = _stream.seed, _stream.drawn
    _stream.drawn += count
    return struct.pack("<4I", seed & _WORD, seed >> 32 & _WORD, at & _WORD, at >> 32 & _WORD)


def refill(draws: Sequence[tuple[Buffer, int]]) -> None:
    """Give the buffers of earlier draws the next counters of the stream."""
    for memory, count in draws:
        memory.copy_in(_words(count))


# ---- the generator ----


def threefry(key: tuple[UOp, UOp], counter: tuple[UOp, UOp]) -> tuple[UOp, UOp]:
    """Two random words for each counter of two words: Threefry-2x32, 20 rounds."""
    first, second = key
    schedule = (first, second, first ^ second ^ _PARITY)
    left, right = counter[0] + first, counter[1] + second
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            left = left + right
            right = ((right << rotation) | (right >> (32 - rotation))) ^ left
        left = left + schedule[(group + 1) % 3]
        right = right + schedule[(group + 2) % 3] + (group + 1)
    return left, right


def words_from(words: Sequence[UOp], count: int) -> UOp:
    """`count` random words for a key and the counters from one on: four words of shape (1,)."""
    first, second, low, high = (UOp(Op.EXPAND, each.dtype, (each,), (count,)) for each in words)
    index = UOp(Op.ARANGE, dtypes.default_int, (), (count,)).cast(dtypes.uint32)
    total = low + index
    carried = high + (total < index).cast(dtypes.uint32)
    return threefry((first, second), (total, carried))[0]


def random_words(count: int, device: str | tuple[str, ...]) -> UOp:
    """`count` random words of 32 bits, one for each of the next counters of the stream."""
    near = device if isinstance(device, str) else device[0]
    buffer = holdings.new_buffer(_words(count), 4, dtypes.uint32, near)
    recorder = holdings.current_recorder.get()
    if recorder is not None:
        recorder.draws.append((holdings.memories[buffer], count))
    if near is not device:
        buffer = UOp(Op.COPY, dtypes.uint32, (buffer,), device)
    words = [UOp(Op.SHRINK, dtypes.uint32, (buffer,), ((at, at + 1),)) for at in range(4)]
    return words_from(words, count)


class Random(Sorting, Creation):
    """rand, randn, initializers, dropout and sampling."""

    __slots__ = ()

    @staticmethod
    def manual_seed(seed: int = 0, drawn: int = 0) -> None:
        """Start the stream of random numbers anew, or where `random_state` says that it was."""
        _stream.seed, _stream.drawn = int(seed), int(drawn)

    @staticmethod
    def random_state() -> tuple[int, int]:
        """The seed, and how many words were drawn since; `manual_seed` takes both."""
        return _stream.seed, _stream.drawn

    @classmethod
    def random_bits(cls, key: Self, counter: Self, num: Size) -> Self:
        """`num` random uint32 words: Threefry of a key of two words, from the counter on."""
        key._need(product(key.shape) == 2, "a key of 2 words")
        counter._need(product(counter.shape) in (1, 2), "a counter of 1 or 2 words")
        pairs = [each.cast(dtypes.uint32).flatten().pad_to(2) for each in (key, counter)]
        words = [word.uop for pair in pairs for word in pair.split(1)]
        return cls._wrap(words_from(words, num))

    @classmethod
    def _random(cls, shape: Shape, device: DeviceLike, per_element: int = 1) -> Self:
        """Random words of the shape (per_element, *shape)."""
        largest = tuple(max_dim(dim) for dim in shape)
        count = per_element * int(product(largest))  # type: ignore[arg-type]
        name = device_name(device)
        words = cls._wrap(random_words(count, name))._reshape((per_element, *largest))
        return words._shrink(((0, per_element), *((0, dim) for dim in shape)))

    @classmethod
    def _uniform(cls, shape: Shape, dtype: DType, device: DeviceLike) -> Self:
        """Numbers in 0 <= x < 1, all multiples of the same power of two."""
        if not dtype.is_float:
            raise DTypeError(f"rand: {dtype.name} has no fractions. Use a float type, or randint.")
        if dtype is dtypes.float64:
            words = cls._random(shape, device, 2)
            high = words[0].rshift(5).cast(dtype) * float(1 << 26)
            return (high + words[1].rshift(6).cast(dtype)) * 2.0**-53
        bits = EXACT_BITS[dtype.name]
        words = cls._random(shape, device)[0].rshift(32 - bits)
        return words.cast(dtypes.int32).cast(dtypes.float32).cast(dtype) * 2.0**-bits

    @classmethod
    def rand(cls, *shape: Dims, **options: Unpack[Options]) -> Self:
        """Uniform numbers in 0 <= x < 1; ``np.random.rand(*shape)``."""
        found = cls._uniform(checked_shape(shape), dtype_of(options), options.get("device"))
        return found._created(options)

    def rand_like(self, **options: Unpack[Options]) -> Self:
        """`rand` in this shape, type and device."""
        return self.rand(self.shape, **self._like(options))

    @classmethod
    def randn(cls, *shape: Dims, **options: Unpack[Options]) -> Self:
        """Normal numbers of mean 0 and variance 1; ``np.random.randn(*shape)``."""
        return cls.normal(*shape, **options)

    def randn_like(self, **options: Unpack[Options]) -> Self:
        """`randn` in this shape, type and device."""
        return self.randn(self.shape, **self._like(options))

    @classmethod
    def randint(
        cls, *shape: Dims, low: int = 0, high: int = 10, **options: Unpack[Options]
    ) -> Self:
        """Whole numbers in low <= x < high; also PyTorch's ``randint(low, high, shape)``."""
        if len(shape) in (2, 3) and isinstance(shape[-1], Sequence):
            bounds = [bound for bound in shape[:-1] if isinstance(bound, int)]
            low, high = (0, bounds[0]) if len(bounds) == 1 else (bounds[0], bounds[1])
            shape = shape[-1:]
        span = high - low
        if not 0 < span <= 1 << 32:
            raise ArgumentError(
                f"randint: low {low} and high {high}. There must be 1 to 2**32 numbers between."
            )
        words = cls._random(checked_shape(shape), options.get("device"))[0]
        scaled = cls._wrap((words.uop.cast(dtypes.uint64) * span) >> 32).cast(dtypes.int64) + low
        return scaled.cast(dtype_of(options, dtypes.default_int))._created(options)

    @classmethod
    def uniform(
        cls, *shape: Dims, low: float = 0.0, high: float = 1.0, **options: Unpack[Options]
    ) -> Self:
        """Uniform numbers in low <= x < high; ``np.random.uniform(low, high, shape)``."""
        kind = dtype_of(options)
        # Numbers of few bits are rounded once, or they might leave the limits.
        work = accumulator_dtype(kind if kind.is_float else dtypes.default_float)
        numbers = cls._uniform(checked_shape(shape), work, options.get("device"))
        return (numbers * (high - low) + low).cast(kind)._created(options)

    @classmethod
    def normal(
        cls, *shape: Dims, mean: float = 0.0, std: float = 1.0, **options: Unpack[Options]
    ) -> Self:
        """Normal numbers; ``np.random.normal(mean, std, shape)``."""
        kind = dtype_of(options)
        work = kind if kind is dtypes.float64 else dtypes.float32
        # The transform of two uniform numbers by Box and Muller.
        pair = cls._uniform((2, *checked_shape(shape)), work, options.get("device"))
        radius = ((1 - pair[0]).log() * -2).sqrt()
        numbers = (radius * (pair[1] * (2 * math.pi)).cos()).cast(kind)
        scaled = numbers if (mean, std) == (0, 1) else numbers * std + mean
        return scaled._created(options)

    # ---- initial values of weights ----

    @classmethod
    def scaled_uniform(cls, *shape: Dims, **options: Unpack[Options]) -> Self:
        """Uniform in -1..1, divided by the root of the number of elements."""
        bound = max(_count(checked_shape(shape)), 1) ** -0.5
        return cls.uniform(*shape, low=-bound, high=bound, **options)

    @classmethod
    def glorot_uniform(cls, *shape: Dims, **options: Unpack[Options]) -> Self:
        """Uniform with a bound of ``sqrt(6 / (fan_in + fan_out))`` (Glorot and Bengio, 2010)."""
        sizes = checked_shape(shape)
        bound = math.sqrt(6 / max(_count(sizes[:1]) + _count(sizes[1:]), 1))
        return cls.uniform(*shape, low=-bound, high=bound, **options)

    @classmethod
    def kaiming_uniform(cls, *shape: Dims, a: float = 0.01, **options: Unpack[Options]) -> Self:
        """Uniform with a bound of ``sqrt(6 / ((1 + a**2) * fan_in))`` (He et al., 2015)."""
        bound = math.sqrt(6 / ((1 + a**2) * max(_count(checked_shape(shape)[1:]), 1)))
        return cls.uniform(*shape, low=-bound, high=bound, **options)

    @classmethod
    def kaiming_normal(cls, *shape: Dims, a: float = 0.01, **options: Unpack[Options]) -> Self:
        """Normal with a deviation of ``sqrt(2 / ((1 + a**2) * fan_in))`` (He et al., 2015)."""
        std = math.sqrt(2 / ((1 + a**2) * max(_count(checked_shape(shape)[1:]), 1)))
        return cls.normal(*shape, std=std, **options)

    # ---- sampling ----

    @classmethod
    def randperm(cls, n: int, **options: Unpack[Options]) -> Self:
        """The numbers 0..n-1 in random order; ``np.random.permutation(n)``."""
        order = cls._random(checked_shape((n,)), options.get("device"))[0].argsort()
        return order.cast(dtype_of(options, dtypes.default_int))._created(options)

    def multinomial(self, num_samples: Count = 1, replacement: bool = False) -> Self:
        """Indices drawn with probabilities proportional to the values; ``torch.multinomial``."""
        self._need_ndim(1, 2)
        rows, classes = (1, *self.shape)[-2:]
        weights = self.cast(dtypes.float32)._reshape((rows, 1, classes))
        rounds = num_samples if replacement else 1
        chance = self._uniform((rows, rounds, classes), dtypes.float32, self.uop.device)
        # The greatest of log(u) / weight is at each index as often as its weight says.
        keys = (chance + 2.0**-25).log() / weights
        apart = replacement or num_samples == 1
        found = keys.argmax(-1) if apart else keys.topk(num_samples)[1]
        return found._reshape((*self.shape[:-1], num_samples))

    def bernoulli(self) -> Self:
        """1 with the probability that each value says, else 0; ``torch.bernoulli(x)``."""
        return (self._uniform(self.shape, self.dtype, self.uop.device) < self).cast(self.dtype)

    def dropout(self, p: Share = 0.5) -> Self:
        """In training, 0 with probability p and else x / (1 - p); outside it x itself."""
        if p == 0 or not config.current().training:
            return self
        if p == 1:
            return self._constant(0)
        chance = self._uniform(self.shape, dtypes.default_float, self.uop.device)
        return (chance >= p).where(self, 0) * (1 / (1 - p))


def _count(shape: Shape) -> int:
    return math.prod(max_dim(dim) for dim in shape)
