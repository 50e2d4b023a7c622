"""A replay does what the function would do, or says why it cannot."""

import dataclasses
import gc
import threading
import tracemalloc
import weakref
from collections import namedtuple
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from kernelet import (
    Context,
    GlobalCounters,
    Tensor,
    TinyJit,
    Variable,
    dtypes,
    holdings,
    nn,
)
from kernelet.base.errors import JitError
from kernelet.frontend.capture import Capture
from kernelet.graph import uop as nodes


def captures(jit):
    return sum(isinstance(known, Capture) for known in jit.captures.values())


def counted(function):
    """The function, and a list that grows with each call of it."""
    calls = []

    def counting(*args, **kwargs):
        calls.append(1)
        return function(*args, **kwargs)

    return TinyJit(counting), calls


def arange(*shape):
    size = int(np.prod(shape))
    return Tensor.arange(size).reshape(*shape).float().realize()


# ---- what is captured when ----


def test_the_third_call_runs_no_python():
    jit, calls = counted(lambda x: x * 2 + 1)
    for n in range(6):
        assert jit(Tensor([float(n), 3.0])).tolist() == [2.0 * n + 1, 7.0]
    assert len(calls) == 2


def test_replays_count_every_kernel():
    jit = TinyJit(lambda x: ((x + 1).contiguous() * 2).realize())
    counts = []
    for n in range(4):
        x = Tensor([float(n)]).realize()
        before = GlobalCounters.kernel_count
        jit(x)
        counts.append(GlobalCounters.kernel_count - before)
    assert counts == [2, 2, 2, 2]


@pytest.mark.parametrize(
    "other",
    [
        lambda: (Tensor([1.0, 2.0, 3.0]), 2),
        lambda: (Tensor([1, 2]), 2),
        lambda: (Tensor([1.0, 2.0]), 3),
        lambda: (Tensor([1.0, 2.0]), 2.0),
        lambda: (Tensor([1.0, 2.0]), True),
        lambda: (Tensor([[1.0], [2.0]]), 2),
        lambda: (Tensor([1.0, 2.0], dtype=dtypes.float64), 2),
        lambda: (Tensor([1.0, 2.0], requires_grad=True), 2),
    ],
)
def test_another_signature_is_captured_anew(other):
    jit, calls = counted(lambda x, n: x * n)
    for _ in range(3):
        assert jit(Tensor([1.0, 2.0]), 2).tolist() == [2.0, 4.0]
    for _ in range(3):
        x, n = other()
        assert jit(x, n).tolist() == (x * n).tolist()
    assert len(calls) == 4
    assert jit(Tensor([5.0, 2.0]), 2).tolist() == [10.0, 4.0]
    assert len(calls) == 4


def test_zero_and_minus_zero_are_two_numbers():
    jit = TinyJit(lambda x, n: x * n)
    for n in (0.0, 0.0, 0.0, -0.0, -0.0, -0.0):
        assert str(jit(Tensor([1.0]), n).tolist()) == f"[{n}]"


def test_nan_is_the_same_number_each_time():
    jit, calls = counted(lambda x, n: x + n)
    for _ in range(5):
        assert np.isnan(jit(Tensor([1.0]), float("nan")).item())
    assert len(calls) == 2


def test_too_many_signatures_are_an_error():
    jit = TinyJit(lambda x, n: x + n)
    x = Tensor([1.0]).realize()
    with pytest.raises(JitError, match="jit.*captured anew"):
        for n in range(200):
            jit(x, n)
    jit.reset()
    assert jit(x, 1000).item() == 1001.0


def test_the_setting_turns_it_off():
    jit, calls = counted(lambda x: x + 1)
    with Context(JIT=0):
        for n in range(4):
            assert jit(Tensor([n])).item() == n + 1
    assert len(calls) == 4


def test_training_has_a_capture_of_its_own():
    jit = TinyJit(lambda x: x.dropout(0.5))
    x = Tensor.ones(64).realize()
    for _ in range(3):
        assert jit(x).tolist() == [1.0] * 64
        with Tensor.train():
            assert 0.0 in jit(x).tolist()


def test_the_device_of_the_settings_has_a_capture_of_its_own():
    jit = TinyJit(lambda n: Tensor([1.0, 2.0]) * n)
    for _ in range(3):
        assert jit(2).device == "PYTHON"
    with Context(DEV="NULL"):
        for _ in range(3):
            assert jit(2).device == "NULL"


# ---- structure of arguments and results ----

Pair = namedtuple("Pair", "first second")


@dataclasses.dataclass
class Batch:
    x: Tensor
    y: Tensor
    scale: float = 1.0


def test_arguments_and_results_nest():
    def function(parts, *, extra, batch):
        total = parts[0] + parts[1]["a"] + parts[1]["b"][0] + parts[2].first * extra["k"]
        return {
            "sum": total,
            "pair": Pair(total * 2, batch.x),
            "rest": [batch.y * batch.scale, "text", 7],
        }

    jit, calls = counted(function)
    for n in range(5):
        t = [Tensor([float(n + at)]) for at in range(7)]
        parts = [t[0], {"a": t[1], "b": (t[2],)}, Pair(t[3], 1)]
        found = jit(parts, extra={"k": t[4]}, batch=Batch(t[5], t[6], 3.0))
        total = n * 3 + 3.0 + (n + 3) * (n + 4)
        assert found["sum"].item() == total
        assert isinstance(found["pair"], Pair)
        assert found["pair"].first.item() == 2 * total
        assert found["pair"].second is t[5]
        assert found["rest"][0].item() == 3 * (n + 6)
        assert found["rest"][1:] == ["text", 7]
    assert len(calls) == 2


