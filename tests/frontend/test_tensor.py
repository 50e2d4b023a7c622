"""Tensors are lazy handles that convert, write and report like those users know."""

import pickle
from collections.abc import Callable

import numpy as np
import pytest

from kernelet.base.config import Context
from kernelet.base.counters import GlobalCounters
from kernelet.base.errors import GradientError, ShapeError
from kernelet.frontend.tensor import Tensor
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp


def test_nothing_runs_until_values_are_asked_for() -> None:
    x = Tensor([1.0, 2.0])
    before = GlobalCounters.kernel_count
    y = (x + 1) * 2
    assert GlobalCounters.kernel_count == before
    assert y.tolist() == [4.0, 6.0]
    assert GlobalCounters.kernel_count == before + 1


def test_equal_expressions_are_one_node() -> None:
    x = Tensor([1.0, 2.0])
    assert (x + 1).uop is (x + 1).uop
    assert (x + 1).lazydata is (x + 1).uop


def test_numpy_never_aliases() -> None:
    x = Tensor([1.0, 2.0]).realize()
    first = x.numpy()
    x.assign(x + 1).realize()
    assert first.tolist() == [1.0, 2.0]
    first[0] = 9
    assert x.tolist() == [2.0, 3.0]


def test_reprs_show_values_only_when_they_are_there() -> None:
    x = Tensor([1.0]) + 1
    assert repr(x) == "<Tensor (1,) float32 on PYTHON, lazy>"
    assert repr(x.realize()) == "Tensor([2.0], dtype=dtypes.float32, device='PYTHON')"
    assert repr(Tensor(np.zeros(2000))) == "<Tensor (2000,) float64 on PYTHON, realized>"


def test_realize_takes_several() -> None:
    x = Tensor([1.0, 2.0])
    y, z = x + 1, x * 2
    assert Tensor.realize(y, z) is y
    before = GlobalCounters.kernel_count
    assert (y.tolist(), z.tolist()) == ([2.0, 3.0], [2.0, 4.0])
    assert GlobalCounters.kernel_count == before


def test_kernelize_shows_kernels_and_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    x = Tensor([1.0, 2.0]).realize()
    before = GlobalCounters.kernel_count
    with Context(DEBUG=2):
        y = (x + 1).kernelize()
    assert "is scheduled" in capsys.readouterr().out
    assert GlobalCounters.kernel_count == before
    assert y.tolist() == [2.0, 3.0]


def test_comparison_is_elementwise_and_hash_is_identity() -> None:
    x = Tensor([1, 2])
    assert (x == Tensor([1, 3])).tolist() == [True, False]
    assert {x: "value"}[x] == "value"


def test_tensors_pickle() -> None:
    x = pickle.loads(pickle.dumps(Tensor([[1.0, 2.0]], requires_grad=True) * 2))
    assert x.tolist() == [[2.0, 4.0]]


def test_devices_copy() -> None:
    x = Tensor([1.0, 2.0])
    moved = (x + 1).to("PYTHON:1")
    assert (moved.device, moved.tolist()) == ("PYTHON:1", [2.0, 3.0])
    assert x.to("python:0") is x
    assert x.to_("PYTHON:1") is x
    assert x.device == "PYTHON:1"
    assert Tensor([1], device="PYTHON:1").device == "PYTHON:1"
    assert Tensor.ones(2, device="PYTHON:1").device == "PYTHON:1"


def test_clone_has_memory_of_its_own() -> None:
    x = Tensor([1.0, 2.0]).realize()
    y = x.clone().realize()
    y[0] = 5
    assert (x.tolist(), y.tolist()) == ([1.0, 2.0], [5.0, 2.0])


def test_assign_takes_tensors_numbers_and_lists() -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    assert x.assign(0) is x
    assert x.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert x.assign([5, 6]).tolist() == [[5.0, 6.0], [5.0, 6.0]]
    assert x.assign(Tensor([[1], [2]])).tolist() == [[1.0, 1.0], [2.0, 2.0]]
    with pytest.raises(ShapeError, match="assign"):
        x.assign(Tensor.zeros(3, 2, 2))


def test_assign_to_a_lazy_tensor_takes_the_value() -> None:
    x = Tensor.zeros(3)
    x.assign(Tensor([1.0, 2.0, 3.0]) * 2)
    assert x.tolist() == [2.0, 4.0, 6.0]
    y = Tensor.zeros(4)
    z = Tensor.zeros(4)
    y[1] = 5
    assert (y.tolist(), z.tolist()) == ([0.0, 5.0, 0.0, 0.0], [0.0] * 4)


