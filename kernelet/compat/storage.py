"""Files that programs fetch and values that they keep: `fetch`, `diskcache`.

In:  addresses, keys and values.
Out: paths, and the values again in a later process. CACHE=0 keeps no values.
"""

from __future__ import annotations

import functools
import gzip
import pickle
import shutil
from collections.abc import Callable, Mapping
from hashlib import sha256 as digest_of
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from kernelet.base import cache, config
from kernelet.base.errors import DownloadError
from kernelet.nn import download
from kernelet.nn.files import replacing

Value = Any  # whatever was put
Given = ParamSpec("Given")
Result = TypeVar("Result")

_KIND = "values"


def fetch(
    url: str,
    name: Path | str | None = None,
    subdir: str | None = None,
    gunzip: bool = False,
    allow_caching: bool = True,
    headers: Mapping[str, str] | None = None,
    sha256: str | None = None,
    extract: bool = False,
) -> Path:
    """The file at an address, downloaded once; a path is given back as it is.

    `gunzip` unpacks it, `extract` gives the folder with what an archive holds, `sha256` is what
    the published file has.
    """
    if url.startswith(("/", ".")):
        return Path(url)
    if isinstance(name, Path) or (name and "/" in name):
        path = Path(name)
    else:
        known_by = (
            name or digest_of(f"{url} {sorted((headers or {}).items())}".encode()).hexdigest()
        )
        suffix = ".gunzip" if gunzip else ""
        path = Path(config.current().cache_folder, "downloads", subdir or "", known_by + suffix)
    if not (path.is_file() and allow_caching):
        data = _downloaded(url, headers or {}, sha256)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(gzip.decompress(data) if gunzip else data)
    return _extracted(path, url) if extract else path


def _downloaded(url: str, headers: Mapping[str, str], checksum: str | None) -> bytes:
    try:
        data = download.read(url, url.rpartition("/")[2], headers)
    except (OSError, ValueError) as error:
        raise DownloadError(
            f"fetch({url!r}): it cannot be downloaded: {error}. Check the address and the network, "
            "or fetch the file elsewhere and give its path."
        ) from error
    found = digest_of(data).hexdigest()
    if checksum is not None and found != checksum:
        raise DownloadError(
            f"fetch({url!r}): what came has sha256 {found}, asked was {checksum}. Check the address."
        )
    return data


def _extracted(path: Path, url: str) -> Path:
    folder = path.with_name(f"{path.name}.extracted")
    if not folder.is_dir():
        partial = folder.with_suffix(".partial")
        kinds = [kind for kind, ends, _ in shutil.get_unpack_formats() if url.endswith(tuple(ends))]
        shutil.unpack_archive(path, partial, kinds[0] if kinds else None)
        partial.rename(folder)
    return folder


def diskcache_get(table: str, key: object) -> Value:
    """What was put under the key; None when there is nothing."""
    found = cache.get(_KIND, cache.key_of(table, repr(key)))
    return None if found is None else pickle.loads(found)


def diskcache_put(table: str, key: object, val: Result) -> Result:
    """Keep a value that can be pickled; returns it."""
    cache.put(_KIND, cache.key_of(table, repr(key)), pickle.dumps(val))
    return val


def diskcache_clear() -> None:
    """Forget all values."""
    cache.evict(_KIND, 0)


def diskcache(func: Callable[Given, Result]) -> Callable[Given, Result]:
    """The function, computed once for each list of arguments, in all processes together."""

    @functools.wraps(func)
    def kept(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        key = pickle.dumps((args, sorted(kwargs.items())))
        found = diskcache_get(f"cache_{func.__name__}", key)
        if found is None:
            found = diskcache_put(f"cache_{func.__name__}", key, func(*args, **kwargs))
        value: Result = found
        return value

    return kept
