"""Compilation of many kernels side by side.

In:  a driver, and source texts one after the other.
Out: a future for the binary of each.

clang and gcc are processes of their own, so a thread for each core waits for one. A compiler
inside this process, which holds a lock, gets one thread, and other Python processes when there
are enough kernels to pay for their start.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import IO, final

from kernelet.base import config, trace
from kernelet.base.errors import InternalError, KerneletError
from kernelet.runtime import host
from kernelet.runtime.device import Driver

# A process needs a third of a second to start; in that time this one compiles a dozen kernels.
JOBS_PER_PROCESS = 12


@final
class Compilation(Future[bytes]):
    """The binary of a kernel to come, and the seconds that it took."""

    seconds = 0.0


@final
class Compilers:
    """Threads and processes that compile for one driver, inside a `with` block."""

    def __init__(self, driver: Driver, jobs: int) -> None:
        self._driver = driver
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._processes: list[subprocess.Popen[bytes]] = []
        threads = min(jobs, 1 if driver.compiles_in_process else host.cores())
        work: list[Callable[[], None]] = [self._compile_here] * threads
        if driver.compiles_in_process:
            work += [self._compile_elsewhere] * _process_count(jobs)
        self._threads = [threading.Thread(target=function, daemon=True) for function in work]

    def submit(self, source: str, name: str) -> Compilation:
        """Have a kernel compiled under the settings that hold now."""
        job = _Job(source, name)
        self._queue.put(job)
        return job.future

    def __enter__(self) -> Compilers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        # When an error has left the block, kernels may be waiting that nobody wants any more.
        with contextlib.suppress(Empty):
            while (job := self._queue.get_nowait()) is not None:
                job.future.cancel()
        for _ in self._threads:
            self._queue.put(None)
        for process in self._processes:
            process.kill()
        for thread in self._threads:
            thread.join()

    def _compile_here(self) -> None:
        while (job := self._queue.get()) is not None:
            job.run(self._driver.compile)

    def _compile_elsewhere(self) -> None:
        kind = type(self._driver)
        arguments = (kind.__module__, kind.__qualname__, self._driver.name)
        program = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            f"from kernelet.runtime.compilers import serve; serve{arguments!r}"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            self._processes.append(process)
            if process.stdin is None or process.stdout is None or not process.stdout.read(1):
                return  # it was stopped, or could not start
            while (job := self._queue.get()) is not None:
                job.run(_Remote(process.stdin, process.stdout, self._driver.compile).compile)


def _process_count(jobs: int) -> int:
    wanted = config.current().parallel
    if not sys.executable:
        return 0
    # One core lowers the kernels to come, and one runs this process's own compiler.
    return wanted if wanted >= 0 else min(host.cores() - 2, jobs // JOBS_PER_PROCESS)


@final
class _Job:
    """One kernel to compile."""

    def __init__(self, source: str, name: str) -> None:
        self.source, self.name = source, name
        self.future = Compilation()
        self._context = contextvars.copy_context()

    def run(self, compiler: Callable[[str, str], bytes]) -> None:
        """Compile and tell whoever waits."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self._context.run(self._compile, compiler))
        except BaseException as error:
            self.future.set_exception(error)

    def _compile(self, compiler: Callable[[str, str], bytes]) -> bytes:
        start = time.perf_counter()
        with trace.cost("compiler", ""):
            binary = compiler(self.source, self.name)
        self.future.seconds = time.perf_counter() - start
        return binary


@final
class _Remote:
    """Asks another process to compile; this one does it when that process is gone."""

    def __init__(
        self, requests: IO[bytes], answers: IO[bytes], otherwise: Callable[[str, str], bytes]
    ) -> None:
        self._requests, self._answers, self._otherwise = requests, answers, otherwise

    def compile(self, source: str, name: str) -> bytes:
        """The binary of one kernel."""
        try:
            pickle.dump((source, name), self._requests)
            self._requests.flush()
            answer = pickle.load(self._answers)
        except (OSError, EOFError, pickle.UnpicklingError):
            return self._otherwise(source, name)
        if isinstance(answer, bytes):
            return answer
        raise InternalError(str(answer))


def serve(module: str, driver_class: str, name: str) -> None:
    """Compile what comes in on standard input until it is closed."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    driver: Driver = getattr(importlib.import_module(module), driver_class)(name)
    if driver.problem():
        return
    driver.prepare_compiler()
    answers.write(b"\n")
    answers.flush()
    while True:
        try:
            source, kernel = pickle.load(requests)
        except EOFError:
            return
        try:
            answer: bytes | str = driver.compile(source, kernel)
        except KerneletError as error:
            answer = str(error)
        pickle.dump(answer, answers)
        answers.flush()
