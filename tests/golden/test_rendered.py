"""The same linear program gives the same source, in every language."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelet.graph.uop import UOp
from kernelet.render import c, llvm, python
from kernelet.render.renderer import Render
from tests.render.linear_programs import matmul_tile, row_maximum, vector_add

PROGRAMS: dict[str, Callable[[], list[UOp]]] = {
    "vector_add": lambda: vector_add(16),
    "matmul_tile": lambda: matmul_tile(64, 2, 8, 2),
    "row_maximum": lambda: row_maximum(4, 32, 8),
}
LANGUAGES: dict[str, Render] = {"c": c.render, "ll": llvm.render, "py": python.render}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("suffix", LANGUAGES)
def test_source_is_what_it_was(name: str, suffix: str, golden: Callable[[str, str], None]) -> None:
    golden(f"rendered/{name}.{suffix}.txt", LANGUAGES[suffix](PROGRAMS[name](), name))
