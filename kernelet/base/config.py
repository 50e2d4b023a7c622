"""The settings: one frozen value, read from the environment in one place.

In:  environment variables, once, at import; `Context(...)` afterwards.
Out: `current()`, the settings that hold at this moment in this thread.

Assigning to `os.environ` after the import changes nothing: use `Context`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass, field, fields, replace
from typing import Any

from kernelet.base.errors import ArgumentError

Value = int | str

DEVICES = ("CPU", "LLVM", "PYTHON", "OPENCL", "CUDA", "HIP", "METAL", "WEBGPU", "NULL")


def _setting(default: Value, variable: str, meaning: str, affects_code: bool = False) -> Any:  # noqa: ANN401
    facts = {"variable": variable, "meaning": meaning, "affects_code": affects_code}
    return field(default=default, metadata=facts)


@dataclass(frozen=True, slots=True)
class Config:
    """Every setting, its type, default and meaning, and whether it changes generated code.

    >>> Config().debug
    0
    """

    debug: int = _setting(0, "DEBUG", "how much to show, 0 to 7")
    beam: int = _setting(0, "BEAM", "how many plans a kernel search keeps a round; 0: no search")
    device: str = _setting("", "DEV", "the default device; empty: the best there is")
    jit: int = _setting(1, "JIT", "1: TinyJit captures and replays; 0: it calls through")
    training: int = _setting(0, "TRAINING", "1: dropout and batch statistics are on")
    viz: int = _setting(0, "VIZ", "1: record rewrites (accepted, no effect yet)")
    profile: int = _setting(0, "PROFILE", "1: record launches (accepted, no effect yet)")
    verify: int = _setting(0, "VERIFY", "1: check the spec after every pass")
    threads: int = _setting(0, "THREADS", "threads of a CPU launch; 0: one a core", True)
    parallel: int = _setting(-1, "PARALLEL", "compile processes; 0: none, -1: one a core")
    cache: int = _setting(1, "CACHE", "1: keep compiled programs on disk; 0: do not")
    compiler: str = _setting("", "CC", "C compiler of the CPU device; empty: clang, else gcc", True)
    cache_folder: str = _setting("", "KERNELET_CACHE", "where cached files are kept")
    data_folder: str = _setting(
        "", "KERNELET_DATA", "your data sets, read as they are; empty: a folder in the cache"
    )


_FIELDS = fields(Config)
_DEFAULTS = Config()
_NAMES = {
    name.upper(): item.name for item in _FIELDS for name in (item.name, item.metadata["variable"])
}
_CODE_FIELDS = tuple(item.name for item in _FIELDS if item.metadata["affects_code"])


def code_key(config: Config) -> str:
    """The settings that change generated code, as text for a cache key."""
    return ",".join(f"{name}={getattr(config, name)}" for name in _CODE_FIELDS)


def describe() -> str:
    """One line a setting: variable, default, meaning; what the documentation shows."""
    rows = []
    for item in _FIELDS:
        code = " (changes code)" if item.metadata["affects_code"] else ""
        rows.append(f"{item.metadata['variable']}={item.default}  {item.metadata['meaning']}{code}")
    return "\n".join(rows)


def from_environment(environment: Mapping[str, str]) -> Config:
    """The settings that `environment` asks for; ArgumentError names a bad one.

    >>> from_environment({"DEBUG": "2", "LLVM": "1", "DEV": "CPU"}).device
    'LLVM'
    """
    changes: dict[str, Any] = {}
    for item in _FIELDS:
        text = environment.get(item.metadata["variable"], "")
        if text:
            changes[item.name] = _converted(item.name, item.metadata["variable"], text)
    chosen = [name for name in DEVICES if environment.get(name, "0") not in ("", "0")]
    if chosen:
        changes["device"] = chosen[0]
    changes["device"] = str(changes.get("device", "")).upper()
    folder = str(changes.get("cache_folder", "")) or _platform_cache(environment)
    changes["cache_folder"] = os.path.expanduser(folder)
    changes["data_folder"] = os.path.expanduser(str(changes.get("data_folder", "")))
    return replace(_DEFAULTS, **changes)


def _converted(name: str, asked: str, value: object) -> Value:
    if isinstance(getattr(_DEFAULTS, name), str):
        return str(value)
    try:
        return int(value)  # type: ignore[call-overload,no-any-return]
    except (TypeError, ValueError):
        raise ArgumentError(
            f"{asked}={value!r}: a whole number is needed, as in {asked}=1."
        ) from None


def _platform_cache(environment: Mapping[str, str]) -> str:
    xdg = environment.get("XDG_CACHE_HOME")
    if xdg:
        return os.path.join(xdg, "kernelet")
    if sys.platform == "win32":
        return os.path.join(environment.get("LOCALAPPDATA", "~"), "kernelet")
    home = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    return os.path.join(home, "kernelet")


_base = from_environment(os.environ)
# Each thread starts from the process's settings: a Context in one never reaches another.
_active: ContextVar[Config | None] = ContextVar("config", default=None)


def current() -> Config:
    """The settings that hold now in this thread."""
    return _active.get() or _base


def update(**changes: Value) -> None:
    """Change settings for the rest of the process, in this thread and in those that start later."""
    global _base  # the one place that holds the process's settings
    checked = _checked("config.update", changes)
    _base = replace(_base, **checked)
    active = _active.get()
    if active is not None:
        _active.set(replace(active, **checked))


def _checked(caller: str, changes: Mapping[str, Value]) -> dict[str, Any]:
    checked: dict[str, Any] = {}
    for name, value in changes.items():
        if name.upper() in DEVICES:
            name, value = "device", name if value else ""
        found = _NAMES.get(name.upper())
        if found is None:
            known = ", ".join(item.metadata["variable"] for item in _FIELDS)
            raise ArgumentError(
                f"{caller}({name}={value!r}): there is no such setting. Known: {known}."
            )
        checked[found] = _converted(found, name, value)
        if found == "device":
            checked[found] = str(value).upper()
    return checked


class Context(contextlib.ContextDecorator):
    """Settings that hold inside a `with` block or a decorated function.

    >>> with Context(DEBUG=2):
    ...     current().debug
    2
    """

    def __init__(self, **changes: Value) -> None:
        self._changes = _checked("Context", changes)
        # One object may be entered again before it is left, as a decorated recursion does.
        self._tokens: list[Token[Config | None]] = []

    def __enter__(self) -> Context:
        self._tokens.append(_active.set(replace(current(), **self._changes)))
        return self

    def __exit__(self, *_error: object) -> None:
        _active.reset(self._tokens.pop())
