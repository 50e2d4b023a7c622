"""The words in which the workloads are written, and how kernelet and tinygrad say them.

In:  the name of a framework.
Out: a `Framework`: its tensors, its steady state, and the operations that the workloads need.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

Array = Any  # a tensor of whichever framework
Numbers = NDArray[Any]
Arrays = dict[str, Array]
Call = Callable[..., Array]
Unary = Callable[[Array], Array]
Loss = Callable[..., Array]  # parameters, state, then the batch


class Framework(ABC):
    """What a workload may ask of a framework; axes and sizes are plain numbers.

    `softmax` is over the last axis, `gelu` the one with tanh, `pool` takes 2 x 2 windows.
    """

    version: str
    relu: Unary
    silu: Unary
    gelu: Unary
    softmax: Unary
    rsqrt: Unary
    argmax: Callable[[Array, int], Array]
    cumsum: Callable[[Array, int], Array]

    @abstractmethod
    def tensor(self, values: Numbers) -> Array:
        """The values in the framework's memory."""

    def tensors(self, values: dict[str, Numbers]) -> Arrays:
        """The same for each value of a model."""
        return {name: self.tensor(value) for name, value in values.items()}

    @abstractmethod
    def numbers(self, x: Array) -> Numbers:
        """The values of a result."""

    @abstractmethod
    def wait(self, result: Array) -> None:
        """Return when the result is there."""

    def count_kernels(self) -> int | None:
        """How many kernels have run since the last time this was asked, where it is known."""
        return None

    @abstractmethod
    def inference(self, function: Call) -> Call:
        """The steady state of a function of tensors."""

    @abstractmethod
    def training(self, loss: Loss, parameters: Arrays, state: Arrays) -> Call:
        """A whole Adam step in its steady state: a batch -> the loss."""

    @abstractmethod
    def decoding(self, step: Call, parameters: Arrays, caches: list[Array]) -> Call:
        """The steady state of step(parameters, caches, token, position) -> logits."""

    @abstractmethod
    def mean(self, x: Array, axes: tuple[int, ...], keep: bool) -> Array:
        """The mean over some axes."""

    def total(self, x: Array, axis: int | None) -> Array:
        """The sum over one axis or over all."""
        return x.sum(axis)

    @abstractmethod
    def concat(self, parts: Sequence[Array], axis: int) -> Array:
        """Tensors one behind the other."""

    def permute(self, x: Array, order: tuple[int, ...]) -> Array:
        """The axes in another order."""
        return x.permute(order)

    def embedding(self, weight: Array, indices: Array) -> Array:
        """The rows that are named."""
        return weight[indices]

    @abstractmethod
    def conv(
        self,
        x: Array,
        weight: Array,
        bias: Array | None = None,
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
    ) -> Array:
        """A convolution of images (batch, channels, height, width)."""

    @abstractmethod
    def pool(self, x: Array) -> Array:
        """The maximum of each 2 x 2 window."""

    @abstractmethod
    def batch_norm(
        self, x: Array, parameters: Arrays, state: Arrays, name: str, training: bool
    ) -> Array:
        """A batch norm of images whose weights and statistics are called after `name`."""

    @abstractmethod
    def cross_entropy(self, logits: Array, labels: Array) -> Array:
        """The mean loss of rows of scores."""

    @abstractmethod
    def attention(self, query: Array, key: Array, value: Array, causal: bool) -> Array:
        """softmax(query @ key.T / sqrt(size)) @ value, as the framework offers it."""

    @abstractmethod
    def write(self, caches: list[Array], rows: Sequence[Array], position: Array) -> list[Array]:
        """The caches with one row (axis 2) written."""

    @abstractmethod
    def attend(self, query: Array, key: Array, value: Array, position: Array) -> Array:
        """Attention to the rows of a cache up to `position`."""

    @abstractmethod
    def row(self, table: Array, position: Array) -> Array:
        """One row of a table, with its axis kept."""

    def keep(self, x: Array) -> Array:
        """A value that is worth its memory: the end of a layer."""
        return x