def test_a_dataclass_comes_back():
    jit = TinyJit(lambda x: Batch(x + 1, x * 2, 4.0))
    for n in range(4):
        found = jit(Tensor([float(n)]))
        assert (found.x.item(), found.y.item(), found.scale) == (n + 1, 2 * n, 4.0)


def test_other_structure_is_another_signature():
    jit, calls = counted(lambda parts: sum(parts.values()) if isinstance(parts, dict) else parts[0])
    a, b = Tensor([1.0]), Tensor([2.0])
    for _ in range(3):
        assert jit([a, b]).item() == 1.0
        assert jit((b, a)).item() == 2.0
        assert jit({"a": a, "b": b}).item() == 3.0
        assert jit([a]).item() == 1.0
    assert len(calls) == 8


def test_named_arguments_go_by_name():
    jit, calls = counted(lambda x, y: x - y)
    for n in range(4):
        x, y = Tensor([float(n)]), Tensor([1.0])
        assert jit(y=y, x=x).item() == n - 1
        assert jit(x=x, y=y).item() == n - 1
    assert len(calls) == 2


def test_arrays_are_refused():
    jit = TinyJit(lambda x: x)
    for value in (np.ones(3), [np.ones(3)], {"a": bytearray(3)}, {1, 2}):
        with pytest.raises(JitError, match="jit.*Tensor"):
            jit(value)


def test_numpy_numbers_are_plain_numbers():
    jit, calls = counted(lambda x, n: x * float(n))
    for n in (1, 1, 1, 2, 2, 2):
        assert jit(Tensor([3.0]), np.float32(n)).item() == 3.0 * n
    assert len(calls) == 4


def test_python_values_come_back():
    jit = TinyJit(lambda x: (None, 3, "a", {"k": [True]}))
    for _ in range(4):
        assert jit(Tensor([1.0])) == (None, 3, "a", {"k": [True]})


class Scaler:
    def __init__(self, factor):
        self.factor = Tensor([factor]).realize()

    @TinyJit
    def scale(self, x):
        return x * self.factor


def test_methods_are_captured_for_each_instance():
    two, three = Scaler(2.0), Scaler(3.0)
    for n in range(4):
        x = Tensor([float(n)])
        assert (two.scale(x).item(), three.scale(x).item()) == (2 * n, 3 * n)


def test_captures_of_dead_instances_go():
    Scaler.scale.reset()
    for n in range(100):
        scaler = Scaler(float(n))
        for _ in range(3):
            assert scaler.scale(Tensor([2.0])).item() == 2 * n
    reference = weakref.ref(scaler)
    del scaler
    gc.collect()
    assert reference() is None
    assert not Scaler.scale.captures


def test_the_wrapped_function_shows():
    def step(x):
        """Adds one."""
        return x + 1

    assert TinyJit(step).__name__ == "step"
    assert TinyJit(step).__doc__ == "Adds one."


# ---- views as arguments ----


def test_slices_of_a_data_set_share_a_capture():
    data = arange(10, 3)
    jit, calls = counted(lambda x: (x * 2).sum(1))
    for at in range(0, 10, 4):
        for _ in range(2):
            x = data[at : at + 4]
            assert jit(x).tolist() == (data.numpy()[at : at + 4] * 2).sum(1).tolist()
    assert len(calls) == 4  # two for the batches of 4, two for the shorter last one


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.T,
        lambda x: x.flip(0),
        lambda x: x[:, 1:3],
        lambda x: x[::2],
        lambda x: x[1:2].expand(3, 4),
        lambda x: x.pad(((1, 0), (0, 2))),
        lambda x: x.reshape(2, 6).T[1:4],
        lambda x: x[2],
        lambda x: x.permute(1, 0).flip(1).pad(((0, 1), (0, 0))),
    ],
)
def test_any_view_is_an_argument(view):
    jit, calls = counted(lambda x: x + 1)
    for n in range(4):
        x = view((arange(3, 4) + n).realize())
        assert np.array_equal(jit(x).numpy(), view(arange(3, 4) + n).numpy() + 1)
    assert len(calls) == 2


def test_windows_that_overlap_share_a_capture():
    tokens = arange(12)
    jit, calls = counted(lambda x, y: x * y)
    for at in (0, 3, 6, 2):
        x, y = tokens[at : at + 4], tokens[at + 1 : at + 5]
        assert jit(x, y).tolist() == [i * (i + 1) for i in range(at, at + 4)]
    assert len(calls) == 2


def test_the_same_tensor_twice_is_not_two_tensors():
    jit = TinyJit(lambda x, y: (x + y * 10, x.assign(x + 1))[0].realize())
    x, y = Tensor([1.0]).realize(), Tensor([2.0]).realize()
    for n in range(4):
        assert jit(x, y).item() == 1.0 + n + 20
    z = Tensor([1.0]).realize()
    for n in range(4):
        assert jit(z, z).item() == 11.0 * (1 + n)


def test_lazy_arguments_are_computed():
    jit, calls = counted(lambda x: x * 2)
    for n in range(4):
        assert jit(Tensor([1.0, 2.0]) + n).tolist() == [2.0 + 2 * n, 4.0 + 2 * n]
    assert len(calls) == 2


