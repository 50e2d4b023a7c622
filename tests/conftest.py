"""Options and fixtures of the whole suite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN_FOLDER = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` writes the golden files anew; their diff is the review."""
    parser.addoption("--update-golden", action="store_true", help="write golden files anew")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare text with the golden file of that name, or write the file."""

    def check(name: str, text: str) -> None:
        path = GOLDEN_FOLDER / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing: run pytest with --update-golden."
        assert text == path.read_text(), f"{name} has changed: if right, use --update-golden."

    return check