@final
class TensorFramework(Framework):
    """kernelet, and tinygrad, whose names it shares."""

    def __init__(self, package: str) -> None:
        self._package = import_module(package)
        self._nn = import_module(package + ".nn")
        tensor = self._tensor = self._package.Tensor
        self.relu, self.silu, self.gelu = tensor.relu, tensor.silu, tensor.gelu
        self.softmax, self.rsqrt = tensor.softmax, tensor.rsqrt
        self.argmax, self.cumsum = tensor.argmax, tensor.cumsum
        device = self._package.Device.DEFAULT
        self.version = f"{_version(package)} ({device})"
        self._package.GlobalCounters.reset()

    def tensor(self, values: Numbers) -> Array:
        return self._tensor(np.ascontiguousarray(values)).contiguous().realize()

    def numbers(self, x: Array) -> Numbers:
        found: Numbers = x.numpy()
        return found

    def wait(self, result: Array) -> None:
        self._package.Device[self._package.Device.DEFAULT].synchronize()

    def count_kernels(self) -> int | None:
        count: int = self._package.GlobalCounters.kernel_count
        self._package.GlobalCounters.reset()
        return count

    def inference(self, function: Call) -> Call:
        captured: Call = self._package.TinyJit(lambda *x: function(*x).realize())
        return captured

    def training(self, loss: Loss, parameters: Arrays, state: Arrays) -> Call:
        for value in state.values():
            if hasattr(value, "is_param_"):
                value.is_param_(False)
        optimizer = self._nn.optim.Adam(list(parameters.values()), lr=1e-3)

        def step(*batch: Array) -> Array:
            with self._in_training():
                optimizer.zero_grad()
                result = loss(parameters, state, *batch).backward()
                return result.realize(*optimizer.schedule_step(), *state.values())

        captured: Call = self._package.TinyJit(step)
        return captured

    def _in_training(self) -> AbstractContextManager[object]:
        plain = hasattr(self._tensor, "train")  # not in every version
        made = self._tensor.train() if plain else self._package.Context(TRAINING=1)
        context: AbstractContextManager[object] = made
        return context

    def decoding(self, step: Call, parameters: Arrays, caches: list[Array]) -> Call:
        position = self._package.Variable("position", 1, caches[0].shape[2] - 1)
        captured = self.inference(lambda token, bound: step(parameters, list(caches), token, bound))
        return lambda token, number: captured(token, position.bind(number))

    def mean(self, x: Array, axes: tuple[int, ...], keep: bool) -> Array:
        return x.mean(axes, keepdim=keep)

    def concat(self, parts: Sequence[Array], axis: int) -> Array:
        return parts[0].cat(*parts[1:], dim=axis)

    def conv(
        self,
        x: Array,
        weight: Array,
        bias: Array | None = None,
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
    ) -> Array:
        return x.conv2d(weight, bias, groups=groups, stride=stride, padding=padding)

    def pool(self, x: Array) -> Array:
        return x.max_pool2d((2, 2))

    def batch_norm(
        self, x: Array, parameters: Arrays, state: Arrays, name: str, training: bool
    ) -> Array:
        norm = self._nn.BatchNorm(x.shape[1])
        norm.weight, norm.bias = parameters[name + ".weight"], parameters[name + ".bias"]
        norm.running_mean, norm.running_var = state[name + ".mean"], state[name + ".var"]
        return norm(x)

    def cross_entropy(self, logits: Array, labels: Array) -> Array:
        return logits.sparse_categorical_crossentropy(labels)

    def attention(self, query: Array, key: Array, value: Array, causal: bool) -> Array:
        return query.scaled_dot_product_attention(key, value, is_causal=causal)

    def write(self, caches: list[Array], rows: Sequence[Array], position: Array) -> list[Array]:
        pairs = zip(caches, rows, strict=True)
        written = [cache[:, :, position : position + 1].assign(row) for cache, row in pairs]
        self._tensor.realize(*written)
        return caches

    def attend(self, query: Array, key: Array, value: Array, position: Array) -> Array:
        key, value = key[:, :, : position + 1], value[:, :, : position + 1]
        return query.scaled_dot_product_attention(key, value)

    def row(self, table: Array, position: Array) -> Array:
        return table[position : position + 1]

    def keep(self, x: Array) -> Array:
        # Without it, each write to a cache would compute all layers before it again.
        return x.contiguous()


def _version(package: str) -> str:
    metadata = import_module("importlib.metadata")
    try:
        return str(metadata.version(package))
    except metadata.PackageNotFoundError:
        return "from source"


# Which package a framework needs, and the class that speaks for it.
PACKAGES = {
    "kernelet": "kernelet",
    "torch": "torch",
    "torch-compile": "torch",
    "jax": "jax",
    "tinygrad": "tinygrad",
}


def make(name: str, threads: int) -> Framework:
    """The framework of that name, told to use so many threads."""
    if name in ("kernelet", "tinygrad"):
        return TensorFramework(name)
    peers = import_module("benchmarks.peers")
    found: Framework = peers.Jax() if name == "jax" else peers.Torch(threads, name != "torch")
    return found


def environment(name: str, threads: int) -> dict[str, str]:
    """The variables under which a framework uses so many threads and frees memory cheaply."""
    count = str(threads)
    found = dict.fromkeys(("THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), count)
    # Large freed blocks stay in the process: else each output of 16 MB or more is mapped anew, and
    # what is timed is its page faults.
    found |= {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
    found["MALLOC_TOP_PAD_"] = str(1 << 26)
    if name == "jax":
        found["JAX_PLATFORMS"] = "cpu"
        if threads == 1:
            flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
            found["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()
    if name == "tinygrad":
        found["DEV"] = "CPU"  # it takes OpenCL by itself where it finds it
    return found