def test_views_write_through_to_their_base() -> None:
    x = Tensor(np.arange(6, dtype=np.int32)).realize()
    x.reshape(2, 3)[1].assign(Tensor([7, 8, 9]))
    assert x.tolist() == [0, 1, 2, 7, 8, 9]
    column = x.reshape(2, 3).T[0]
    column += 100
    assert column.tolist() == [100, 107]
    assert x.tolist() == [100, 1, 2, 107, 8, 9]
    x[::2].flip(0).assign(Tensor([-1, -2, -3]))
    assert x.tolist() == [-3, 1, -2, 107, -1, 9]


@pytest.mark.parametrize(
    "make", [lambda: Tensor([1, 2]), lambda: Tensor.full((2,), 1), lambda: Tensor([1]).expand(2)]
)
def test_a_view_of_all_writes_through_whatever_it_is_of(make: Callable[[], Tensor]) -> None:
    x = make()
    whole = x[:]
    whole += 1
    assert x.tolist() == whole.tolist() == (make() + 1).tolist()


@pytest.mark.parametrize(
    "method",
    ["sum", "max", "min", "prod", "floor", "ceil", "trunc", "round", "abs", "nan_to_num"],
)
def test_a_result_is_another_tensor_though_it_has_the_same_value(method: str) -> None:
    for kind in ("uint8", "int32", "float32"):
        x = Tensor(3, dtype=kind)
        found = getattr(x, method)()
        found += 1
        assert (x.item(), found.item()) == (3, 4)


def test_a_view_sees_what_is_written_through_it() -> None:
    x = Tensor(np.arange(6, dtype=np.int32)).realize()
    table = x.reshape(2, 3)
    row = table[1]
    row[0] = 70
    table[:, 2] = 9
    assert x.tolist() == [0, 1, 9, 70, 4, 9]
    assert table.tolist() == [[0, 1, 9], [70, 4, 9]]
    del x
    row[1] = 8
    assert table.tolist() == [[0, 1, 9], [70, 8, 9]]
    table.replace(Tensor([[1, 2, 3], [4, 5, 6]]).realize())
    row[0] = 0
    assert table.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_leading_axes_of_one_element_are_dropped_from_written_values() -> None:
    x = Tensor([1, 2, 3]).realize()
    x[:2] = Tensor([[[8, 9]]])
    assert x.tolist() == [8, 9, 3]


def test_repeated_elements_are_not_written_through() -> None:
    x = Tensor([1.0]).realize()
    y = x.expand(3)
    y[1] = 5
    assert (x.tolist(), y.tolist()) == ([1.0], [1.0, 5.0, 1.0])


def test_operators_in_place_write() -> None:
    x = Tensor([2.0, 4.0]).realize()
    alias = x
    x += 1
    x -= Tensor([1.0, 1.0])
    x *= 3
    x /= 2
    assert alias is x
    assert x.tolist() == [3.0, 6.0]


def test_gradients_pass_through_operators_in_place() -> None:
    x, bias = Tensor([1.0, 2.0]), Tensor([3.0, 4.0], requires_grad=True)
    h = x * 2
    h += bias * 5
    h.sum().backward()
    assert bias.grad is not None
    assert bias.grad.tolist() == [5.0, 5.0]


def test_backward_fills_every_float_leaf_unless_told_otherwise() -> None:
    x, y = Tensor([2.0]), Tensor([3.0], requires_grad=False)
    whole = Tensor([1])
    loss = (x * y * whole).sum()
    assert loss.backward() is loss
    assert x.grad is not None
    assert x.grad.tolist() == [3.0]
    assert (y.grad, whole.grad, loss.grad) == (None, None, None)


def test_backward_runs_nothing_and_adds_up() -> None:
    x = Tensor([2.0, 3.0]).realize()
    before = GlobalCounters.kernel_count
    (x * 3).sum().backward()
    (x * x).sum().backward()
    assert GlobalCounters.kernel_count == before
    assert x.grad is not None
    assert x.grad.tolist() == [7.0, 9.0]


def test_gradients_that_are_never_cleared_do_not_grow_the_graph() -> None:
    x = Tensor([1.0]).realize()
    sizes = []
    for _ in range(60):
        (x * x).sum().backward()
        assert x.grad is not None
        sizes.append(len(x.grad.uop.toposort()))
    assert max(sizes[20:]) <= max(sizes[:20])
    assert x.grad.item() == 120.0


