"""Check the size budgets: `python -m tools.size`.

In:  the package's sources.
Out: a table a folder, and exit status 1 when a budget is passed.

What is counted is formatted lines of code: no blanks, comments or docstrings.
"""

from __future__ import annotations

import sys
from collections import Counter

from tools.sources import ROOT, Source, package_sources

FILE_LIMIT = 400
FUNCTION_LIMIT = 50
CORE_LIMIT = 10_000
CORE = ("base", "frontend", "graph", "kernelize", "lower", ".")
FOLDER_LIMITS = {
    "base": 900,
    "frontend": 3500,
    "graph": 2300,
    "kernelize": 1300,
    "lower": 2200,
    "render": 1500,
    "runtime": 1800,
    ".": 900,
    "compat": 1100,
    "nn": 2600,
    "array_api": 450,
}
# What is over its budget, and by how much at most. The nests of products and convolutions, the search
# and kernels with several outputs have raised it, then the whole surface of tensors (frontend); what
# remains to be paid is lowered here.
DEBTS = {"frontend": 2351, "graph": 585, "lower": 1679, ".": 136, "core": 5757}


def complaints(sources: list[Source]) -> list[str]:
    """Every budget that is passed, in words."""
    found = []
    totals = folder_lines(sources)
    for source in sources:
        name = source.path.relative_to(ROOT)
        if len(source.code_lines) > FILE_LIMIT:
            found.append(f"{name}: {len(source.code_lines)} lines, {FILE_LIMIT} are allowed")
        for function, lines in source.functions():
            if lines > FUNCTION_LIMIT:
                found.append(f"{name}: {function.name} has {lines} lines, {FUNCTION_LIMIT} allowed")
    for folder, lines in totals.items():
        limit = FOLDER_LIMITS.get(folder)
        if limit is None:
            found.append(f"{folder}: no budget; give it one in tools/size.py")
        elif lines > limit + DEBTS.get(folder, 0):
            found.append(f"{folder}: {lines} lines, {limit} are allowed")
    core = sum(totals[folder] for folder in CORE)
    if core > CORE_LIMIT + DEBTS.get("core", 0):
        found.append(f"core: {core} lines, {CORE_LIMIT} are allowed")
    return found


def folder_lines(sources: list[Source]) -> Counter[str]:
    """Lines of code in each folder of the package."""
    totals: Counter[str] = Counter()
    for source in sources:
        totals[source.folder] += len(source.code_lines)
    return totals


def main() -> int:
    """Print the table and what is over budget."""
    sources = package_sources()
    totals = folder_lines(sources)
    tokens: Counter[str] = Counter()
    for source in sources:
        tokens[source.folder] += source.tokens
    print(f"{'folder':12}{'lines':>7}{'budget':>8}{'over':>7}{'tokens/line':>13}")
    for folder, lines in sorted(totals.items()):
        share = tokens[folder] / max(lines, 1)
        limit = FOLDER_LIMITS.get(folder, 0)
        print(f"{folder:12}{lines:7}{limit:8}{max(lines - limit, 0):7}{share:13.1f}")
    core = sum(totals[folder] for folder in CORE)
    print(f"{'core':12}{core:7}{CORE_LIMIT:8}{max(core - CORE_LIMIT, 0):7}")
    found = complaints(sources)
    for line in found:
        print("over budget:", line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
