"""Settings as tinygrad programs read and change them: `getenv`, `ContextVar`, `Context`.

In:  environment variables.
Out: variables that show kernelet's settings of the same name, and variables of the program's own.

What a program writes to `os.environ` before it imports tinygrad counts too.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
from dataclasses import fields
from typing import Any, final

from kernelet.base import config
from kernelet.base.dtype import dtypes

Value = Any  # of the type that a variable has

SETTINGS = {item.metadata["variable"]: item.name for item in fields(config.Config)}
# Variables that tinygrad programs read or set and that change nothing here.
WITHOUT_EFFECT = {
    **dict.fromkeys(("ALLOW_TF32", "CAPTURING", "CCACHE", "FLOAT16", "IMAGE", "LRU", "NOOPT"), 0),
    **dict.fromkeys(("NOLOCALS", "NO_COLOR", "RING", "SPEC", "SPLIT_REDUCEOP", "TC_OPT"), 0),
    **dict.fromkeys(("FUSE_OPTIM", "TRACEMETA", "TRANSCENDENTAL", "USE_TC", "WINO"), 0),
}
# Former names of devices, as environment variables.
_DEVICE_VARIABLES = ("GPU", "CL", "AMD", "NV", "CLANG")


def getenv(key: str, default: Value = 0) -> Value:
    """An environment variable as a value of the default's type."""
    text = os.environ.get(key)
    if text is None or default is None:
        return default if text is None else text
    return type(default)(int(text) if isinstance(default, bool) else text)


@final
class ContextVar:
    """A setting by name: kernelet's own where it has one, else the program's.

    >>> ContextVar("DEBUG", 0) < 9
    True
    """

    known: dict[str, ContextVar] = {}

    def __new__(cls, key: str, default_value: Value) -> ContextVar:
        """The one variable of that name."""
        if key not in cls.known:
            made = cls.known[key] = super().__new__(cls)
            made.key = key
            initial = getenv(key, default_value)
            made.own = contextvars.ContextVar(key, default=initial)
        return cls.known[key]

    key: str
    own: contextvars.ContextVar[Value]

    @property
    def value(self) -> Value:
        """The value that holds now."""
        setting = SETTINGS.get(self.key)
        return self.own.get() if setting is None else getattr(config.current(), setting)

    @value.setter
    def value(self, value: Value) -> None:
        if self.key in SETTINGS:
            config.update(**{self.key: value})
        else:
            self.own.set(value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return bool(self.value == other)

    def __lt__(self, other: Value) -> bool:
        return bool(self.value < other)

    def __gt__(self, other: Value) -> bool:
        return bool(self.value > other)

    def __le__(self, other: Value) -> bool:
        return bool(self.value <= other)

    def __ge__(self, other: Value) -> bool:
        return bool(self.value >= other)

    def __repr__(self) -> str:
        return f"ContextVar({self.key}={self.value!r})"


@final
class Context(contextlib.ContextDecorator):
    """Values that variables have inside a `with` block or a decorated function."""

    def __init__(self, **changes: Value) -> None:
        self._own = {name: value for name, value in changes.items() if self._is_own(name)}
        rest = {name: value for name, value in changes.items() if name not in self._own}
        self._settings = config.Context(**rest)
        self._tokens: list[list[contextvars.Token[Value]]] = []

    def _is_own(self, name: str) -> bool:
        return name in ContextVar.known and name not in SETTINGS

    def __enter__(self) -> None:
        self._settings.__enter__()
        changed = [ContextVar.known[name].own.set(value) for name, value in self._own.items()]
        self._tokens.append(changed)

    def __exit__(self, *error: object) -> None:
        for token in self._tokens.pop():
            token.var.reset(token)
        self._settings.__exit__(*error)


_read = config.from_environment(os.environ)


def read_environment() -> None:
    """Take over what has changed in `os.environ` since kernelet was imported."""
    found = config.from_environment(os.environ)
    for name in SETTINGS.values():
        if getattr(found, name) != getattr(_read, name):
            config.update(**{name: getattr(found, name)})
    former = [name for name in _DEVICE_VARIABLES if getenv(name)]
    if former and not config.current().device:
        config.update(device=former[0])
    chosen = os.environ.get("DEFAULT_FLOAT")
    if chosen:
        dtypes.default_float = getattr(dtypes, chosen.lower())


VARIABLES = {
    **{name: ContextVar(name, None) for name in SETTINGS},
    **{name: ContextVar(name, default) for name, default in WITHOUT_EFFECT.items()},
}
globals().update(VARIABLES)
