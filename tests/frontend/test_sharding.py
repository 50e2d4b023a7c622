"""Tensors on several devices compute what one device computes."""

from __future__ import annotations

import numpy as np
import pytest

from kernelet import Context, GlobalCounters, Tensor, TinyJit, nn
from kernelet.base.errors import DeviceError, ShapeError
from kernelet.nn import optim
from kernelet.nn.state import get_parameters, get_state_dict

TWO = ("PYTHON:0", "PYTHON:1")
THREE = ("PYTHON:0", "PYTHON:1", "PYTHON:2")
A = np.arange(24, dtype=np.float32).reshape(4, 6) / 8 - 1


def close(tensor, expected):
    np.testing.assert_allclose(tensor.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_a_sharded_tensor_names_its_devices_and_has_the_whole_value():
    for axis in (0, 1, -1, None):
        x = Tensor(A).shard(TWO, axis)
        assert x.device == ("PYTHON", "PYTHON:1")
        assert x.shape == (4, 6)
        close(x, A)
        assert x.realize().tolist() == A.tolist()
    assert Tensor([3.0]).to(TWO).item() == 3.0


def test_a_tensor_is_sharded_like_another():
    for axis in (0, 1, None):
        like = Tensor(A).shard(THREE, axis)
        found = Tensor(A).shard_like(like)
        assert found.device == like.device
        assert [part.shape for part in found.realize().uop.src] == [
            part.shape for part in like.realize().uop.src
        ]
        assert like.shard_like(Tensor(A)).device == "PYTHON"
    close(Tensor(A).shard_like(Tensor(A).shard(TWO, 1).sum(1)), A)


def test_in_place_moves_keep_the_tensor():
    x, y = Tensor(A), Tensor(A)
    assert x.shard_(TWO, 0) is x
    assert y.to_(TWO) is y
    close(x + y, 2 * A)


def test_uneven_parts_lose_nothing():
    x = Tensor(np.ones(7, np.float32)).shard(THREE, 0)
    assert x.sum().item() == 7
    close(x * 2, np.full(7, 2))


def test_too_few_elements_are_named():
    with pytest.raises(ShapeError, match="size 1"):
        Tensor(A[:1]).shard(TWO, 0)


OPERATIONS = {
    "sum of all": lambda x: x.sum(),
    "sum of rows": lambda x: x.sum(0),
    "maximum": lambda x: x.max(1),
    "softmax": lambda x: x.softmax(0),
    "variance": lambda x: x.var(),
    "argmax": lambda x: x.argmax(0),
    "reshape": lambda x: x.reshape(2, 2, 6),
    "flatten": lambda x: x.flatten(),
    "transpose": lambda x: x.T,
    "flip": lambda x: x.flip((0, 1)),
    "pad": lambda x: x.pad(((1, 1), (0, 2))),
    "row": lambda x: x[1],
    "rows": lambda x: x[1:3],
    "columns": lambda x: x[:, 1:3],
    "broadcast": lambda x: x - x.mean(0, keepdim=True),
    "cat": lambda x: Tensor.cat(x, x * 2, dim=0),
    "product with itself": lambda x: x @ x.T,
    "condition": lambda x: (x > 0).where(x, -1),
    "other order": lambda x: x + x.flip(0),
    "layernorm": lambda x: x.layernorm(),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("axis", [0, 1, None])
def test_operations_and_their_gradients_match_one_device(name, axis):
    function = OPERATIONS[name]
    one, x = Tensor(A), Tensor(A).shard(TWO, axis)
    expected, found = function(one), function(x)
    assert found.device == x.device
    close(found, expected.numpy())
    if found.dtype.is_float:
        (wanted,) = function(one).square().sum().gradient(one)
        close(function(x).square().sum().gradient(x)[0], wanted.numpy())


@pytest.mark.parametrize("left", [0, 1, None])
@pytest.mark.parametrize("right", [0, 1, None])
def test_matrix_products_match_however_the_operands_are_cut(left, right):
    close(Tensor(A).shard(TWO, left) @ Tensor(A.T).shard(TWO, right), A @ A.T)


def test_the_gradient_of_a_replicated_weight_sums_over_the_shards():
    w = Tensor([[1.0, 2.0]]).to(TWO).realize()
    x = Tensor(np.arange(8, dtype=np.float32).reshape(4, 2)).shard(TWO, 0)
    close((x * w).sum().gradient(w)[0], [[12, 16]])


def test_gradients_reach_the_tensor_that_was_sharded():
    for axis in (0, None):
        x = Tensor(A)
        close((x.shard(TWO, axis) * 3).to("PYTHON:1").sum().gradient(x)[0], np.full_like(A, 3))


def test_to_one_device_joins_the_parts():
    for axis in (0, 1, None):
        x = Tensor(A).shard(TWO, axis)
        assert x.to("PYTHON").device == "PYTHON"
        close(x.to("PYTHON") + Tensor(A), 2 * A)
        close(x.to("PYTHON:1") * 2, 2 * A)


def test_a_sharded_tensor_is_sharded_again():
    x = Tensor(A).shard(TWO, 0).realize()
    close(x + x.shard(TWO, 1), 2 * A)
    close(x.shard(THREE, 0), A)
    close((x.shard(TWO, 1) * 2).sum().gradient(x)[0], np.full_like(A, 2))


def test_operands_elsewhere_are_refused():
    x, y = Tensor(A).shard(TWO, 0), Tensor(A)
    for wrong in (
        lambda: x + y,
        lambda: y * x,
        lambda: (y > 0).where(x, 0),
        lambda: x + y.shard(THREE, 0),
        lambda: y.assign(x),
        lambda: x.realize().assign(y),
    ):
        with pytest.raises(DeviceError, match=r"Bring them together with \.shard"):
            wrong()
    close(x + 1, A + 1)
    close(y, A)


def test_a_device_is_named_once():
    with pytest.raises(DeviceError, match="Name each once"):
        Tensor(A).to(("PYTHON", "PYTHON:0"))


@pytest.mark.parametrize("axis", [0, 1, None])
def test_assign_writes_to_the_parts_in_place(axis):
    x = Tensor(A).shard(TWO, axis).contiguous().realize()
    before, used = x * 1, GlobalCounters.mem_used
    x.assign(x * 2 + 1)
    close(x, 2 * A + 1)
    close(before, A)
    del before
    for _ in range(3):
        x.assign(x + 1).realize()
    assert GlobalCounters.mem_used <= used
    x[1:3] = 0.0
    expected = 2 * A + 4
    expected[1:3] = 0
    close(x, expected)
    x.assign(Tensor(A).shard(TWO, 1))
    close(x, A)


ARRAY = np.array([1, 2, 3, 4, 5, 6], np.float32)


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x[[0, -1]],
        lambda x: x[np.array([2, 0])],
        lambda x: x[[True, False, True, True]],
        lambda x: x + ARRAY,
        lambda x: x.maximum(ARRAY),
        lambda x: (x > 0).where(x, ARRAY),
        lambda x: x.__setitem__(0, ARRAY.tolist()),
        lambda x: x.__setitem__(0, ARRAY),
        lambda x: x.__setitem__([0, 2], 5),
        lambda x: x.__setitem__(A > 0, 0),
        lambda x: x.assign((A * 2).tolist()),
        lambda x: x.assign(A * 2),
        lambda x: x.__iadd__(ARRAY),
        lambda x: x.hash(),
    ],
)
def test_lists_and_arrays_come_to_the_devices_of_the_tensor(use):
    wanted = Tensor(A)
    made = use(wanted)
    wanted = wanted if made is None else made
    for x in (Tensor(A, device="PYTHON:1"), Tensor(A).shard(TWO, 0), Tensor(A).shard(TWO)):
        made = use(x)
        found = x if made is None else made
        close(found, wanted.numpy())
        assert found.device == x.device


