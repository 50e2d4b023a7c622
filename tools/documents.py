"""Run the Python in the documents: `python -m tools.documents README.md ...`.

In:  markdown files; blocks that start with ```python are one program a file, top to bottom.
Out: exit status 1 when one fails; the error names the file and the line.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path


def program_of(text: str) -> str:
    """The Python blocks of a markdown text, each on the lines where it stands."""
    lines = []
    inside = False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = line == "```python"
            lines.append("")
        else:
            lines.append(line if inside else "")
    return "\n".join(lines)


def run(path: Path) -> bool:
    """Run the blocks of one file; False, and a traceback, when they fail."""
    try:
        exec(compile(program_of(path.read_text()), str(path), "exec"), {"__name__": "__document__"})
    except Exception:
        traceback.print_exc()
        return False
    print(f"{path}: runs")
    return True


def main() -> int:
    """Run every file that was named."""
    results = [run(Path(name)) for name in sys.argv[1:]]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
