"""Run the Python in the documents: `python -m tools.documents README.md ...`.

In:  markdown files; blocks that start with ```python are one program a file, top to bottom.
Out: exit status 1 when one fails; the error names the file and the line.

Sections that programs write stand between `<!-- NAME -->` and `<!-- end of NAME -->`.
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


def section(text: str, name: str) -> str:
    """What a document says between the marks of a section."""
    begin, end = _marks(text, name)
    return text[begin:end].strip("\n")


def with_section(text: str, name: str, content: str) -> str:
    """The document with other content between the marks of a section."""
    begin, end = _marks(text, name)
    return f"{text[:begin]}\n{content}\n{text[end:]}"


def _marks(text: str, name: str) -> tuple[int, int]:
    first, last = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if text.count(first) != 1 or text.count(last) != 1:
        raise ValueError(
            f"section {name}: the document needs one line {first} and one {last}. Add them where "
            "the section is to stand."
        )
    return text.index(first) + len(first), text.index(last)


def main() -> int:
    """Run every file that was named."""
    results = [run(Path(name)) for name in sys.argv[1:]]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