@pytest.mark.parametrize(
    "compute", [lambda x: x * 0, lambda x: x - x, lambda x: (x % 1).contiguous(), lambda x: x & 0]
)
def test_what_comes_to_a_number_stays_on_its_devices(compute):
    whole = np.arange(8).reshape(4, 2)
    for x in (Tensor(whole, device="PYTHON:1"), Tensor(whole).shard(TWO, 0)):
        for found in (compute(x), compute(x).realize()):
            assert (found + x).tolist() == whole.tolist()
            assert found.device == x.device
            found[0] = 3
            assert (found + x).tolist() == [[3, 4], *whole[1:].tolist()]


def test_shards_do_not_follow_writes_to_what_they_were_made_of():
    x = Tensor(A).realize()
    lazy, part = x.shard(TWO, 0), x.shard(TWO, 0).realize()
    part.assign(part + 1).realize()
    x.assign(x + 5).realize()
    close(lazy, A)
    close(part, A + 1)
    close(x, A + 5)


def test_creation_and_randomness_on_several_devices():
    Tensor.manual_seed(1)
    one = Tensor.rand(4, 6)
    Tensor.manual_seed(1)
    both = Tensor.rand(4, 6, device=TWO)
    close(both, one.numpy())
    x = Tensor(A).shard(TWO, 0)
    close(x + x.zeros_like() + Tensor.ones(4, 6, device=TWO) + Tensor(A, device=TWO), 2 * A + 1)
    with Context(TRAINING=1):
        Tensor.manual_seed(1)
        dropped = Tensor(A).dropout(0.5).numpy()
        Tensor.manual_seed(1)
        close(x.dropout(0.5), dropped)


