"""Derivatives of elementwise, movement and indexing methods agree with finite differences."""

from collections.abc import Callable

import numpy as np
import pytest

from kernelet.base.config import Context
from kernelet.frontend.tensor import Tensor

STEP = 1e-6
Function = Callable[[Tensor], Tensor]


def values(*shape: int) -> np.ndarray:
    """Numbers away from 0, 1 and -1, where many functions have kinks or ends."""
    found = np.random.default_rng(len(shape)).uniform(0.15, 0.85, shape)
    return found * np.where(np.arange(found.size).reshape(shape) % 2, 1, -1)


def check(function: Function, x: np.ndarray, order: int = 1) -> None:
    """Compare the slope of a weighted sum of the result with central differences."""
    with Context(DEV="PYTHON"):
        weights = np.random.default_rng(9).standard_normal(function(Tensor(x)).shape)

        def total(at: np.ndarray) -> tuple[Tensor, Tensor]:
            leaf = Tensor(at)
            result = (function(leaf) * Tensor(weights)).sum()
            for step in range(order - 1):
                result = (result.gradient(leaf)[0] * (step + 1.5)).sum()
            return leaf, result

        leaf, result = total(x)
        slope = result.gradient(leaf)[0].numpy()
        moves = STEP * np.eye(x.size).reshape(-1, *x.shape)
        pairs = [(total(x + move)[1], total(x - move)[1]) for move in moves]
        Tensor.realize(*[each for pair in pairs for each in pair])
        want = [(high.item() - low.item()) / (2 * STEP) for high, low in pairs]
    np.testing.assert_allclose(slope.reshape(-1), want, rtol=1e-5, atol=1e-6)


