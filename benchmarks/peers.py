"""How PyTorch and JAX say what the workloads ask for; imported where they are installed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import final

import numpy as np

from benchmarks.frameworks import Array, Arrays, Call, Framework, Loss, Numbers


@final
class Torch(Framework):
    """PyTorch, eager or compiled."""

    def __init__(self, threads: int, compiled: bool) -> None:
        torch = self._torch = import_module("torch")
        functional = self._functional = torch.nn.functional
        torch.set_num_threads(threads)
        self.version = torch.__version__
        self._compile = torch.compile if compiled else lambda function: function
        self.relu, self.silu, self.rsqrt = functional.relu, functional.silu, torch.rsqrt
        self.gelu = partial(functional.gelu, approximate="tanh")
        self.softmax = partial(torch.softmax, dim=-1)
        self.argmax, self.cumsum = torch.argmax, torch.cumsum

    def tensor(self, values: Numbers) -> Array:
        wanted = np.int64 if values.dtype.kind == "i" else values.dtype
        return self._torch.from_numpy(np.array(values, dtype=wanted))

    def numbers(self, x: Array) -> Numbers:
        found: Numbers = x.detach().numpy()
        return found

    def wait(self, result: Array) -> None:
        pass  # it is there when the call returns

    def inference(self, function: Call) -> Call:
        compiled = self._compile(function)

        def run(*inputs: Array) -> Array:
            with self._torch.no_grad():
                return compiled(*inputs)

        return run

    def training(self, loss: Loss, parameters: Arrays, state: Arrays) -> Call:
        for value in parameters.values():
            value.requires_grad_(True)
        optimizer = self._torch.optim.Adam(parameters.values(), lr=1e-3, fused=True)
        compiled = self._compile(loss)

        def step(*batch: Array) -> Array:
            optimizer.zero_grad(set_to_none=True)
            result = compiled(parameters, state, *batch)
            result.backward()
            optimizer.step()
            return result.detach()

        return step

    def decoding(self, step: Call, parameters: Arrays, caches: list[Array]) -> Call:
        return self.inference(
            lambda token, position: step(parameters, list(caches), token, position)
        )

    def mean(self, x: Array, axes: tuple[int, ...], keep: bool) -> Array:
        return x.mean(axes, keepdim=keep)

    def total(self, x: Array, axis: int | None) -> Array:
        return x.sum() if axis is None else x.sum(axis)

    def concat(self, parts: Sequence[Array], axis: int) -> Array:
        return self._torch.cat(list(parts), axis)

    def embedding(self, weight: Array, indices: Array) -> Array:
        return self._functional.embedding(indices, weight)

    def conv(
        self,
        x: Array,
        weight: Array,
        bias: Array | None = None,
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
    ) -> Array:
        return self._functional.conv2d(x, weight, bias, stride, padding, 1, groups)

    def pool(self, x: Array) -> Array:
        return self._functional.max_pool2d(x, 2)

    def batch_norm(
        self, x: Array, parameters: Arrays, state: Arrays, name: str, training: bool
    ) -> Array:
        mean, variance = state[name + ".mean"], state[name + ".var"]
        weight, bias = parameters[name + ".weight"], parameters[name + ".bias"]
        return self._functional.batch_norm(x, mean, variance, weight, bias, training=training)

    def cross_entropy(self, logits: Array, labels: Array) -> Array:
        return self._functional.cross_entropy(logits, labels)

    def attention(self, query: Array, key: Array, value: Array, causal: bool) -> Array:
        attend = self._functional.scaled_dot_product_attention
        return attend(query, key, value, is_causal=causal)

    def write(self, caches: list[Array], rows: Sequence[Array], position: Array) -> list[Array]:
        for cache, row in zip(caches, rows, strict=True):
            cache[:, :, position : position + 1] = row
        return caches

    def attend(self, query: Array, key: Array, value: Array, position: Array) -> Array:
        key, value = key[:, :, : position + 1], value[:, :, : position + 1]
        return self._functional.scaled_dot_product_attention(query, key, value)

    def row(self, table: Array, position: Array) -> Array:
        return table[position : position + 1]


@final
class Jax(Framework):
    """JAX with everything under `jit`; what changes is handed over and given back."""

    def __init__(self) -> None:
        self._jax = import_module("jax")
        numpy = self._numpy = import_module("jax.numpy")
        nn = self._jax.nn
        self.version = self._jax.__version__
        self.relu, self.silu, self.gelu, self.softmax = nn.relu, nn.silu, nn.gelu, nn.softmax
        self.rsqrt = self._jax.lax.rsqrt
        self.argmax, self.cumsum = numpy.argmax, numpy.cumsum

    def tensor(self, values: Numbers) -> Array:
        return self._numpy.array(values)

    def numbers(self, x: Array) -> Numbers:
        return np.asarray(x)

    def wait(self, result: Array) -> None:
        self._jax.block_until_ready(result)

    def inference(self, function: Call) -> Call:
        compiled: Call = self._jax.jit(function)
        return compiled

    def training(self, loss: Loss, parameters: Arrays, state: Arrays) -> Call:
        tree = self._jax.tree

        def with_state(weights: Arrays, before: Arrays, *batch: Array) -> tuple[Array, Arrays]:
            after = dict(before)
            return loss(weights, after, *batch), after

        def adam(number: Array, weight: Array, mean: Array, square: Array) -> Array:
            mean, square = mean / (1 - 0.9**number), square / (1 - 0.999**number)
            return weight - 1e-3 * mean / (self._numpy.sqrt(square) + 1e-8)

        def step(held: tuple[Array, ...], *batch: Array) -> tuple[Array, tuple[Array, ...]]:
            weights, buffers, means, squares, number = held
            gradient_of = self._jax.value_and_grad(with_state, has_aux=True)
            (result, buffers), gradients = gradient_of(weights, buffers, *batch)
            number = number + 1
            means = tree.map(lambda m, g: 0.9 * m + 0.1 * g, means, gradients)
            squares = tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, squares, gradients)
            weights = tree.map(partial(adam, number), weights, means, squares)
            return result, (weights, buffers, means, squares, number)

        zeros = [tree.map(self._numpy.zeros_like, parameters) for _ in range(2)]
        return self._threaded(step, (parameters, state, *zeros, self._numpy.float32(0)))

    def decoding(self, step: Call, parameters: Arrays, caches: list[Array]) -> Call:
        def on_copies(held: list[Array], token: Array, position: Array) -> tuple[Array, Array]:
            changed = list(held)
            return step(parameters, changed, token, position), changed

        return self._threaded(on_copies, caches)

    def _threaded(self, step: Call, held: Array) -> Call:
        compiled = self._jax.jit(step, donate_argnums=0)

        def run(*inputs: Array) -> Array:
            nonlocal held
            result, held = compiled(held, *inputs)
            return result

        return run

    def mean(self, x: Array, axes: tuple[int, ...], keep: bool) -> Array:
        return x.mean(axes, keepdims=keep)

    def concat(self, parts: Sequence[Array], axis: int) -> Array:
        return self._numpy.concatenate(list(parts), axis)

    def permute(self, x: Array, order: tuple[int, ...]) -> Array:
        return x.transpose(order)

    def conv(
        self,
        x: Array,
        weight: Array,
        bias: Array | None = None,
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
    ) -> Array:
        convolve = self._jax.lax.conv_general_dilated
        edges = [(padding, padding)] * 2
        found = convolve(x, weight, (stride, stride), edges, feature_group_count=groups)
        return found if bias is None else found + bias[None, :, None, None]

    def pool(self, x: Array) -> Array:
        lax, window = self._jax.lax, (1, 1, 2, 2)
        return lax.reduce_window(x, -math.inf, lax.max, window, window, "VALID")

    def batch_norm(
        self, x: Array, parameters: Arrays, state: Arrays, name: str, training: bool
    ) -> Array:
        mean, variance = state[name + ".mean"], state[name + ".var"]
        if training:
            count = x.size / x.shape[1]
            here = x.mean((0, 2, 3))
            spread = ((x - _per_channel(here)) ** 2).mean((0, 2, 3))
            state[name + ".mean"] = 0.9 * mean + 0.1 * here
            state[name + ".var"] = 0.9 * variance + 0.1 * spread * count / (count - 1)
            mean, variance = here, spread
        scale = self._jax.lax.rsqrt(variance + 1e-5) * parameters[name + ".weight"]
        centred = (x - _per_channel(mean)) * _per_channel(scale)
        return centred + _per_channel(parameters[name + ".bias"])

    def cross_entropy(self, logits: Array, labels: Array) -> Array:
        scores = self._jax.nn.log_softmax(logits)
        return -self._numpy.take_along_axis(scores, labels[..., None], -1).mean()

    def attention(self, query: Array, key: Array, value: Array, causal: bool) -> Array:
        size = query.shape[2]
        mask = self._numpy.tril(self._numpy.ones((size, size), bool)) if causal else None
        return self._attention(query, key, value, mask)

    def _attention(self, query: Array, key: Array, value: Array, mask: Array | None) -> Array:
        scores = query @ key.transpose(0, 1, 3, 2) / math.sqrt(query.shape[-1])
        if mask is not None:
            scores = self._numpy.where(mask, scores, -math.inf)
        return self.softmax(scores) @ value

    def write(self, caches: list[Array], rows: Sequence[Array], position: Array) -> list[Array]:
        update = self._jax.lax.dynamic_update_slice
        pairs = zip(caches, rows, strict=True)
        return [update(cache, row, (0, 0, position, 0)) for cache, row in pairs]

    def attend(self, query: Array, key: Array, value: Array, position: Array) -> Array:
        seen = self._numpy.arange(key.shape[2]) <= position
        return self._attention(query, key, value, seen)

    def row(self, table: Array, position: Array) -> Array:
        return self._jax.lax.dynamic_slice_in_dim(table, position, 1)


def _per_channel(x: Array) -> Array:
    return x[None, :, None, None]
