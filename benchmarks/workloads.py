"""Every workload by name, and the choice of some.

In:  names of workloads or of groups.
Out: the workloads, in the order of the table.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.models import models
from benchmarks.operations import Workload, singles

WORKLOADS = {workload.name: workload for workload in (*singles(), *models())}
GROUPS = tuple(dict.fromkeys(workload.group for workload in WORKLOADS.values()))


def select(names: Sequence[str]) -> list[Workload]:
    """The workloads that names and groups ask for; all of them where none is named."""
    for name in names:
        if name not in WORKLOADS and name not in GROUPS:
            raise SystemExit(
                f"benchmarks {name}: there is no such workload or group. Groups: "
                f"{', '.join(GROUPS)}. `python -m benchmarks --list` shows all workloads."
            )
    chosen = WORKLOADS.values()
    return [one for one in chosen if not names or one.name in names or one.group in names]
