"""Check that every tuned number names its benchmark: `python -m tools.guards docs/performance.md`.

In:  the table between the marks `guards` of a document: file, numbers, workloads, decision.
Out: exit status 1 when a number of `lower/` or `kernelize/` has no row, or a row no number.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

from benchmarks.workloads import GROUPS, WORKLOADS
from tools.documents import section
from tools.sources import PACKAGE

FOLDERS = ("kernelize", "lower")
# Numbers that mathematics or a format fixes, not a clock.
FIXED = {"lower/transcendental.py", "lower/expand.py", "lower/decompose.py", "lower/dtypes.py"}
_QUOTED = re.compile(r"`([^`]+)`")


def tuned_numbers() -> set[tuple[str, str]]:
    """The file and the name of every number that is a module's constant."""
    found = set()
    for path in (path for folder in FOLDERS for path in (PACKAGE / folder).glob("*.py")):
        file = str(path.relative_to(PACKAGE))
        for node in ast.parse(path.read_text()).body:
            if file not in FIXED and isinstance(node, ast.Assign) and _is_number(node.value):
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
                found |= {(file, name) for name in names if name.isupper()}
    return found


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_number(node.left) and _is_number(node.right)
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def complaints(table: str) -> list[str]:
    """Every number without a benchmark, and every row that names what is not there, in words."""
    numbers = tuned_numbers()
    found = []
    named: set[tuple[str, str]] = set()
    for line in table.splitlines()[2:]:
        file, constants, workloads, _ = (cell.strip() for cell in line.strip("| ").split("|"))
        (path,) = _QUOTED.findall(file)
        named |= {(path, name) for name in _QUOTED.findall(constants)}
        known = [name in WORKLOADS or name in GROUPS for name in _QUOTED.findall(workloads)]
        if not known or not all(known):
            found.append(f"{path}, {constants}: {workloads} is no workload or group")
    found += [f"{file}: {name} names no benchmark" for file, name in sorted(numbers - named)]
    found += [f"{file}: {name} is not there any more" for file, name in sorted(named - numbers)]
    return found


def main(arguments: list[str]) -> int:
    """Print what is missing in the documents that are named."""
    found = [each for name in arguments for each in complaints(_table(Path(name)))]
    for line in found:
        print(line)
    print(f"guards: {len(found)} gaps")
    return 1 if found else 0


def _table(path: Path) -> str:
    return section(path.read_text(), "guards")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