def test_constants_are_arguments():
    jit = TinyJit(lambda x, y: x + y)
    for n in range(4):
        assert jit(Tensor.full((3,), float(n)), Tensor.zeros(3)).tolist() == [n] * 3


def test_empty_tensors_are_arguments():
    jit = TinyJit(lambda x: (x + 1, x.sum()))
    for _ in range(4):
        found, total = jit(Tensor.zeros(0, 3))
        assert (found.shape, total.item()) == ((0, 3), 0.0)


def test_the_arguments_stay_what_they_are():
    data = arange(8)
    jit = TinyJit(lambda x: x.sum())
    for at in (0, 4, 0, 4):
        x = data[at : at + 4]
        before = x.uop
        jit(x)
        assert x.uop is before
    x = data[:4]
    data[0] = 100
    assert (x.tolist(), data.tolist()[0]) == ([0, 1, 2, 3], 100)


# ---- results ----


def test_kept_results_stay_valid():
    jit = TinyJit(lambda x: (x + 1, (x * 2).T))
    kept = [jit(arange(2, 2) + n) for n in range(6)]
    for n, (more, double) in enumerate(kept):
        x = np.arange(4).reshape(2, 2) + n
        assert np.array_equal(more.numpy(), x + 1)
        assert np.array_equal(double.numpy(), (x * 2).T)


def test_results_feed_the_next_call():
    jit, calls = counted(lambda x: x * 2)
    x = Tensor([1.0])
    for _ in range(8):
        x = jit(x)
    assert x.item() == 256.0
    assert len(calls) == 2


def test_an_argument_comes_back_as_it_is():
    jit = TinyJit(lambda x, y: (y, x))
    for n in range(4):
        x, y = Tensor([float(n)]), Tensor([2.0])
        first, second = jit(x, y)
        assert first is y
        assert second is x


def test_views_of_arguments_are_results():
    jit = TinyJit(lambda x: x[1:])
    data = arange(10)
    kept = [jit(data[at : at + 3]) for at in range(5)]
    data.assign(data + 100).realize()
    assert [found.tolist() for found in kept] == [[at + 1, at + 2] for at in range(5)]


def test_a_parameter_comes_back_as_it_is():
    weight = Tensor([1.0]).realize()
    jit = TinyJit(lambda: weight.assign(weight + 1))
    for n in range(5):
        assert jit() is weight
        assert weight.item() == n + 2


def test_a_view_of_a_parameter_is_a_value():
    weight = arange(2, 2)
    jit = TinyJit(lambda: weight.assign(weight + 1).T.realize())
    kept = [jit() for _ in range(6)]
    for n, found in enumerate(kept):
        assert np.array_equal(found.numpy(), np.arange(4).reshape(2, 2).T + n + 1)


def test_results_share_memory():
    def function(x):
        whole = (x * 2).realize()
        return whole, whole[1:], whole.T, whole

    jit = TinyJit(function)
    for n in range(4):
        x = arange(2, 2).numpy() * n
        found = jit(Tensor(x))
        for value, wanted in zip(found, (2 * x, 2 * x[1:], 2 * x.T, 2 * x), strict=True):
            assert np.array_equal(value.numpy(), wanted)
        bases = {id(holdings.memories[_base(part)].whole) for part in found}
        assert len(bases) == 1


def _base(tensor):
    node = holdings.realized(tensor.uop)
    while node.src:
        node = node.src[0]
    return node


def test_constants_are_results():
    jit = TinyJit(lambda x: (Tensor.ones(2), Tensor([4, 5]), x))
    for _ in range(4):
        ones, host, _ = jit(Tensor([1.0]))
        assert (ones.tolist(), host.tolist()) == ([1.0, 1.0], [4, 5])


def test_results_carry_no_history_in_any_call():
    weight = Tensor([2.0], requires_grad=True).realize()
    jit = TinyJit(lambda x: x * weight)
    for _ in range(4):
        weight.grad = None
        found = jit(Tensor([3.0]))
        (found * found).sum().backward()
        assert weight.grad is None
        assert found.grad.tolist() == [12.0]


# ---- what the function keeps ----


def test_writes_need_not_be_returned():
    total = Tensor.zeros(2).contiguous().realize()
    jit, calls = counted(lambda x: [total.assign(total + x), None][1])
    for n in range(6):
        jit(Tensor([1.0, float(n)]))
    assert total.tolist() == [6.0, 15.0]
    assert len(calls) == 2


def test_a_lazy_counter_counts():
    counter = Tensor.zeros(1)
    jit = TinyJit(lambda: [counter.assign(counter + 1), None][1])
    for n in range(5):
        jit()
        assert counter.item() == n + 1


def test_what_a_function_leaves_behind_follows():
    kept = {}

    def function(x):
        kept["lazy"] = x * 10
        kept["view"] = x[:1].detach()
        kept["result"] = (x + 1).realize()
        return kept["result"]

    jit, calls = counted(function)
    results = []
    for n in range(5):
        x = Tensor([float(n), 1.0])
        results.append(jit(x))
        assert kept["lazy"].tolist() == [10.0 * n, 10.0]
        assert kept["view"].tolist() == [float(n)]
        assert kept["result"].tolist() == [n + 1.0, 2.0]
    assert len(calls) == 2
    assert [found.tolist() for found in results[1:]] == [[n + 1.0, 2.0] for n in range(1, 5)]


