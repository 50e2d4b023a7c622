"""The workloads that are whole models: training steps, and a language model that reads and writes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from benchmarks.frameworks import Array, Arrays, Framework, Loss, Numbers
from benchmarks.operations import Build, Step, Workload, layer_norm, normal, rms_norm


class Weights:
    """The parameters and the state of a model, drawn in the order in which they are asked for."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.parameters: dict[str, Numbers] = {}
        self.state: dict[str, Numbers] = {}

    def add(self, name: str, shape: tuple[int, ...], terms: int, biased: bool = True) -> None:
        """A weight whose results sum `terms` products, and a bias for its first axis's elements."""
        scale = 1 / math.sqrt(terms)
        self.parameters[name + ".weight"] = normal(self.rng, *shape, scale=scale)
        if biased:
            count = shape[0] if len(shape) == 4 else shape[-1]
            self.parameters[name + ".bias"] = normal(self.rng, count, scale=0.01)

    def linear(self, name: str, inputs: int, outputs: int, biased: bool = True) -> None:
        """A matrix (inputs, outputs)."""
        self.add(name, (inputs, outputs), inputs, biased)

    def conv(self, name: str, filters: int, channels: int, size: int, biased: bool = True) -> None:
        """Square filters."""
        self.add(name, (filters, channels, size, size), channels * size * size, biased)

    def norm(self, name: str, channels: int) -> None:
        """A batch norm."""
        ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
        self.parameters |= {name + ".weight": ones, name + ".bias": zeros}
        self.state |= {name + ".mean": zeros, name + ".var": ones}


def training(framework: Framework, weights: Weights, loss: Loss, *batch: Numbers) -> Step:
    """An Adam step of a model on one batch."""
    parameters, state = framework.tensors(weights.parameters), framework.tensors(weights.state)
    step = framework.training(loss, parameters, state)
    inputs = [framework.tensor(values) for values in batch]
    return lambda number: step(*inputs)


def linear(parameters: Arrays, name: str, x: Array) -> Array:
    """x @ weight + bias"""
    return x @ parameters[name + ".weight"] + parameters[name + ".bias"]


def labels(rng: np.random.Generator, classes: int, *shape: int) -> Numbers:
    """Random classes."""
    return rng.integers(0, classes, shape, dtype=np.int32)


# ---- small networks ----

MNIST_PRODUCTS = (
    24**2 * 32 * 25 + 20**2 * 32 * 32 * 25 + 8**2 * 64 * 32 * 9 + 6**2 * 64 * 64 * 9 + 5760
)


def mnist(framework: Framework, size: int) -> Step:
    """A step of a convolutional network of about 100,000 parameters."""
    weights = Weights()
    for name, filters, channels, kernel in (("a", 32, 1, 5), ("b", 32, 32, 5)):
        weights.conv(name, filters, channels, kernel)
    for name, filters, channels, kernel in (("c", 64, 32, 3), ("d", 64, 64, 3)):
        weights.conv(name, filters, channels, kernel)
    weights.norm("first", 32)
    weights.norm("second", 64)
    weights.linear("head", 576, 10)

    def loss(parameters: Arrays, state: Arrays, x: Array, y: Array) -> Array:
        def block(x: Array, names: str, norm: str) -> Array:
            for name in names:
                weight, bias = parameters[name + ".weight"], parameters[name + ".bias"]
                x = framework.relu(framework.conv(x, weight, bias))
            return framework.pool(framework.batch_norm(x, parameters, state, norm, True))

        x = block(block(x, "ab", "first"), "cd", "second")
        return framework.cross_entropy(linear(parameters, "head", x.reshape(size, 576)), y)

    images = normal(weights.rng, size, 1, 28, 28)
    return training(framework, weights, loss, images, labels(weights.rng, 10, size))


def mlp(framework: Framework) -> Step:
    """A step of two small matrices: what a launch costs."""
    weights = Weights()
    weights.linear("hidden", 16, 64)
    weights.linear("head", 64, 4)

    def loss(parameters: Arrays, state: Arrays, x: Array, y: Array) -> Array:
        hidden = framework.relu(linear(parameters, "hidden", x))
        return framework.cross_entropy(linear(parameters, "head", hidden), y)

    batch = normal(weights.rng, 128, 16), labels(weights.rng, 4, 128)
    return training(framework, weights, loss, *batch)


