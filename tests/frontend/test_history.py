"""Realized values remember what they came from as long as gradients may need it."""

import numpy as np
import pytest

from kernelet.frontend import history
from kernelet.frontend.live import nodes_of
from kernelet.frontend.tensor import Tensor
from kernelet.graph.ops import Op


def test_memory_stands_for_itself_and_links_to_its_expression() -> None:
    x = Tensor([1.0, 2.0])
    y = x * 2
    computed = y.uop
    y.realize()
    assert y.uop.op is Op.BUFFER
    assert history.computed_from(y.uop) is computed
    linked, _ = history.restored((y + 1).uop)
    assert any(
        node.op is Op.FUNCTION and node.src == (y.uop, computed) for node in linked.toposort()
    )
    history.forget(y.uop)
    assert history.restored((y + 1).uop)[0] is (y + 1).uop


def test_histories_reach_through_each_other() -> None:
    x = Tensor([2.0])
    y = (x * x).realize()
    z = (y * y).realize()
    assert history.reaches(z.uop, {x.uop})
    assert (z * y).sum().gradient(x)[0].tolist() == [6 * 2.0**5]


def test_values_fed_back_do_not_hold_everything_before_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history, "NODES_KEPT", 40)
    before = len(history._histories)
    x, state = Tensor([1.0]), Tensor([0.0])
    for _ in range(60):
        state = (state * 0.5 + x).realize()
    assert len(history._histories) - before < 20
    assert state.item() == pytest.approx(2.0)


def test_big_memory_is_let_go_unless_it_is_required() -> None:
    big = np.zeros(history.BYTES_KEPT // 4 + 1, np.float32)
    weight = Tensor([1.0])
    total = (Tensor(big)[:1] * weight).realize()
    assert history.computed_from(total.uop) is None
    weight.requires_grad_()
    total = (Tensor(big)[:1] * weight).realize()
    assert history.computed_from(total.uop) is not None


def test_histories_die_with_their_memory() -> None:
    x = Tensor([1.0])
    before = len(history._histories)
    y = (x + 1).realize()
    assert len(history._histories) == before + 1
    del y
    assert len(history._histories) == before


def test_writes_into_results_keep_their_gradients() -> None:
    x, v = Tensor([1.0, 2.0, 3.0], requires_grad=True), Tensor([5.0], requires_grad=True)
    y = (x * 2).realize()
    y[1:2] = v * 3
    y += v
    found = (y * 10).sum().gradient(x, v)
    assert [each.tolist() for each in found] == [[20.0, 0.0, 20.0], [60.0]]
    assert y.tolist() == [7.0, 20.0, 11.0]
    assert (y * y).sum().gradient(x)[0].tolist() == [28.0, 0.0, 44.0]


def test_steps_without_an_optimizer_hold_a_bounded_past(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "NODES_KEPT", 60)
    before = len(history._histories)
    weight = Tensor([1.0])
    for step in range(40):
        loss = (weight * float(step)).square().sum().realize()
        weight = (weight - loss.gradient(weight)[0] * 1e-4).realize()
    assert len(history._histories) - before < 25


# ---- derivatives find tensors by the nodes they stand for ----


def test_targets_may_be_lazy_realized_or_in_between() -> None:
    x = Tensor([2.0])
    y = x * 3
    late = y * y
    y.realize()
    total = (late + y).sum()
    found = history.derivatives(total.uop, total.full_like(1).uop, [nodes_of(x), nodes_of(y)])
    assert [Tensor(node).tolist() for node in found if node is not None] == [[39.0], [13.0]]


def test_gradients_read_memory_not_history() -> None:
    x = Tensor([2.0])
    y = (x * 3).realize()
    (found,) = history.derivatives((y * y).uop, y.full_like(1).uop, [nodes_of(x)])
    assert found is not None
    assert (x * 3).uop not in found.toposort()


def test_dependence_counts_what_has_no_gradient_too() -> None:
    x, y = Tensor([2.0]), Tensor([1.0])
    result = (x > 1).where(1.0, 2.0)
    assert history.depends_on(result.uop, nodes_of(x))
    assert not history.depends_on(result.uop, nodes_of(y))
