"""Launches over several threads, and lists of launches."""

import os
import subprocess
import sys
import threading
import time

import pytest

from kernelet.base.config import Context
from kernelet.base.errors import InternalError
from kernelet.runtime import threads
from kernelet.runtime.device import driver
from kernelet.runtime.pool_source import LIMIT
from kernelet.runtime.threads import Launch, LaunchList, NativeLauncher
from tests.runtime.kernels import (
    CROWDS,
    HOLDS,
    SOURCES,
    contents,
    filled,
    loaded,
    many_arguments_source,
)


@pytest.fixture(params=["CPU", "LLVM"])
def name(request):
    if driver(request.param).problem():
        pytest.skip(driver(request.param).problem())
    return request.param


@pytest.fixture(autouse=True)
def own_pools():
    # Each test builds the pool anew, from the code of the device under test.
    threads.stop_pools()
    threads.forget_code()
    yield
    threads.stop_pools()


def addresses(*buffers):
    return tuple(buffer.address for buffer in buffers)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_every_index_runs_once_on_any_number_of_threads(name, count):
    size = 1000
    out = filled(name, "q", [0] * size)
    total = loaded(name, many_arguments_source(name, 1), "total", 1, 1)
    with Context(THREADS=count):
        for shift in range(50):
            total(addresses(out), (shift,), 0, size)
            assert contents(out, "q") == [shift + i for i in range(size)]
        total(addresses(out), (5000,), 10, 12)
    assert contents(out, "q")[8:14] == [57, 58, 5010, 5011, 61, 62]


@pytest.mark.parametrize("count", [5, 6, 30, LIMIT - 1, LIMIT])
def test_kernels_may_have_many_arguments(name, count):
    out = filled(name, "q", [0] * 64)
    total = loaded(name, many_arguments_source(name, count), "total", 1, count)
    with Context(THREADS=2):
        total(addresses(out), [3**i % 1000 for i in range(count)], 0, 64)
    base = sum(3**i % 1000 for i in range(count))
    assert contents(out, "q") == [base + i for i in range(64)]


def test_several_python_threads_may_launch_at_once(name):
    total = loaded(name, many_arguments_source(name, 1), "total", 1, 1)
    wrong = []

    def work(shift):
        out = filled(name, "q", [0] * 500)
        for turn in range(100):
            total(addresses(out), (shift + turn,), 0, 500)
            if contents(out, "q") != [shift + turn + i for i in range(500)]:
                wrong.append((shift, turn))

    with_settings = [threading.Thread(target=work, args=(1000 * i,)) for i in range(4)]
    for thread in with_settings:
        thread.start()
    for thread in with_settings:
        thread.join()
    assert not wrong


def test_no_more_threads_compute_than_the_settings_say(name):
    hold = loaded(name, HOLDS[name], "hold", 2, 0)
    crowd = loaded(name, CROWDS[name], "crowd", 2, 1)
    now, most, begun, flag = (filled(name, "q", [0]) for _ in range(4))

    def wait_for_flag():
        with Context(THREADS=2):
            LaunchList([Launch(hold, addresses(begun, flag), (), 0, 0)]).run()

    with Context(THREADS=2):
        crowd(addresses(now, most), (1000,), 0, 64)  # starts the pool
        other = threading.Thread(target=wait_for_flag)
        other.start()
        while not contents(begun, "q")[0]:
            time.sleep(0.001)
        most.copy_in(bytes(8))
        for _ in range(10):
            crowd(addresses(now, most), (50_000,), 0, 64)
        flag.copy_in(b"\1" * 8)
        other.join()
    assert contents(most, "q") == [1], "the worker computes beside two threads"