# ---- a residual network ----

# name, channels in and out, stride, height and width of the result
BLOCKS = (
    ("a", 64, 64, 1, 32),
    ("b", 64, 64, 1, 32),
    ("c", 64, 128, 2, 16),
    ("d", 128, 128, 1, 16),
    ("e", 128, 256, 2, 8),
    ("f", 256, 256, 1, 8),
)
RESNET_BATCH = 128


def resnet_weights() -> tuple[Weights, int]:
    """Its parameters, and the products of one image."""
    weights = Weights()
    products = 0

    def layer(name: str, filters: int, channels: int, kernel: int, size: int) -> None:
        nonlocal products
        weights.conv(name, filters, channels, kernel, biased=False)
        weights.norm(name + "norm", filters)
        products += filters * channels * kernel**2 * size**2

    layer("stem", 64, 3, 3, 32)
    for name, channels, filters, _, size in BLOCKS:
        layer(name + "first", filters, channels, 3, size)
        layer(name + "second", filters, filters, 3, size)
        if filters != channels:
            layer(name + "short", filters, channels, 1, size)
    weights.linear("head", 256, 10)
    return weights, products


def resnet_scores(
    framework: Framework, parameters: Arrays, state: Arrays, x: Array, train: bool
) -> Array:
    """Images -> scores of ten classes."""

    def layer(x: Array, name: str, stride: int = 1, padding: int = 1) -> Array:
        x = framework.conv(x, parameters[name + ".weight"], None, stride, padding)
        return framework.batch_norm(x, parameters, state, name + "norm", train)

    x = framework.relu(layer(x, "stem"))
    for name, channels, filters, stride, _ in BLOCKS:
        inner = layer(framework.relu(layer(x, name + "first", stride)), name + "second")
        short = x if filters == channels else layer(x, name + "short", stride, 0)
        x = framework.relu(inner + short)
    return linear(parameters, "head", framework.mean(x, (2, 3), False))


def resnet_train(framework: Framework) -> Step:
    """A step on small coloured images."""
    weights, _ = resnet_weights()

    def loss(parameters: Arrays, state: Arrays, x: Array, y: Array) -> Array:
        return framework.cross_entropy(resnet_scores(framework, parameters, state, x, True), y)

    images = normal(weights.rng, RESNET_BATCH, 3, 32, 32)
    return training(framework, weights, loss, images, labels(weights.rng, 10, RESNET_BATCH))


def resnet_eval(framework: Framework) -> Step:
    """The scores of a batch, with the statistics that the norms have kept."""
    weights, _ = resnet_weights()
    parameters, state = framework.tensors(weights.parameters), framework.tensors(weights.state)
    images = framework.tensor(normal(weights.rng, RESNET_BATCH, 3, 32, 32))
    run = framework.inference(lambda x: resnet_scores(framework, parameters, state, x, False))
    return lambda number: run(images)


# ---- language models ----

WIDTH, LAYERS, HEADS, WORDS, INNER, CONTEXT = 512, 8, 8, 32000, 1376, 512
HEAD = WIDTH // HEADS
LAYER_WEIGHTS = 4 * WIDTH**2 + 3 * WIDTH * INNER
LLAMA_WEIGHTS = LAYERS * LAYER_WEIGHTS + WIDTH * WORDS
PROMPT = 256
Attend = Callable[[int, Array, Array, Array], Array]


