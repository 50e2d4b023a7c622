"""Random chains of operations on random cuts of tensors give what one device gives."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from kernelet import Context, Tensor

Step = Callable[[Tensor, Tensor], Tensor]


def steps(chance: random.Random, x: Tensor) -> dict[str, Step]:
    """Operations that fit a tensor, some of them along an axis that is drawn."""
    axis = chance.randrange(x.ndim)
    size = int(x.shape[axis])
    low = chance.randrange(size)
    part = [slice(None)] * x.ndim
    part[axis] = chance.choice([slice(low, None), slice(None, None, 2), slice(None, None, -1)])
    places = [chance.randrange(size) for _ in range(3)]
    order = chance.sample(range(x.ndim), x.ndim)
    found: dict[str, Step] = {
        "add": lambda x, y: x + y,
        "where": lambda x, y: (x > y).where(x, y * 2),
        "sum": lambda x, y: x.sum(axis, keepdim=True) + y * 0,
        "max": lambda x, y: x.max(axis, keepdim=True) - y,
        "softmax": lambda x, y: x.softmax(axis),
        "part": lambda x, y: x[tuple(part)],
        "pick": lambda x, y: x.index_select(axis, Tensor(places, device=x.device)),
        "permute": lambda x, y: x.permute(order),
        "flatten": lambda x, y: x.flatten(),
        "cat": lambda x, y: x.cat(y, dim=axis),
        "pad": lambda x, y: x.pad([(1, 2) if n == axis else (0, 0) for n in range(x.ndim)]),
        "cumsum": lambda x, y: x.cumsum(axis),
        "roll": lambda x, y: x.roll(1, axis),
        "stack": lambda x, y: Tensor.stack(x, y, dim=axis),
        "normalize": lambda x, y: (
            (x - x.mean(axis, keepdim=True)) / (x.var(axis, keepdim=True) + 1)
        ),
        "sort": lambda x, y: x.sort(axis)[0],
        "gather": lambda x, y: x.gather(axis, (y * 0).cast("int32")),
        "keep": lambda x, y: x.contiguous() + 1,
        "norm": lambda x, y: x / (1 + x.norm()),
    }
    if x.ndim == 2:
        found["matmul"] = lambda x, y: x @ y.T
        found["transposed matmul"] = lambda x, y: x.T @ y
    if x.ndim == 3:
        found["convolution"] = lambda x, y: x.conv1d(y[:2] * 0.5, padding=1)
    return found


def computed(seed: int, devices: tuple[str, ...] | None) -> tuple[np.ndarray, np.ndarray]:
    """A random chain and the gradient of what it starts from, on one device or several."""
    chance, generator = random.Random(seed), np.random.default_rng(seed)
    shape = [chance.randrange(3, 6) for _ in range(chance.choice([2, 3]))]
    leaves = [Tensor(generator.normal(size=shape).astype(np.float32)) for _ in range(2)]
    cuts = [chance.choice([*range(len(shape)), None]) for _ in leaves]
    x, other = (
        leaf.shard(devices, cut) if devices else leaf
        for leaf, cut in zip(leaves, cuts, strict=True)
    )
    for _ in range(chance.randrange(1, 5)):
        if x.ndim not in (2, 3) or x.numel() > 400:
            break
        known = steps(chance, x)
        x = known[chance.choice(list(known))](x, other if other.shape == x.shape else x * 0.5)
    (slope,) = x.square().sum().gradient(leaves[0])
    return x.numpy(), slope.numpy()


@pytest.mark.parametrize("seed", range(24))
def test_random_chains_on_several_devices(seed: int) -> None:
    devices = tuple([f"PYTHON:{n}" for n in range(2 + seed % 2)])
    with Context(DEV="PYTHON"):
        for one, several in zip(computed(seed, None), computed(seed, devices), strict=True):
            np.testing.assert_allclose(several, one, rtol=2e-3, atol=2e-3)