def test_a_tensor_that_is_replaced_each_call_is_refused():
    class Model:
        hidden = Tensor([1.0]).realize()

    model = Model()

    def function(x):
        model.hidden = (model.hidden * 2 + x).realize()
        return model.hidden + 0

    jit = TinyJit(function)
    jit(Tensor([0.0]))
    with pytest.raises(JitError, match="jit.*assign"):
        jit(Tensor([0.0]))


def test_gradients_that_add_up_are_refused():
    weight = Tensor([1.0], requires_grad=True).realize()
    jit = TinyJit(lambda x: (x * weight).sum().backward())
    jit(Tensor([1.0]))
    with pytest.raises(JitError, match="jit"):
        jit(Tensor([1.0]))


def test_gradients_follow_when_they_are_reset():
    weight = Tensor([1.0], requires_grad=True).realize()

    def function(x):
        weight.grad = None
        return (x * weight).sum().backward()

    jit, calls = counted(function)
    for n in range(5):
        assert jit(Tensor([float(n)])).item() == n
        assert weight.grad.item() == n
    assert len(calls) == 2


def test_gradients_that_nobody_asked_for_do_not_stay():
    weight = Tensor([1.0]).realize()
    jit = TinyJit(lambda x: (x * weight).sum().backward())
    for n in range(4):
        jit(Tensor([float(n)]))
        if n:
            assert weight.grad is None


# ---- values from before a replay ----


def writer():
    """A parameter, and a captured function that adds one to it."""
    weight = arange(4)
    jit = TinyJit(lambda: weight.assign(weight + 1).realize())
    for _ in range(3):
        jit()
    return weight, jit


def test_lazy_readers_see_the_old_values():
    weight, jit = writer()
    for n in range(3, 7):
        lazy, total = weight * 2, weight.sum()
        jit()
        assert lazy.tolist() == [2.0 * (i + n) for i in range(4)]
        assert total.item() == 6 + 4 * n


def test_views_taken_before_see_the_old_values():
    weight, jit = writer()
    for n in range(3, 7):
        alias, part = weight.detach(), weight[1:3]
        jit()
        assert alias.tolist() == [i + n for i in range(4)]
        assert part.tolist() == [n + 1, n + 2]
        assert weight.tolist() == [i + n + 1 for i in range(4)]


def test_equal_expressions_are_computed_anew():
    weight, jit = writer()
    weight.requires_grad = True
    kept = []
    for n in range(3, 7):
        kept.append((weight * 2).realize())
        kept.append((weight * 2).exp())
        kept[-1].realize()
        assert (weight * 2).tolist() == [2.0 * (i + n) for i in range(4)]
        jit()
    for n, found in enumerate(kept[::2], 3):
        assert found.tolist() == [2.0 * (i + n) for i in range(4)]


def test_what_shares_a_value_with_a_capture_keeps_it():
    weight = Tensor([1.0]).realize()
    inner = weight * 2
    jit = TinyJit(lambda x: (weight * 2).realize() + x)
    for n in range(4):
        assert jit(Tensor([float(n)])).item() == 2 * (n + 1) + n
        weight.assign(weight + 1)
    assert inner.item() == 2.0


def test_a_pending_write_comes_first():
    weight = Tensor([2.0]).realize()
    jit = TinyJit(lambda x: x * weight)
    for n in range(6):
        weight.assign(weight + 1)
        assert jit(Tensor([10.0])).item() == 10.0 * (n + 3)


@pytest.mark.parametrize("view", [Tensor.detach, lambda x: x[:1], lambda x: x.flip(0)])
def test_an_argument_keeps_its_value_before_a_pending_write(view):
    data = Tensor([1.0, 2.0]).realize()
    jit = TinyJit(lambda x: x * 10)
    for _ in range(5):
        old = view(data)
        data.assign(data + 1)
        assert jit(old).max().item() == 10 * (view(data).max().item() - 1)


@pytest.mark.parametrize("view", [lambda x: x, Tensor.detach, lambda x: x[:1], lambda x: x.flip(0)])
def test_memory_that_the_function_writes_for_itself_is_refused_as_an_argument(view):
    # A replay would read what was there before the write, where the function reads what is after it.
    state = Tensor([1.0, 2.0]).realize()

    @TinyJit
    def step(x):
        state.assign(state + 1)
        return (x * 10).realize()

    step(view(state))
    for _ in range(3):
        with pytest.raises(JitError, match="jit.*Give the argument as a copy"):
            step(view(state))
    before = state.tolist()
    assert step(state.clone()).tolist() == [10 * each for each in before]


def test_a_tensor_that_stands_for_another_value_is_captured_anew():
    weight = Tensor([2.0]).realize()
    jit, calls = counted(lambda x: x * weight)
    for _ in range(3):
        assert jit(Tensor([10.0])).item() == 20.0
    weight.replace(Tensor([7.0]).realize())
    for _ in range(4):
        assert jit(Tensor([10.0])).item() == 70.0
    assert len(calls) == 4


@pytest.mark.parametrize("put", [lambda old: Tensor([7.0]).realize(), lambda old: old + 5.0])
def test_a_parameter_with_another_one_in_its_place_is_captured_anew(put):
    layer, held = SimpleNamespace(weight=Tensor([2.0]).realize()), [Tensor([1.0]).realize()]
    jit, calls = counted(lambda x: x * layer.weight + held[0])
    for _ in range(3):
        assert jit(Tensor([10.0])).item() == 21.0
    layer.weight = put(layer.weight)
    for _ in range(4):
        assert jit(Tensor([10.0])).item() == 71.0
    held[0] = put(held[0])
    for _ in range(4):
        assert jit(Tensor([10.0])).item() == pytest.approx(70.0 + held[0].item())
    assert len(calls) == 6


