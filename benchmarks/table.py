"""What was measured, kept as JSON lines and shown as a Markdown table.

In:  records: one a process, and one for what the machine could do beside it.
Out: a file that a run goes on from, and the table with how it was taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.operations import Workload

Record = dict[str, Any]
BASE = "torch"
SPREAD = 1.2  # cells whose processes differ by more are marked


@dataclass(frozen=True)
class Results:
    """The records of one file."""

    path: Path
    records: list[Record]

    @classmethod
    def load(cls, path: Path) -> Results:
        """What is in the file; nothing where there is none."""
        lines = path.read_text().splitlines() if path.exists() else []
        return cls(path, [json.loads(line) for line in lines])

    def add(self, record: Record) -> None:
        """Keep one more record, here and in the file."""
        self.records.append(record)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def of(self, kind: str, **facts: object) -> list[Record]:
        """The records of a kind that say these facts."""
        wanted = {"kind": kind, **facts}
        return [one for one in self.records if wanted.items() <= one.items()]

    def runs(self, workload: Workload, framework: str) -> list[Record]:
        """The processes that measured one cell and did not fail."""
        found = self.of("run", workload=workload.name, framework=framework)
        return [record for record in found if "ms" in record]

    def best(self, workload: Workload, framework: str) -> Record | None:
        """The process with the least median: what else runs on a machine only ever adds."""
        return min(self.runs(workload, framework), key=lambda record: record["ms"], default=None)

    def error(self, workload: Workload, framework: str) -> float:
        """The greatest difference to the base's result, relative where that is above 1."""
        runs = [self.best(workload, name) for name in (framework, BASE, *self.frameworks())]
        mine, *others = [run["sample"] if run else None for run in runs]
        base = next((other for other in others if other is not None), None)
        if mine is None or base is None:
            return 0.0
        if len(mine) != len(base):
            return float("inf")
        pairs = zip(mine, base, strict=True)
        errors = [abs(one - other) / (1 + abs(other)) for one, other in pairs]
        return max((float("inf") if error != error else error for error in errors), default=0.0)

    def frameworks(self) -> list[str]:
        """The frameworks that were measured, in the order of their first record."""
        return list(dict.fromkeys(record["framework"] for record in self.of("run")))

    def limits(self, workload: Workload) -> tuple[float, float]:
        """GFLOP/s, the most of the whole run, and GB/s beside this workload; 0 where unknown.

        Arithmetic is as fast at any time. Memory has slow and fast minutes on shared machines.
        """
        everywhere = self.of("limits")
        beside = self.of("limits", workload=workload.name) or everywhere
        gflops = max((record["gflops"] for record in everywhere), default=0.0)
        return gflops, max((record["gbytes"] for record in beside), default=0.0)


def table(results: Results, workloads: Iterable[Workload]) -> str:
    """The Markdown table of all that was measured, and the words on how."""
    frameworks = results.frameworks()
    title = ["workload", "limit ms", *frameworks, "kernels"]
    lines = [_row(title), _row(["---"] * len(title))]
    for workload in workloads:
        if any(results.of("run", workload=workload.name)):
            limit = workload.limit_ms(*results.limits(workload))
            cells = [_cell(results, workload, name, limit) for name in frameworks]
            ours = results.best(workload, "kernelet") or {}
            kernels = "" if ours.get("kernels") is None else str(ours["kernels"])
            lines.append(_row([workload.name, _figure(limit) if limit else "", *cells, kernels]))
    return "\n".join([*lines, "", *_legend(results)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _figure(value: float, digits: int = 3) -> str:
    """So many significant digits, and never an exponent for what is large."""
    return f"{value:.0f}" if value >= 10**digits else f"{value:.{digits}g}"


def _cell(results: Results, workload: Workload, framework: str, limit: float) -> str:
    """`4.05 · 0.38x · 86 %`: ms, by the base's ms, share of the limit."""
    best = results.best(workload, framework)
    if best is None:
        failed = results.of("run", workload=workload.name, framework=framework)
        return str(failed[-1].get("error", ""))[:40] if failed else ""
    times = [record["ms"] for record in results.runs(workload, framework)]
    parts = [_figure(best["ms"]) + ("*" if max(times) > SPREAD * min(times) else "")]
    base = results.best(workload, BASE)
    if base is not None and framework != BASE:
        parts.append(f"{best['ms'] / base['ms']:.2f}x")
    if limit:
        parts.append(f"{_figure(100 * limit / best['ms'], 2)} %")
    error = results.error(workload, framework)
    if error > workload.tolerance:
        parts.append(f"**differs by {error:.1g}**")
    return " · ".join(parts)


def _legend(results: Results) -> list[str]:
    """How the table was taken."""
    header = results.of("machine")[0]
    rounds = 1 + max((record["round"] for record in results.of("run")), default=0)
    versions = {
        record["framework"]: record["version"]
        for record in results.of("run")
        if "version" in record
    }
    measured = results.of("limits")
    rates = [
        f"{name} {min(values):.0f} to {max(values):.0f} {unit}"
        for name, key, unit in (
            ("multiply-adds", "gflops", "GFLOP/s"),
            ("memory", "gbytes", "GB/s"),
        )
        if (values := [record[key] for record in measured])
    ]
    limits = ", ".join(rates) or "not measured: it takes a C compiler"
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    return [
        f"A cell: ms · time by that of {BASE} eager · share of the physical limit. `kernels`: those "
        "of kernelet, a call.",
        "",
        f"How it was taken: {header['machine']}; threads: {header['threads']}; {header['date']}; "
        f"commit {header['commit']}. {listed}; Python {header['python']}.",
        f"Wall time of a call, in a fresh process for each cell, frameworks in turn, processes "
        f"a cell: {rounds}. The median of one process's calls (as many as {header['seconds']:g} s "
        "allow, after 5 that are not counted), the least over the processes; * marks cells whose "
        f"processes differ by more than {SPREAD}x. `start_*`: from the start of a process to the "
        "end of the first step, with empty and with filled caches.",
        f"Limits, measured beside each workload: {limits}. The share is of the greater of "
        "arithmetic / multiply-adds (the most of all) and compulsory bytes / memory (the most "
        "beside that workload, read or streamed).",
        "Results were compared with each other: to 1e-3, and for training the loss of the third "
        "step to 5e-3.",
    ]
