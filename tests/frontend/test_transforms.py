"""Gradients, derivatives along directions and batches of functions; and their errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from kernelet import Context, GlobalCounters, Tensor, TinyJit
from kernelet.base.errors import ArgumentError, GradientError, IndexingError, ShapeError
from kernelet.frontend.transforms import (
    checkpoint,
    grad,
    hessian,
    jacobian,
    jvp,
    value_and_grad,
    vjp,
    vmap,
)

Pointwise = Callable[[Tensor], Tensor]
POINTS = np.array([0.3, -1.2, 2.0], np.float32)
FUNCTIONS: dict[str, Pointwise] = {
    "products": lambda x: x * x * x - 2 * x,
    "exponentials": lambda x: (x * 0.5).exp() * x.sigmoid(),
    "waves": lambda x: x.sin() * x.cos(),
    "kinks": lambda x: x.relu() + x.abs(),
    "rows": lambda x: x.softmax() * x.cumsum(),
    "moves": lambda x: x.flip(0).pad((1, 0))[:3] * x,
    "products of matrices": lambda x: (x.outer(x) @ x).tanh(),
    "extremes": lambda x: x.max() * x,
}


def rows(*shape: int, seed: int = 0) -> Tensor:
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return Tensor(values).realize()


def slopes(function: Pointwise, at: np.ndarray) -> np.ndarray:
    """The Jacobian by central differences, in float64."""
    step, columns = 1e-5, []
    for place in range(at.size):
        change = np.zeros(at.shape)
        change.flat[place] = step
        above, below = (function(Tensor(at.astype(np.float64) + s * change)) for s in (1, -1))
        columns.append((above.numpy() - below.numpy()) / (2 * step))
    return np.stack(columns, -1)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_those_of_finite_differences(name: str) -> None:
    function = FUNCTIONS[name]
    wanted, x = slopes(function, POINTS), Tensor(POINTS)
    np.testing.assert_allclose(jacobian(function)(x).numpy(), wanted, atol=2e-4)
    direction = Tensor([1.0, -0.5, 2.0])
    value, slope = jvp(function, (x,), (direction,))
    np.testing.assert_allclose(value.numpy(), function(x).numpy(), rtol=1e-6)
    np.testing.assert_allclose(slope.numpy(), wanted @ direction.numpy(), atol=5e-4)
    _, pull = vjp(function, x)
    np.testing.assert_allclose(pull(direction)[0].numpy(), direction.numpy() @ wanted, atol=5e-4)


def test_derivatives_nest_to_any_depth() -> None:
    function = grad(grad(grad(lambda x: x**4)))
    assert function(Tensor(2.0)).item() == pytest.approx(48.0)
    found = hessian(lambda x: (x**3).sum() + x[0] * x[1])(Tensor([1.0, 2.0]))
    assert found.tolist() == [[6.0, 1.0], [1.0, 12.0]]


def test_only_the_argument_is_derived_not_the_same_tensor_elsewhere() -> None:
    x = Tensor([3.0])
    assert grad(lambda y: (y * x).sum())(x).tolist() == [3.0]


def test_an_unused_argument_has_gradient_zero() -> None:
    first, second = grad(lambda x, y: x.sum(), argnums=(0, 1))(Tensor([1.0]), Tensor([2.0, 3.0]))
    assert (first.tolist(), second.tolist()) == ([1.0], [0.0, 0.0])


@dataclass
class Layer:
    weight: Tensor
    bias: Tensor


def test_gradients_are_nested_as_the_arguments_are() -> None:
    parameters = {"layers": [Layer(rows(3, 2), rows(2, seed=1))], "scale": Tensor(2.0)}

    def loss(parameters: dict, x: Tensor) -> Tensor:
        layer = parameters["layers"][0]
        return ((x @ layer.weight + layer.bias) * parameters["scale"]).sum()

    x = rows(4, 3, seed=2)
    value, found = value_and_grad(loss)(parameters, x)
    np.testing.assert_allclose(value.item(), loss(parameters, x).item(), rtol=1e-6)
    np.testing.assert_allclose(found["layers"][0].bias.numpy(), [8.0, 8.0], rtol=1e-6)
    wanted = 2 * x.numpy().sum(0)[:, None] * np.ones((1, 2))
    np.testing.assert_allclose(found["layers"][0].weight.numpy(), wanted, rtol=1e-5)


def test_what_else_a_function_returns_is_handed_through() -> None:
    def loss(x: Tensor) -> tuple[Tensor, dict]:
        return (x * x).sum(), {"double": x * 2}

    (value, others), found = value_and_grad(loss, has_aux=True)(Tensor([3.0]))
    assert (value.item(), others["double"].tolist(), found.tolist()) == (9.0, [6.0], [6.0])
    found, others = grad(loss, has_aux=True)(Tensor([3.0]))
    assert (found.tolist(), others["double"].tolist()) == ([6.0], [6.0])


# ---- batches ----


MAPPED = {
    "a norm": lambda x: x.square().sum().sqrt(),
    "a sort": lambda x: x.sort()[0],
    "a choice": lambda x: (x > 0).where(x, -x).cumsum(),
    "a lookup": lambda x: x[Tensor([2, 0, 2])],
    "a write": lambda x: written(x),
    "a convolution": lambda x: x.reshape(1, 1, -1).conv1d(Tensor([[[1.0, 2.0]]])),
    "a constant": lambda x: Tensor.arange(2),
    "a gradient": grad(lambda x: (x * x.softmax()).sum()),
    "a batch of its own": lambda x: vmap(lambda y: y * x)(x),
    "an argument of another type": lambda x: x.argmax(),
}


def written(x: Tensor) -> Tensor:
    table = Tensor.zeros(5).contiguous()
    table[1:4] = x
    table[0] = x.sum()
    return table


@pytest.mark.parametrize("name", MAPPED)
def test_a_batch_is_each_element_by_itself(name: str) -> None:
    function, batch = MAPPED[name], rows(4, 3)
    wanted = np.stack([function(batch[at]).numpy() for at in range(4)])
    np.testing.assert_allclose(vmap(function)(batch).numpy(), wanted, rtol=2e-5, atol=1e-6)


def test_axes_say_where_the_batch_is() -> None:
    x, y = rows(3, 4), rows(2, 3, seed=1)
    found = vmap(lambda row, same: row @ same.T, in_axes=(1, None), out_axes=1)(x, y)
    np.testing.assert_allclose(found.numpy(), y.numpy() @ x.numpy(), rtol=1e-5)
    found = vmap(lambda row: row.sum(), in_axes=-1)(x)
    np.testing.assert_allclose(found.numpy(), x.numpy().sum(0), rtol=1e-5)


def test_an_argument_that_is_written_stays_as_it_was() -> None:
    def change(row: Tensor) -> Tensor:
        row = row.clone()
        row[0] = 9.0
        return row

    batch = Tensor([[1.0, 2.0], [3.0, 4.0]])
    assert vmap(change)(batch).tolist() == [[9.0, 2.0], [9.0, 4.0]]
    assert batch.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_the_number_of_kernels_does_not_depend_on_the_batch() -> None:
    def kernels(size: int) -> int:
        weight, batch = Tensor.empty(16, 8).realize(), Tensor.empty(size, 16).realize()
        before = GlobalCounters.kernel_count
        vmap(grad(lambda x: (x @ weight).tanh().sum()))(batch).realize()
        return GlobalCounters.kernel_count - before

    with Context(DEV="NULL"):
        assert kernels(1000) == kernels(20) == kernels(2)


def test_per_example_gradients_train_inside_a_captured_step() -> None:
    weight, batch = rows(3, 2), rows(5, 3, seed=1)

    def loss(weight: Tensor, x: Tensor) -> Tensor:
        return (x @ weight).square().sum()

    @TinyJit
    def step(batch: Tensor) -> Tensor:
        return vmap(grad(loss), in_axes=(None, 0))(weight, batch).realize()

    for seed in range(4):
        batch = rows(5, 3, seed=seed)
        x, w = batch.numpy(), weight.numpy()
        wanted = 2 * x[:, :, None] * (x @ w)[:, None, :]
        np.testing.assert_allclose(step(batch).numpy(), wanted, rtol=1e-4, atol=1e-5)


# ---- checkpoints ----


def network(block: Callable, weights: list[Tensor], x: Tensor) -> Tensor:
    for weight in weights:
        x = block(x, weight)
    return x.square().mean()


def block(x: Tensor, weight: Tensor) -> Tensor:
    return ((x @ weight).gelu() @ weight).tanh()


def test_a_checkpoint_has_the_gradients_of_the_function() -> None:
    weights, x = [rows(3, 3, seed=seed) * 0.3 for seed in range(2)], rows(2, 3)
    plain = grad(lambda weights: network(block, weights, x))(weights)
    again = grad(lambda weights: network(checkpoint(block), weights, x))(weights)
    for one, other in zip(plain, again, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-7)
    for weight in weights:
        weight.requires_grad = True
    network(checkpoint(block), weights, x).backward()
    for weight, wanted in zip(weights, plain, strict=True):
        np.testing.assert_allclose(weight.grad.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-7)


def test_a_checkpoint_holds_less_memory() -> None:
    def peak(block: Callable) -> int:
        weights = [Tensor.empty(64, 64) for _ in range(8)]
        x = Tensor.empty(512, 64)
        found = grad(lambda weights: network(block, weights, x))(weights)
        GlobalCounters.reset()
        before = GlobalCounters.mem_used
        Tensor.realize(*found)
        return GlobalCounters.peak_mem - before

    with Context(DEV="NULL"):  # which keeps memory and computes nothing
        assert peak(checkpoint(block)) < 0.6 * peak(block)


def test_random_numbers_are_the_same_for_all_elements_unless_they_are_arguments() -> None:
    x = Tensor.zeros(4, 3)
    drawn = vmap(lambda x: x + Tensor.rand(3))(x).numpy()
    assert (drawn == drawn[0]).all()
    assert len(set(drawn[0].tolist())) == 3
    given = vmap(lambda x, noise: x + noise)(x, Tensor.rand(4, 3)).numpy()
    assert len(set(given.flatten().tolist())) == 12


@pytest.mark.parametrize("kind", [float, np.float32, np.array, Tensor])
def test_numbers_and_arrays_are_points_too(kind: Callable) -> None:
    def cube(x: Tensor) -> Tensor:
        return x * x * x

    assert grad(cube)(kind(2.0)).item() == 12.0
    assert grad(grad(cube))(kind(2.0)).item() == 12.0
    value, slope = jvp(cube, (kind(2.0),), (kind(0.5),))
    assert (value.item(), slope.item()) == (8.0, 6.0)
    assert vjp(cube, kind(2.0))[1](kind(0.5))[0].item() == 6.0
    assert grad(lambda pair: pair[0] * pair[1])((kind(2.0), kind(3.0)))[1].item() == 2.0


def test_axes_and_numbers_of_arguments_may_be_those_of_numpy() -> None:
    x = Tensor([[1.0, 2.0, 3.0]])
    assert vmap(lambda x: x.sum(), in_axes=np.int64(1))(x).tolist() == [1.0, 2.0, 3.0]
    assert vmap(lambda x: x.sum(), in_axes=np.array([1]))(x).tolist() == [1.0, 2.0, 3.0]
    assert grad(lambda x, y: (x * y).sum(), argnums=np.int64(1))(x, x).tolist() == x.tolist()
    assert len(grad(lambda x, y: (x * y).sum(), argnums=np.array([0, 1]))(x, x)) == 2
    with pytest.raises(ArgumentError, match="vmap: in_axes='a'.*Give int"):
        vmap(lambda x: x, in_axes="a")


# ---- misuse ----


def test_misuse_is_told_by_name() -> None:
    x = Tensor([[1.0, 2.0]])
    with pytest.raises(
        GradientError, match=r"grad: the function returned a tensor of shape \(1, 2\)"
    ):
        grad(lambda x: x)(x)
    with pytest.raises(GradientError, match="grad: the function returned int"):
        grad(lambda x: 3)(x)
    with pytest.raises(ArgumentError, match="argnums=2 of 1 positional"):
        grad(lambda x: x.sum(), argnums=2)(x)
    with pytest.raises(GradientError, match=r"vjp: the function returned shapes \(1, 2\)"):
        vjp(lambda x: x, x)[1](Tensor([1.0]))
    with pytest.raises(IndexingError, match="vmap: axis 2: the tensor has shape"):
        vmap(lambda x: x, in_axes=2)(x)
    with pytest.raises(ShapeError, match=r"vmap: shape \(\): .*1 or more axes"):
        vmap(lambda x: x)(x.sum())
    with pytest.raises(ShapeError, match="sizes of the batch are 1, 3"):
        vmap(lambda x, y: x)(x, Tensor([1.0, 2.0, 3.0]))
    with pytest.raises(ShapeError, match="sizes of the batch are none"):
        vmap(lambda x: x, in_axes=None)(x)
    with pytest.raises(ArgumentError, match="in_axes has 1 axes for 2 arguments"):
        vmap(lambda x, y: x, in_axes=(0,))(x, x)


@pytest.mark.parametrize(
    "look",
    [
        lambda x: x.tolist(),
        lambda x: x.numpy(),
        lambda x: x.sum().item(),
        lambda x: bool(x.sum() > 0),
        lambda x: x.nonzero(),
        lambda x: x.realize(),
        lambda x: x[x.argmax().item()],
    ],
)
def test_no_element_of_a_batch_has_a_value_of_its_own(look: Callable) -> None:
    with pytest.raises(ArgumentError, match="inside vmap a tensor stands for every element"):
        vmap(look)(Tensor([[1.0, 2.0]]))
    assert vmap(lambda x: (repr(x), x)[1])(Tensor([[1.0]])).tolist() == [[1.0]]


def test_a_batch_of_scalars_and_an_empty_batch() -> None:
    assert vmap(lambda x: x * 2)(Tensor([1.0, 2.0])).tolist() == [2.0, 4.0]
    assert vmap(lambda x: x.sum())(Tensor.zeros(0, 3)).shape == (0,)
    assert math.isclose(grad(lambda x: x.sum())(Tensor([1.0])).item(), 1.0)


@pytest.mark.parametrize("is_captured", [False, True])
def test_a_checkpoint_trains_as_the_function_does(is_captured: bool) -> None:
    x = rows(4, 3)

    def losses(again: Callable) -> list[float]:
        weights = [Tensor(rows(3, 3, seed=seed).numpy()) for seed in (1, 2)]

        def step(x: Tensor) -> Tensor:
            value, found = value_and_grad(lambda weights: network(again(block), weights, x))(
                weights
            )
            for weight, slope in zip(weights, found, strict=True):
                weight.assign(weight - 0.1 * slope)
            return value.realize(*weights)

        run = TinyJit(step) if is_captured else step
        return [run(x).item() for _ in range(4)]

    assert losses(checkpoint) == pytest.approx(losses(lambda function: function), rel=1e-5)
