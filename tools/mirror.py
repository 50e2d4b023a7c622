"""Check that tests mirror the package: `python -m tools.mirror`.

In:  the package's modules and the files under tests/.
Out: exit status 1 when a module has no test file, or a test file no module.
"""

from __future__ import annotations

import sys

from tools.sources import PACKAGE, ROOT, read

TESTS = ROOT / "tests"
# Folders that ask a question about the whole instead of mirroring a folder of the package.
QUESTIONS = (
    *("properties", "reference", "golden", "devices", "gradients", "stories", "tools"),
    "benchmarks",
)


def complaints() -> list[str]:
    """Every module without a test and every test without a module, in words."""
    modules = {
        path.relative_to(PACKAGE)
        for path in PACKAGE.rglob("*.py")
        if not path.name.startswith("__") and read(path).code_lines
    }
    wanted = {module.with_name(f"test_{module.name}"): module for module in modules}
    present = {
        path.relative_to(TESTS)
        for path in TESTS.rglob("test_*.py")
        if path.relative_to(TESTS).parts[0] not in QUESTIONS
    }
    found = [
        f"kernelet/{module} has no tests/{test}"
        for test, module in sorted(wanted.items())
        if test not in present
    ]
    found += [
        f"tests/{test} tests no module of that name" for test in sorted(present - wanted.keys())
    ]
    return found


def main() -> int:
    """Print what is missing."""
    found = complaints()
    for line in found:
        print(line)
    print(f"mirror: {len(found)} gaps")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