def llama_weights() -> Weights:
    """Matrices of eight layers, and the table of rotations."""
    weights = Weights()
    weights.parameters["words"] = normal(weights.rng, WORDS, WIDTH)
    for layer in range(LAYERS):
        for name in ("query", "key", "value", "out"):
            weights.linear(f"{name}{layer}", WIDTH, WIDTH, biased=False)
        for name, inputs, outputs in (("gate", WIDTH, INNER), ("up", WIDTH, INNER)):
            weights.linear(f"{name}{layer}", inputs, outputs, biased=False)
        weights.linear(f"down{layer}", INNER, WIDTH, biased=False)
        for name in ("before", "after"):
            weights.parameters[f"{name}{layer}"] = np.ones(WIDTH, np.float32)
    weights.parameters["norm"] = np.ones(WIDTH, np.float32)
    weights.linear("head", WIDTH, WORDS, biased=False)
    steps = 10000.0 ** (-np.arange(0, HEAD // 2) / (HEAD // 2))
    angles = np.outer(np.arange(CONTEXT), steps)
    weights.state["cos"] = np.cos(angles).astype(np.float32)
    weights.state["sin"] = np.sin(angles).astype(np.float32)
    return weights


def llama(
    framework: Framework,
    parameters: Arrays,
    tokens: Array,
    size: int,
    tables: Arrays,
    attend: Attend,
) -> Array:
    """Tokens -> scores of the word that follows the last."""

    def rotated(x: Array) -> Array:
        left, right = x[:, :, :, : HEAD // 2], x[:, :, :, HEAD // 2 :]
        cos, sin = tables["cos"], tables["sin"]
        return framework.concat([left * cos - right * sin, left * sin + right * cos], -1)

    def product(name: str, x: Array) -> Array:
        return x @ parameters[name + ".weight"]

    x = framework.embedding(parameters["words"], tokens)  # (1, size, width)
    for layer in range(LAYERS):
        normed = rms_norm(framework, x) * parameters[f"before{layer}"]
        query, key, value = (
            framework.permute(
                product(f"{name}{layer}", normed).reshape(1, size, HEADS, HEAD), (0, 2, 1, 3)
            )
            for name in ("query", "key", "value")
        )
        mixed = attend(layer, rotated(query), rotated(key), value)
        mixed = framework.permute(mixed, (0, 2, 1, 3)).reshape(1, size, WIDTH)
        x = x + product(f"out{layer}", mixed)
        normed = rms_norm(framework, x) * parameters[f"after{layer}"]
        gated = framework.silu(product(f"gate{layer}", normed)) * product(f"up{layer}", normed)
        x = framework.keep(x + product(f"down{layer}", gated))
    return product("head", rms_norm(framework, x[:, -1:]) * parameters["norm"])


def llama_prefill(framework: Framework) -> Step:
    """A prompt at once."""
    weights = llama_weights()
    parameters = framework.tensors(weights.parameters)
    tables = framework.tensors({name: x[:PROMPT] for name, x in weights.state.items()})
    tokens = framework.tensor(labels(weights.rng, WORDS, 1, PROMPT))

    def attend(layer: int, query: Array, key: Array, value: Array) -> Array:
        return framework.attention(query, key, value, True)

    run = framework.inference(lambda x: llama(framework, parameters, x, PROMPT, tables, attend))
    return lambda number: run(tokens)


def llama_decode(framework: Framework) -> Step:
    """One word after the other, with caches of keys and values that are about half full."""
    weights = llama_weights()
    parameters = framework.tensors(weights.parameters | weights.state)
    shape = (1, HEADS, CONTEXT, HEAD)
    caches = [framework.tensor(normal(weights.rng, *shape)) for _ in range(2 * LAYERS)]
    tokens = [framework.tensor(labels(weights.rng, WORDS, 1, 1)) for _ in range(64)]

    def step(parameters: Arrays, caches: list[Array], token: Array, position: Array) -> Array:
        tables = {name: framework.row(parameters[name], position) for name in ("cos", "sin")}

        def attend(layer: int, query: Array, key: Array, value: Array) -> Array:
            both = slice(2 * layer, 2 * layer + 2)
            caches[both] = framework.write(caches[both], (key, value), position)
            key, value = caches[both]
            return framework.attend(query, key, value, position)

        return llama(framework, parameters, token, 1, tables, attend)

    run = framework.decoding(step, parameters, caches)
    return lambda number: run(tokens[number % 64], CONTEXT // 2 + number % 128)


GPT_WIDTH, GPT_LAYERS, GPT_HEADS, GPT_TIME, GPT_BATCH, GPT_WORDS = 256, 4, 4, 128, 8, 50257


def gpt_train(framework: Framework) -> Step:
    """A step of a small GPT with a vocabulary of the usual size."""
    weights = Weights()
    weights.parameters["words"] = normal(weights.rng, GPT_WORDS, GPT_WIDTH, scale=0.02)
    weights.parameters["places"] = normal(weights.rng, GPT_TIME, GPT_WIDTH, scale=0.02)
    for layer in range(GPT_LAYERS):
        for name, inputs, outputs in (("qkv", 1, 3), ("out", 1, 1), ("up", 1, 4), ("down", 4, 1)):
            weights.linear(f"{name}{layer}", inputs * GPT_WIDTH, outputs * GPT_WIDTH)

    def loss(parameters: Arrays, state: Arrays, tokens: Array, following: Array) -> Array:
        x = framework.embedding(parameters["words"], tokens) + parameters["places"]
        for layer in range(GPT_LAYERS):
            joined = linear(parameters, f"qkv{layer}", layer_norm(framework, x))
            joined = joined.reshape(GPT_BATCH, GPT_TIME, 3, GPT_HEADS, GPT_WIDTH // GPT_HEADS)
            query, key, value = (
                framework.permute(joined[:, :, part], (0, 2, 1, 3)) for part in range(3)
            )
            mixed = framework.permute(framework.attention(query, key, value, True), (0, 2, 1, 3))
            mixed = mixed.reshape(GPT_BATCH, GPT_TIME, GPT_WIDTH)
            x = x + linear(parameters, f"out{layer}", mixed)
            inner = linear(parameters, f"up{layer}", layer_norm(framework, x))
            x = x + linear(parameters, f"down{layer}", framework.gelu(inner))
        scores = layer_norm(framework, x) @ framework.permute(parameters["words"], (1, 0))
        scores = scores.reshape(GPT_BATCH * GPT_TIME, GPT_WORDS)
        return framework.cross_entropy(scores, following)

    batch = labels(weights.rng, GPT_WORDS, GPT_BATCH, GPT_TIME)
    following = labels(weights.rng, GPT_WORDS, GPT_BATCH * GPT_TIME)
    return training(framework, weights, loss, batch, following)


def models() -> Iterable[Workload]:
    """The workloads of this file; a training step costs three times its forward pass."""

    def step(name: str, group: str, build: Build, flops: int) -> Workload:
        # Adam's first steps divide a gradient by its own size: rounding shows in the loss.
        return Workload(name, group, build, flops, tolerance=5e-3)

    for size in (128, 512):
        flops = 6 * MNIST_PRODUCTS * size
        yield step(f"mnist_train_b{size}", "train", partial(mnist, size=size), flops)
    yield step("mlp_train", "train", mlp, 6 * 128 * (16 * 64 + 64 * 4))
    _, products = resnet_weights()
    yield step("resnet_train", "resnet", resnet_train, 6 * products * RESNET_BATCH)
    yield Workload("resnet_eval", "resnet", resnet_eval, 2 * products * RESNET_BATCH)
    head, nbytes = WIDTH * WORDS, 4 * LLAMA_WEIGHTS
    scores = LAYERS * 2 * PROMPT**2 * WIDTH
    flops = 2 * PROMPT * (LLAMA_WEIGHTS - head) + 2 * head + scores
    yield Workload("llama_prefill256", "transformer", llama_prefill, flops, nbytes)
    read = nbytes + 2 * LAYERS * 4 * WIDTH * 300
    yield Workload("llama_decode", "transformer", llama_decode, 2 * LLAMA_WEIGHTS, read)
    layer = 12 * GPT_WIDTH**2 + GPT_TIME * GPT_WIDTH
    products = GPT_LAYERS * layer + GPT_WIDTH * GPT_WORDS
    yield step("gpt_train", "transformer", gpt_train, 6 * GPT_BATCH * GPT_TIME * products)
    for start in ("cold", "warm"):
        name, build = f"start_{start}", partial(mnist, size=128)
        yield Workload(name, "start", build, tolerance=5e-3, start=start)
