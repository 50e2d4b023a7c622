"""Launches: run once, or again and again with other memory.

In:  loaded programs, their memory and the values of their variables.
Out: the kernels run and are counted; `Replay` runs many of them with one native call.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    """One launch with its memory, of which the first `outputs` are written, and its variables."""

    runner: Runner
    buffers: tuple[Buffer, ...]
    values: tuple[int, ...]
    outputs: int = 1

    @property
    def is_native(self) -> bool:
        """Whether a list of launches can run this one."""
        launcher = self.runner.launcher
        return isinstance(launcher, threads.NativeLauncher) and launcher.arguments <= LIMIT


@dataclass(frozen=True, slots=True)
class Transfer:
    """A copy between devices."""

    target: Buffer
    source: Buffer


Step = Launch | Transfer


def allocate(plan: Schedule, given: Sequence[Buffer]) -> list[Buffer]:
    """Memory for every slot of a schedule: the given one first, then fresh blocks."""
    arena: dict[int, Buffer] = {}
    sizes: dict[int, int] = {}
    for slot in plan.slots:
        if slot.arena is not None:
            sizes[slot.arena] = max(sizes.get(slot.arena, 0), slot.nbytes)
    buffers = list(given)
    for slot in plan.slots[plan.given :]:
        if slot.arena is None:
            buffers.append(Buffer(slot.device, slot.nbytes))
            continue
        block = arena.get(slot.arena)
        if block is None:
            block = arena[slot.arena] = Buffer(slot.device, sizes[slot.arena])
        buffers.append(block if block.nbytes == slot.nbytes else block.view(0, slot.nbytes))
    return buffers


def memory_of(step: Step) -> tuple[Buffer, ...]:
    """What a step uses, what it writes first."""
    return (step.target, step.source) if isinstance(step, Transfer) else step.buffers


def outputs_of(step: Step) -> int:
    """How many of the memories that a step uses are written."""
    return 1 if isinstance(step, Transfer) else step.outputs


def execute(step: Step) -> None:
    """Run one launch or copy and count it."""
    if isinstance(step, Transfer):
        step.target.copy_from(step.source)
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


def _without(step: Step, row: Sequence[Place | None]) -> Step:
    memory = [
        buffer if place is None else Buffer(buffer.device, 0)
        for buffer, place in zip(memory_of(step), row, strict=True)
    ]
    if isinstance(step, Transfer):
        return Transfer(*memory)
    return replace(step, buffers=tuple(memory))


@final
class Replay:
    """Steps that run again. `places` has, for the memory of each step, where a replay gives it;
    None for memory that stays the same.
    """

    def __init__(self, steps: Sequence[Step], places: Sequence[tuple[Place | None, ...]]) -> None:
        # The memory that is given anew was the caller's: it is not kept.
        self._steps = tuple([_without(step, row) for step, row in zip(steps, places, strict=True)])
        self._places = tuple(places)
        self._threads = 0
        self._parts: list[threads.LaunchList | int] = []
        # (list, launch, position, offset) where the address of the n-th given memory stands.
        self._addresses: dict[int, list[tuple[threads.LaunchList, int, int, int]]] = {}
        self._variables: dict[str, list[tuple[threads.LaunchList, int, int]]] = {}
        self._last: dict[int, int] = {}
        self._totals = (0, 0, 0)

    def run(self, given: Sequence[Given], values: dict[str, int]) -> None:
        """Run all steps in order."""
        if trace.wants("kernel"):
            for number in range(len(self._steps)):
                execute(self._step(number, given, values))
            return
        if self._threads != host.threads():
            self._link()
        for number, (buffer, start) in enumerate(given):
            address = buffer.address + start
            if self._last.get(number) != address:
                self._last[number] = address
                for launches, launch, position, offset in self._addresses.get(number, ()):
                    launches.set_argument(launch, position, address + offset)
        for name, value in values.items():
            for launches, launch, position in self._variables.get(name, ()):
                launches.set_argument(launch, position, value)
        for part in self._parts:
            if isinstance(part, int):
                execute(self._step(part, given, values))
            else:
                part.run()
        GlobalCounters.kernel_count += self._totals[0]
        GlobalCounters.global_ops += self._totals[1]
        GlobalCounters.global_mem += self._totals[2]

    def _step(self, number: int, given: Sequence[Given], values: dict[str, int]) -> Step:
        """One step with the memory and values of this replay."""
        step = self._steps[number]
        buffers = tuple(
            [
                buffer if place is None else part_of(place, given)
                for buffer, place in zip(memory_of(step), self._places[number], strict=True)
            ]
        )
        if isinstance(step, Transfer):
            return Transfer(*buffers)
        names = step.runner.program.variables
        found = [values.get(n, known) for n, known in zip(names, step.values, strict=True)]
        return replace(step, buffers=buffers, values=tuple(found))

    def _link(self) -> None:
        """Put neighbouring native launches into lists."""
        self._threads = host.threads()
        self._parts, self._addresses, self._variables, self._last = [], {}, {}, {}
        group: list[int] = []
        # Steps that run by themselves count themselves.
        estimates = []
        for number, step in enumerate(self._steps):
            if isinstance(step, Launch) and step.is_native:
                group.append(number)
                estimates.append(step.runner.program.estimates)
                continue
            self._close(group)
            group = []
            self._parts.append(number)
        self._close(group)
        self._totals = (
            len(estimates),
            sum(each.operations for each in estimates),
            sum(each.nbytes for each in estimates),
        )

    def _close(self, group: Sequence[int]) -> None:
        if not group:
            return
        made = [self._native(number) for number in group]
        launches = threads.LaunchList(made)
        self._parts.append(launches)
        for at, number in enumerate(group):
            for position, place in enumerate(self._places[number]):
                if place is not None:
                    row = (launches, at, position, place.offset)
                    self._addresses.setdefault(place.number, []).append(row)
            step = self._steps[number]
            assert isinstance(step, Launch)
            for position, name in enumerate(step.runner.program.variables, len(step.buffers)):
                self._variables.setdefault(name, []).append((launches, at, position))

    def _native(self, number: int) -> threads.Launch:
        step = self._steps[number]
        assert isinstance(step, Launch)
        launcher = step.runner.launcher
        assert isinstance(launcher, threads.NativeLauncher)
        addresses = tuple(
            [
                buffer.address if place is None else 0
                for buffer, place in zip(step.buffers, self._places[number], strict=True)
            ]
        )
        return threads.Launch(launcher, addresses, step.values, 0, step.runner.program.thread_size)
