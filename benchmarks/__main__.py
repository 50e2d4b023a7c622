"""Measure kernelet beside its peers: `python -m benchmarks [workload or group ...]`.

Each cell is measured in a fresh process, frameworks in turn, with outputs compared and the
machine's limits measured beside it. Results go to a file of JSON lines: a run that was stopped goes
on where it was. The table is printed at the end; --write puts it into a document.

    python -m benchmarks --list
    python -m benchmarks matmul conv --frameworks kernelet,torch --seconds 0.5
    python -m benchmarks --write docs/performance.md
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from benchmarks.frameworks import PACKAGES
from benchmarks.run import Plan, run
from benchmarks.table import Results, table
from benchmarks.workloads import WORKLOADS, select
from tools.documents import with_section

DEFAULT_FRAMEWORKS = "kernelet,torch,jax,tinygrad"


def parse(arguments: list[str]) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="workloads and groups; none: all")
    parser.add_argument("--list", action="store_true", help="show workloads and groups, and end")
    parser.add_argument(
        "--frameworks",
        default=DEFAULT_FRAMEWORKS,
        help=f"of {', '.join(PACKAGES)}; those that are not installed are left out "
        "(default: %(default)s)",
    )
    parser.add_argument("--rounds", type=int, default=2, help="processes a cell (%(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="timed a process (%(default)s)")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--timeout", type=float, default=150.0, help="of a process (%(default)s s)")
    parser.add_argument("--results", type=Path, default=Path("build/benchmarks.jsonl"))
    parser.add_argument(
        "--peers-python", default=sys.executable, help="the interpreter that has the peers"
    )
    parser.add_argument("--only-table", action="store_true", help="measure nothing")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into a document")
    return parser.parse_args(arguments)


def listing() -> str:
    """Every workload with its group."""
    return "\n".join(f"{one.group:12} {one.name}" for one in WORKLOADS.values())


def tell(line: str) -> None:
    """Show how far the run is, beside the table and not in it."""
    print(line, file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Measure, and show the table."""
    asked = parse(sys.argv[1:] if arguments is None else arguments)
    if asked.list:
        print(listing())
        return 0
    frameworks = asked.frameworks.split(",")
    unknown = [name for name in frameworks if name not in PACKAGES]
    if unknown:
        raise SystemExit(
            f"benchmarks --frameworks: {', '.join(unknown)} is not known here. "
            f"Choose from {', '.join(PACKAGES)}."
        )
    chosen = select(asked.names)
    results = Results.load(asked.results)
    if not asked.only_table:
        plan = Plan(
            chosen,
            frameworks,
            asked.rounds,
            asked.seconds,
            asked.threads,
            asked.timeout,
            asked.peers_python,
        )
        run(plan, results, tell)
    if not results.of("run"):
        raise SystemExit(f"benchmarks: {asked.results} holds no measurements. Leave --only-table.")
    text = table(results, chosen)
    print(text)
    if asked.write:
        asked.write.write_text(with_section(asked.write.read_text(), "benchmarks", text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
