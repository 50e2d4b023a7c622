"""Derivatives find tensors by the nodes they stand for, before and after they are realized."""

from kernelet.frontend.derivatives import depends_on, derivatives
from kernelet.frontend.tensor import Tensor


def test_targets_may_be_lazy_realized_or_in_between() -> None:
    x = Tensor([2.0])
    y = x * 3
    late = y * y
    y.realize()
    total = (late + y).sum()
    found = derivatives(total.uop, total.full_like(1).uop, [x, y])
    assert [Tensor(node).tolist() for node in found if node is not None] == [[39.0], [13.0]]


def test_gradients_read_memory_not_history() -> None:
    x = Tensor([2.0])
    y = (x * 3).realize()
    (found,) = derivatives((y * y).uop, y.full_like(1).uop, [x])
    assert found is not None
    assert (x * 3).uop not in found.toposort()


def test_dependence_counts_what_has_no_gradient_too() -> None:
    x, y = Tensor([2.0]), Tensor([1.0])
    result = (x > 1).where(1.0, 2.0)
    assert depends_on(result.uop, x)
    assert not depends_on(result.uop, y)
