"""Launches: run once, or again and again with other memory.

In:  loaded programs, their memory and the values of their variables.
Out: the kernels run and are counted; `Replay` runs many of them with one native call.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import final

from kernelet.base import trace
from kernelet.base.counters import GlobalCounters
from kernelet.kernelize.schedule import Schedule
from kernelet.programs import Runner
from kernelet.runtime import host, threads
from kernelet.runtime.buffer import Buffer
from kernelet.runtime.pool_source import LIMIT


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch with its memory, of which the first `outputs` are written, and its variables.

    Without a runner the second memory is copied to the first, on another device.
    """

    runner: Runner | None
    buffers: tuple[Buffer, ...]
    values: tuple[int, ...] = ()
    outputs: int = 1

    @property
    def written(self) -> tuple[Buffer, ...]:
        """The memory that it writes."""
        return self.buffers[: self.outputs]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its variables."""
        return () if self.runner is None else self.runner.program.variables

    @property
    def native(self) -> threads.NativeLauncher | None:
        """What a list of launches calls; None where this one cannot be in a list."""
        found = None if self.runner is None else self.runner.launcher
        if isinstance(found, threads.NativeLauncher) and found.arguments <= LIMIT:
            return found
        return None


def allocate(plan: Schedule, given: Sequence[Buffer]) -> list[Buffer]:
    """Memory for every slot of a schedule: the given one first, then fresh blocks."""
    largest = {slot.arena: slot for slot in sorted(plan.slots, key=lambda slot: slot.nbytes)}
    blocks = {arena: Buffer(slot.device, slot.nbytes) for arena, slot in largest.items()}
    buffers = list(given)
    for slot in plan.slots[plan.given :]:
        alone = slot.arena is None
        block = Buffer(slot.device, slot.nbytes) if alone else blocks[slot.arena]
        buffers.append(block if block.nbytes == slot.nbytes else block.view(0, slot.nbytes))
    return buffers


def execute(step: Launch) -> None:
    """Run one launch or copy and count it."""
    if step.runner is None:
        target, source = step.buffers
        target.copy_from(source)
        return
    program = step.runner.program
    addresses = [buffer.address for buffer in step.buffers]
    GlobalCounters.kernel_count += 1
    GlobalCounters.global_ops += program.estimates.operations
    GlobalCounters.global_mem += program.estimates.nbytes
    start = time.perf_counter()
    step.runner.launcher(addresses, step.values, 0, program.thread_size)
    if not trace.wants("kernel"):
        return
    step.buffers[0].driver.synchronize()
    seconds = time.perf_counter() - start
    GlobalCounters.time_sum_s += seconds
    numbers = {
        "number": GlobalCounters.kernel_count,
        "operations": program.estimates.operations,
        "bytes": program.estimates.nbytes,
        "memory": GlobalCounters.mem_used,
    }
    trace.send(trace.Event("kernel", program.name, "", start, seconds, numbers))


# ---- again, with other memory ----


@dataclass(frozen=True, slots=True)
class Place:
    """A part of the n-th memory that is given anew to each replay."""

    number: int
    offset: int
    nbytes: int


# Memory that is given to a replay: a buffer, and the byte at which it begins.
Given = tuple[Buffer, int]


def part_of(place: Place, given: Sequence[Given]) -> Buffer:
    """The memory at a place."""
    buffer, start = given[place.number]
    if place.nbytes == buffer.nbytes:
        return buffer
    return buffer.view(start + place.offset, place.nbytes)


@final
class Replay:
    """Launches that run again. `places` has, for the memory of each, where a replay gives it; None
    for memory that stays the same.
    """

    def __init__(self, steps: Sequence[Launch], places: Sequence[Sequence[Place | None]]) -> None:
        # The memory that is given anew was the caller's: it is not kept.
        self._steps = [replace(step, buffers=()) for step in steps]
        self._memory = [
            tuple([place or buffer for buffer, place in zip(step.buffers, row, strict=True)])
            for step, row in zip(steps, places, strict=True)
        ]
        self._threads = 0
        self._parts: list[threads.LaunchList | int] = []
        # (list, launch, position, offset) where the address of the n-th given memory stands, or
        # the value of the variable of that name, and what each was the last time.
        self._uses: dict[int | str, list[tuple[threads.LaunchList, int, int, int]]] = {}
        self._last: dict[int | str, int] = {}
        self._totals = (0, 0, 0)

    def run(self, given: Sequence[Given], values: dict[str, int]) -> None:
        """Run all steps in order."""
        if trace.wants("kernel"):
            for number in range(len(self._steps)):
                execute(self._step(number, given, values))
            return
        if self._threads != host.threads():
            self._link()
        now: list[tuple[int | str, int]] = list(values.items())
        now += enumerate([buffer.address + start for buffer, start in given])
        for key, value in now:
            if self._last.get(key) != value:
                self._last[key] = value
                for launches, launch, position, offset in self._uses.get(key, ()):
                    launches.set_argument(launch, position, value + offset)
        for part in self._parts:
            if isinstance(part, int):
                execute(self._step(part, given, values))
            else:
                part.run()
        GlobalCounters.kernel_count += self._totals[0]
        GlobalCounters.global_ops += self._totals[1]
        GlobalCounters.global_mem += self._totals[2]

    def _step(self, number: int, given: Sequence[Given], values: dict[str, int]) -> Launch:
        """One step with the memory and values of this replay."""
        step = self._steps[number]
        memory = self._memory[number]
        buffers = [part_of(each, given) if isinstance(each, Place) else each for each in memory]
        found = [values.get(n, known) for n, known in zip(step.names, step.values, strict=True)]
        return replace(step, buffers=tuple(buffers), values=tuple(found))

    def _link(self) -> None:
        """Put neighbouring native launches into lists."""
        self._threads = host.threads()
        self._parts, self._uses, self._last = [], {}, {}
        numbers = range(len(self._steps))
        for is_alone, group in groupby(numbers, lambda number: self._steps[number].native is None):
            found = [*group]
            self._parts += found if is_alone else [self._list_of(found)]
        # Steps that run by themselves count themselves.
        listed = [step.runner for step in self._steps if step.runner and step.native]
        work = [runner.program.estimates for runner in listed]
        operations = sum(each.operations for each in work)
        self._totals = len(work), operations, sum(each.nbytes for each in work)

    def _list_of(self, numbers: Sequence[int]) -> threads.LaunchList:
        """Native launches as one list; notes where in it the arguments stand that change."""
        launches = threads.LaunchList([self._native(number) for number in numbers])
        for at, number in enumerate(numbers):
            for position, each in enumerate((*self._memory[number], *self._steps[number].names)):
                if isinstance(each, Buffer):
                    continue
                key, offset = (each, 0) if isinstance(each, str) else (each.number, each.offset)
                self._uses.setdefault(key, []).append((launches, at, position, offset))
        return launches

    def _native(self, number: int) -> threads.Launch:
        step, memory = self._steps[number], self._memory[number]
        assert step.runner is not None
        assert step.native is not None
        addresses = tuple([0 if isinstance(each, Place) else each.address for each in memory])
        size = step.runner.program.thread_size
        return threads.Launch(step.native, addresses, step.values, 0, size)
