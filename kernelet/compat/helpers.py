"""The small functions of `tinygrad.helpers`: numbers, lists, text.

In:  plain Python values.
Out: plain Python values.
"""

from __future__ import annotations

import functools
import operator
import os
import re
import sys
import tempfile
import textwrap
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from kernelet.base import helpers

Value = Any  # whatever a program has: numbers, symbols, nested lists
Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)

OSX, WIN = sys.platform == "darwin", sys.platform == "win32"

_COLORS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


# ---- numbers ----


def prod(values: Iterable[Value]) -> Value:
    """The product; 1 of nothing."""
    return functools.reduce(operator.mul, values, 1)


def round_down(number: int, amount: int) -> int:
    """The greatest multiple of `amount` that is not above `number`."""
    return number // amount * amount


def next_power2(number: int) -> int:
    """The least power of two that is not below `number`."""
    return 1 << max(number - 1, 0).bit_length()


def polyN(value: Value, coefficients: Sequence[float]) -> Value:
    """The polynomial with these coefficients, that of the highest power first.

    >>> polyN(2.0, [1, 2, 3])
    11.0
    """
    return functools.reduce(lambda total, each: total * value + each, coefficients, 0.0)


# ---- lists ----


def dedup(values: Iterable[Key]) -> list[Key]:
    """Each value once, in the order of first occurrence."""
    return list(dict.fromkeys(values))


def all_same(values: Sequence[object]) -> bool:
    """Whether all are equal to the first."""
    return all(each == values[0] for each in values)


def all_int(values: Sequence[object]) -> bool:
    """Whether all are plain integers."""
    return all(isinstance(each, int) for each in values)


def argfix(*values: Value) -> tuple[Value, ...]:
    """What a function with `*values` was given: the values, or one list of them."""
    if not values or not isinstance(values[0], tuple | list):
        return values
    if len(values) > 1:
        raise ValueError(f"bad arg {values}: give one list, or the values themselves")
    return tuple(values[0])


def make_tuple(value: int | Sequence[int], number: int) -> tuple[int, ...]:
    """One value `number` times, or the values as they are."""
    return (value,) * number if isinstance(value, int) else tuple(value)


def to_tuple(value: Value) -> tuple[Value, ...]:
    """A tuple as it is; anything else as a tuple of one."""
    return value if isinstance(value, tuple) else (value,)


def flatten(values: Iterable[Iterable[Item]]) -> list[Item]:
    """One level of nesting less."""
    return [each for part in values for each in part]


def _parts(value: Value) -> list[Value] | None:
    """What a list, a tuple or an array holds; None for anything else."""
    if isinstance(value, str) or not hasattr(value, "__len__") or getattr(value, "ndim", 1) == 0:
        return None
    return [value[at] for at in range(len(value))] if hasattr(value, "__getitem__") else None


def fully_flatten(value: Value) -> list[Value]:
    """All elements of nested lists, tuples and arrays; anything else as a list of one."""
    parts = _parts(value)
    return [value] if parts is None else flatten(map(fully_flatten, parts))


def get_shape(value: Value) -> tuple[int, ...]:
    """The sizes of nested lists; ValueError when they are ragged."""
    parts = _parts(value)
    if parts is None:
        return ()
    inner = dedup(map(get_shape, parts))
    if len(inner) > 1:
        raise ValueError(f"inhomogeneous shape from {value}: make all lists of one depth as long")
    return (len(parts), *(inner[0] if inner else ()))


def argsort(values: Value) -> Value:
    """The positions that sort `values`, in a list or a tuple as they are."""
    return type(values)(helpers.argsort(values))


def partition(
    values: Iterable[Item], test: Callable[[Item], object]
) -> tuple[list[Item], list[Item]]:
    """The values that pass the test, and the others."""
    passed: list[Item] = []
    others: list[Item] = []
    for each in values:
        (passed if test(each) else others).append(each)
    return passed, others


def merge_dicts(parts: Iterable[dict[Key, Item]]) -> dict[Key, Item]:
    """One dict of all; RuntimeError when a key has two values."""
    merged: dict[Key, Item] = {}
    for name, value in flatten(part.items() for part in parts):
        if merged.setdefault(name, value) != value:
            raise RuntimeError(
                f"merge_dicts: {name!r} contains different values for the same key: "
                f"{merged[name]!r} and {value!r}. Rename one of the keys."
            )
    return merged


def get_child(holder: Value, path: str) -> Value:
    """What hangs below `holder` at a dotted path of keys, positions and attributes."""
    for part in path.split("."):
        if part.isnumeric():
            holder = holder[int(part)]
        else:
            holder = holder[part] if isinstance(holder, dict) else getattr(holder, part)
    return holder


def unwrap(value: Item | None) -> Item:
    """The value, which is not None."""
    assert value is not None
    return value


def strides_for_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides; 0 for axes of one element."""
    return tuple(0 if dim == 1 else prod(shape[at + 1 :]) for at, dim in enumerate(shape))


# ---- text ----


def colored(text: object, color: str | None, background: bool = False) -> str:
    """Text that a terminal shows in a color; a name in capitals is the bright one."""
    if color is None or os.environ.get("NO_COLOR", "0") not in ("", "0"):
        return str(text)
    code = 30 + _COLORS.index(color.lower()) + 10 * background + 60 * color.isupper()
    return f"\x1b[{code}m{text}\x1b[0m"


def ansistrip(text: str) -> str:
    """Text without its colors."""
    return _ESCAPE.sub("", text)


def ansilen(text: str) -> int:
    """How many columns of a terminal the text takes."""
    return len(ansistrip(text))


def word_wrap(text: str, wrap: int = 80) -> str:
    """The text in lines of at most `wrap` columns."""
    return "\n".join("\n".join(textwrap.wrap(line, wrap)) for line in text.splitlines())


def pluralize(noun: str, number: int) -> str:
    """A number and its noun: "1 kernel", "2 kernels"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def size_to_str(size: int) -> str:
    """Bytes in the unit that suits them."""
    for power, unit in ((3, "GB"), (2, "MB"), (1, "KB")):
        if size >= 1024**power:
            return f"{size / 1024**power:.2f} {unit}"
    return f"{size} B"


def time_to_str(seconds: float, w: int = 8) -> str:
    """Seconds in the unit that suits them."""
    scale, unit = (1.0, "s ") if seconds > 10 else (1e3, "ms") if seconds > 0.01 else (1e6, "us")
    return f"{seconds * scale:{w}.2f}{unit}"


def temp(name: str, append_user: bool = False) -> str:
    """A path in the folder for temporary files."""
    user = f".{os.environ.get('USER', '')}" if append_user else ""
    return os.path.join(tempfile.gettempdir(), name + user)
