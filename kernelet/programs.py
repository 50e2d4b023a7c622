"""From kernels to loaded programs: lowered, rendered and compiled once, and kept on disk.

In:  kernels and a device.
Out: `Runner`s, ready to be launched.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256

from kernelet import backends, pipeline, tuning
from kernelet.base import cache as disk
from kernelet.base import config, trace
from kernelet.base.program import Program
from kernelet.graph.infer import max_dim
from kernelet.graph.ops import Op
from kernelet.graph.show import show_program
from kernelet.graph.uop import UOp
from kernelet.lower.transforms import Plan
from kernelet.runtime import device
from kernelet.runtime.compilers import Compilers
from kernelet.runtime.device import Driver, Launcher


@dataclass(frozen=True, slots=True)
class Runner:
    """A program that is loaded on a device."""

    program: Program
    launcher: Launcher
    width: int = 0  # of the search that found its plan


_runners: dict[tuple[UOp, str], Runner] = {}


def kernel_name(kernel: UOp) -> str:
    """What DEBUG lines and the source call a kernel: its kind and sizes.

    r_512_10_784: a reduction of 784 elements for each of 512 x 10 results; e_...: elementwise;
    e_512_and_3_more: four parts.
    """
    if kernel.src[0].op is Op.SINK:
        return f"{kernel_name(kernel.src[0])}_and_{len(kernel.src) - 1}_more"
    value = kernel.src[0].src[1]
    sizes = [max_dim(dim) for dim in value.shape if dim != 1]
    reduced = [
        max_dim(node.src[0].shape[axis])
        for node in kernel.toposort()
        if node.op is Op.REDUCE
        for axis in node.arg.axes
    ]
    parts = ["r" if reduced else "e", *(str(size) for size in [*sizes, *reduced[:4]])]
    return "_".join(parts)


def kernel_key(kernel: UOp) -> str:
    """A digest of a kernel: equal for equal kernels, in every process."""
    numbers: dict[UOp, int] = {}
    digest = sha256()
    for node in kernel.toposort():
        numbers[node] = len(numbers)
        sources = [numbers[source] for source in node.src]
        digest.update(f"{node.op.name} {node.dtype} {sources} {node.arg!r};".encode())
    return digest.hexdigest()


@cache
def _source_stamp() -> str:
    """A digest of this package's files, so that no program outlives the compiler that made it."""
    digest = sha256()
    root = os.path.dirname(__file__)
    for folder in ("base", "graph", "lower", "render", "runtime", "."):
        with os.scandir(os.path.join(root, folder)) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.name.endswith(".py"):
                    state = entry.stat()
                    digest.update(f"{folder}/{entry.name} {state.st_mtime_ns};".encode())
    return digest.hexdigest()


def runners(kernels: Iterable[UOp], name: str) -> dict[UOp, Runner]:
    """A loaded program for each kernel on device `name`; new ones are compiled side by side."""
    width = tuning.search_width(backends.kind_of(name))
    found = {kernel: _runners.get((kernel, name)) for kernel in kernels}
    missing = [kernel for kernel, each in found.items() if each is None or each.width < width]
    if missing:
        driver = device.driver(name)
        if not any(known == name for _, known in _runners):
            trace.emit("device", name, str(driver.target))
        for kernel, program in zip(missing, _programs(missing, name, driver), strict=True):
            launcher = driver.load(
                program.binary, program.name, program.slots, len(program.variables)
            )
            _runners[kernel, name] = Runner(program, launcher, width)
    return {kernel: _runners[kernel, name] for kernel in found}


def _programs(kernels: list[UOp], name: str, driver: Driver) -> list[Program]:
    kind = backends.kind_of(name)
    settings = config.code_key(config.current())
    stamp = (_source_stamp(), kind, driver.target.key(), settings, driver.compiler_key())
    keys = [disk.key_of(*stamp, kernel_key(kernel)) for kernel in kernels]
    plans = _winners(kernels, keys, kind, driver)
    keys = [disk.key_of(key, plan) if plan else key for key, plan in zip(keys, plans, strict=True)]
    programs: dict[int, Program] = {}
    # What a pass did can only be shown by doing it again.
    shown = any(trace.wants(kind) for kind in ("transform", "linear", "graph"))
    for number, key in enumerate(keys):
        data = None if shown else disk.get("programs", key)
        if data is not None:
            programs[number] = pickle.loads(data)
    missing = [number for number in range(len(kernels)) if number not in programs]
    with (
        trace.Progress("compile", len(missing), "kernels") as progress,
        Compilers(driver, len(missing)) as compilers,
    ):
        # Lowering goes on while the compilers work.
        jobs = []
        for number in missing:
            start = time.perf_counter()
            program = _source(kernels[number], kind, driver, plans[number])
            spent = time.perf_counter() - start
            jobs.append((program, spent, compilers.submit(program.source, program.name)))
        for number, (program, spent, job) in zip(missing, jobs, strict=True):
            programs[number] = replace(program, binary=job.result())
            text = f"{1e3 * spent:8.1f} ms Python {1e3 * job.seconds:8.1f} ms compiler"
            trace.emit("compile", program.name, text, python=spent, compiler=job.seconds)
            disk.put("programs", keys[number], pickle.dumps(programs[number]))
            progress.advance()
    for program in programs.values():
        trace.emit("source", program.name, program.source)
        if trace.wants("assembly"):
            trace.emit("assembly", program.name, driver.assembly(program.source, program.name))
    return [programs[number] for number in range(len(kernels))]


def _winners(kernels: list[UOp], keys: list[str], kind: str, driver: Driver) -> list[Plan | None]:
    """The plan of each kernel that a search has found, now or at any time before."""
    found = [tuning.known(key) for key in keys]
    width = tuning.search_width(kind)
    missing = [n for n, winner in enumerate(found) if not winner or winner.width < width]
    if width and missing:
        with tuning.Searcher(kind, driver) as searcher:
            for n in missing:
                name = kernel_name(kernels[n])
                found[n] = searcher.search(kernels[n], name, keys[n], found[n])
    return [winner.plan if winner else None for winner in found]


def _source(kernel: UOp, kind: str, driver: Driver, plan: Plan | None) -> Program:
    """A program that is not compiled yet."""
    name = kernel_name(kernel)
    lowered = pipeline.lower(kernel, driver.target, plan)
    if trace.wants("transform"):
        trace.emit("transform", name, str(lowered.plan))
    if trace.wants("linear"):
        trace.emit("linear", name, show_program(lowered.program))
    with trace.cost("python", "render"):
        source = backends.renderer(kind)(lowered.program, name)
    return Program(
        name,
        source,
        b"",
        lowered.slots,
        lowered.variables,
        lowered.thread_size,
        lowered.estimates,
    )