NAMES = ["exp", "exp2", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"]
NAMES += ["asinh", "atanh", "erf", "expm1", "log1p", "neg", "abs", "square", "reciprocal"]
NAMES += ["relu", "relu6", "leaky_relu", "elu", "celu", "selu", "sigmoid", "logsigmoid"]
NAMES += ["softplus", "softsign", "silu", "mish", "gelu", "quick_gelu", "hardtanh", "hardswish"]
NAMES += ["hardsigmoid", "tanhshrink", "softshrink", "hardshrink", "frac", "sign", "floor"]
POSITIVE = ["sqrt", "rsqrt", "log", "log2", "log10"]


@pytest.mark.parametrize("name", NAMES)
def test_functions_have_the_slope_of_their_curve(name: str) -> None:
    check(lambda x: getattr(x, name)(), values(5))


@pytest.mark.parametrize("name", POSITIVE)
def test_functions_of_positive_numbers_have_the_slope_of_their_curve(name: str) -> None:
    check(lambda x: getattr(x, name)(), abs(values(5)))


@pytest.mark.parametrize(
    "name", ["exp", "sin", "tanh", "sigmoid", "erf", "gelu", "softplus", "log1p", "silu", "atan"]
)
def test_slopes_have_slopes(name: str) -> None:
    check(lambda x: getattr(x, name)(), values(4), order=2)


Y = np.array([[0.4], [-1.3]])

BINARY: dict[str, Function] = {
    "add": lambda x: x + Tensor(Y) + x,
    "sub": lambda x: Tensor(Y) - x,
    "mul": lambda x: x * Tensor(Y) * x,
    "div": lambda x: Tensor(Y) / x + x / Tensor(Y),
    "floordiv": lambda x: x // Tensor(Y),
    "mod": lambda x: x % Tensor(Y),
    "fmod": lambda x: x.fmod(Tensor(Y)),
    "pow of x": lambda x: x.abs() ** Tensor(Y) + x**3 + x**-2,
    "pow by x": lambda x: Tensor(abs(Y)) ** x + 2.5**x,
    "maximum": lambda x: x.maximum(Tensor(Y)),
    "minimum": lambda x: x.minimum(Tensor(Y)) * x,
    "clamp": lambda x: x.clamp(-0.5, 0.3),
    "where": lambda x: (x > 0).where(x * x, x.exp()),
    "lerp": lambda x: x.lerp(Tensor(Y), 0.3),
    "logaddexp": lambda x: x.logaddexp(Tensor(Y)),
    "atan2": lambda x: x.atan2(Tensor(Y)),
    "copysign": lambda x: x.copysign(Tensor(Y)),
    "masked_fill": lambda x: x.masked_fill(x > 0.2, 3.0),
    "cast": lambda x: x.cast("float32").cast("float64") * 0 + x.double(),
}


@pytest.mark.parametrize("name", BINARY)
def test_operators_have_the_slope_of_their_curve(name: str) -> None:
    check(BINARY[name], values(2, 3))


MOVES: dict[str, Function] = {
    "reshape": lambda x: x.reshape(3, -1) * 2,
    "permute": lambda x: x.permute(2, 0, 1),
    "expand": lambda x: x.unsqueeze(1).expand(2, 3, 3, 2),
    "pad": lambda x: x.pad(((1, 0), (0, 2), (1, 1)), value=3.0),
    "reflect": lambda x: x.pad((1, 1, 2, 1), mode="reflect"),
    "replicate": lambda x: x.pad((1, 1, 2, 1), mode="replicate"),
    "circular": lambda x: x.pad((1, 1, 2, 1), mode="circular"),
    "shrink": lambda x: x.shrink(((0, 1), (1, 3), (0, 2))),
    "flip": lambda x: x.flip((0, 2)),
    "cat": lambda x: x.cat(x * x, dim=1),
    "stack": lambda x: x.stack(x.exp(), dim=-1),
    "repeat": lambda x: x.repeat(2, 1, 2),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "roll": lambda x: x.roll(1, 1),
    "tril": lambda x: x.tril(),
    "triu": lambda x: x.triu(1),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "split": lambda x: x.split(2, 1)[0] * x.split(2, 1)[1],
    "slices": lambda x: x[::-1, ::2, 1:],
    "number": lambda x: x[1] * x[0, -1],
    "index": lambda x: x[:, Tensor([0, 2, 2, -1])],
    "two indices": lambda x: x[Tensor([0, 1, 1]), :, Tensor([1, 0, 1])],
    "mask": lambda x: x[Tensor([[True, False, True], [False, True, True]])],
    "gather": lambda x: x.gather(1, Tensor([[[0, 2]], [[1, 1]]])),
    "scatter": lambda x: x.scatter(1, Tensor([[[0, 2]], [[1, 1]]]), x[:, :1] * 2),
    "scatter sum": lambda x: x.scatter_add(1, Tensor([[[0, 2]], [[1, 1]]]), x[:, :1] * 2),
    "scatter max": lambda x: x.scatter_reduce(1, Tensor([[[0, 2]], [[1, 1]]]), x[:, :1], "amax"),
    "scatter prod": lambda x: x.scatter_reduce(1, Tensor([[[0, 2]], [[1, 1]]]), x[:, :1], "prod"),
}


@pytest.mark.parametrize("name", MOVES)
def test_movements_have_the_slope_of_their_curve(name: str) -> None:
    check(MOVES[name], values(2, 3, 2))


def written(x: Tensor) -> Tensor:
    """Slices, steps and indices written one after the other."""
    y = x * 2
    y[0, 1:] = x[1, :2] * x[1, 1:]
    y[:, ::2] *= x[:, ::2]
    y[1, Tensor([2, 0])] = x[0, Tensor([1, 1])].exp()
    return y * x


def test_writes_have_the_slope_of_their_curve() -> None:
    check(written, values(2, 3, 2))


@pytest.mark.parametrize("rest", [Tensor.fmod, Tensor.mod])
@pytest.mark.parametrize("divisor", [2.0, -2.0])
def test_a_rest_has_slope_one_at_zeros_of_both_signs(rest, divisor):
    x = Tensor([0.0, -0.0, 0.5, -0.5])
    assert rest(x, divisor).sum().gradient(x)[0].tolist() == [1.0] * 4
