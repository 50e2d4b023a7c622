import pytest

from tools import size, sources
from tools.sources import read

CODE = '''"""Two lines
of text."""

# a comment


def one():
    """Text."""
    return (
        1,
    )


VALUE = """kept
as code"""
'''


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "PACKAGE", tmp_path)
    monkeypatch.setattr(size, "ROOT", tmp_path)

    def written(text):
        path = tmp_path / "base" / "module.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return read(path)

    return written


def test_text_comments_and_blank_lines_are_not_code(source):
    found = source(CODE)
    assert len(found.code_lines) == 6
    assert [(function.name, lines) for function, lines in found.functions()] == [("one", 4)]


def test_a_long_file_and_a_long_function_are_named(source):
    body = "\n".join(f"    value = {number}" for number in range(401))
    found = size.complaints([source(f"def long():\n{body}\n")])
    assert found == [
        "base/module.py: 402 lines, 400 are allowed",
        "base/module.py: long has 402 lines, 50 allowed",
    ]


def test_a_folder_without_budget_is_named(source, monkeypatch):
    monkeypatch.delitem(size.FOLDER_LIMITS, "base")
    assert size.complaints([source("x = 1\n")]) == ["base: no budget; give it one in tools/size.py"]
