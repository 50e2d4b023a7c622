import gzip
import http.server
from hashlib import sha256

import pytest

from kernelet.base import trace
from kernelet.base.errors import DownloadError
from kernelet.nn.download import fetch

DATA = bytes(range(256)) * 100


class Broken(http.server.SimpleHTTPRequestHandler):
    """Promises more than it sends."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"short")

    def log_message(self, *_arguments):
        return


@pytest.fixture
def published(tmp_path):
    folder = tmp_path / "published"
    folder.mkdir()
    (folder / "data.bin").write_bytes(DATA)
    return folder


def test_the_file_comes_whole(tmp_path, serve, published):
    target = tmp_path / "deep" / "folder" / "data.bin"
    with serve(published) as url:
        fetch(url + "data.bin", str(target), sha256(DATA).hexdigest())
    assert target.read_bytes() == DATA
    assert [path.name for path in target.parent.iterdir()] == ["data.bin"]


def test_the_checksum_may_be_of_what_is_packed(tmp_path, serve, published):
    (published / "data.gz").write_bytes(gzip.compress(DATA))
    target = tmp_path / "data.gz"
    with serve(published) as url:
        fetch(url + "data.gz", str(target), sha256(DATA).hexdigest(), gzip.decompress)
    assert gzip.decompress(target.read_bytes()) == DATA


def test_another_file_is_not_kept(tmp_path, serve, published):
    target = tmp_path / "data.bin"
    with serve(published) as url, pytest.raises(DownloadError, match="sha256"):
        fetch(url + "data.bin", str(target), "0" * 64)
    assert not target.exists()


def test_a_file_that_is_not_there_says_so(tmp_path, serve, published):
    with serve(published) as url, pytest.raises(DownloadError, match=r"404.*KERNELET_DATA"):
        fetch(url + "absent.bin", str(tmp_path / "absent.bin"), "0" * 64)


def test_a_download_that_breaks_off_is_not_kept(tmp_path, serve, published):
    target = tmp_path / "data.bin"
    with serve(published, Broken) as url, pytest.raises(DownloadError, match="5 of 1000|broke off"):
        fetch(url + "data.bin", str(target), "0" * 64)
    assert not target.exists()


def test_a_folder_that_cannot_be_written_says_so(tmp_path, serve, published):
    (tmp_path / "file").write_text("not a folder")
    with serve(published) as url, pytest.raises(DownloadError, match="cannot be stored"):
        fetch(url + "data.bin", str(tmp_path / "file" / "x"), sha256(DATA).hexdigest())


def test_a_long_download_tells_how_far_it_is(tmp_path, serve, published, monkeypatch):
    monkeypatch.setattr(trace.Progress, "quiet_seconds", 0.0)
    seen = []
    with serve(published) as url, trace.reading(seen.append, "progress"):
        fetch(url + "data.bin", str(tmp_path / "data.bin"), sha256(DATA).hexdigest())
    assert "downloading data.bin" in seen[-1].text