def test_views_of_a_parameter_come_and_go_without_another_capture():
    weight = Tensor([[2.0, 3.0], [4.0, 5.0]]).realize()
    jit, calls = counted(lambda x: x @ weight)
    for row in [0, 1, 0, 1, 0, 1]:
        shown = weight[row]
        assert jit(Tensor([[1.0, 0.0]])).tolist() == [[2.0, 3.0]]
        assert shown.shape == (2,)
    assert len(calls) == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda n: Tensor([n, n]).realize(),
        lambda n: Tensor([n, n]),
        lambda n: Tensor([0.0, n, n]).realize()[1:],
        lambda n: Tensor([n, n]).shard(("LLVM:0", "LLVM:1"), 0).realize(),
    ],
    ids=["realized", "lazy", "view", "sharded"],
)
def test_an_attribute_that_is_another_tensor_now_is_captured_anew(make):
    model = nn.Linear(1, 1)
    model.weight = make(2.0)
    jit, calls = counted(lambda x: x * model.weight)
    x = Tensor([1.0, 10.0]).to(model.weight.device).realize()
    for n in (2.0, 7.0, 5.0):
        model.weight = make(n)
        for _ in range(4):
            assert jit(x).tolist() == [n, 10 * n]
    assert len(calls) == 6


def test_a_gradient_from_outside_is_captured_anew():
    weight = Tensor([1.0, 1.0], requires_grad=True)
    optimizer = nn.optim.SGD([weight], lr=1.0)
    step = TinyJit(lambda: optimizer.step())
    with Tensor.train():
        for n in range(1, 7):
            optimizer.zero_grad()
            (weight * n).sum().backward()
            step()
    assert weight.tolist() == [-20.0, -20.0]


def test_what_is_made_in_the_place_of_what_has_gone_is_new():
    """Objects may have the ids of others that lived before."""
    kept = []

    def work(x):
        kept.clear()
        return x + Tensor([1.0, 2.0]), (x * 2).contiguous()

    jit = TinyJit(work)
    results = []
    for n in range(5):
        kept[:] = [Tensor([float(n), i]).realize() for i in range(20)]
        x = Tensor([float(n), 0.0]).realize()
        GlobalCounters.reset()
        results.append(jit(x))
        # Results have memory of their own: nothing is copied.
        assert n < 2 or GlobalCounters.kernel_count == 1
    for n, (total, double) in enumerate(results):
        assert total.tolist() == [n + 1.0, 2.0]
        assert double.tolist() == [2.0 * n, 0.0]


def test_the_learning_rate_and_a_loaded_state_are_seen():
    layer = nn.Linear(2, 2)
    jit = TinyJit(lambda x: layer(x))
    x = Tensor([[1.0, 2.0]]).realize()
    for _ in range(3):
        jit(x)
    state = {"weight": Tensor([[1.0, 0.0], [0.0, 1.0]]), "bias": Tensor([5.0, 6.0])}
    nn.state.load_state_dict(layer, state, verbose=False)
    assert jit(x).tolist() == [[6.0, 8.0]]


# ---- arguments that are written ----


def test_arguments_are_written_in_place():
    jit, calls = counted(lambda cache, x: [cache[1:2].assign(x).realize(), None][1])
    for n in range(5):
        cache = arange(3)
        alias, lazy = cache.detach(), cache * 10
        jit(cache, Tensor([n + 50.0]))
        assert cache.tolist() == [0.0, n + 50.0, 2.0]
        assert alias.tolist() == [0.0, 1.0, 2.0]
        assert lazy.tolist() == [0.0, 10.0, 20.0]
        assert (cache * 10).tolist() == [0.0, 10.0 * (n + 50), 20.0]
    assert len(calls) == 2


def test_views_of_other_tensors_are_written_through():
    jit, calls = counted(lambda x: x.assign(x + 1).realize())
    data, wanted = arange(8), list(range(8))
    for at in (0, 2, 3, 6, 0):
        before = data * 10
        jit(data[at : at + 2])
        assert before.tolist() == [10 * value for value in wanted]
        wanted[at] += 1
        wanted[at + 1] += 1
        assert data.tolist() == wanted
        assert (data * 10).tolist() == [10 * value for value in wanted]
    assert len(calls) == 2


def test_a_parameter_may_be_an_argument_while_it_is_captured():
    weight = Tensor([3.0, 4.0]).realize()
    jit = TinyJit(lambda x: (x * 10 + weight, weight.flip(0)))
    for n in range(3):
        assert jit(weight)[0].tolist() == [33.0, 44.0]
        found, flipped = jit(Tensor([float(n), 0.0]))
        assert (found.tolist(), flipped.tolist()) == ([10 * n + 3.0, 4.0], [4.0, 3.0])


def test_readers_of_a_written_argument_see_the_old_values():
    jit, calls = counted(lambda cache: [cache.assign(cache + 1).realize(), None][1])
    cache, other = arange(3), arange(3)
    first = cache * 100
    for n in range(5):
        alias, lazy = cache.detach(), cache * 10
        jit(cache)
        if n == 3:
            late = other * 5
            jit(other)
            assert late.tolist() == [0, 5, 10]
        assert alias.tolist() == [i + n for i in range(3)]
        assert lazy.tolist() == [10 * (i + n) for i in range(3)]
        assert (cache * 10).tolist() == [10 * (i + n + 1) for i in range(3)]
    assert first.tolist() == [0, 100, 200]
    assert len(calls) == 2


