"""Fetch a published file once, and be sure that it is the one that was published.

In:  an address, a path and the sha256 of the content.
Out: the file at that path; DownloadError says what to do when it cannot be fetched.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from hashlib import sha256

from kernelet.base import trace
from kernelet.base.errors import DownloadError
from kernelet.nn.files import replacing

_PIECE = 1 << 18
_TIMEOUT_SECONDS = 30

Unpack = Callable[[bytes], bytes]


def fetch(url: str, path: str, checksum: str, unpack: Unpack = bytes) -> None:
    """Download `url` to `path`, whole and checked or not at all.

    `checksum` is the sha256 of what `unpack` makes of the file.
    """
    try:
        data = read(url, os.path.basename(path))
        found = sha256(unpack(data)).hexdigest()
    except (OSError, EOFError, ValueError) as error:
        raise _failed(url, path, str(error)) from error
    if found != checksum:
        raise _failed(url, path, f"what came has sha256 {found}, the published file {checksum}")
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with replacing(path) as file:
            file.write(data)
    except OSError as error:
        raise _failed(url, path, f"it cannot be stored: {error}") from error


def _failed(url: str, path: str, found: str) -> DownloadError:
    return DownloadError(
        f"{url} cannot be downloaded to {path}: {found}. Check the network and try again, or fetch "
        "the file elsewhere and put it there; KERNELET_DATA names another folder of data sets."
    )


def read(url: str, name: str, headers: Mapping[str, str] | None = None) -> bytes:
    """What is at the address, with a progress line when it takes long; OSError when nothing is."""
    # Importing it takes as long as importing the package, and most programs never download.
    import http.client  # noqa: PLC0415
    import urllib.request  # noqa: PLC0415

    pieces: list[bytes] = []
    request = urllib.request.Request(url, headers=dict(headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
            length = int(response.headers.get("Content-Length") or 0)
            with trace.Progress(f"downloading {name}", round(length / 1e6, 1), "MB") as progress:
                while piece := response.read(_PIECE):
                    pieces.append(piece)
                    progress.advance(len(piece) / 1e6)
    except http.client.HTTPException as error:
        raise OSError(f"the server broke off: {type(error).__name__}") from error
    data = b"".join(pieces)
    if length and len(data) != length:
        raise OSError(f"{len(data)} of {length} bytes came")
    return data
