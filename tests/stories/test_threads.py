"""Several threads build, write, realize and replay at once, and each gets its own results."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from kernelet import Tensor, TinyJit, nn

THREADS = 4
ROUNDS = 25


@pytest.fixture(autouse=True)
def frequent_switches() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def together(work: Callable[[int], None]) -> None:
    """Run `work(number)` in all threads at once; what one of them raises is raised here."""
    errors: list[BaseException] = []
    start = threading.Barrier(THREADS)

    def run(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_graphs_of_all_kinds_are_computed_at_once() -> None:
    shared = Tensor(np.arange(64, dtype=np.float32)).realize()
    lazy = [shared * k + k for k in range(3)]

    def work(number: int) -> None:
        generator = np.random.default_rng(number)
        for turn in range(ROUNDS):
            a = generator.normal(size=(2 + turn % 2, 5)).astype(np.float32)
            x = Tensor(a)
            np.testing.assert_allclose((x @ x.T).numpy(), a @ a.T, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(x.exp().sum(1).numpy(), np.exp(a).sum(1), rtol=1e-5)
            np.testing.assert_allclose((x * x).sum().gradient(x)[0].numpy(), 2 * a, rtol=1e-5)
            x.assign(x + 1)
            x[0] = 5.0
            np.testing.assert_allclose(x[1:].numpy(), a[1:] + 1, rtol=1e-6)
            expected = np.arange(64) * (turn % 3 + 1) + turn % 3
            np.testing.assert_allclose((shared + lazy[turn % 3]).numpy(), expected)

    together(work)


def test_a_write_that_all_wait_for_is_done_once() -> None:
    for _ in range(ROUNDS):
        x = Tensor([1.0, 2.0]).realize()
        x.assign(x * 10)
        together(lambda number, x=x: x.realize())
        assert x.tolist() == [10.0, 20.0]


def test_captured_functions_are_shared_and_owned() -> None:
    shared = TinyJit(lambda x, w: (x * w + 1).relu().sum(0))

    def work(number: int) -> None:
        generator = np.random.default_rng(number)
        layer = nn.Linear(4, 2)
        optimizer = nn.optim.SGD(nn.state.get_parameters(layer), lr=0.05)
        inputs, last = Tensor(generator.normal(size=(8, 4)).astype(np.float32)), float("inf")

        @TinyJit
        def step() -> Tensor:
            optimizer.zero_grad()
            loss = layer(inputs).square().mean().backward()
            return loss.realize(*optimizer.schedule_step())

        for _ in range(ROUNDS):
            a = generator.normal(size=(3, 5)).astype(np.float32)
            found = shared(Tensor(a), Tensor(a * 2)).numpy()
            np.testing.assert_allclose(found, np.maximum(2 * a * a + 1, 0).sum(0), rtol=1e-5)
            with Tensor.train():
                loss = step().item()
            assert loss < last
            last = loss

    together(work)
