"""Kernels become loaded programs once: in memory, on disk, under a key that says what they are."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kernelet import Context, Tensor, engine, programs
from kernelet.base import trace
from kernelet.runtime import device

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def reference_device():
    with Context(DEV="PYTHON"):
        yield


def kernel(tensor):
    return engine.schedule([tensor.uop]).kernels[-1]


def data(*shape):
    return Tensor.zeros(*shape).contiguous().realize()


def test_names_tell_kind_and_sizes():
    assert programs.kernel_name(kernel(data(4, 6) + data(4, 6))).startswith("e_")
    name = programs.kernel_name(kernel(data(4, 6).sum(1)))
    assert name.startswith("r_")
    assert "6" in name.split("_")


def test_equal_kernels_have_equal_keys():
    first, second = kernel(data(3) + 1), kernel(data(3) + 1)
    assert first is second
    keys = {programs.kernel_key(kernel(data(3) * n)) for n in (2, 3, 2.5)}
    assert len(keys) == 3


def test_keys_are_the_same_in_every_process():
    code = (
        "from kernelet import Tensor, engine, programs\n"
        "x = Tensor.zeros(5).contiguous().realize()\n"
        "plan = engine.schedule([(x.exp() * 3 + x.sum()).uop])\n"
        "print([programs.kernel_key(each) for each in plan.kernels])"
    )
    shown = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": str(ROOT), "DEV": "PYTHON", "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(shown) == 1


def test_a_kernel_is_compiled_once(tmp_path):
    compiled = []
    with Context(CACHE_FOLDER=str(tmp_path), DEV="PYTHON"):
        made = kernel(data(3, 7).sum(0) * 1.25)
        with trace.reading(compiled.append, "source"):
            first = programs.runners([made, made], "PYTHON")
            again = programs.runners([made], "PYTHON")
    assert len(compiled) == 1
    assert first[made] is again[made]


def test_programs_are_kept_on_disk(tmp_path, monkeypatch):
    with Context(CACHE_FOLDER=str(tmp_path)):
        made = kernel(data(3, 5).sum(1) + 7)
        first = programs.runners([made], "PYTHON")[made]
        monkeypatch.setattr(programs, "_runners", {})
        monkeypatch.setattr(programs.pipeline, "lower", None)
        again = programs.runners([made], "PYTHON")[made]
    assert again is not first
    assert again.program == first.program


def test_another_process_compiles_nothing_again(tmp_path):
    code = (
        "from kernelet import Tensor, programs;"
        "kept = programs.disk.put;"
        "made = [];"
        "programs.disk.put = lambda kind, key, data: made.append(kind) or kept(kind, key, data);"
        "x = Tensor.arange(12).reshape(3, 4).float();"
        "print((x @ x.T).softmax(1).sum().item() > 0, len(made))"
    )
    counts = []
    for seed in ("1", "2"):
        environment = {
            **os.environ,
            "KERNELET_CACHE": str(tmp_path),
            "CACHE": "1",
            "DEV": "PYTHON",
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": str(ROOT),
        }
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        counts.append(int(done.stdout.split()[1]))
    assert counts[0] > 0
    assert counts[1] == 0


def test_the_cost_of_each_kernel_is_told(tmp_path):
    costs, compiled = [], []
    with Context(CACHE_FOLDER=str(tmp_path)):
        made = kernel(data(3, 11).sum(1) + 5)
        with trace.reading(costs.append, "cost"), trace.reading(compiled.append, "compile"):
            programs.runners([made], "PYTHON")
    assert {"plan", "write loops", "simplify", "linearize", "render"} <= {e.name for e in costs}
    assert "compiler" in {event.text for event in costs}
    (event,) = compiled
    assert event.numbers["python"] > 0
    assert event.numbers["compiler"] > 0


@pytest.mark.parametrize("name", ["CPU", "LLVM"])
def test_several_python_threads_may_realize_at_once(name):
    if device.driver(name).problem():
        pytest.skip(device.driver(name).problem())
    found = {}

    def work(number):
        with Context(DEV=name):
            x = (Tensor.arange(300 * 300).reshape(300, 300) + number).float()
            found[number] = [(x * turn).sum(1).max().item() for turn in range(5)]

    started = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    for number in range(4):
        last = sum(299 * 300 + column + number for column in range(300))
        assert found[number] == pytest.approx([last * turn for turn in range(5)], rel=1e-5)
