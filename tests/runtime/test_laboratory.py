"""Candidates are compiled and timed in other processes, whatever they do."""

import math
import subprocess
import sys
import time

import pytest

from kernelet.base import trace
from kernelet.base.config import Context
from kernelet.runtime import laboratory as laboratory_module
from kernelet.runtime.device import driver
from kernelet.runtime.laboratory import Laboratory, Trial
from tests.runtime.kernels import C_ADD, IR_ADD

MEMORY = ((4096, 0x3F), (4096, 0x3F), (4096, 0x3F))
C_HANG = """
void hang(long long* out, long long begin, long long end) {
    volatile long long* place = out;
    for (;;) *place = *place + 1;
}
"""
IR_HANG = """
define void @hang(ptr %out, i64 %begin, i64 %end) {
entry:
  br label %loop
loop:
  store volatile i64 1, ptr %out
  br label %loop
}
"""
C_CRASH = """
void crash(long long* out, long long begin, long long end) { *(volatile long long*)8 = 1; }
"""
IR_CRASH = """
define void @crash(ptr %out, i64 %begin, i64 %end) {
entry:
  %nowhere = inttoptr i64 8 to ptr
  store volatile i64 1, ptr %nowhere
  ret void
}
"""
SOURCES = {
    "CPU": {"add": C_ADD, "hang": C_HANG, "crash": C_CRASH},
    "LLVM": {"add": IR_ADD, "hang": IR_HANG, "crash": IR_CRASH},
}


@pytest.fixture(params=["CPU", "LLVM"])
def device(request):
    found = driver(request.param)
    if found.problem():
        pytest.skip(found.problem())
    return found


@pytest.fixture
def laboratory(device):
    with Context(PARALLEL=2):
        made = Laboratory(device, limit=4)
    yield made
    made.close()


def compiled(laboratory, device, name):
    binary = laboratory.compile(SOURCES[device.name][name], name).result(60)
    assert isinstance(binary, bytes), binary
    return binary


def add_seconds(laboratory, device):
    binary = compiled(laboratory, device, "add")
    return laboratory.time(Trial("add", binary, MEMORY, (0,), 1024))


def test_a_candidate_is_compiled_and_timed(laboratory, device):
    assert 0 < add_seconds(laboratory, device) < 4


def test_candidates_are_compiled_side_by_side(laboratory, device):
    jobs = [laboratory.compile(SOURCES[device.name]["add"], "add") for _ in range(6)]
    assert len({job.result(60) for job in jobs}) == 1


def test_a_candidate_that_does_not_compile_is_told(laboratory, device):
    answer = laboratory.compile("nonsense", "bad").result(60)
    assert isinstance(answer, str)
    assert "compile bad" in answer
    assert add_seconds(laboratory, device) > 0


def test_a_candidate_that_crashes_takes_its_process_along_only(laboratory, device):
    answer = laboratory.time(Trial("crash", compiled(laboratory, device, "crash"), MEMORY[:1]))
    assert isinstance(answer, str)
    assert "ended with" in answer
    assert add_seconds(laboratory, device) > 0


def test_a_candidate_that_hangs_is_given_up(laboratory, device):
    answer = laboratory.time(Trial("hang", compiled(laboratory, device, "hang"), MEMORY[:1]))
    assert answer == "it took more than 4 s"
    assert add_seconds(laboratory, device) > 0


def test_a_compiler_that_hangs_is_given_up(tmp_path):
    if driver("CPU").problem():
        pytest.skip(driver("CPU").problem())
    slow = tmp_path / "slow-cc"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    with Context(CC=str(slow), PARALLEL=1):
        laboratory = Laboratory(driver("CPU"), limit=1)
    try:
        assert laboratory.compile(C_ADD, "add").result(30) == "it took more than 1 s"
    finally:
        laboratory.close()
    left = subprocess.run(["ps", "-A", "-o", "args"], capture_output=True, text=True, check=False)
    assert str(slow) not in left.stdout


def test_hopeless_candidates_are_not_launched_often(device, monkeypatch):
    monkeypatch.setattr(laboratory_module, "_PATIENCE", 0.0)
    bench = laboratory_module._Bench(device)
    launches = []
    binary = device.compile(SOURCES[device.name]["add"], "add")
    launcher = device.load(binary, "add", 3, 1)

    class Counting:
        name, compile = device.name, device.compile
        load = staticmethod(lambda *_: lambda *given: launches.append(given) or launcher(*given))
        allocate, free, copy_in = device.allocate, device.free, device.copy_in
        synchronize = device.synchronize

    bench._driver = Counting()
    bench.answer("time", Trial("add", binary, MEMORY, (0,), 1024, hopeless=0.0))
    assert len(launches) == 1
    bench.answer("time", Trial("add", binary, MEMORY, (0,), 1024))
    assert len(launches) > 3


def test_where_no_process_can_start_this_one_does_the_work(device, monkeypatch):
    monkeypatch.setattr(sys, "executable", "")
    warnings = []
    with trace.reading(warnings.append, "warning"):
        laboratory = Laboratory(device)
        try:
            assert add_seconds(laboratory, device) < math.inf
        finally:
            laboratory.close()
    assert "candidates run in this one" in warnings[0].text


def test_processes_end_with_the_laboratory(device):
    laboratory = Laboratory(device)
    add_seconds(laboratory, device)
    processes = [worker._process for worker in laboratory._workers if worker._process]
    laboratory.close()
    assert processes
    assert all(process.poll() is not None for process in processes)


def test_closing_does_not_wait_for_what_is_under_way(tmp_path):
    if driver("CPU").problem():
        pytest.skip(driver("CPU").problem())
    slow = tmp_path / "slow-cc"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    with Context(CC=str(slow), PARALLEL=1):
        laboratory = Laboratory(driver("CPU"), limit=600)
    running, waiting = (laboratory.compile(C_ADD, "add") for _ in range(2))
    while not running.running() or laboratory._workers[0]._process is None:
        time.sleep(0.01)
    laboratory.close()
    assert running.done()
    assert waiting.cancelled()
