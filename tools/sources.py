"""Read the package's sources the way the checks count them.

In:  the repository's folder.
Out: files, their lines of code and their tokens; docstrings, comments and blanks are not code.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "kernelet"

_NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
Definition = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One file: its path from the root, its syntax tree, its code lines and token count."""

    path: Path
    tree: ast.Module
    code_lines: frozenset[int]
    tokens: int

    @property
    def folder(self) -> str:
        """The stage the file belongs to; "." for modules beside the stages."""
        parts = self.path.relative_to(PACKAGE).parts
        return parts[0] if len(parts) > 1 else "."

    def functions(self) -> Iterator[tuple[Definition, int]]:
        """Each function with its lines of code."""
        for node in ast.walk(self.tree):
            if isinstance(node, Definition):
                lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                yield node, len(self.code_lines.intersection(lines))


def read(path: Path) -> Source:
    """The source file at `path`."""
    text = path.read_text()
    tree = ast.parse(text)
    docstrings = set(_docstring_lines(tree))
    lines: set[int] = set()
    tokens = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in _NOT_CODE or token.start[0] in docstrings:
            continue
        tokens += 1
        lines.update(range(token.start[0], token.end[0] + 1))
    return Source(path, tree, frozenset(lines), tokens)


def _docstring_lines(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | Definition):
            continue
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            yield from range(first.lineno, (first.end_lineno or first.lineno) + 1)


def package_sources() -> list[Source]:
    """Every module of the package."""
    return [read(path) for path in sorted(PACKAGE.rglob("*.py"))]
