"""What tar and zip archives hold.

In:  an archive, packed or not.
Out: its files by name, as tensors of bytes; nothing is written anywhere.
"""

from __future__ import annotations

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from kernelet.base.dtype import dtypes
from kernelet.base.errors import DataError
from kernelet.frontend.tensor import Tensor
from kernelet.nn.files import Source, name_of, open_source

_DAMAGES = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError)


def tar_extract(source: Source) -> dict[str, Tensor]:
    """The files of a tar archive, also of one packed with gzip, bzip2 or xz."""
    with open_source(source) as file:
        try:
            return {name: _bytes(data) for name, data in _tar_files(file)}
        except _DAMAGES as error:
            raise _damaged(source, "tar", error) from None


def zip_extract(source: Source) -> dict[str, Tensor]:
    """The files of a zip archive."""
    with open_source(source) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                members = [each for each in archive.infolist() if not each.is_dir()]
                return {each.filename: _bytes(archive.read(each)) for each in members}
        except (*_DAMAGES, NotImplementedError, RuntimeError) as error:
            raise _damaged(source, "zip", error) from None


def _tar_files(file: BinaryIO) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=file) as archive:
        for member in archive:
            packed = archive.extractfile(member) if member.isfile() else None
            if packed is not None:
                yield member.name, packed.read()
        # Where a header is cut off, tarfile sees the end; a whole archive ends with zeros, and
        # what it is packed with has a checksum at its end.
        assert archive.fileobj is not None
        archive.fileobj.seek(archive.offset)
        end = archive.fileobj.read(tarfile.BLOCKSIZE)
        while archive.fileobj.read(1 << 20):
            pass
        if end != bytes(tarfile.BLOCKSIZE):
            raise EOFError("it ends too early")


def _bytes(data: bytes) -> Tensor:
    return Tensor(data, dtype=dtypes.uint8)


def _damaged(source: Source, kind: str, error: Exception) -> DataError:
    found = str(error).partition("\n")[0] or type(error).__name__
    return DataError(f"{name_of(source)}: not a whole {kind} archive: {found}. Fetch it again.")
