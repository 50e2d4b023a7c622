"""Plans found by timing: BEAM, and the winners of every search before.

In:  kernels and a device.
Out: for each the plan that was fastest, None where nobody has searched: the heuristics choose.

Winners are kept on disk by kernel and Target, and used from then on, also without BEAM.
"""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import final

from kernelet import backends, pipeline
from kernelet.base import cache as disk
from kernelet.base import config, trace
from kernelet.base.errors import InternalError
from kernelet.base.target import Target
from kernelet.graph.ops import Op
from kernelet.graph.spec import PROGRAM, verify
from kernelet.graph.uop import UOp
from kernelet.lower.heuristics import plan_kernel
from kernelet.lower.search import search
from kernelet.lower.transforms import Plan
from kernelet.pipeline import Lowered
from kernelet.runtime import host
from kernelet.runtime.device import Driver
from kernelet.runtime.laboratory import Laboratory, Trial

_HOPELESS = 3.0  # a launch that takes so many times the best is not repeated
_MEMORY_SHARE = 4  # a search may use this part of the machine's memory


@dataclass(frozen=True, slots=True)
class Winner:
    """The fastest plan, and the width of the search that found it."""

    plan: Plan
    width: int


def known(key: str) -> Winner | None:
    """What an earlier search found under a key."""
    data = disk.get("plans", key)
    return None if data is None else pickle.loads(data)


def search_width(kind: str) -> int:
    """How wide to search for kernels of a kind of device now; 0: not at all."""
    return config.current().beam if backends.BACKENDS[kind].is_timed else 0


@final
class Searcher:
    """Searches for one kernel after the other, inside a `with` block."""

    def __init__(self, kind: str, driver: Driver) -> None:
        self.width = search_width(kind)
        self.target = driver.target
        self.render = backends.renderer(kind)
        self.laboratory = Laboratory(driver)

    def __enter__(self) -> Searcher:
        return self

    def __exit__(self, *_error: object) -> None:
        self.laboratory.close()

    def search(self, kernel: UOp, name: str, key: str, before: Winner | None) -> Winner:
        """Search around the best plan known so far and keep the winner under `key`."""
        begin = time.perf_counter()
        start = before.plan if before else plan_kernel(kernel, self.target)
        with trace.Progress(f"search for {name}", 0, "candidates") as progress:
            stopwatch = _Stopwatch(self, kernel, name, progress)
            found = search(kernel, self.target, start, self.width, stopwatch)
        winner = Winner(found[0][1] if found else start, self.width)
        disk.put("plans", key, pickle.dumps(winner))
        first, best = stopwatch.times.get(start, math.inf), stopwatch.best
        text = f"{first * 1e6:.1f} -> {best * 1e6:.1f} us, {progress.done:g} candidates"
        trace.emit("search", name, f"{text}, {time.perf_counter() - begin:.1f} s: {winner.plan}")
        return winner


@final
class _Stopwatch:
    """Times plans of one kernel: lowered here, compiled side by side, run one after the other."""

    def __init__(
        self, searcher: Searcher, kernel: UOp, name: str, progress: trace.Progress
    ) -> None:
        self._searcher, self._progress = searcher, progress
        self._kernel, self._name = kernel, name
        # Memory of its own, of ones or nearly so: numbers are not subnormal, indices are zero.
        params = [node for node in kernel.toposort() if node.op is Op.PARAM]
        slots = sorted(params, key=lambda node: node.arg.slot)
        sizes = [node.arg.size * node.dtype.itemsize for node in slots]
        fills = [0x3F if node.dtype.is_float else 0 for node in slots]
        self._memory = tuple(zip(sizes, fills, strict=True))
        self._fits = sum(sizes) <= host.physical_memory() // _MEMORY_SHARE
        self._binaries: dict[str, tuple[Plan, Future[bytes | str]]] = {}
        self.times: dict[Plan, float] = {}
        self.best = math.inf

    def __call__(self, plans: Sequence[Plan]) -> list[float]:
        """Seconds for each plan; infinity where it cannot be lowered, compiled or run in time."""
        if not self._fits:
            return [math.inf for _ in plans]
        return [
            self._time(plan, job) for plan, job in [(plan, self._start(plan)) for plan in plans]
        ]

    def _start(self, plan: Plan) -> tuple[Lowered, str] | str:
        """Lower a plan and have it compiled, or the reason why it is none."""
        lowered = lower_candidate(self._kernel, self._searcher.target, plan)
        if isinstance(lowered, str):
            return lowered
        source = self._searcher.render(lowered.program, self._name)
        if source not in self._binaries:
            self._binaries[source] = plan, self._searcher.laboratory.compile(source, self._name)
        return (lowered, source) if self._binaries[source][0] == plan else "the same as another"

    def _time(self, plan: Plan, job: tuple[Lowered, str] | str) -> float:
        answer: float | str = job if isinstance(job, str) else self._run(*job)
        self._progress.advance()
        seconds = math.inf if isinstance(answer, str) else answer
        text = f"dropped: {answer}" if isinstance(answer, str) else f"{seconds * 1e6:10.1f} us"
        trace.emit("candidate", self._name, f"{text}  {plan}", seconds=seconds)
        self.times[plan] = seconds
        self.best = min(self.best, seconds)
        return seconds

    def _run(self, lowered: Lowered, source: str) -> float | str:
        binary = self._binaries[source][1].result()
        if isinstance(binary, str):
            return binary
        variables = {node.arg.name: node for node in lowered.program if node.op is Op.VARIABLE}
        values = tuple(int(variables[name].bounds.max) for name in lowered.variables)
        hopeless = self.best * _HOPELESS
        return self._searcher.laboratory.time(
            Trial(self._name, binary, self._memory, values, lowered.thread_size, hopeless)
        )


def lower_candidate(kernel: UOp, target: Target, plan: Plan) -> Lowered | str:
    """A kernel as this plan makes it, proved to stay in its memory; or why the plan is none."""
    try:
        lowered = pipeline.lower(kernel, target, plan)
        verify(lowered.program, PROGRAM, "search")
    except (AssertionError, InternalError) as error:
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    # Scratch that is read and never written: the plan loses a part of the kernel.
    reads = {node.src[0].src[0] for node in lowered.program if node.op is Op.LOAD}
    writes = {node.src[0].src[0] for node in lowered.program if node.op is Op.STORE}
    lost = [str(memory.arg) for memory in reads - writes if memory.op is Op.SCRATCH]
    return f"nothing writes {', '.join(lost)}" if lost else lowered
