"""Compile and time candidates of a kernel without risk: other processes do it.

In:  a driver; sources, then binaries with the memory that one launch needs.
Out: binaries, then seconds; a `str` says why there are none.

A candidate that crashes or takes too long ends the process it is in, and the next one gets a new
process. Where no process can be started, this one does the work, without that protection.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from queue import SimpleQueue
from typing import final

from kernelet.base import config, trace
from kernelet.base.errors import KerneletError
from kernelet.runtime import host
from kernelet.runtime.device import Driver

TIME_LIMIT = 20.0  # seconds for one compilation, and for all launches of one candidate
_SETTINGS = ("threads", "compiler", "cache", "cache_folder")
_ENOUGH_SECONDS, _MOST_LAUNCHES, _FEWEST_LAUNCHES = 0.03, 200, 5
_PATIENCE = 0.005  # seconds of launches after which a candidate may be hopeless
_TIMED_OUT = 1


@dataclass(frozen=True, slots=True)
class Trial:
    """One launch of a compiled candidate: `memory` has the bytes of each argument and their value.

    A candidate that takes `hopeless` seconds a launch is not launched often.
    """

    name: str
    binary: bytes
    memory: tuple[tuple[int, int], ...]
    values: tuple[int, ...] = ()
    thread_size: int = 0
    hopeless: float = float("inf")


@final
class Laboratory:
    """Processes that compile side by side and time one after the other."""

    def __init__(self, driver: Driver, limit: float = TIME_LIMIT) -> None:
        wanted = config.current().parallel
        count = max(1, wanted if wanted >= 0 else host.cores())
        self._workers = [_Worker(driver, limit) for _ in range(count)]
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(count)
        self._compilations: list[Future[bytes | str]] = []

    def compile(self, source: str, name: str) -> Future[bytes | str]:
        """The binary of one candidate, or what went wrong."""
        job = self._threads.submit(self._compile, source, name)
        self._compilations.append(job)
        return job

    def time(self, trial: Trial) -> float | str:
        """The seconds of the fastest launch, or what went wrong; all compilations end before."""
        wait(self._compilations)
        self._compilations.clear()
        answer = self._workers[0].ask("time", trial)
        return answer if isinstance(answer, float) else str(answer)

    def _compile(self, source: str, name: str) -> bytes | str:
        worker = self._idle.get()
        try:
            answer = worker.ask("compile", source, name)
        finally:
            self._idle.put(worker)
        return answer if isinstance(answer, bytes) else str(answer)

    def close(self) -> None:
        """End the processes, whatever they are doing."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.is_closed = True
            worker.kill()
        self._threads.shutdown()
        for worker in self._workers:
            worker.stop()


@final
class _Worker:
    """One other process, started when it is asked and again when it has died."""

    def __init__(self, driver: Driver, limit: float) -> None:
        self._driver, self._limit = driver, limit
        self._settings = {name: getattr(config.current(), name) for name in _SETTINGS}
        self._process: subprocess.Popen[bytes] | None = None
        self._here: _Bench | None = None
        self.is_closed = False

    def ask(self, what: str, *arguments: object) -> object:
        """The answer to a request; the reason why there is none as a `str`."""
        process = self._process or self._start()
        if self.is_closed:
            return "the search has ended"
        if process is None:
            self._here = self._here or _Bench(self._driver)
            return self._here.answer(what, *arguments)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump((what, *arguments), process.stdin)
            process.stdin.flush()
            return pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            code = self.stop()
            if code == _TIMED_OUT:
                return f"it took more than {self._limit:g} s"
            return f"its process ended with {code}"

    def _start(self) -> subprocess.Popen[bytes] | None:
        kind = type(self._driver)
        arguments = (kind.__module__, kind.__qualname__, self._driver.name)
        program = (
            f"import sys; sys.path[:] = {sys.path!r}; from kernelet.runtime.laboratory import "
            f"serve; serve(*{arguments!r}, {self._settings!r}, {self._limit!r})"
        )
        problem = "there is no Python to start"
        # Its own session: a compiler that it has started is ended with it.
        with contextlib.suppress(OSError):
            if sys.executable:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", program],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    start_new_session=True,
                )
                if self.is_closed:
                    self.kill()
                assert self._process.stdout is not None
                if self._process.stdout.read(1):
                    return self._process
                problem = f"it ended with {self.stop()}"
        if self._here is None and not self.is_closed:
            text = "search: no other process can be started, candidates run in this one"
            trace.emit("warning", "search", f"{text} ({problem})")
        return None

    def kill(self) -> None:
        """End the process at once, and the compiler that it may have started."""
        if self._process is not None:
            with contextlib.suppress(OSError):
                if hasattr(os, "killpg"):
                    os.killpg(self._process.pid, signal.SIGKILL)
                else:
                    self._process.kill()

    def stop(self) -> int:
        """The exit status of the process, which has ended or is about to."""
        process = self._process
        if process is None:
            return 0
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
        self.kill()
        self._process = None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        return process.wait()


# ---- in the other process ----


@final
class _Bench:
    """Does the work of a `_Worker`."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._memory: tuple[tuple[int, int], ...] = ()
        self._addresses: list[int] = []

    def answer(self, what: str, *arguments: object) -> object:
        """What `compile` or `time` gives; a `str` when it fails."""
        work: Callable[..., object] = self._time if what == "time" else self._driver.compile
        try:
            return work(*arguments)
        except (KerneletError, MemoryError) as error:
            return f"{type(error).__name__}: {error}"

    def _time(self, trial: Trial) -> float:
        slots, variables = len(trial.memory), len(trial.values)
        launcher = self._driver.load(trial.binary, trial.name, slots, variables)
        if trial.memory != self._memory:
            self._fill(trial.memory)
        best, spent, launches = float("inf"), 0.0, 0
        while launches < _FEWEST_LAUNCHES or spent < _ENOUGH_SECONDS:
            start = time.perf_counter()
            launcher(self._addresses, trial.values, 0, trial.thread_size)
            self._driver.synchronize()
            seconds = time.perf_counter() - start
            best, spent, launches = min(best, seconds), spent + seconds, launches + 1
            # The first launches are slow: their code and memory are new to the processor.
            is_hopeless = best > trial.hopeless and spent > _PATIENCE
            if launches == _MOST_LAUNCHES or is_hopeless:
                break
        return best

    def _fill(self, memory: tuple[tuple[int, int], ...]) -> None:
        while self._addresses:
            self._driver.free(self._addresses.pop())
        for nbytes, value in memory:
            self._addresses.append(self._driver.allocate(nbytes))
            self._driver.copy_in(self._addresses[-1], memoryview(bytes([value]) * nbytes))
        self._memory = memory


def serve(
    module: str, driver_class: str, name: str, settings: Mapping[str, int | str], limit: float
) -> None:
    """Answer what comes in on standard input until it is closed, each within `limit` seconds."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    config.update(**settings)
    driver: Driver = getattr(importlib.import_module(module), driver_class)(name)
    driver.prepare_compiler()
    bench = _Bench(driver)
    answers.write(b"\n")
    answers.flush()
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        while True:
            try:
                request = pickle.load(requests)
            except EOFError:
                return
            # This ends the process even while machine code runs in it.
            faulthandler.dump_traceback_later(limit, exit=True, file=nowhere)
            answer = bench.answer(*request)
            faulthandler.cancel_dump_traceback_later()
            pickle.dump(answer, answers)
            answers.flush()