class Net:
    def __init__(self):
        self.first = nn.Linear(6, 4, bias=False)
        self.norm = nn.BatchNorm(4)
        self.second = nn.Linear(4, 3)

    def __call__(self, x):
        return self.second(self.norm(self.first(x)).relu())


def trained(make, devices, *, jit=False):
    Tensor.manual_seed(3)
    net = Net()
    Tensor.realize(*get_parameters(net))
    if devices:
        for tensor in get_state_dict(net).values():
            tensor.to_(devices)
    optimizer = make(get_parameters(net))

    def step(x, y):
        with Context(TRAINING=1):
            optimizer.zero_grad()
            loss = net(x).sparse_categorical_crossentropy(y).backward()
            optimizer.step()
        return loss.realize()

    run = TinyJit(step) if jit else step
    losses = []
    for n in range(4):
        x, y = Tensor(np.sin(A + A * A * n)), Tensor([0, 2, 1, n % 3])
        if devices:
            x, y = x.shard(devices, 0), y.shard(devices, 0)
        losses.append(run(x, y).item())
    return [np.array(losses), *[tensor.numpy() for tensor in get_state_dict(net).values()]]


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_training_on_parts_of_a_batch_is_training_on_the_batch(optimizer, jit):
    def make(parameters):
        if optimizer == "SGD":
            return optim.SGD(parameters, 0.1, momentum=0.9)
        return optim.Adam(parameters, 0.01)

    expected = trained(make, None)
    for one, other in zip(expected, trained(make, TWO, jit=jit), strict=True):
        np.testing.assert_allclose(other, one, rtol=2e-3, atol=2e-4)


def test_a_captured_function_may_use_several_devices():
    weight = Tensor(A).shard(TWO, 0).realize()

    def add(x):
        weight.assign(weight + x.shard(TWO, 0))
        return weight.sum()

    jit, total = TinyJit(add), A.copy()
    for n in range(4):
        total += n
        assert jit(Tensor(np.full_like(A, n))).item() == pytest.approx(total.sum())
    gathered = TinyJit(lambda x: x + weight.to("PYTHON"))
    for n in range(4):
        close(gathered(Tensor(A + n)), A + n + total)
        weight.assign(weight + 1)
        total += 1
    doubled = TinyJit(lambda x: x * 2)
    for n in range(4):
        close(doubled(Tensor(A + n).shard(TWO, 0)), 2 * (A + n))


