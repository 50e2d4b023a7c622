"""One rule for each op, right where derivatives are usually wrong."""

import math
import time
from collections.abc import Callable

import numpy as np
import pytest

from kernelet.base.config import Context
from kernelet.base.dtype import dtypes
from kernelet.base.errors import GradientError
from kernelet.frontend.gradient import RULES, SLOPES, gradients, inverse_movement
from kernelet.frontend.tensor import Tensor
from kernelet.graph.ops import COMPARISONS, ELEMENTWISE, MOVEMENT, Op
from kernelet.graph.uop import UOp
from tests.reference.evaluate import evaluate

inf = math.inf


def slope(values: list[float], function: object) -> object:
    x = Tensor(values)
    return function(x).sum().gradient(x)[0].tolist()


def test_every_op_of_floats_has_a_rule() -> None:
    whole = {Op.IDIV, Op.MOD, Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR}
    optional = {Op.SUB, Op.FDIV, Op.TRUNCDIV, Op.TRUNCMOD}
    assert set(RULES) >= (ELEMENTWISE | MOVEMENT) - COMPARISONS - whole - optional


def test_rules_work_on_nodes_alone() -> None:
    x = UOp.buffer(2, dtypes.float32, "PYTHON")
    root = x * x
    found = gradients(root, root.const_like(1), [x])
    assert evaluate(found[x], {x: [3.0, -2.0]}) == [6.0, -4.0]


def test_nodes_without_a_rule_say_so() -> None:
    x = UOp.buffer(2, dtypes.float32, "PYTHON")
    root = UOp(Op.SUB, dtypes.float32, (x, x))
    with pytest.raises(GradientError, match="SUB"):
        gradients(root, root, [x])


def test_nodes_off_the_path_have_no_gradient() -> None:
    x, y = (UOp.buffer(2, dtypes.float32, "PYTHON") for _ in range(2))
    assert gradients(x, x.const_like(1), [y]) == {}
    assert list(gradients(x, x.const_like(1), [x])) == [x]


def test_branches_that_are_not_taken_do_not_leak() -> None:
    assert slope([-4.0, -1.0, 4.0], lambda x: (x > 0).where(x.sqrt(), x)) == [1.0, 1.0, 0.25]
    assert slope([0.0, 1.0], lambda x: (x == 0).where(0, x * x.sqrt())) == [0.0, 1.5]
    assert slope([0.0, 2.0], lambda x: (x == 0).where(1.0, x.reciprocal())) == [0.0, -0.25]
    assert slope([0.0, 1.0], lambda x: (x == 0).where(x, x.log())) == [1.0, 1.0]
    assert slope([1000.0, 0.0], lambda x: (x > 100).where(x, x.exp())) == [1.0, 1.0]
    assert slope([-1.0, 1.0], lambda x: (x < 0).where(0.0, x * x.log())) == [0.0, 1.0]


@pytest.mark.parametrize(
    "shared",
    [
        lambda x: x.sum(1, keepdim=True),
        lambda x: x.square().sum(1, keepdim=True).sqrt(),
        lambda x: x[:, :1],
    ],
)
def test_a_row_whose_divisor_is_zero_does_not_leak_where_it_is_not_taken(shared) -> None:
    x = Tensor([[0.0, 0.0, 0.0], [1.0, 2.0, 2.0]]).realize()
    divisor = shared(x)
    weights = Tensor([1.0, 10.0, 100.0])
    found = ((divisor > 0).where(x / divisor, 0) * weights).sum().gradient(x)[0]
    alone = ((x / divisor) * weights)[1].sum().gradient(x)[0]
    assert found[0].tolist() == [0.0, 0.0, 0.0]
    np.testing.assert_allclose(found[1].numpy(), alone[1].numpy(), rtol=1e-6, atol=1e-6)


def test_ties_share_the_gradient() -> None:
    assert slope([1.0, 3.0, 3.0], lambda x: x.max()) == [0.0, 0.5, 0.5]
    assert slope([1.0, 2.0], lambda x: x.maximum(Tensor([1.0, 1.0]))) == [0.5, 1.0]
    assert slope([1.0, 2.0], lambda x: x.minimum(Tensor([1.0, 1.0]))) == [0.5, 0.0]


