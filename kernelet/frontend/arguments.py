"""Arguments are of the kinds that signatures name: one check, before every public method.

In:  functions, whose annotations say what each argument may be.
Out: the same functions, which refuse all else by name, get Python's numbers in place of others, and
     know the arguments by the names that other libraries give them.

What a type alone decides is decided once: a call costs one look into a set for each argument. What
every method hands on to one place (operands, axes, shapes, dtypes, devices) is checked there.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
import re
import reprlib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from kernelet.base.errors import ArgumentError

# Numbers from one to another.
Size = Annotated[int, 0, math.inf]
Count = Annotated[int, 1, math.inf]
Share = Annotated[float, 0, 1]
Positive = Annotated[float, 5e-324, math.inf]

_CHECKED_INSIDE = (
    *("Self | Scalar", "Self | Scalar | None", "Axes", "Dim | Sequence[Dim]"),
    *("DTypeLike", "DeviceLike", "object", inspect.Parameter.empty),
)
_OTHER_NAMES = (
    *(("dim", "axis"), ("axis", "dim"), ("keepdims", "keepdim"), ("acc_dtype", "dtype")),
    *(("min_", "min"), ("max_", "max"), ("neg_slope", "negative_slope"), ("sorted", "sorted_")),
)
_WORDS = (
    *((r"[a-z_.]+\.(?=[A-Za-z])", ""), ("Self", "Tensor")),
    (r"Annotated\[(\w+), (\S+), inf\]", r"\1 of at least \2"),
    (r"Annotated\[(\w+), (\S+), (\S+)\]", r"\1 from \2 to \3"),
    (r"Literal\[([^]]*)\]", r"one of \1"),
)
_CALLS = ("__init__", "__call__")
ClassT = TypeVar("ClassT", bound=type)


class Checked:
    """Whose public methods check their arguments, and whose instances are what `Self` means.

    Users' own subclasses are not checked: their annotations may mean anything.
    """

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        if cls.__module__.startswith("kernelet."):
            check_arguments(cls)


def check_arguments(owner: ClassT) -> ClassT:
    """Let the public methods, the constructor and the call of a class check their arguments."""
    for name, member in list(vars(owner).items()):
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if isinstance(function, types.FunctionType) and (name[0] != "_" or name in _CALLS):
            wrapped = checked(function)
            setattr(owner, name, wrapped if member is function else type(member)(wrapped))
    return owner


@functools.cache
def checked(function: types.FunctionType) -> types.FunctionType:
    """The function, with a check of its arguments before it."""
    parameters = inspect.signature(function).parameters
    ours = {a: b for a, b in _OTHER_NAMES if b in parameters and a not in parameters}
    if not ours and all(each.annotation in _CHECKED_INSIDE for each in parameters.values()):
        return function
    places = [each.name for each in parameters.values() if each.kind < each.KEYWORD_ONLY]
    are_many = any(each.kind is each.VAR_POSITIONAL for each in parameters.values())
    # For types of arguments that fit, whatever their values are: our names of the named ones.
    plans: dict[tuple[object, ...], list[str]] = {}

    def call(*_given: object, **named: object) -> object:
        key = (*map(type, _given), *named, *map(type, named.values()))
        names = plans.get(key)
        if names is None:
            names = [name if ours.get(name, name) in named else ours[name] for name in named]
            more = [places[-1]] * (len(_given) - len(places)) if are_many else []
            pairs = [*zip([*places, *more], _given, strict=False)]
            pairs += zip(names, named.values(), strict=True)
            fitted = [_fitted_argument(function, *pair) for pair in pairs]
            if all(is_decided for _, is_decided in fitted):
                plans[key] = names
            values = [value for value, _ in fitted]
            count = len(values) - len(names)
            _given = (*values[:count], *_given[count:])
            named = dict(zip(names, values[count:], strict=True))
        elif names:
            named = dict(zip(names, named.values(), strict=True))
        return function(*_given, **named)

    # Messages and profiles show the name of the function.
    call.__code__ = call.__code__.replace(co_name=function.__name__)
    return functools.update_wrapper(call, function)  # type: ignore[return-value]


def _fitted_argument(function: types.FunctionType, name: str, value: object) -> tuple[object, bool]:
    """`value`, or the plain form of it, and whether all of its type fit; else ArgumentError."""
    kinds = _kinds(function)
    kind = kinds.get(name, kinds.get("**"))
    if kind is None:
        raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}")
    try:
        found = _fitted(value, kind)
    except TypeError:
        call = "" if function.__name__ in _CALLS else f"{function.__name__}: "
        text = kind.__name__ if isinstance(kind, type) else str(kind)
        for pattern, words in _WORDS:
            text = re.sub(pattern, words, text)
        raise ArgumentError(
            f"{call}{name}={reprlib.repr(value)}, which is of type {type(value).__name__}, does "
            f"not fit. Give {text}."
        ) from None
    is_whole = found is value and (isinstance(value, Checked) or not isinstance(value, Iterable))
    return found, kind is object or (is_whole and not _looks_at_values(kind))


@functools.cache
def _looks_at_values(kind: object) -> bool:
    return "Annotated" in str(kind) or "Literal" in str(kind)


@functools.cache
def _kinds(function: types.FunctionType) -> dict[str, object]:
    """What each argument may be; under "**" what those may be that the signature does not name."""
    try:
        kinds: dict[str, object] = typing.get_type_hints(function, include_extras=True)
    except NameError:  # a type that only type checkers import
        kinds = {"**": object}
    for name, each in inspect.signature(function).parameters.items():
        if each.annotation in _CHECKED_INSIDE:
            kinds[name] = object
        elif typing.get_origin(kinds.get(name)) is typing.Unpack:
            options = typing.get_args(kinds[name])[0]
            kinds |= typing.get_type_hints(options, include_extras=True)
        elif each.kind is each.VAR_KEYWORD:
            kinds["**"] = kinds[name]
    return kinds


def _fitted(value: Any, kind: Any) -> object:  # noqa: ANN401
    """`value` as that kind; TypeError when it is of another."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is not object and not isinstance(value, Checked) and getattr(value, "shape", 0) == ():
        value = value.item() if hasattr(value, "item") else value  # a number of numpy's
    if origin in (typing.Union, types.UnionType):
        if type(value) in parts:
            return value  # 0 is no bool where whole numbers fit too
        for part in parts:
            try:
                return _fitted(value, part)
            except TypeError:
                continue
        raise TypeError
    if isinstance(origin, type) and issubclass(origin, Iterable) and origin is not Mapping:
        return _each_fitted(value, parts)
    if origin is Annotated:
        value = _fitted(value, parts[0])
        fits = isinstance(value, Checked) or parts[1] <= value <= parts[2]  # tensors stay lazy
    elif origin is Literal or kind is bool:
        fits = isinstance(value, str | int | None) and value in (parts or (False, True))
        value = bool(value) if fits and kind is bool else value
    elif kind is float:
        fits = isinstance(value, int | float | Checked)
    else:
        expected = Checked if kind is typing.Self else origin or kind
        fits = not isinstance(expected, type) or isinstance(value, expected)
    if not fits:
        raise TypeError
    return value


def _each_fitted(values: Iterable[object], kinds: tuple[object, ...]) -> Iterable[object]:
    """The values, each fitted to the one kind, or to the kind at its place."""
    items = [] if isinstance(values, str | bytes | Mapping | Checked) else list(values)
    kinds = kinds * len(items) if len(kinds) == 1 else kinds
    found = tuple(_fitted(*pair) for pair in zip(items, kinds, strict=False))
    if len(items) != len(kinds) or isinstance(values, str | bytes | Mapping | Checked):
        raise TypeError
    is_same = isinstance(values, Sequence) and all(map(operator.is_, found, items))
    return values if is_same else found
