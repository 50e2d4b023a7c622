"""Where Python keeps things that a function can reach, and which have others in their place.

In:  functions and objects, which are followed through closures, global names, attributes and
     containers, a bounded number of them.
Out: the ways to what is sought, and what is found on them later.
"""

from __future__ import annotations

import functools
import gc
import operator
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

_MOST, _DEEPEST = 20_000, 200
# Our own classes whose objects hold what users give them.
_HOLDERS = ("kernelet.nn.", "kernelet.frontend.jit")
_FIELDS: dict[type, tuple[str, ...]] = {
    types.FunctionType: ("__closure__", "__defaults__", "__kwdefaults__", "__dict__"),
    types.MethodType: ("__self__", "__func__"),
    types.CellType: ("cell_contents",),
    functools.partial: ("func", "args", "keywords"),
    property: ("fget",),
}
_Get = Callable[[Any, Any], object]
# How a part of a value is got, by which name or number, what was there, and the ways on from it.
Way = tuple[_Get, Any, weakref.ref[Any] | None, "list[Way]"]


def ways_from(
    value: object, is_sought: Callable[[object], bool], seen: dict[int, object], depth: int = 0
) -> list[Way]:
    """The ways from a value to all that is sought, past what was `seen` already."""
    found: list[Way] = []
    for get, key in _steps_from(value) if depth < _DEEPEST else ():
        try:
            part = get(value, key)
        except Exception:  # an empty cell or slot, no such name, what a property raises
            continue
        if is_sought(part):
            found.append((get, key, weakref.ref(part), []))
        elif id(part) not in seen and len(seen) < _MOST and _is_followed(part):
            seen[id(part)] = part
            if further := ways_from(part, is_sought, seen, depth + 1):
                found.append((get, key, None, further))
    return found


def replaced(value: object, ways: list[Way]) -> Iterator[tuple[Any, object]]:
    """What is not in its place, None when it has died, and what is there."""
    for get, key, sought, further in ways:
        try:
            part = get(value, key)
        except Exception:  # there is nothing any longer
            part = None
        if sought is None:
            yield from replaced(part, further)
        elif (before := sought()) is not part or before is None:
            yield before, part


def _steps_from(value: object) -> Iterator[tuple[_Get, Any]]:
    if isinstance(value, list | tuple | deque | dict):
        keys = list(value) if isinstance(value, dict) else range(len(value))
        yield from ((operator.getitem, key) for key in keys[:_MOST])
    if isinstance(value, types.FunctionType):
        yield from ((_global, path) for path in _globals_of(value))
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    names = (*getattr(value, "__dict__", ()), *slots, "__class__", "__bases__")
    yield from ((getattr, name) for name in _FIELDS.get(type(value), names))


def _globals_of(function: types.FunctionType) -> Iterator[tuple[str, ...]]:
    """What the code of a function names: global variables, and those of modules."""
    space, code = function.__globals__, function.__code__
    names = {} if str(space.get("__name__")).startswith("kernelet.") else _names_in(code)
    for name in names:
        yield (name,)
        if isinstance(module := space.get(name), types.ModuleType):
            yield from ((name, each) for each in names if each in vars(module))


def _names_in(code: types.CodeType) -> dict[str, None]:
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return dict.fromkeys([*code.co_names, *(name for each in inner for name in _names_in(each))])


def _global(function: types.FunctionType, path: tuple[str, ...]) -> object:
    return functools.reduce(getattr, path[1:], function.__globals__[path[0]])


def _is_followed(value: object) -> bool:
    """Whether a user's things may be in a value: not in a number, a module, or our own machinery."""
    if type(value) in (types.ModuleType, *weakref.ProxyTypes) or not gc.is_tracked(value):
        return False
    module = str((value if isinstance(value, type) else type(value)).__module__)
    return module.startswith(_HOLDERS) or not module.startswith("kernelet.")