def test_kinks_and_ends_are_as_documented() -> None:
    assert slope([0.0, -1.0, 2.0], lambda x: x.abs()) == [0.0, -1.0, 1.0]
    assert slope([0.0, -1.0, 2.0], lambda x: x.relu()) == [0.0, 0.0, 1.0]
    assert slope([0.0, 4.0], lambda x: x.sqrt()) == [inf, 0.25]
    assert slope([0.0, 3.0], lambda x: x.clamp(0, 2)) == [1.0, 0.0]
    assert slope([1.5, -0.2], lambda x: x.floor() + x.round() + x.sign()) == [0.0, 0.0]


def test_powers_have_slopes_at_zero() -> None:
    assert slope([0.0, -1.0, 2.0], lambda x: x**2) == [0.0, -2.0, 4.0]
    assert slope([0.0, -1.0], lambda x: x**1) == [1.0, 1.0]
    assert slope([0.0, -1.0], lambda x: x**0) == [0.0, 0.0]
    assert slope([-2.0, 0.0], lambda x: x**3) == [12.0, 0.0]
    base, power = Tensor([0.0, 2.0, 0.0]), Tensor([2.0, 3.0, 1.0])
    of_base, of_power = (base**power).sum().gradient(base, power)
    assert of_base.tolist() == [0.0, 12.0, 1.0]
    assert of_power.tolist()[0] == 0.0
    assert abs(of_power.tolist()[1] - 8 * math.log(2)) < 1e-5


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ([0.0, 2.0, 3.0], [6.0, 0.0, 0.0]),
        ([0.0, 0.0, 3.0], [0.0, 0.0, 0.0]),
        ([2.0, 4.0, 5.0], [20.0, 10.0, 8.0]),
    ],
)
def test_products_with_zeros_have_the_right_slope(values: list[float], want: list[float]) -> None:
    assert slope(values, lambda x: x.prod()) == want


def test_products_derive_twice_and_over_several_axes() -> None:
    x = Tensor([0.0, 2.0, 3.0])
    (first,) = x.prod().gradient(x)
    assert first.sum().gradient(x)[0].tolist() == [5.0, 3.0, 2.0]
    y = Tensor([[[1.0, 2.0], [3.0, 0.0]], [[1.0, 1.0], [2.0, 2.0]]])
    assert y.prod((0, 2)).sum().gradient(y)[0].tolist() == [
        [[2.0, 1.0], [0.0, 12.0]],
        [[2.0, 2.0], [0.0, 0.0]],
    ]


def test_derivatives_derive_again() -> None:
    x = Tensor([2.0, -1.0, 0.0])
    (first,) = (x**4).sum().gradient(x)
    (second,) = first.sum().gradient(x)
    (third,) = second.sum().gradient(x)
    assert second.tolist() == [48.0, 12.0, 0.0]
    assert third.tolist() == [48.0, -24.0, 0.0]
    (first,) = ((x.exp() - 1) ** 2).sum().gradient(x)
    assert first.sum().gradient(x)[0].tolist()[2] == 2.0


@pytest.mark.parametrize("name", [name for name in SLOPES if isinstance(name, str)])
def test_named_functions_have_the_slope_of_their_formula(name: str) -> None:
    values = [1.5, 2.0] if name == "acosh" else [-0.6, 0.25]
    x = Tensor(values, dtype="float64")
    near = 1e-6
    function = getattr(Tensor, name)
    rise = (function(x + near) - function(x - near)) / (2 * near)
    (found,) = function(x).sum().gradient(x)
    for got, want in zip(found.tolist(), rise.tolist(), strict=True):  # type: ignore[arg-type]
        assert got == pytest.approx(want, rel=1e-6)  # type: ignore[arg-type]
    (again,) = found.sum().gradient(x)
    assert all(math.isfinite(value) for value in again.tolist())  # type: ignore[union-attr, arg-type]


def test_integers_and_bits_stop_gradients() -> None:
    x = Tensor([1.5, 2.5])
    assert slope([1.5, 2.5], lambda x: x.int().float() + x) == [1.0, 1.0]
    assert (x.bitcast("int32").float() + x).sum().gradient(x)[0].tolist() == [1.0, 1.0]
    assert (x.half() * 2).sum().gradient(x)[0].dtype is dtypes.float32