def test_the_pool_of_llvm_needs_no_compiler(monkeypatch, tmp_path):
    if driver("LLVM").problem():
        pytest.skip(driver("LLVM").problem())
    monkeypatch.setenv("PATH", str(tmp_path))
    out = filled("LLVM", "q", [0] * 64)
    with Context(THREADS=2, CACHE_FOLDER=str(tmp_path)):
        total = loaded("LLVM", many_arguments_source("LLVM", 1), "total", 1, 1)
        total(addresses(out), (1,), 0, 64)
    assert contents(out, "q") == [1 + i for i in range(64)]
    assert any(thread.name == "kernelet" for thread in threading.enumerate())


def test_workers_sleep_when_there_is_nothing_to_do(name):
    crowd = loaded(name, CROWDS[name], "crowd", 2, 1)
    now, most = filled(name, "q", [0]), filled(name, "q", [0])
    with Context(THREADS=4):
        crowd(addresses(now, most), (10,), 0, 64)
    time.sleep(0.3)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.1


@pytest.mark.parametrize("count", [1, 3])
def test_as_many_workers_start_as_the_settings_say(name, count):
    out = filled(name, "q", [0] * 64)
    total = loaded(name, many_arguments_source(name, 1), "total", 1, 1)
    with Context(THREADS=count):
        total(addresses(out), (1,), 0, 64)
    workers = [thread for thread in threading.enumerate() if thread.name == "kernelet"]
    assert len(workers) == count - 1


def test_a_list_of_launches_runs_in_order_and_takes_new_arguments(name):
    add = loaded(name, SOURCES[name], "add", 3, 1)
    x, y, z = (filled(name, "f", [value] * 64) for value in (1, 2, 0))
    launches = [
        Launch(add, addresses(z, x, y), (10,), 0, 64),
        Launch(add, addresses(y, z, z), (0,), 0, 1),
    ]
    with Context(THREADS=2):
        replay = LaunchList(launches)
        replay.run()
        assert contents(z, "f") == [13] * 64
        assert contents(y, "f") == [26] + [2] * 63
        replay.set_argument(0, 3, 100)
        replay.set_argument(0, 2, x.address)
        replay.set_range(1, 0, 2)
        replay.run()
    assert contents(z, "f") == [102] * 64
    assert contents(y, "f") == [204, 204] + [2] * 62


def test_a_list_of_no_launches_does_nothing():
    LaunchList([]).run()


def test_a_list_keeps_its_kernels_loaded(name):
    out = filled(name, "q", [0] * 8)
    total = loaded(name, many_arguments_source(name, 1), "total", 1, 1)
    replay = LaunchList([Launch(total, addresses(out), (7,), 0, 8)])
    del total
    replay.run()
    assert contents(out, "q") == [7 + i for i in range(8)]


def test_a_list_refuses_a_kernel_with_too_many_arguments(name):
    total = NativeLauncher(0, LIMIT + 1, driver(name).build_pool, None)
    with pytest.raises(InternalError, match=f"{LIMIT + 1} arguments"):
        LaunchList([Launch(total, (0,), (0,) * LIMIT, 0, 1)])


PROGRAM = """
import os, sys
sys.path[:0] = {path!r}
from tests.runtime import conftest
from tests.runtime.kernels import *
from kernelet.base.config import update
from kernelet.runtime import device
for kind, factory in conftest.DRIVERS.items():
    device.register(kind, factory)
update(THREADS=2)
out = filled({name!r}, "q", [0] * 64)
total = loaded({name!r}, many_arguments_source({name!r}, 1), "total", 1, 1)
total((out.address,), (1,), 0, 64)
if {fork}:
    child = os.fork()
    total((out.address,), (2,), 0, 64)
    assert contents(out, "q") == [2 + i for i in range(64)]
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


@pytest.mark.parametrize("fork", [False, True])
def test_a_process_ends_and_forks_with_live_workers(name, fork):
    if fork and not hasattr(os, "fork"):
        pytest.skip("this system has no fork")
    program = PROGRAM.format(path=sys.path, name=name, fork=fork)
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (result.returncode, result.stderr) == (0, "")
