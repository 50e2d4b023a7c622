"""Files are fetched once, and values are kept between processes."""

import gzip
import hashlib
import tarfile

import pytest

from kernelet.base.config import Context
from kernelet.base.errors import DownloadError
from kernelet.compat.storage import diskcache, diskcache_clear, diskcache_get, diskcache_put, fetch


@pytest.fixture(autouse=True)
def own_cache(tmp_path):
    with Context(KERNELET_CACHE=str(tmp_path / "cache"), CACHE=1):
        yield


def test_a_path_is_given_back():
    assert str(fetch("/some/where")) == "/some/where"
    assert str(fetch("./here")) == "here"


def test_a_file_is_fetched_once(tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"first")
    path = fetch(source.as_uri(), subdir="mine")
    assert path.read_bytes() == b"first"
    source.write_bytes(b"second")
    assert fetch(source.as_uri(), subdir="mine").read_bytes() == b"first"
    assert fetch(source.as_uri(), subdir="mine", allow_caching=False).read_bytes() == b"second"
    assert fetch(source.as_uri(), name=tmp_path / "named") == tmp_path / "named"


def test_a_file_is_unpacked_and_checked(tmp_path):
    source = tmp_path / "packed.gz"
    source.write_bytes(gzip.compress(b"content"))
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    assert fetch(source.as_uri(), gunzip=True, sha256=digest).read_bytes() == b"content"
    with pytest.raises(DownloadError, match="sha256"):
        fetch(source.as_uri(), sha256="0" * 64)


def test_an_archive_becomes_a_folder(tmp_path):
    (tmp_path / "inside.txt").write_text("text")
    with tarfile.open(tmp_path / "packed.tar", "w") as archive:
        archive.add(tmp_path / "inside.txt", "inside.txt")
    folder = fetch((tmp_path / "packed.tar").as_uri(), extract=True)
    assert (folder / "inside.txt").read_text() == "text"
    assert fetch((tmp_path / "packed.tar").as_uri(), extract=True) == folder


def test_what_is_not_there_says_so(tmp_path):
    for address in ((tmp_path / "missing").as_uri(), "nonsense"):
        with pytest.raises(DownloadError, match="cannot be downloaded"):
            fetch(address)


def test_values_are_kept_under_their_keys():
    assert diskcache_get("table", "key") is None
    assert diskcache_put("table", {"a": 1}, [1, 2]) == [1, 2]
    assert diskcache_get("table", {"a": 1}) == [1, 2]
    assert diskcache_get("other", {"a": 1}) is None
    diskcache_clear()
    assert diskcache_get("table", {"a": 1}) is None


def test_a_function_is_computed_once_for_its_arguments():
    calls = []

    @diskcache
    def square(number, offset=0):
        calls.append(number)
        return number * number + offset

    assert [square(3), square(3), square(3, offset=1), square(4)] == [9, 9, 10, 16]
    assert calls == [3, 3, 4]