def test_overlapping_arguments_are_not_written():
    def function(x, y):
        return x.assign(y + 1).realize()

    jit = TinyJit(function)
    data = arange(4)
    parts = [Tensor(data[:3].uop), Tensor(data[1:].uop)]
    jit(*parts)
    data = arange(4)
    with pytest.raises(JitError, match="jit"):
        jit(Tensor(data[:3].uop), Tensor(data[1:].uop))


def test_an_argument_that_is_also_a_parameter_keeps_its_value():
    weight = arange(3)
    jit = TinyJit(lambda x: weight.assign(weight + x.flip(0)).realize())
    for _ in range(3):
        jit(Tensor([1.0, 1.0, 1.0]))
    assert weight.tolist() == [3.0, 4.0, 5.0]
    jit(weight)
    assert weight.tolist() == [8.0, 8.0, 8.0]


def test_an_argument_that_is_also_read_otherwise_is_told_apart():
    data = Tensor([1.0, 2.0]).realize()
    jit = TinyJit(lambda x: x * 10 + data)
    for _ in range(3):
        assert jit(data).tolist() == [11.0, 22.0]
        assert jit(Tensor([0.0, 0.0])).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("view", [lambda x: x, Tensor.detach, lambda x: x[:2]])
def test_state_that_a_captured_function_updates_is_read_after_the_update(view):
    def program(make):
        state = Tensor([1.0, 2.0]).realize()

        def step(x):
            state.assign(state + 1).realize()
            return x * 10

        run = make(step)
        results = [run(Tensor([float(n), 0.0])).tolist() for n in range(3)]
        results += [run(view(state)).tolist() for _ in range(2)]
        return results, run(Tensor([7.0, 0.0])).tolist(), state.tolist()

    assert program(TinyJit) == program(lambda step: step)


def test_what_a_captured_function_leaves_behind_is_an_argument_of_replays():
    model = SimpleNamespace(hidden=Tensor([1.0]).realize())

    def step(x):
        model.hidden = x + 1
        return x * 2

    jit, calls = counted(step)
    for n in range(1, 7):
        assert jit(model.hidden).item() == 2.0 * n
    assert len(calls) <= 3


def test_a_result_that_is_an_argument_outlives_what_the_replay_writes():
    model = SimpleNamespace(last=Tensor([1.0]).realize())

    def step(x):
        model.last = x * 3
        return x * 1, x[::-1]

    jit = TinyJit(step)
    results = [jit(Tensor([1.0])), *[jit(model.last) for _ in range(5)]]
    assert [[each.item() for each in row] for row in results] == [[3.0**n] * 2 for n in range(6)]


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("use", ["written", "realized", "read"])
def test_a_lazy_tensor_in_the_place_of_another_one_is_computed_once(before, use):
    """Also in the call that is captured: a replay may not compute it from what has changed since."""

    def program(make):
        state = SimpleNamespace(a=Tensor([1.0, 2.0]).realize(), c=Tensor([0.0, 1.0]).realize())

        def step(x):
            if use == "written":
                state.a.assign(state.a * 0.5 + x)
            elif use == "realized":
                state.a.realize()
            result = state.a + x
            state.c.assign(state.c + 1).realize()
            return result

        run = make(step)
        found = [run(Tensor([float(n), 0.0])).tolist() for n in range(before)]
        state.a = state.c * 2
        return found + [run(Tensor([float(n), 1.0])).tolist() for n in range(5)]

    assert program(TinyJit) == program(lambda step: step)


# ---- random numbers ----


def test_the_random_stream_is_the_same_with_and_without():
    def run(enabled):
        Tensor.manual_seed(3)
        jit = TinyJit(lambda x: (x + Tensor.rand(3), Tensor.randn(2)))
        found = []
        with Context(JIT=enabled):
            for _ in range(5):
                uniform, normal = jit(Tensor.zeros(3).contiguous())
                found.append((uniform.tolist(), normal.tolist(), Tensor.rand(1).item()))
        return found

    assert run(0) == run(1)


def test_lazy_noise_that_is_kept_is_not_drawn_again():
    kept = []

    def function(x):
        kept.append(Tensor.rand(2))
        return x + kept[-1]

    jit = TinyJit(function)
    for _ in range(2):
        assert jit(Tensor([0.0, 0.0])).tolist() == kept[-1].tolist()
    first = kept[0].tolist()
    jit(Tensor([0.0, 0.0]))
    assert kept[0].tolist() == first


# ---- values inside, errors, nesting ----


@pytest.mark.parametrize("ask", [Tensor.item, Tensor.tolist, Tensor.numpy, repr, bool, float])
def test_asking_for_values_inside_is_refused(ask):
    def function(x):
        total = (x * 2).sum().realize()
        ask(total)
        return total

    jit = TinyJit(function)
    assert jit(Tensor([1.0])).item() == 2.0
    with pytest.raises(JitError, match="jit"):
        jit(Tensor([1.0]))


def test_values_that_do_not_change_may_be_asked_for():
    table = Tensor([3.0]).realize()
    jit = TinyJit(lambda x: x * table.item())
    for n in range(4):
        assert jit(Tensor([float(n)])).item() == 3.0 * n


