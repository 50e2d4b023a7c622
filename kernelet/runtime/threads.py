"""Launches over several threads: the pool, the launchers that use it, and lists of launches.

In:  addresses of compiled kernels and their arguments.
Out: the kernels run; a launch is over when the call returns.

Workers are Python threads that spend their lives in `pool_worker` (see `pool_source`), where they
do not hold the interpreter's lock.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from kernelet.base.errors import InternalError
from kernelet.runtime import host
from kernelet.runtime.device import Launcher
from kernelet.runtime.pool_source import LIMIT, POOL_WORDS, RECORD_WORDS, WORDS

# Uneven chunks and busy cores even out when there are more chunks than threads.
_CHUNKS_PER_THREAD = 4
# The pool sleeps with the functions of pthreads, which Windows does not have.
_HAS_POOL = sys.platform != "win32"


@dataclass(frozen=True, slots=True)
class PoolCode:
    """Addresses of the compiled `POOL_FUNCTIONS`, in their order, and what keeps them loaded."""

    addresses: tuple[int, ...]
    owner: object


Build = Callable[[], PoolCode]

_pools: dict[int, Pool] = {}
_lock = threading.Lock()
_code: list[PoolCode] = []


@final
class Pool:
    """`size` threads: the caller and `size` - 1 workers."""

    def __init__(self, code: PoolCode, size: int) -> None:
        self.size = size
        words = (ctypes.c_int64 * (POOL_WORDS + 8))()
        library = ctypes.CDLL(None)
        self._words = words
        self._state = (ctypes.addressof(words) + 63) & ~63
        ctypes.c_int64.from_address(self._state + 8 * WORDS["PLACES"]).value = size - 1
        library.pthread_mutex_init(ctypes.c_void_p(self._state + 8 * WORDS["MUTEX"]), None)
        library.pthread_cond_init(ctypes.c_void_p(self._state + 8 * WORDS["CONDITION"]), None)
        one, number = ctypes.c_void_p, ctypes.c_int64
        kinds: list[tuple[type, ...]] = [(one,), (one, one), (one, one, number), (one,)]
        self._code = code
        worker, self._launch, self._replay, self._stop = (
            ctypes.CFUNCTYPE(None, *types)(address)
            for types, address in zip(kinds, code.addresses, strict=True)
        )
        self._workers = [
            threading.Thread(target=worker, args=(self._state,), daemon=True, name="kernelet")
            for _ in range(size - 1)
        ]
        for thread in self._workers:
            thread.start()

    def launch(self, record: ctypes.Array[ctypes.c_int64]) -> None:
        """Run one launch; on the calling thread alone while another launch has the pool."""
        self._launch(self._state, ctypes.addressof(record))

    def replay(self, records: ctypes.Array[ctypes.c_int64]) -> None:
        """Run launches one after the other."""
        self._replay(self._state, ctypes.addressof(records), len(records) // RECORD_WORDS)

    def stop(self) -> None:
        """End the workers."""
        self._stop(self._state)
        for thread in self._workers:
            thread.join()


def pool(build: Build) -> Pool:
    """The pool with as many threads as the settings want now; `build` compiles its code."""
    size = host.threads()
    found = _pools.get(size)
    if found is None:
        with _lock:
            if size not in _pools:
                if not _code:
                    _code.append(build())
                _pools[size] = Pool(_code[0], size)
            found = _pools[size]
    return found


def stop_pools() -> None:
    """End all worker threads; the next launch starts new ones."""
    with _lock:
        for each in _pools.values():
            each.stop()
        _pools.clear()


def forget_code() -> None:
    """Let the next pool be compiled anew, by the device that needs it."""
    _code.clear()


def _forget_pools() -> None:
    # A forked process has none of its parent's threads, and perhaps a lock that one of them held.
    global _lock
    _lock = threading.Lock()
    _pools.clear()


# Workers run machine code that is unloaded at the end.
atexit.register(stop_pools)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pools)


@final
class NativeLauncher(Launcher):
    """Calls the machine code of one kernel, on several threads if it has a thread loop."""

    def __init__(self, entry: int, arguments: int, build: Build, owner: object) -> None:
        self.entry: int = entry
        self.arguments = arguments
        self._build = build
        self._owner = owner  # unloads the code when it goes
        kinds = [ctypes.c_int64] * (arguments + 2)
        self._function = ctypes.CFUNCTYPE(None, *kinds)(entry)

    def __call__(
        self, addresses: Sequence[int], values: Sequence[int], begin: int, end: int
    ) -> None:
        """Run over [begin, end) of the thread loop."""
        chunks = self.chunks(begin, end)
        if chunks < 2:
            self._function(*addresses, *values, begin, end)
            return
        arguments = (ctypes.c_int64 * self.arguments)(*addresses, *values)
        record = self.record(arguments, begin, end, chunks)
        pool(self._build).launch((ctypes.c_int64 * RECORD_WORDS)(*record))

    def chunks(self, begin: int, end: int) -> int:
        """In how many pieces the thread loop is handed out."""
        threads = host.threads() if _HAS_POOL and self.arguments <= LIMIT else 1
        if end - begin < 2 or threads < 2:
            return 1
        return min(end - begin, threads * _CHUNKS_PER_THREAD)

    def record(
        self, arguments: ctypes.Array[ctypes.c_int64], begin: int, end: int, chunks: int
    ) -> tuple[int, ...]:
        """The words that describe a launch to the pool; `arguments` must outlive it."""
        where = ctypes.addressof(arguments)
        return self.entry, where, self.arguments, begin, end, chunks

    @property
    def build(self) -> Build:
        """What compiles the code of the pool."""
        return self._build


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a list: the kernel, its arguments in order, the part of its thread loop."""

    launcher: NativeLauncher
    addresses: tuple[int, ...]
    values: tuple[int, ...]
    begin: int
    end: int


