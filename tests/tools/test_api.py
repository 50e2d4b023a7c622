"""The reference of the public interface is what the docstrings say."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelet import Tensor
from tools import api


def test_every_public_method_of_a_tensor_is_described() -> None:
    text = api.page()
    names = [name for name in dir(Tensor) if not name.startswith("_")]
    fields = set(Tensor.__slots__)
    missing = [name for name in names if name not in fields and f"#### `{name}" not in text]
    assert missing == []


def test_another_name_says_whose_it_is() -> None:
    assert "Another name of `atan2`." in api.page()


def test_a_page_that_differs_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(api, "PAGE", tmp_path / "api.md")
    assert api.main(["--check"]) == 1
    assert "not what the docstrings say" in capsys.readouterr().out
    assert api.main([]) == 0
    assert api.main(["--check"]) == 0
