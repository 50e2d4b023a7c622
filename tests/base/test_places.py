"""A replay reads the tensors that are there now, wherever Python keeps them."""

import functools
import weakref
from collections import deque, namedtuple
from types import ModuleType, SimpleNamespace

import pytest

from kernelet import Tensor, TinyJit, nn
from kernelet.base.errors import JitError
from kernelet.base.places import replaced, ways_from

WEIGHT = Tensor([[2.0]]).realize()
MODULE = ModuleType("module")
Pair = namedtuple("Pair", "first second")


class Slotted:
    __slots__ = ("weight",)


class Layer:
    """One that has its weight in its class, and one that has it in an object."""

    shared: Tensor

    def __init__(self):
        self.weight = Tensor([0.0])

    def __call__(self, x):
        return x * self.weight

    @property
    def scaled(self):
        return self.weight * WEIGHT


def attribute():
    holder = SimpleNamespace()
    return lambda x: x * holder.weight, functools.partial(setattr, holder, "weight")


def slot():
    holder = Slotted()
    return lambda x: x * holder.weight, functools.partial(setattr, holder, "weight")


def element():
    held = [[None], 3]
    return lambda x: x * held[0][0], functools.partial(held[0].__setitem__, 0)


def queued():
    held = deque([None])
    return lambda x: x * held[0], functools.partial(held.__setitem__, 0)


def entry():
    held = {"a": {1: None}}
    return lambda x: x * held["a"][1], functools.partial(held["a"].__setitem__, 1)


def cell():
    weight = None

    def put(value):
        nonlocal weight
        weight = value

    return lambda x: x * weight, put


def global_name():
    return lambda x: x * WEIGHT, functools.partial(globals().__setitem__, "WEIGHT")


def name_in_a_module():
    return lambda x: x * MODULE.weight, functools.partial(setattr, MODULE, "weight")


def called_object():
    layer = Layer()
    return layer, functools.partial(setattr, layer, "weight")


def bound_method():
    layer = Layer()
    return layer.__call__, functools.partial(setattr, layer, "weight")


def class_attribute():
    return lambda x: x * Layer.shared, functools.partial(setattr, Layer, "shared")


def default():
    def run(x, *, weight=None):
        return x * weight

    return run, lambda value: run.__kwdefaults__.update(weight=value)


def what_another_function_names():
    run, put = global_name()
    return functools.partial(lambda function, x: function(x), run), put


def what_a_captured_one_names():
    run, put = attribute()
    return Tensor.train()(TinyJit(run)), put


def a_whole_layer():
    layers = [Layer()]

    def put(value):
        layers[0] = Layer()
        layers[0].weight = value

    return lambda x: layers[0](x), put


def a_layer_of_ours():
    layer = nn.Linear(1, 1, bias=False)
    return lambda x: layer(x), lambda value: setattr(layer, "weight", value)


def named_tuple():
    held = SimpleNamespace(pair=Pair(None, None))

    def put(value):
        held.pair = Pair(None, value)

    return lambda x: x * held.pair.second, put