def replayed(function, *makers, rounds=5):
    """Compare a captured function with itself uncaptured; says how often it ran as Python."""
    calls = []

    def counted(*arguments):
        calls.append(1)
        return function(*arguments)

    jit = TinyJit(counted)
    kept = []
    for number in range(rounds):
        arguments = [make(number) for make in makers]
        expected = function(*[make(number) for make in makers])
        found = jit(*arguments)
        kept.append((found, expected.numpy()))
    for found, expected in kept:
        close(found, expected)
        assert found.device == kept[0][0].device
    return len(calls)


CAPTURED = {
    "cut": lambda x: x * 2 + 1,
    "whole": lambda x: x.sum(0),
    "gathered": lambda x: x.to("PYTHON") * 2,
    "cut otherwise": lambda x: x.shard(THREE, 0) + 1,
    "a view of the argument": lambda x: x[:, 1:3],
    "the argument itself": lambda x: x,
    "a part on the way": lambda x: (x.contiguous() * 3).realize().flip(0) - x.mean(),
    "random": lambda x: (x * 0 + Tensor.rand(4, 6, device=x.device) < 2).cast("float32"),
}


@pytest.mark.parametrize("name", CAPTURED)
@pytest.mark.parametrize("axis", [0, 1, None])
def test_functions_of_several_devices_are_captured(name, axis):
    def make(number):
        return Tensor(A + number).shard(TWO, axis).realize()

    assert replayed(CAPTURED[name], make) == 2


def test_a_function_that_spreads_its_argument_is_captured():
    def make(number):
        return Tensor(A + number).realize()

    assert replayed(lambda x: x.to(TWO), make) == 2
    assert replayed(lambda x: x.to(TWO) * 2, make) == 2
    assert replayed(lambda x: x.shard(TWO, 1).sum(1).to("PYTHON:1"), make) == 2


def test_captured_writes_reach_every_part():
    total, calls = Tensor.zeros(4, 6).shard(TWO, 0).contiguous().realize(), []

    @TinyJit
    def add(x):
        calls.append(1)
        x.assign(x * 2)
        total.assign(total + x)
        return total.max()

    for number in range(1, 6):
        x = Tensor(np.full_like(A, number)).shard(TWO, 0).realize()
        before = x + 0
        assert add(x).item() == number * (number + 1)
        close(x, np.full_like(A, 2 * number))
        close(before, np.full_like(A, number))
    close(total, np.full_like(A, 30))
    assert len(calls) == 2


def test_another_cut_is_another_capture():
    calls = []

    @TinyJit
    def double(x):
        calls.append(1)
        return x * 2

    for axis in (0, 1, None, 0, 1, None, 0, 1, None):
        close(double(Tensor(A).shard(TWO, axis)), 2 * A)
    assert len(calls) == 6


def test_a_convolutional_network_learns_on_parts_of_a_batch_as_on_the_whole():
    def learned(devices):
        Tensor.manual_seed(0)
        layers = [nn.Conv2d(1, 3, 3), nn.BatchNorm(3), Tensor.relu, Tensor.max_pool2d]
        layers += [lambda x: x.flatten(1), nn.Linear(12, 4)]
        tensors = get_state_dict(layers).values()
        Tensor.realize(*tensors)
        for tensor in tensors if devices else ():
            tensor.shard_(devices)
        optimizer, calls = optim.SGD(get_parameters(layers), 0.1, momentum=0.9), []

        @TinyJit
        def step(x, y):
            calls.append(1)
            optimizer.zero_grad()
            loss = x.sequential(layers).sparse_categorical_crossentropy(y).backward()
            return loss.realize(*optimizer.schedule_step())

        losses = []
        with Tensor.train():
            for number in range(4):
                x = Tensor(
                    np.sin(np.arange(180) * (number + 1.0)).reshape(5, 1, 6, 6), dtype="float32"
                )
                y = Tensor([0, 3, 1, 2, number])
                # Five images on two devices: the parts are not equally large.
                x, y = (x.shard(devices, 0), y.shard(devices, 0)) if devices else (x, y)
                losses.append(step(x, y).item())
        assert len(calls) == 2
        return [np.array(losses), *[tensor.numpy() for tensor in tensors]]

    for one, other in zip(learned(None), learned(TWO), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-4)
