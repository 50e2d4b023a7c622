"""Small networks learn; a captured step is the same step; long loops do not grow."""

import gc
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest

from kernelet import Context, GlobalCounters, Tensor, TinyJit, holdings, nn
from kernelet.frontend.capture import Capture
from kernelet.graph import uop


class Classifier:
    def __init__(self):
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)
        self.norm = nn.BatchNorm(16)

    def __call__(self, x):
        return self.second(self.norm(self.first(x)).relu().dropout(0.1))


def data(rows=64):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, rows)
    x = rng.standard_normal((rows, 8)) * 0.3 + np.eye(4)[labels].repeat(2, axis=1)
    return Tensor(x.astype(np.float32)).realize(), Tensor(labels.astype(np.int32)).realize()


def trainer(optimizer_of, seed=0):
    """A training step on slices of a data set, and the tensors that it changes."""
    Tensor.manual_seed(seed)
    model = Classifier()
    optimizer = optimizer_of(nn.state.get_parameters(model))
    x, y = data()

    def step(x, y):
        optimizer.zero_grad()
        loss = model(x).sparse_categorical_crossentropy(y).backward()
        optimizer.step()
        return loss

    jit = TinyJit(step)

    def call(at):
        start = at % 4 * 16
        with Tensor.train():
            return jit(x[start : start + 16], y[start : start + 16])

    return call, model, jit


OPTIMIZERS = {
    "sgd": lambda parameters: nn.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adam": lambda parameters: nn.optim.Adam(parameters, lr=0.02),
    "adamw": lambda parameters: nn.optim.AdamW(parameters, lr=0.02),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_captured_step_is_the_same_step(name):
    runs = []
    for enabled in (0, 1):
        with Context(JIT=enabled):
            call, model, jit = trainer(OPTIMIZERS[name])
            losses = [call(at).item() for at in range(12)]
            state = nn.state.get_state_dict(model)
            runs.append((losses, {key: each.tolist() for key, each in state.items()}))
            assert sum(isinstance(each, Capture) for each in jit.captures.values()) == enabled
    assert runs[0] == runs[1]


def test_a_classifier_learns():
    call, model, _ = trainer(OPTIMIZERS["adam"])
    losses = [call(at).item() for at in range(150)]
    assert sum(losses[-10:]) < sum(losses[:10]) / 4
    x, y = data()
    hits = (model(x).argmax(1) == y).float().mean().item()
    assert hits > 0.95
    assert model.norm.num_batches_tracked.item() == 150


def test_kept_losses_stay_what_they_were():
    call, _, _ = trainer(OPTIMIZERS["adam"])
    losses = [call(at) for at in range(10)]
    values = [loss.item() for loss in losses]
    for at in range(3):
        call(at)
    assert [loss.item() for loss in losses] == values
    assert len(set(values)) > 5


def test_evaluation_between_steps_sees_the_parameters_of_the_moment():
    call, model, _ = trainer(OPTIMIZERS["sgd"])
    x, _ = data()
    evaluate = TinyJit(model)
    for at in range(8):
        call(at)
        lazy = model(x)
        captured = evaluate(x)
        with Context(JIT=0):
            assert np.array_equal(model(x).numpy(), captured.numpy())
        call(at)
        assert np.array_equal(lazy.numpy(), captured.numpy())


def test_a_loaded_state_is_trained_on():
    call, model, _ = trainer(OPTIMIZERS["sgd"])
    state = {key: each.clone().realize() for key, each in nn.state.get_state_dict(model).items()}
    first = [call(at).item() for at in range(3)]
    nn.state.load_state_dict(model, state, verbose=False)
    weight = state["second.weight"].numpy()
    assert np.array_equal(model.second.weight.numpy(), weight)
    call(0)
    assert not np.array_equal(model.second.weight.numpy(), weight)
    assert np.array_equal(state["second.weight"].numpy(), weight)
    assert len(first) == 3


def growth(call, steps):
    """What is held more after each of some rounds of steps, where it grows least: a leak grows
    in every round, a table of the process in one.

    Bytes of devices, memory nodes, all nodes, Python objects, bytes of Python.
    """
    rounds = []
    for _ in range(4):
        for at in range(steps):
            call(at).item()
        gc.collect()
        nodes = len(holdings.buffer_nodes()), len(uop._table)
        python = len(gc.get_objects()), tracemalloc.get_traced_memory()[0]
        rounds.append((GlobalCounters.mem_used, *nodes, *python))
    steps_up = [[b - a for a, b in zip(*pair, strict=True)] for pair in pairwise(rounds)]
    return [min(column) for column in zip(*steps_up, strict=True)]


def test_five_hundred_captured_steps_do_not_grow():
    call, _, _ = trainer(OPTIMIZERS["adam"])
    tracemalloc.start()
    try:
        grown = growth(call, 125)
    finally:
        tracemalloc.stop()
    assert max(grown[:3]) <= 0
    assert grown[3] < 50
    assert grown[4] < 5_000


def test_steps_that_are_not_captured_do_not_grow():
    with Context(JIT=0):
        call, _, _ = trainer(OPTIMIZERS["sgd"])
        grown = growth(call, 12)
    assert max(grown[:3]) <= 0
    assert grown[3] < 50


def test_captured_steps_need_few_kernels():
    call, _, _ = trainer(OPTIMIZERS["adam"])
    for at in range(3):
        call(at)
    before = GlobalCounters.kernel_count
    call(3)
    assert GlobalCounters.kernel_count - before < 60