def test_an_error_inside_leaves_everything_usable():
    class Stop(Exception):
        pass

    fails = []

    def function(x):
        found = (x + 1).realize()
        if fails:
            raise Stop
        return found

    jit = TinyJit(function)
    x = Tensor([1.0]).realize()
    before = x.uop
    assert jit(x).item() == 2.0
    fails.append(1)
    for _ in range(2):
        with pytest.raises(Stop):
            jit(x)
        assert x.uop is before
        assert holdings.current_recorder.get() is None
    fails.clear()
    for n in range(3):
        assert jit(Tensor([float(n)])).item() == n + 1


def test_captured_functions_call_each_other():
    inner, inner_calls = counted(lambda x: x * 2)
    outer, outer_calls = counted(lambda x: inner(x) + 1)
    for n in range(6):
        assert outer(Tensor([float(n)])).item() == 2 * n + 1
        assert inner(Tensor([float(n)])).item() == 2 * n
    assert len(outer_calls) == 2


def test_a_captured_function_calls_itself():
    @TinyJit
    def power(x, n):
        return x if n == 0 else power(x, n - 1) * x

    for _ in range(4):
        assert power(Tensor([2.0]), 3).item() == 16.0


def test_it_works_inside_no_grad():
    weight = Tensor([2.0], requires_grad=True).realize()
    jit = TinyJit(lambda x: x * weight)
    with Tensor.no_grad():
        for n in range(4):
            assert jit(Tensor([float(n)])).item() == 2 * n


# ---- bound variables ----


def test_one_capture_serves_all_lengths():
    length = Variable("n", 1, 8)
    jit, calls = counted(lambda x: x.sum())
    data = arange(8)
    for n in (3, 5, 8, 1, 4):
        assert jit(data[: length.bind(n)]).item() == sum(range(n))
    assert len(calls) == 2


def test_result_shapes_follow():
    length = Variable("n", 1, 8)
    jit, calls = counted(lambda x, n: (x[:n] * 2, n + 1))
    data = arange(8)
    for n in (3, 5, 8, 1):
        found, more = jit(data, length.bind(n))
        assert found.shape[0].unbind() == (length, n)
        assert found.tolist() == [2.0 * i for i in range(n)]
        assert isinstance(more, int) or more.unbind is not None
    assert len(calls) == 2


def test_a_result_may_be_a_part_of_a_bound_input():
    length, data = Variable("n", 1, 8), arange(8)
    jit, calls = counted(lambda x: x[:1])
    for n in (2, 3, 5, 1, 8):
        assert (jit(data[: length.bind(n)]) + 1).tolist() == [1.0]
    assert len(calls) == 2


def test_a_variable_bound_to_two_numbers_is_refused():
    length = Variable("n", 1, 8)
    jit = TinyJit(lambda x, y: x.sum() + y.sum())
    data = arange(8)
    with pytest.raises(JitError, match="jit.*two variables"):
        jit(data[: length.bind(2)], data[: length.bind(3)])
    with pytest.raises(JitError, match="jit.*Bind it"):
        jit(data, length)


def test_writes_at_a_bound_place():
    at = Variable("at", 0, 7)
    cache = Tensor.zeros(8).contiguous().realize()

    def function(x, n):
        cache[n : n + 1].assign(x).realize()
        return cache[: n + 1].sum()

    jit, calls = counted(function)
    total = 0.0
    for n in range(8):
        total += n * n
        assert jit(Tensor([float(n * n)]), at.bind(n)).item() == total
    assert len(calls) == 2
    assert cache.tolist() == [float(n * n) for n in range(8)]


# ---- memory ----


def test_many_calls_do_not_grow():
    weight = Tensor.zeros(16).contiguous().realize()
    jit = TinyJit(lambda x: ((x * weight).sum(), weight.assign(weight + x))[0].realize())
    data = Tensor.ones(64).contiguous().realize()

    def calls(count):
        for at in range(count):
            start = at % 4 * 16
            jit(data[start : start + 16])
        gc.collect()
        return GlobalCounters.mem_used, len(nodes._table), tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        calls(100)
        rounds = [calls(200) for _ in range(5)]
    finally:
        tracemalloc.stop()
    assert rounds[-1][:2] == rounds[0][:2]
    # A leak grows in every round, the tables of the process do in some.
    assert min(b[2] - a[2] for a, b in pairwise(rounds)) < 4_000


def test_dropping_a_captured_function_frees_its_memory():
    def run():
        weight = Tensor.zeros(1000).contiguous().realize()
        jit = TinyJit(lambda x: ((x + weight).contiguous() * 2).sum())
        for n in range(4):
            jit(Tensor.full((1000,), float(n)).contiguous())

    gc.collect()
    before = GlobalCounters.mem_used
    run()
    gc.collect()
    assert GlobalCounters.mem_used == before


def test_captured_arguments_are_not_kept():
    jit = TinyJit(lambda x: x.sum())
    gc.collect()
    for _ in range(3):
        jit(Tensor.ones(4).contiguous())
    gc.collect()
    before = GlobalCounters.mem_used
    jit.reset()
    for _ in range(3):
        jit(Tensor.ones(100_000).contiguous())
    gc.collect()
    assert GlobalCounters.mem_used < before + 400_000


# ---- what a capture must not take for constant ----


def test_values_that_happen_to_be_known_are_computed_by_replays():
    weight = Tensor([1.0, 2.0]).realize()
    jit = TinyJit(lambda x: x + weight.sum())
    kept = weight.sum()
    assert kept.item() == 3.0
    for n in range(5):
        assert jit(Tensor([0.0])).item() == 3.0 + 2 * n
        weight.assign(weight + 1)
    assert kept.item() == 3.0


