"""Files to read from and to write, whole or not at all.

In:  a path, or the bytes of a file as a tensor.
Out: open binary files.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from typing import BinaryIO

from kernelet.frontend.tensor import Tensor

Path = str | os.PathLike[str]
Source = Path | Tensor


def open_source(source: Source) -> BinaryIO:
    """The file, or what the tensor holds, to be read from its start."""
    return io.BytesIO(source.data()) if isinstance(source, Tensor) else open(source, "rb")


def name_of(source: Source) -> str:
    """What to call it in a message."""
    return "a tensor's bytes" if isinstance(source, Tensor) else os.fspath(source)


def size_of(file: BinaryIO) -> int:
    """How many bytes there are; what is read next stays the same."""
    at = file.tell()
    size = file.seek(0, os.SEEK_END)
    file.seek(at)
    return size


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of the one at `path` once it is whole."""
    temporary = f"{os.fspath(path)}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(temporary)
        raise