def test_leaves_that_were_lazy_keep_their_gradients() -> None:
    x = Tensor.ones(2) * 2
    x.requires_grad_()
    loss = (x * x).sum()
    x.realize()
    loss.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [4.0, 4.0]


def test_requires_grad_is_inherited_by_results() -> None:
    x = Tensor([1.0], requires_grad=True)
    assert (x * 2).requires_grad
    assert not (x.detach() * 2).requires_grad
    assert not Tensor([1.0]).requires_grad
    with pytest.raises(GradientError, match="int32"):
        Tensor([1]).requires_grad_()
    with pytest.raises(GradientError, match="int32"):
        Tensor([1], requires_grad=True)


def test_values_may_be_looked_at_before_gradients_are_asked_for() -> None:
    x = Tensor([2.0, 3.0]).realize()
    square = x * x
    assert square.tolist() == [4.0, 9.0]
    loss = (square * x).sum()
    assert loss.item() == 35.0
    assert loss.gradient(x)[0].tolist() == [12.0, 27.0]
    loss.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [12.0, 27.0]


def test_backward_without_leaves_says_so() -> None:
    with pytest.raises(GradientError, match="backward: .*one made of float leaves"):
        Tensor([1.0]).detach().sum().backward()


@pytest.mark.parametrize("method", ["sign", "floor", "ceil", "trunc", "round"])
def test_slopes_of_zero_are_gradients(method: str) -> None:
    x, y = Tensor([1.5, -0.5], requires_grad=True), Tensor([1.0], requires_grad=True)
    getattr(x, method)().sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 0.0]
    assert y.grad is None


def test_no_grad_and_detach_cut_the_graph() -> None:
    x = Tensor([3.0], requires_grad=True)
    with Tensor.no_grad():
        cut = x * x
    (cut * x + x.detach() * x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [12.0]

    @Tensor.no_grad()
    def square(y: Tensor) -> Tensor:
        return y * y

    assert not square(x).requires_grad

    @Tensor.no_grad()
    def power(y: Tensor, times: int) -> Tensor:
        return y if times == 0 else y * power(y, times - 1)

    assert not power(x, 3).requires_grad
    assert (x * 2).requires_grad


def test_gradient_names_its_targets() -> None:
    x, y = Tensor([2.0]), Tensor([3.0])
    dx, dy = (x * x * y).sum().gradient(x, y)
    assert (dx.tolist(), dy.tolist()) == ([12.0], [4.0])
    assert dx.sum().gradient(x)[0].tolist() == [6.0]
    assert (x + y.int()).sum().gradient(y)[0].tolist() == [0.0]
    with pytest.raises(GradientError, match="not computed from"):
        x.sum().gradient(y)
    assert (x * 2).gradient(x, gradient=Tensor([5.0]))[0].tolist() == [10.0]
    with pytest.raises(GradientError, match="sum"):
        Tensor([1.0, 2.0]).gradient(x)
    with pytest.raises(GradientError, match="int32"):
        x.sum().gradient(Tensor([1]))
    with pytest.raises(GradientError, match="int32"):
        Tensor(1).backward()


def test_training_is_a_setting() -> None:
    assert not Tensor.training
    with Tensor.train():
        assert Tensor.training
        with Tensor.train(False):
            assert not Tensor.training
    with Context(TRAINING=1):
        assert Tensor.training


def test_tensors_stand_for_nodes_and_variables() -> None:
    x = Tensor([1, 2])
    assert Tensor(x.uop).uop is x.uop
    assert Tensor(UOp.variable("n", 1, 5).bind(3)).item() == 3
    assert Tensor(x.uop, dtype="float32").tolist() == [1.0, 2.0]


def test_replace_takes_over_a_value() -> None:
    x = Tensor([1.0])
    assert x.replace(Tensor([2.0, 3.0])).tolist() == [2.0, 3.0]


def test_sizes_that_are_bound_show_their_value() -> None:
    x = Tensor([1.0, 2.0, 3.0])[: UOp.variable("n", 1, 3).bind(2)]
    (size,) = x.shape
    assert isinstance(size, UOp)
    assert size.unbind()[1] == 2
    assert (len(x), x.tolist(), x.sum().item()) == (2, [1.0, 2.0], 3.0)


def test_a_node_written_once_is_an_after() -> None:
    x = Tensor([1.0, 2.0]).realize()
    x[0] = 3
    assert x.uop.op is Op.AFTER


def test_gradients_of_nothing_are_nothing() -> None:
    x = Tensor.zeros(0, 3)
    assert x.cat(Tensor.ones(1, 3)).sum().gradient(x)[0].shape == (0, 3)
