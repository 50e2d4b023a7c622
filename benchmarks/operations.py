"""The workloads that are one operation or a few, and what a workload is.

In:  nothing.
Out: `Workload`s: a build makes the tensors and gives the call that is timed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from benchmarks.frameworks import Array, Framework, Numbers

Step = Callable[[int], Array]  # it is given its number
Build = Callable[[Framework], Step]


@dataclass(frozen=True, slots=True)
class Workload:
    """One thing to time: arithmetic and bytes that it must at least cost, and how exact it is.

    `start` is "cold" or "warm" where a process is timed from its start to the end of the first call.
    """

    name: str
    group: str
    build: Build
    flops: int = 0
    nbytes: int = 0
    tolerance: float = 1e-3
    start: str = ""

    def limit_ms(self, gflops: float, gbytes: float) -> float:
        """The least time on a machine that reaches these rates; 0 where there is no such bound."""
        if self.start or not gflops or not gbytes:
            return 0.0
        return max(self.flops / gflops, self.nbytes / gbytes) / 1e6


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Numbers:
    """Random numbers, the same in each framework."""
    return (rng.standard_normal(shape, dtype=np.float32) * scale).astype(np.float32)


def of_tensors(function: Callable[..., Array], *shapes: tuple[int, ...]) -> Build:
    """A build that times function(framework, ...) of random tensors."""

    def build(framework: Framework) -> Step:
        rng = np.random.default_rng(0)
        inputs = [framework.tensor(normal(rng, *shape)) for shape in shapes]
        run = framework.inference(lambda *x: function(framework, *x))
        return lambda number: run(*inputs)

    return build


def matmul(rows: int, inner: int, columns: int) -> Workload:
    """A product of two matrices."""
    nbytes = 4 * (rows * inner + inner * columns + rows * columns)
    build = of_tensors(lambda framework, a, b: a @ b, (rows, inner), (inner, columns))
    name = f"matmul_{rows}x{inner}x{columns}"
    return Workload(name, "matmul", build, 2 * rows * inner * columns, nbytes)


def conv(name: str, channels: int, size: int, filters: int, kernel: int, groups: int) -> Workload:
    """A convolution of eight square images that keeps their size."""
    image, weight = (8, channels, size, size), (filters, channels // groups, kernel, kernel)
    outputs = 8 * filters * size * size
    terms = channels // groups * kernel * kernel

    def build(framework: Framework) -> Step:
        rng = np.random.default_rng(0)
        x = framework.tensor(normal(rng, *image))
        weights = framework.tensor(normal(rng, *weight, scale=1 / math.sqrt(terms)))
        run = framework.inference(
            lambda x, w: framework.conv(x, w, padding=kernel // 2, groups=groups)
        )
        return lambda number: run(x, weights)

    nbytes = 4 * (math.prod(image) + math.prod(weight) + outputs)
    return Workload(name, "conv", build, 2 * outputs * terms, nbytes)


def layer_norm(framework: Framework, x: Array) -> Array:
    """(x - mean) / deviation, without weights."""
    centred = x - framework.mean(x, (-1,), True)
    return centred * framework.rsqrt(framework.mean(centred * centred, (-1,), True) + 1e-5)


def rms_norm(framework: Framework, x: Array) -> Array:
    """x / root of the mean square, without weights."""
    return x * framework.rsqrt(framework.mean(x * x, (-1,), True) + 1e-5)


MANY = 1 << 24
ROWS, SQUARE, HEADS = (4096, 1024), (4096, 4096), (4, 8, 512, 64)
SCORES = 4 * math.prod(HEADS) * HEADS[2]  # arithmetic of both products of attention


def singles() -> Iterable[Workload]:
    """The workloads that are one operation or a few."""
    for size in (512, 1024, 2048):
        yield matmul(size, size, size)
    yield matmul(1, 4096, 4096)
    yield matmul(32, 1024, 4096)
    yield conv("conv3x3_64_56", 64, 56, 64, 3, 1)
    yield conv("conv3x3_256_14", 256, 14, 256, 3, 1)
    yield conv("conv1x1_256_28", 256, 28, 128, 1, 1)
    yield conv("conv_dw_128_28", 128, 28, 128, 3, 128)
    # name, group, function, shapes of its inputs, arithmetic, bytes
    table: tuple[tuple[str, str, Callable[..., Array], list[tuple[int, ...]], int, int], ...] = (
        ("ew_add3", "elementwise", lambda f, a, b: a + b + 1, [(MANY,)] * 2, 0, 12 * MANY),
        (
            "ew_gelu",
            "elementwise",
            lambda f, a, b, c: f.gelu(a * b + c),
            [(MANY,)] * 3,
            0,
            16 * MANY,
        ),
        ("layernorm", "norm", layer_norm, [ROWS], 0, 8 * math.prod(ROWS)),
        ("softmax", "norm", lambda f, x: f.softmax(x), [ROWS], 0, 8 * math.prod(ROWS)),
        ("rmsnorm", "norm", rms_norm, [ROWS], 0, 8 * math.prod(ROWS)),
        ("attn", "attention", lambda f, *x: f.attention(*x, False), [HEADS] * 3, SCORES, 0),
        (
            "attn_causal",
            "attention",
            lambda f, *x: f.attention(*x, True),
            [HEADS] * 3,
            SCORES // 2,
            0,
        ),
        ("sum_all", "reduce", lambda f, x: f.total(x, None), [(MANY,)], 0, 4 * MANY),
        ("sum_axis0", "reduce", lambda f, x: f.total(x, 0), [SQUARE], 0, 4 * MANY),
        ("sum_axis1", "reduce", lambda f, x: f.total(x, 1), [SQUARE], 0, 4 * MANY),
        ("argmax_axis1", "reduce", lambda f, x: f.argmax(x, 1), [SQUARE], 0, 4 * MANY),
        ("cumsum_axis1", "reduce", lambda f, x: f.cumsum(x, 1), [SQUARE], 0, 8 * MANY),
    )
    for name, group, function, shapes, flops, nbytes in table:
        yield Workload(name, group, of_tensors(function, *shapes), flops, nbytes)
