import pytest

from tools.documents import program_of, run

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