KINDS = [
    attribute,
    slot,
    element,
    queued,
    entry,
    cell,
    global_name,
    name_in_a_module,
    called_object,
    bound_method,
    class_attribute,
    default,
    what_another_function_names,
    what_a_captured_one_names,
    a_whole_layer,
    a_layer_of_ours,
    named_tuple,
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("lives", [True, False], ids=["alive", "dead"])
def test_another_tensor_in_a_place_is_seen(kind, lives):
    run, put = kind()
    others, kept = [Tensor([[2.0]]).realize(), Tensor([[7.0]]).realize(), Tensor([[5.0]])], []
    jit, x = TinyJit(run), Tensor([[10.0]]).realize()
    while others:
        value = others.pop(0)
        kept += [value] if lives else []
        wanted = 10 * value.item()
        put(value)
        del value
        for _ in range(3):
            assert jit(x).item() == wanted


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_updates_in_place_need_no_other_capture(kind):
    run, put = kind()
    weight, calls = Tensor([[2.0]]).realize(), []
    put(weight)

    def step(x):
        calls.append(1)
        result = run(x)
        weight.assign(weight + 1).realize()
        return result

    jit = TinyJit(step)
    for n in range(5):
        assert jit(Tensor([[10.0]])).item() == 20 + 10 * n
    weight.assign(Tensor([[7.0]])).realize()
    nn.state.load_state_dict(SimpleNamespace(w=weight), {"w": Tensor([[8.0]])}, verbose=False)
    for n in range(3):
        assert jit(Tensor([[10.0]])).item() == 80 + 10 * n
    assert len(calls) == 2


def test_an_attribute_of_an_argument_that_is_an_object_is_seen():
    old, layer = Tensor([[2.0]]).realize(), Layer()
    jit = TinyJit(lambda layer, x: layer(x))
    layer.weight = old
    for _ in range(3):
        assert jit(layer, Tensor([[10.0]])).item() == 20.0
    layer.weight = Tensor([[7.0]]).realize()
    assert jit(layer, Tensor([[10.0]])).item() == 70.0


def test_an_optimizer_updates_what_it_was_given_and_the_layer_reads_what_it_has():
    layer = nn.Linear(1, 1, bias=False)
    layer.weight.assign(Tensor([[1.0]]))
    optimizer, calls = nn.optim.SGD([layer.weight], lr=1.0), []

    @TinyJit
    @Tensor.train()
    def step(x):
        calls.append(1)
        optimizer.zero_grad()
        loss = layer(x).sum().backward()
        optimizer.step()
        return loss

    x = Tensor([[1.0]]).realize()
    assert [step(x).item() for _ in range(5)] == [1.0, 0.0, -1.0, -2.0, -3.0]
    assert len(calls) == 2


@pytest.mark.parametrize("keep", [True, False])
def test_a_tensor_that_is_replaced_by_the_function_is_refused_though_it_lives(keep):
    layer, kept = Layer(), []

    def step(x):
        kept.extend([layer.weight] if keep else [])
        layer.weight = (layer.weight + x).realize()
        return layer.weight + 0

    jit = TinyJit(step)
    jit(Tensor([1.0]))
    with pytest.raises(JitError, match="jit.*assign"):
        jit(Tensor([1.0]))


def test_a_swap_is_refused():
    layer = SimpleNamespace(a=Tensor([1.0]).realize(), b=Tensor([[2.0]]).realize())

    def step(x):
        layer.a, layer.b = layer.b, layer.a
        return x + layer.a

    jit = TinyJit(step)
    assert jit(Tensor([0.0])).item() == 2.0
    with pytest.raises(JitError, match="jit.*assign"):
        jit(Tensor([0.0]))


def test_another_tensor_object_for_the_same_memory_is_not_refused():
    layer = SimpleNamespace(hidden=Tensor([1.0]).realize())

    def step(x):
        layer.hidden = layer.hidden.detach()
        return x + layer.hidden

    jit = TinyJit(step)
    assert [jit(Tensor([float(n)])).item() for n in range(5)] == [n + 1.0 for n in range(5)]


def found(value):
    return ways_from(value, lambda part: type(part) is Tensor, {})


def test_ways_keep_nothing_alive_and_cycles_end():
    layer = Layer()
    layer.itself = [layer]
    ways, old = found((layer,)), layer.weight
    assert list(replaced((layer,), ways)) == []
    layer.weight = None
    assert list(replaced((layer,), ways)) == [(old, None)]
    del old
    assert list(replaced((layer,), ways)) == [(None, None)]


def test_long_chains_and_lists_end():
    chain = None
    for _ in range(5_000):
        chain = [chain, Tensor([1.0])]
    assert found(chain)
    assert found(list(range(100_000))) == []


def test_what_a_property_raises_is_passed_by():
    class Strange:
        def __init__(self):
            vars(self)["broken"] = 1
            self.weight = Tensor([1.0])

        @property
        def broken(self):
            raise RuntimeError("not now")

    strange = Strange()
    ways = found([strange])
    strange.weight = Tensor([[2.0]])
    assert len(list(replaced([strange], ways))) == 1


def strange_things():
    gone = Layer()
    space = {}
    exec("def run(x): return x", space)
    return [weakref.proxy(gone), space["run"], type("Nowhere", (), {"__module__": None})()]


@pytest.mark.parametrize("number", range(3), ids=["dead proxy", "no module", "no name of one"])
def test_strange_things_beside_a_tensor_are_passed_by(number):
    layer, kept = Layer(), Tensor([[2.0]]).realize()
    layer.beside, layer.weight = strange_things()[number], kept
    jit = TinyJit(lambda x: layer(x))
    for _ in range(3):
        assert jit(Tensor([[10.0]])).item() == 20.0
    layer.weight = Tensor([[7.0]]).realize()
    assert jit(Tensor([[10.0]])).item() == 70.0
