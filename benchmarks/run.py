"""Run workloads, each in a fresh process, frameworks in turn.

In:  what to measure and for how long.
Out: records in a file; what is there already is not measured again.
"""

from __future__ import annotations

import datetime
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.frameworks import PACKAGES, environment
from benchmarks.operations import Workload
from benchmarks.table import Record, Results

ROOT = Path(__file__).resolve().parent.parent
# Where each framework keeps what it has compiled.
CACHES = ("KERNELET_CACHE", "XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR")


@dataclass(frozen=True)
class Plan:
    """What to measure: each workload `rounds` times with each framework."""

    workloads: Sequence[Workload]
    frameworks: Sequence[str]
    rounds: int = 2
    seconds: float = 1.0
    threads: int = 2
    timeout: float = 150.0
    peers_python: str = sys.executable

    def python(self, framework: str) -> str:
        """The interpreter that has a framework."""
        return sys.executable if framework == "kernelet" else self.peers_python


def installed(plan: Plan) -> list[str]:
    """Those of the plan's frameworks that its interpreters can import."""
    here = [name for name in plan.frameworks if importlib.util.find_spec(PACKAGES[name])]
    if plan.peers_python == sys.executable:
        return here
    names = [name for name in plan.frameworks if name != "kernelet"]
    code = (
        "import importlib.util, sys; print(*map(bool, map(importlib.util.find_spec, sys.argv[1:])))"
    )
    command = [plan.peers_python, "-c", code, *(PACKAGES[name] for name in names)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    found = {name for name, known in zip(names, answer, strict=True) if known == "True"}
    return [name for name in plan.frameworks if name in found or name == "kernelet"]


# ---- the machine ----


def _processor() -> str:
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _commit() -> str:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "kernelet")
        return git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine(plan: Plan) -> Record:
    """The facts that a table of times means nothing without."""
    processor = _processor() if sys.platform == "linux" else platform.processor()
    cores = os.cpu_count() or 1
    return {
        "kind": "machine",
        "machine": f"{processor}, {cores} cores, {platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "threads": plan.threads,
        "seconds": plan.seconds,
        "date": datetime.date.today().isoformat(),
        "commit": _commit(),
    }


class Limits:
    """Measures what the machine can do, where there is a C compiler."""

    def __init__(self, folder: Path, threads: int) -> None:
        self._command = [str(folder / "limits"), str(threads)]
        compiler = next(filter(None, map(shutil.which, ("clang", "gcc", "cc"))), None)
        source = str(ROOT / "benchmarks" / "limits.c")
        options = ["-O3", "-march=native", "-pthread", source, "-o", self._command[0]]
        self._works = False
        if compiler:
            build = subprocess.run([compiler, *options], capture_output=True, check=False)
            self._works = build.returncode == 0

    def measure(self) -> Record | None:
        """GFLOP/s of multiply-adds, and the better of reading and of streaming in GB/s."""
        if not self._works:
            return None
        done = subprocess.run(self._command, capture_output=True, text=True, check=False)
        if done.returncode:
            return None
        gflops, read, streamed = map(float, done.stdout.split())
        gbytes = max(read, streamed)
        return {"gflops": gflops, "read": read, "streamed": streamed, "gbytes": gbytes}


# ---- processes ----


def run_process(plan: Plan, framework: str, workload: Workload, folder: Path) -> Record:
    """Measure one cell in a process of its own; a failure is a record too."""
    python = plan.python(framework)
    variables = os.environ | environment(framework, plan.threads)
    if workload.start:
        variables |= dict.fromkeys(CACHES, str(folder)) | {"CACHEDB": str(folder / "cache.db")}
    names = [framework, workload.name]
    numbers = ["--seconds", str(plan.seconds), "--threads", str(plan.threads)]
    command = [python, "-m", "benchmarks.measure", *names, *numbers]
    start = time.time()
    try:
        done = subprocess.run(
            [*command, "--started", str(start)],
            cwd=ROOT,
            env=variables,
            capture_output=True,
            text=True,
            timeout=plan.timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"over {plan.timeout:g} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]}
    record: Record = json.loads(done.stdout.splitlines()[-1])
    return record | {"wall_s": time.time() - start}


def measure_cell(plan: Plan, framework: str, workload: Workload) -> Record:
    """Measure one cell; a cold start has empty caches, a warm one those that another left."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if workload.start == "warm":
            run_process(plan, framework, workload, folder)
        return run_process(plan, framework, workload, folder)


def run(plan: Plan, results: Results, tell: Callable[[str], None]) -> None:
    """Measure what is missing in the results, and tell after each cell how far it is."""
    frameworks = installed(plan)
    missing = [name for name in plan.frameworks if name not in frameworks]
    if missing:
        tell(f"Not installed, left out: {', '.join(missing)}.")
    _check_header(plan, results)
    cells = [
        (workload, number, framework)
        for workload in plan.workloads
        for number in range(plan.rounds)
        for framework in frameworks
        if not _is_known(results, workload, number, framework)
    ]
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        limits = Limits(Path(folder), plan.threads)
        beside: tuple[str, int] | None = None
        for done, (workload, number, framework) in enumerate(cells):
            place = {"workload": workload.name, "round": number}
            if beside != (workload.name, number):
                beside = workload.name, number
                measured = limits.measure()
                if measured:
                    results.add({"kind": "limits", **place, **measured})
            record = measure_cell(plan, framework, workload)
            results.add({"kind": "run", "framework": framework, **place, **record})
            spent = time.monotonic() - start
            left = spent / (done + 1) * (len(cells) - done - 1)
            text = record.get("error") or f"{record['ms']:.4g} ms"
            tell(
                f"[{done + 1}/{len(cells)}, about {left / 60:.0f} min left] "
                f"{workload.name} {framework}: {text}"
            )


def _is_known(results: Results, workload: Workload, number: int, framework: str) -> bool:
    place = {"workload": workload.name, "round": number, "framework": framework}
    return any(results.of("run", **place))


def _check_header(plan: Plan, results: Results) -> None:
    """A file holds measurements that can stand in one table."""
    known = results.of("machine")
    now = machine(plan)
    if not known:
        results.add(now)
        return
    for fact in ("machine", "threads"):
        if known[0][fact] != now[fact]:
            raise SystemExit(
                f"benchmarks: {results.path} was begun with {fact} {known[0][fact]}, "
                f"this is {now[fact]}. Name another file with --results."
            )
