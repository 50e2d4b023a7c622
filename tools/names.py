"""Check the naming rules: `python -m tools.names`.

In:  the package's sources.
Out: exit status 1 when too many names are one letter, or when one has a banned word.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

from tools.sources import ROOT, Definition, Source, package_sources

ONE_LETTER_SHARE = 0.08
# A version or a judgement in a name: what it replaces is deleted in the same change.
BANNED = re.compile(r"(^|_)(hack|misc|utils?|stuff|tmp|foo|v\d)(_|$)|[a-z]_\d$")
# Names fixed by a format, by mathematics or by the libraries whose users come here.
ALLOWED = frozenset({"LOG_2"})


def bound_names(source: Source) -> Iterator[tuple[str, int]]:
    """Every name that the file gives to something, with its line."""
    for node in ast.walk(source.tree):
        if isinstance(node, Definition | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno


def complaints(sources: list[Source]) -> list[str]:
    """Every rule that is broken, in words."""
    found = []
    total = short = 0
    for source in sources:
        for name, line in bound_names(source):
            bare = name.strip("_")
            total += 1
            short += len(bare) == 1
            if BANNED.search(bare.lower()) and bare not in ALLOWED:
                found.append(f"{source.path.relative_to(ROOT)}:{line}: the name {name} is banned")
    share = short / max(total, 1)
    if share > ONE_LETTER_SHARE:
        found.append(f"{share:.1%} of names are one letter, {ONE_LETTER_SHARE:.0%} are allowed")
    return found


def main() -> int:
    """Print what is against the rules."""
    found = complaints(package_sources())
    for line in found:
        print(line)
    print(f"names: {len(found)} complaints")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
