"""Bytes kept on disk between processes: compiled programs, search results.

In:  a kind (a folder), a key (text) and the bytes.
Out: the bytes, whole and unchanged, or None.

Many processes may read and write at once. A folder that is damaged or cannot be written is the
same as an empty one: the cache makes things faster and never makes them fail.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
import zlib
from hashlib import sha256

from kernelet.base import config, trace

# The format of cached files and the meaning of keys; a new value makes all old entries unseen.
VERSION = "1"

_MAGIC = b"kernelet1"
LIMIT_BYTES = 1 << 30
_DAY = 24 * 3600.0
_counter = itertools.count()


def key_of(*parts: object) -> str:
    """A key for these parts together: the same text only for the same parts.

    >>> key_of("ab", "c") == key_of("a", "bc")
    False
    """
    digest = sha256(VERSION.encode())
    for part in parts:
        data = (
            bytes(part) if isinstance(part, bytes | bytearray | memoryview) else str(part).encode()
        )
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def get(kind: str, key: str) -> bytes | None:
    """What was put under `key`; None when there is nothing, or nothing whole."""
    if not config.current().cache:
        return None
    path = _path(kind, key)
    try:
        with open(path, "rb") as file:
            content = file.read()
            age = time.time() - os.fstat(file.fileno()).st_mtime
    except OSError:
        return None
    data = _unpacked(content)
    if data is not None and age > _DAY:
        _touch(path)
    return data


def put(kind: str, key: str, data: bytes) -> None:
    """Keep `data` under `key`; says nothing when the folder cannot be written."""
    if not config.current().cache:
        return
    path = _path(kind, key)
    temporary = f"{path}.{os.getpid()}.{threading.get_ident()}.{next(_counter)}.tmp"
    content = _MAGIC + zlib.crc32(data).to_bytes(4, "little") + data
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except OSError as error:
        trace.emit("cache", kind, f"cannot write {path}: {error}")
        _remove(temporary)
        return
    # Looking at every file costs more than a put: one put in 128 does it.
    if zlib.crc32(os.path.basename(path).encode()) % 128 == 0:
        evict(kind)


def evict(kind: str, limit: int = LIMIT_BYTES) -> None:
    """Remove the entries used longest ago until three quarters of `limit` bytes are left."""
    entries = []
    try:
        with os.scandir(_folder(kind)) as found:
            for item in found:
                state = item.stat()
                entries.append((state.st_mtime, state.st_size, item.path))
    except OSError:
        return
    total = sum(size for _, size, _ in entries)
    if total <= limit:
        return
    for _, size, path in sorted(entries):
        _remove(path)
        total -= size
        if total <= limit * 3 // 4:
            return


def _folder(kind: str) -> str:
    return os.path.join(config.current().cache_folder, kind)


def _path(kind: str, key: str) -> str:
    return os.path.join(_folder(kind), key_of(key)[:40])


def _unpacked(content: bytes) -> bytes | None:
    start = len(_MAGIC) + 4
    data = content[start:]
    stamp = _MAGIC + zlib.crc32(data).to_bytes(4, "little")
    return data if content[:start] == stamp else None


def _touch(path: str) -> None:
    try:
        os.utime(path)
    except OSError:
        return


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
