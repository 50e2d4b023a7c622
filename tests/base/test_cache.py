import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelet.base import cache
from kernelet.base.config import Context


@pytest.fixture
def folder(tmp_path):
    with Context(KERNELET_CACHE=str(tmp_path), CACHE=1):
        yield tmp_path


def stored(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_what_was_put_is_got(folder):
    assert cache.get("program", "a") is None
    cache.put("program", "a", b"\0bytes")
    assert cache.get("program", "a") == b"\0bytes"
    assert cache.get("other", "a") is None


def test_an_empty_value_is_a_value(folder):
    cache.put("program", "a", b"")
    assert cache.get("program", "a") == b""


def test_the_cache_can_be_turned_off(folder):
    with Context(CACHE=0):
        cache.put("program", "a", b"x")
        assert stored(folder) == []
    cache.put("program", "a", b"x")
    with Context(CACHE=0):
        assert cache.get("program", "a") is None


@pytest.mark.parametrize("damage", [b"", b"kernelet1", b"other text that is longer than a stamp"])
def test_a_damaged_entry_is_no_entry_and_is_written_anew(folder, damage):
    cache.put("program", "a", b"good")
    [path] = stored(folder)
    path.write_bytes(damage)
    assert cache.get("program", "a") is None
    cache.put("program", "a", b"good")
    assert cache.get("program", "a") == b"good"


def test_one_changed_bit_is_noticed(folder):
    cache.put("program", "a", b"good")
    [path] = stored(folder)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert cache.get("program", "a") is None


def test_a_folder_that_cannot_be_made_is_an_empty_cache(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with Context(KERNELET_CACHE=str(tmp_path / "file"), CACHE=1):
        cache.put("program", "a", b"x")
        assert cache.get("program", "a") is None


def test_no_temporary_file_is_left(folder):
    for number in range(10):
        cache.put("program", str(number), b"x")
    assert not [path for path in stored(folder) if path.suffix == ".tmp"]


def test_the_oldest_entries_go_first(folder):
    for number in range(8):
        cache.put("program", str(number), bytes(1000))
    for age, path in enumerate(sorted(stored(folder))):
        os.utime(path, (age, age))
    before = sorted(stored(folder))
    cache.evict("program", limit=4000)
    left = stored(folder)
    assert len(left) == 2
    assert set(left) == set(before[-2:])


def test_processes_write_the_same_key_at_once(folder):
    code = "from kernelet.base import cache\nfor _ in range(50): cache.put('p', 'k', b'x' * 5000)"
    environment = {**os.environ, "KERNELET_CACHE": str(folder), "CACHE": "1"}
    root = Path(__file__).parents[2]
    writers = [
        subprocess.Popen([sys.executable, "-c", code], env=environment, cwd=root) for _ in range(2)
    ]
    for _ in range(200):
        assert cache.get("p", "k") in (None, b"x" * 5000)
    assert [writer.wait() for writer in writers] == [0, 0]
    assert cache.get("p", "k") == b"x" * 5000


def test_keys_differ_where_the_parts_differ():
    assert cache.key_of("a", "b") != cache.key_of("ab")
    assert cache.key_of("a", 1) == cache.key_of("a", 1)
    assert cache.key_of(b"a") == cache.key_of(bytearray(b"a"))
