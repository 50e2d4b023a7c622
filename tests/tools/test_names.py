import pytest

from tools import names
from tools.sources import read


@pytest.mark.parametrize("name", ["hack_it", "my_utils", "kernel_2", "tmp", "parse_v2"])
def test_banned_words_are_found(tmp_path, monkeypatch, name):
    monkeypatch.setattr(names, "ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(f"{name} = 1\n")
    assert names.complaints([read(path)]) == [f"module.py:1: the name {name} is banned"]


def test_too_many_short_names_are_found(tmp_path):
    path = tmp_path / "module.py"
    path.write_text("a = b = 1\nvalue = 2\n")
    assert names.complaints([read(path)]) == ["66.7% of names are one letter, 8% are allowed"]


def test_good_names_pass(tmp_path):
    path = tmp_path / "module.py"
    path.write_text("def render(program):\n    source = program\n    return source\n")
    assert names.complaints([read(path)]) == []