def test_readers_from_before_the_capture_are_not_captured():
    weight = Tensor([1.0, 2.0]).realize()
    jit = TinyJit(lambda x: weight.assign(weight + x).realize())
    jit(weight)
    old = weight.sum()
    for n in range(4):
        jit(Tensor([1.0, 1.0]))
        assert old.item() == 6.0
        assert weight.tolist() == [3.0 + n, 5.0 + n]


def test_a_pending_write_to_memory_that_is_only_returned_runs():
    table = Tensor([1.0, 2.0, 3.0]).realize()
    jit = TinyJit(lambda x: (x + 1, table[1:]))
    for n in range(5):
        table[1] = float(n)
        assert jit(Tensor([0.0]))[1].tolist() == [n, 3.0]


def test_what_other_calls_keep_does_not_go_stale():
    kept = {}

    def function(x):
        kept["last"] = x * 2
        return x + 1

    jit = TinyJit(function)
    for n in range(4):
        for x in (Tensor([float(n)]), Tensor([float(n), 5.0])):
            jit(x)
            assert kept["last"].tolist() == (x * 2).tolist()


def test_gradients_of_several_signatures_follow():
    weight = Tensor([2.0], requires_grad=True).realize()

    def function(x):
        weight.grad = None
        return (x * weight).sum().backward()

    jit, calls = counted(function)
    for n in range(4):
        for x in (Tensor([float(n)]), Tensor([float(n), 5.0])):
            jit(x)
            assert weight.grad.tolist() == [x.sum().item()]
    assert len(calls) == 4


# ---- several threads ----


def test_threads_share_a_captured_function():
    weight = Tensor([2.0]).realize()
    jit = TinyJit(lambda x: x * weight + 1)
    wrong = []

    def work(start):
        with Context(DEV="PYTHON"):
            for n in range(start, start + 20):
                found = jit(Tensor([float(n)])).item()
                if found != 2 * n + 1:
                    wrong.append((n, found))

    threads = [threading.Thread(target=work, args=(start,)) for start in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_another_thread_does_meanwhile_is_not_captured():
    made = []

    def function(x):
        def work():
            with Context(DEV="PYTHON"):
                made.append(Tensor.rand(3) + 1)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return x + 1

    jit = TinyJit(function)
    counts = []
    for n in range(4):
        x = Tensor([float(n)]).realize()
        before = GlobalCounters.kernel_count
        assert jit(x).item() == n + 1
        counts.append(GlobalCounters.kernel_count - before)
    assert counts == [1, 1, 1, 1]
    assert "lazy" in repr(made[-1])


def test_a_write_that_waits_while_another_thread_captures_is_captured():
    state = Tensor([1.0]).realize()

    def work():
        with Context(DEV="PYTHON"):
            double = TinyJit(lambda x: x * 2)
            for n in range(3):
                assert double(Tensor([float(n)])).item() == 2.0 * n

    def function(x):
        state.assign(state + x)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return state * 1

    jit, calls = counted(function)
    assert [jit(Tensor([2.0])).item() for _ in range(5)] == [3.0, 5.0, 7.0, 9.0, 11.0]
    assert len(calls) == 2


# ---- kernels with several outputs ----


def test_each_output_of_a_kernel_has_fresh_memory_in_every_replay():
    jit = TinyJit(lambda x: (x + 1, x * 2))
    kept = [jit(Tensor([float(n), 1.0])) for n in range(5)]
    assert [left.tolist() for left, _ in kept] == [[n + 1.0, 2.0] for n in range(5)]
    assert [right.tolist() for _, right in kept] == [[2.0 * n, 2.0] for n in range(5)]


def test_every_state_that_a_kernel_writes_goes_on():
    first, second = Tensor([1.0, 2.0]).realize(), Tensor([3.0, 4.0]).realize()

    @TinyJit
    def step(x):
        first.assign(first + second * x)
        second.assign(second * 2 + first)
        Tensor.realize(first, second)

    a, b = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    for n in range(5):
        step(Tensor([float(n), 1.0]))
        a = a + b * np.array([float(n), 1.0])
        b = b * 2 + a
    assert (first.tolist(), second.tolist()) == (a.tolist(), b.tolist())


def test_whoever_reads_any_output_before_a_replay_keeps_the_value():
    first, second = Tensor([1.0]).realize(), Tensor([10.0]).realize()

    @TinyJit
    def step():
        first.assign(first + 1)
        second.assign(second + first)
        Tensor.realize(first, second)

    lazy = []
    for _ in range(5):
        lazy.append((first * 1.5, second * 1.5))
        step()
    numbers = [(1.0, 10.0), (2.0, 12.0), (3.0, 15.0), (4.0, 19.0), (5.0, 24.0)]
    assert [(x.item() / 1.5, y.item() / 1.5) for x, y in lazy] == numbers


def test_an_input_that_lies_in_the_second_output_is_read_first():
    first, second = Tensor([1.0, 1.0]).realize(), Tensor([2.0, 3.0]).realize()

    @TinyJit
    def step(x):
        first.assign(first + x)
        second.assign(second * 2)
        Tensor.realize(first, second)

    step(Tensor([1.0, 1.0]))
    step(Tensor([1.0, 1.0]))
    step(second)
    assert first.tolist() == [11.0, 15.0]
    assert second.tolist() == [16.0, 24.0]
