"""Random steps on shared state, with and without capture: every value that anybody holds agrees."""

import random

import pytest

from kernelet import Context, Tensor, TinyJit
from kernelet.base.errors import JitError

SEEDS = 24


@pytest.fixture(autouse=True)
def reference_device():
    with Context(DEV="PYTHON"):
        yield


class Program:
    """A random function of one argument and of three tensors that it may write."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        Tensor.manual_seed(seed)
        pick = self.random.randint
        self.state = [Tensor([float(pick(0, 5)) for _ in range(4)]).realize() for _ in range(3)]
        self.data = Tensor([float(n) for n in range(24)]).realize()
        self.kept = None
        self.held = []
        moves = [self.assign, self.alias, self.slice, self.temporary, self.noise, self.keep]
        moves += [self.mix, self.fold, self.slope]
        self.plan = [
            (self.random.choice(moves), pick(0, 2), pick(0, 2), pick(1, 3))
            for _ in range(pick(1, 5))
        ]
        self.returns = self.random.choice(["sum", "view", "state", "argument", "two", "nested"])
        self.writes_argument = self.random.random() < 0.15

    # ---- what the function does ----

    def assign(self, value, a, b, at):
        a.assign(a * 0.5 + b + value * 0.25)
        return value

    def alias(self, value, a, b, at):
        old = a.detach()
        a.assign(a + 1)
        return value + old * 0.5

    def slice(self, value, a, b, at):
        a[at - 1 : at + 1].assign(b[0:2] + value[1:3])
        return value

    def temporary(self, value, a, b, at):
        return (value + a.flip(0)).contiguous()

    def noise(self, value, a, b, at):
        return value + Tensor.rand(4)

    def keep(self, value, a, b, at):
        self.kept = value * 2 + b
        return value

    def mix(self, value, a, b, at):
        return value * a + b.sum() * 0.1

    def fold(self, value, a, b, at):
        return value.softmax() + b

    def slope(self, value, a, b, at):
        weight = a.detach()
        weight.requires_grad = True
        return value + (weight * weight * value).sum().gradient(weight)[0] * 0.1

    def __call__(self, x):
        value = x * 1.0
        for move, i, j, at in self.plan:
            value = move(value, self.state[i], self.state[j], at)
        if self.writes_argument:
            x.assign(x + value).realize()
        return {
            "sum": lambda: value.sum(),
            "view": lambda: value.realize()[1:3],
            "state": lambda: self.state[self.plan[0][1]],
            "argument": lambda: x,
            "two": lambda: (value, value.flip(0)),
            "nested": lambda: {"a": [value, x[1:], self.state[0][1:3]], "b": 3},
        }[self.returns]()

    # ---- what happens between calls ----

    def disturb(self, step):
        """Something that the caller does; returns what it saw."""
        tensor = self.state[self.random.randrange(3)]
        choice = self.random.randrange(10)
        if choice == 0:
            self.held.append(tensor * 3 + 1)
        elif choice == 1:
            self.held.append(tensor[1:3])
        elif choice == 2:
            self.held.append([tensor.sum(), (tensor * tensor).realize()])
        elif choice == 3:
            tensor.assign(tensor * 0.5 + 1)
        elif choice == 4:
            tensor.replace(Tensor([1.0 * step, 2, 3, 4]).realize())
        elif choice == 5:
            tensor[0:2] = 7.0
        elif choice == 6:
            return (tensor * 2).tolist()
        elif choice == 7:
            return [each.tolist() for each in self.state]
        elif choice == 8 and self.kept is not None:
            return self.kept.tolist()
        return []

    def argument(self, step):
        at = self.random.randrange(20)
        fresh = Tensor([float(step), 1.0, 2.0, 0.5])
        others = [self.data[at : at + 4], fresh * 2, self.data[4:8].flip(0)]
        others += [self.state[at % 3], fresh]
        return fresh if self.writes_argument else self.random.choice(others)


def tensors(value):
    if isinstance(value, Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value
    return (
        [each for part in parts for each in tensors(part)]
        if isinstance(value, dict | list | tuple)
        else []
    )


def run(seed):
    """Everything that is seen, and what is held at the end."""
    program = Program(seed)
    step = TinyJit(program.__call__)
    seen = []
    for number in range(8):
        seen.append(program.disturb(number))
        result = tensors(step(program.argument(number)))
        if program.random.random() < 0.6:
            seen.append([each.tolist() for each in result])
        if program.returns not in ("state", "argument"):
            program.held.append(result)
    seen.append([each.tolist() for each in tensors(program.held)])
    seen.append([each.tolist() for each in program.state])
    return seen


def numbers(value):
    if isinstance(value, list):
        return [each for part in value for each in numbers(part)]
    return [value]


def test_captured_and_plain_runs_agree():
    refused = 0
    for seed in range(SEEDS):
        with Context(JIT=0):
            wanted = run(seed)
        try:
            found = run(seed)
        except JitError:
            refused += 1
            continue
        assert numbers(found) == pytest.approx(numbers(wanted), rel=1e-4, nan_ok=True), seed
    assert refused <= SEEDS // 8