@final
class LaunchList:
    """Launches that run in order with one native call, again and again.

    Arguments change in place between runs: `set_argument` costs as much as storing one number.
    """

    def __init__(self, launches: Sequence[Launch]) -> None:
        self._launches = tuple(launches)  # keeps the code loaded
        for launch in launches:
            if launch.launcher.arguments > LIMIT:
                raise InternalError(
                    f"LaunchList: a kernel has {launch.launcher.arguments} arguments, and at most "
                    f"{LIMIT} can be replayed natively: run it by itself"
                )
        self._starts: list[int] = []
        numbers: list[int] = []
        for launch in launches:
            self._starts.append(len(numbers))
            numbers += (*launch.addresses, *launch.values)
        self._arguments = (ctypes.c_int64 * max(len(numbers), 1))(*numbers)
        self._records = self._described()

    def _described(self) -> ctypes.Array[ctypes.c_int64]:
        words: list[int] = []
        base = ctypes.addressof(self._arguments)
        for launch, start in zip(self._launches, self._starts, strict=True):
            kernel = launch.launcher
            chunks = kernel.chunks(launch.begin, launch.end)
            words += (kernel.entry, base + 8 * start, kernel.arguments)
            words += (launch.begin, launch.end, chunks)
        return (ctypes.c_int64 * len(words))(*words)

    def set_argument(self, launch: int, position: int, value: int) -> None:
        """Replace an address, or a variable (they follow the addresses), of the n-th launch."""
        self._arguments[self._starts[launch] + position] = value

    def set_range(self, launch: int, begin: int, end: int) -> None:
        """Replace the part of the thread loop that the n-th launch covers."""
        chunks = self._launches[launch].launcher.chunks(begin, end)
        start = launch * RECORD_WORDS + 3
        self._records[start : start + 3] = [begin, end, chunks]

    def run(self) -> None:
        """Run all launches."""
        if self._launches and _HAS_POOL:
            pool(self._launches[0].launcher.build).replay(self._records)
            return
        for number, (launch, start) in enumerate(zip(self._launches, self._starts, strict=True)):
            kernel = launch.launcher
            begin, end = self._records[number * RECORD_WORDS + 3 : number * RECORD_WORDS + 5]
            kernel(self._arguments[start : start + kernel.arguments], (), begin, end)