def test_movements_bring_gradients_back_to_their_places() -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    weights = Tensor([[1.0, 10.0], [100.0, 1000.0]])
    assert (x.T * weights).sum().gradient(x)[0].tolist() == [[1.0, 100.0], [10.0, 1000.0]]
    assert (x.flip(0) * weights).sum().gradient(x)[0].tolist() == [[100.0, 1000.0], [1.0, 10.0]]
    assert x[1:].expand(3, 2).sum().gradient(x)[0].tolist() == [[0.0, 0.0], [3.0, 3.0]]
    assert x.pad(((1, 0), (0, 1))).exp().sum().gradient(x)[0].shape == (2, 2)


def test_inverse_movements_fill_with_zero() -> None:
    x = UOp.buffer(4, dtypes.float32, "PYTHON")
    cut = UOp(Op.SHRINK, dtypes.float32, (x,), ((1, 3),))
    value = UOp.const(5.0, dtypes.float32).broadcast_to((2,))
    assert evaluate(inverse_movement(cut, value)) == [0.0, 5.0, 5.0, 0.0]


def test_copies_bring_gradients_back_to_their_device() -> None:
    x = Tensor([1.0, 2.0])
    (found,) = (x.to("PYTHON:1") * 3).sum().gradient(x)
    assert (found.device, found.tolist()) == ("PYTHON", [3.0, 3.0])


def test_sums_of_halves_do_not_lose_small_parts() -> None:
    x = Tensor([1.0], dtype="half")
    assert x.expand(3000).sum().gradient(x)[0].tolist() == [3000.0]


def test_deep_graphs_do_not_recurse() -> None:
    x = Tensor([1.0])
    y = x
    for _ in range(20_000):
        y = y + 1
    start = time.perf_counter()
    (found,) = (y * y).sum().gradient(x)
    assert time.perf_counter() - start < 10
    assert found.shape == (1,)


@pytest.mark.parametrize(
    "limited",
    [lambda x: x.relu(), lambda x: x.le(3).where(3, x), lambda x: x.ge(2).where(2, x)],
    ids=["relu", "from below", "from above"],
)
def test_what_passes_a_limit_is_told_from_the_result(
    limited: Callable[[Tensor], Tensor],
) -> None:
    x = Tensor([-2.0, -1.0, -0.0, 0.0, 0.5, 2.0, 3.0, 4.0, inf, -inf])
    node = limited(x).uop
    seed = UOp.const(1.0, dtypes.float32).broadcast_to((10,))
    below = gradients(node, seed, [x.uop])[x.uop].toposort()
    assert node in below
    condition = node.src[0]
    readers = [each for each in below if condition in each.src]
    assert readers == [node]


def test_a_value_that_is_no_number_passes_a_limit() -> None:
    assert slope([math.nan, -1.0, 1.0], lambda x: x.relu()) == [1.0, 0.0, 1.0]


@pytest.mark.parametrize("device", ["PYTHON", "LLVM"])
@pytest.mark.parametrize(
    "choose",
    [
        lambda x: x.max(2),
        lambda x: x.min(1),
        lambda x: x.max(),
        lambda x: x.unsqueeze(1).max_pool2d((2, 2)),
        lambda x: x.logsumexp(1),
        lambda x: x.softmax(2),
        lambda x: x.relu(),
        lambda x: x.maximum(0.1),
        lambda x: x.sort(2)[0],
        lambda x: x.median(1),
        lambda x: x.cummax(1)[0],
        lambda x: x.prod(2),
    ],
)
def test_gradients_do_not_depend_on_what_was_realized_before(choose, device):
    """What is chosen is computed again, in another kernel and perhaps rounded otherwise."""
    with Context(DEV=device):
        for seed, size in enumerate((3, 4, 5)):
            data = np.random.default_rng(seed).normal(size=(size - 1, size, size))
            found = []
            for is_realized in (False, True):
                x = Tensor(data.astype(np.float32), requires_grad=True)
                rows = x.permute(0, 2, 1)
                y = choose(rows * (rows.var(2, keepdim=True) + 1).rsqrt())
                y = y.realize() if is_realized else y
                found.append(y.square().sum().gradient(x)[0].numpy())
            np.testing.assert_allclose(found[1], found[0], rtol=1e-3, atol=1e-4)
