import io
import tarfile
import zipfile

import pytest

from kernelet import Tensor, dtypes
from kernelet.base.errors import DataError
from kernelet.nn.state import tar_extract, zip_extract

FILES = {"a.txt": b"hello", "folder/b.bin": bytes(range(256)), "empty": b""}


def tar(mode):
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode=mode) as archive:
        archive.addfile(made := tarfile.TarInfo("folder"))
        made.type = tarfile.DIRTYPE
        for name, data in FILES.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        link = tarfile.TarInfo("../outside")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return target.getvalue()


def packed(kind):
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", kind) as archive:
        archive.mkdir("folder")
        for name, data in FILES.items():
            archive.writestr(name, data)
    return target.getvalue()


def contents(tensors):
    return {name: bytes(tensor.data()) for name, tensor in tensors.items()}


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_the_files_of_a_tar_archive_are_read(tmp_path, mode):
    path = tmp_path / "a.tar"
    path.write_bytes(tar(mode))
    found = contents(tar_extract(path))
    assert {name: found[name] for name in FILES} == FILES
    assert not any("outside" in name for name in found)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_the_files_of_a_zip_archive_are_read(kind):
    source = Tensor(packed(kind), dtype=dtypes.uint8)
    assert contents(zip_extract(source)) == FILES


@pytest.mark.parametrize(
    ("extract", "data"),
    [
        (tar_extract, b""),
        (tar_extract, b"not an archive " * 100),
        (tar_extract, tar("w")[:700]),
        (tar_extract, tar("w:gz")[:-20]),
        (tar_extract, tar("w:xz")[:-20]),
        (zip_extract, b"PK\3\4 and nothing more"),
        (zip_extract, packed(zipfile.ZIP_STORED)[:-30]),
        (zip_extract, packed(zipfile.ZIP_STORED).replace(b"hello", b"jello")),
    ],
)
def test_a_damaged_archive_is_named(tmp_path, extract, data):
    path = tmp_path / "bad.archive"
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"bad\.archive: not a whole (tar|zip) archive: .+Fetch"):
        extract(path)
