import pytest

from tools.documents import program_of, run, section, with_section

TEXT = """# Title

```python
value = 1
```

```bash
exit 1
```

```python
assert value == {}
```
"""


def test_the_blocks_of_a_file_are_one_program_on_their_own_lines():
    lines = program_of(TEXT.format(1)).splitlines()
    assert lines[3] == "value = 1"
    assert lines[11] == "assert value == 1"
    assert not any("exit" in line for line in lines)


@pytest.mark.parametrize(("value", "runs"), [(1, True), (2, False)])
def test_a_block_that_fails_is_noticed(tmp_path, capsys, value, runs):
    path = tmp_path / "page.md"
    path.write_text(TEXT.format(value))
    assert run(path) is runs
    shown = capsys.readouterr()
    assert runs or f'{path}", line 12' in shown.err


PAGE = "above\n<!-- part -->\nold\n<!-- end of part -->\nbelow\n"


def test_a_section_is_what_stands_between_its_marks():
    assert section(PAGE, "part") == "old"
    changed = with_section(PAGE, "part", "new")
    assert changed == PAGE.replace("old", "new")
    assert with_section(changed, "part", section(PAGE, "part")) == PAGE


def test_a_document_without_the_marks_is_left_alone():
    with pytest.raises(ValueError, match="section other: the document needs"):
        with_section(PAGE, "other", "new")
