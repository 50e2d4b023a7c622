"""A value never changes: whoever was built before a write sees what was there before."""

import gc
import itertools
from collections.abc import Callable, Iterable

import pytest

from kernelet import holdings
from kernelet.base.counters import GlobalCounters
from kernelet.base.errors import ArgumentError
from kernelet.frontend import live
from kernelet.frontend.tensor import Tensor
from kernelet.graph.ops import Op


def test_lazy_readers_see_the_old_contents() -> None:
    x = Tensor([1, 2, 3, 4]).realize()
    scaled, total, part = x * 100, x.sum(), x[1:3]
    x[1:3].assign(Tensor([7, 8]))
    x.realize()
    assert x.tolist() == [1, 7, 8, 4]
    assert (scaled.tolist(), total.item(), part.tolist()) == ([100, 200, 300, 400], 10, [2, 3])


def test_readers_between_two_writes_see_the_first() -> None:
    x = Tensor([1.0, 2.0]).realize()
    before = x + 0
    x.assign(x * 10)
    between = x + 0
    x.assign(x * 10)
    after = x + 0
    assert after.tolist() == [100.0, 200.0]
    assert (before.tolist(), between.tolist(), x.tolist()) == ([1, 2], [10, 20], [100, 200])


def test_a_write_stays_in_its_memory() -> None:
    x = Tensor([1.0, 2.0]).realize()
    memory = holdings.memories[x.uop]
    x.assign(x + 1).realize()
    assert holdings.memories[x.uop] is memory
    x[0] = 5
    assert x.tolist() == [5.0, 3.0]
    assert holdings.memories[x.uop] is memory


def test_a_loss_read_after_the_step_is_that_of_the_old_weights() -> None:
    weight = Tensor([2.0], requires_grad=True).realize()
    loss = (weight * 3).sum()
    loss.backward()
    assert weight.grad is not None
    weight.assign(weight - weight.grad).realize()
    assert (loss.item(), weight.item(), weight.grad.item()) == (6.0, -1.0, 3.0)


def test_values_that_nobody_holds_are_not_kept() -> None:
    x = Tensor([1.0, 2.0]).realize()
    _ = x.exp()
    del _
    gc.collect()
    before = GlobalCounters.kernel_count
    x.assign(x + 1).realize()
    assert GlobalCounters.kernel_count == before + 1


def test_an_old_node_that_was_not_kept_says_so() -> None:
    x = Tensor([1.0, 2.0]).realize()
    old = x.uop
    x.assign(x + 1).realize()
    with pytest.raises(ArgumentError, match="overwritten"):
        (Tensor(old) + 1).realize()


def test_gradients_that_nobody_asked_for_do_not_outlive_a_write() -> None:
    weight, data = Tensor([2.0]).realize(), Tensor([3.0]).realize()
    (weight * data).sum().backward()
    assert weight.grad is not None
    assert data.grad is not None
    weight.assign(weight - weight.grad).realize()
    assert weight.grad.item() == 3.0
    with pytest.raises(ArgumentError, match="overwritten"):
        data.grad.item()


def test_realized_results_drop_their_history() -> None:
    x = Tensor([1.0])
    y = (x * 2 + 1).realize()
    assert y.uop.op is Op.BUFFER


def test_realized_results_keep_the_history_that_gradients_need() -> None:
    x = Tensor([3.0], requires_grad=True)
    y = (x * x).realize()
    (y * 2).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [12.0]
    assert y.grad is None


STEPS: dict[str, Callable[[Tensor, Tensor], object]] = {
    "compute": lambda x, y: y.realize(),
    "a number": lambda x, y: y.__setitem__(0, 5),
    "a row": lambda x, y: y.__setitem__(0, x[1]),
    "a view": lambda x, y: y[0:1].__iadd__(x[:1] * x[:1]),
    "all": lambda x, y: y.__imul__(2),
}


@pytest.mark.parametrize("write", ["a number", "a row", "a view", "all"])
@pytest.mark.parametrize("times", list(itertools.product([False, True], repeat=3)))
@pytest.mark.parametrize("power", [1, 2])
def test_gradients_pass_through_writes_whenever_they_are_computed(
    write: str, times: tuple[bool, ...], power: int
) -> None:
    """The gradient is that of the graph in which nothing is computed before its end."""
    order = [("compute",) * times[0], (write,), ("compute",) * times[1], ("all",)]
    order.append(("compute",) * times[2])

    def slope(names: Iterable[str]) -> list[float]:
        x = Tensor([[0.5, -0.25], [0.75, 0.25], [1.0, -1.0]], requires_grad=True)
        y = x * 2
        for name in names:
            STEPS[name](x, y)
        (y**power).sum().backward()
        assert x.grad is not None
        return [float(each) for each in x.grad.numpy().flatten()]

    wanted = slope([write, "all"])
    assert slope([name for names in order for name in names]) == wanted
    assert any(wanted)


def test_running_totals_stay_small() -> None:
    total = Tensor([0.0])
    for _ in range(30):
        total = (total + 1).realize()
    assert len(total.uop.toposort()) == 1
    assert total.item() == 30.0


def test_dead_tensors_are_forgotten() -> None:
    before = len(live.live_tensors())
    tensors = [Tensor([float(i)]) + 1 for i in range(10)]
    assert len(live.live_tensors()) == before + 10
    del tensors
    gc.collect()
    assert len(live.live_tensors()) == before


def test_readers_of_a_write_that_another_reader_follows_are_kept() -> None:
    first, second = Tensor([1.0]).realize(), Tensor([2.0]).realize()
    first.assign(first + second)
    between, product = first.sum(), first * second
    second.assign(second + product)
    first.assign(first + product)
    second.realize()
    assert between.item() == 3.0
    assert (first.item(), second.item()) == (9.0, 8.0)


def test_what_changed_is_known_and_known_once() -> None:
    tensor, other = Tensor([1.0]).realize(), Tensor([2.0]).realize()
    mark = live.now()
    assert live.changed_since(mark) == []
    tensor.assign(tensor + 1)
    assert any(each is tensor for each in live.changed_since(mark))
    assert not any(each is other for each in live.changed_since(mark))
    for _ in range(30):
        live.note_change(tensor)
    assert [each is tensor for each in live.changed_since(mark)].count(True) == 1
    assert [each is tensor for each in live.live_tensors()].count(True) == 1
    assert live.changed_since(mark, thread=0) == []
    assert live.changed_since(live.now()) == []


def test_what_was_asked_to_be_contiguous_is_computed_once() -> None:
    x = Tensor.rand(64, 64).realize()
    middle = (x @ x).contiguous()
    GlobalCounters.reset()
    (middle + 1).realize()
    assert GlobalCounters.kernel_count == 2
    (middle + 2).realize()
    assert GlobalCounters.kernel_count == 3
