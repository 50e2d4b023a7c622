"""Many kernels compiled side by side."""

import threading

import pytest

from kernelet.base import config
from kernelet.base.config import Context
from kernelet.base.errors import InternalError
from kernelet.runtime.compilers import Compilers
from kernelet.runtime.device import driver
from tests.runtime.kernels import C_ADD, IR_ADD, contents, filled


@pytest.fixture(params=["CPU", "LLVM"])
def device(request):
    found = driver(request.param)
    if found.problem():
        pytest.skip(found.problem())
    return found


def source(device, number):
    text = IR_ADD if device.name == "LLVM" else C_ADD
    return text.replace("@add", f"@add{number}").replace("void add", f"void add{number}")


@pytest.mark.parametrize("processes", [-1, 0, 1])
def test_every_kernel_gets_its_own_binary(device, processes):
    x, y, out = (filled(device.name, "f", [value] * 4) for value in (1, 2, 0))
    with Context(PARALLEL=processes), Compilers(device, 6) as compilers:
        jobs = [compilers.submit(source(device, number), f"add{number}") for number in range(6)]
        for number, job in enumerate(jobs):
            add = device.load(job.result(timeout=60), f"add{number}", 3, 1)
            add([out.address, x.address, y.address], [number], 0, 1)
            assert contents(out, "f")[0] == 3 + number


class Slow:
    """Compiles nothing here until it is told to, so that the other process does the work."""

    def __init__(self, device):
        self.device, self.wait = device, threading.Event()

    def __call__(self, text, name):
        assert self.wait.wait(60)
        return self.device.compile(text, name)


def test_another_process_compiles_for_llvm(monkeypatch):
    device = driver("LLVM")
    if device.problem():
        pytest.skip(device.problem())
    slow = Slow(driver("LLVM:1"))
    monkeypatch.setattr(device, "compile", slow, raising=False)
    with Context(PARALLEL=1), Compilers(device, 4) as compilers:
        jobs = [compilers.submit(source(device, number), f"add{number}") for number in range(3)]
        bad = compilers.submit("no IR", "bad")
        for job in jobs[1:]:  # the thread of this process holds the first
            assert job.result(timeout=60)
        with pytest.raises(InternalError, match="compile bad: LLVM"):
            bad.result(timeout=60)
        slow.wait.set()
        assert jobs[0].result(timeout=60)


def test_an_error_reaches_who_waits_and_ends_the_rest(device):
    with (
        pytest.raises(InternalError, match="compile bad"),
        Context(PARALLEL=0),
        Compilers(device, 50) as compilers,
    ):
        bad = compilers.submit("no program", "bad")
        later = [compilers.submit(source(device, number), f"add{number}") for number in range(50)]
        bad.result(timeout=60)
    assert any(job.cancelled() for job in later)


def test_the_settings_of_the_caller_hold_in_the_compiler(monkeypatch):
    seen = []
    device = driver("PYTHON")
    monkeypatch.setattr(
        device, "compile", lambda *_: bytes([config.current().threads]), raising=False
    )
    with Compilers(device, 1) as compilers:
        with Context(THREADS=7):
            job = compilers.submit("", "")
        seen.append(job.result(timeout=60))
    assert seen == [bytes([7])]
