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
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from kernelet.base.errors import ArgumentError

# Numbers from one to another; in messages they are called as the last item says.
Size = Annotated[int, 0, math.inf, "of at least 0"]
Count = Annotated[int, 1, math.inf, "of at least 1"]
Share = Annotated[float, 0, 1, "from 0 to 1"]
Positive = Annotated[float, 5e-324, math.inf, "above 0"]

_CHECKED_INSIDE = (
    *("Self | Scalar", "Self | Scalar | None", "Axes", "Dims"),
    *("DTypeLike", "DeviceLike", "object", inspect.Parameter.empty),
)
# Theirs and ours.
_OTHER_NAMES = re.findall(
    r"(\w+)=(\w+)",
    "dim=axis axis=dim dims=axis dims=order dims=repeats size=shape pad=padding n=rows m=columns "
    "end=stop value=src split_size=sizes split_size_or_sections=sizes keepdims=keepdim "
    "ddof=correction ord=p acc_dtype=dtype min_=min max_=max neg_slope=negative_slope "
    "sorted=sorted_ mat1=left mat2=right mat2=other vec=vector vec2=other tensor1=first "
    "tensor2=second batch1=left batch2=right equation=formula num_embeddings=vocab_size "
    "embedding_dim=embed_size unbiased=correction T_0=length x=other x=exponent",
)
_CALLS = ("__init__", "__call__")
ClassT = TypeVar("ClassT", bound=type)
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


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
            wrapped = checked(function, name)
            setattr(owner, name, wrapped if member is function else type(member)(wrapped))
    return owner


def checked(function: FunctionT, name: str | None = None) -> FunctionT:
    """The function, with a check of its arguments before it; errors call it by that name."""
    parameters = inspect.signature(function).parameters.values()
    known = [each.name for each in parameters]
    ours = {a: b for a, b in _OTHER_NAMES if b in known and a not in known}
    is_inside = all(each.annotation in _CHECKED_INSIDE for each in parameters)
    if not ours and is_inside:
        return function
    *path, last = function.__qualname__.split(".")
    shown = path[-1] if last in _CALLS else name or last
    places = [each.name for each in parameters if each.kind < each.KEYWORD_ONLY]
    many = [each.name for each in parameters if each.kind is each.VAR_POSITIONAL]
    # For types of arguments that fit, whatever their values are: our names of the named ones.
    plans: dict[tuple[object, ...], list[str]] = {}

    def call(*_given: object, **named: object) -> object:
        if is_inside and not named:
            return function(*_given)
        key = (*map(type, _given), *named, *map(type, named.values()))
        names = plans.get(key)
        if names is None:
            names = [ours.get(each, each) for each in named]
            more = many * (len(_given) - len(places))
            pairs = [*zip([*places, *more], _given, strict=False)]
            pairs += zip(names, named.values(), strict=True)
            fitted = [_fitted_argument(function, shown, *pair) for pair in pairs]
            if len(set(names)) < len(names):
                raise TypeError(f"{shown}() got {list(named)}, two of which are one.")
            if all(is_decided for _, is_decided in fitted):
                plans[key] = names
            values = [value for value, _ in fitted]
            count = len(values) - len(names)
            _given = (*values[:count], *_given[count:])
            named = dict(zip(names, values[count:], strict=True))
        elif names:
            named = dict(zip(names, named.values(), strict=True))
        if many and many[0] in named:
            _given = (*_given, named.pop(many[0]))
        return function(*_given, **named)

    wrapper = functools.update_wrapper(call, function)
    # Messages and profiles show the name of the function.
    call.__code__ = call.__code__.replace(co_name=name or function.__name__)
    function.__qualname__ = shown if path else last
    return wrapper  # type: ignore[return-value]


def _fitted_argument(
    function: Callable[..., Any], call: str, name: str, value: object
) -> tuple[object, bool]:
    """`value`, or the plain form of it, and whether all of its type fit; else ArgumentError."""
    kinds = _kinds(function)
    kind = kinds.get(name, kinds.get("**"))
    if kind is None:
        known = [each for each in kinds if each not in ("self", "cls", "return")]
        raise TypeError(
            f"{call}() got an unexpected keyword argument {name!r}. It takes {', '.join(known)}."
        )
    try:
        found = _fitted(value, kind)
    except TypeError:
        call = "" if function.__name__ in _CALLS else f"{call}: "
        raise ArgumentError(
            f"{call}{name}={reprlib.repr(value)}, which is of type {type(value).__name__}, does "
            f"not fit. Give {_words(kind)}."
        ) from None
    is_whole = found is value and (isinstance(value, Checked) or not isinstance(value, Iterable))
    return found, kind is object or (is_whole and not _looks_at_values(kind))


def _words(kind: Any) -> str:  # noqa: ANN401
    """What an argument may be, as it is written in messages."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(_words, parts))
    if origin is Annotated:
        return f"{_words(parts[0])} {parts[-1]}"
    if origin is Literal:
        return f"one of {', '.join(map(repr, parts))}"
    if origin is not None:
        return f"{origin.__name__}[{', '.join(map(_words, parts))}]"
    name = getattr(kind, "__name__", "...")
    return {"Self": "Tensor", "NoneType": "None"}.get(name, name)


@functools.cache
def _looks_at_values(kind: object) -> bool:
    return "Annotated" in str(kind) or "Literal" in str(kind)


@functools.cache
def _kinds(function: Callable[..., Any]) -> dict[str, object]:
    """What each argument may be; under "**" what those may be that the signature does not name."""
    try:
        kinds: dict[str, object] = typing.get_type_hints(function, include_extras=True)
    except NameError:  # a type that only type checkers import
        kinds = {"**": object}
    for name, each in inspect.signature(function).parameters.items():
        if each.annotation in _CHECKED_INSIDE:
            kinds[name] = object
        elif typing.get_origin(kinds.get(name)) is typing.Unpack:
            options = typing.get_args(kinds.pop(name))[0]
            kinds |= typing.get_type_hints(options, include_extras=True)
            marks = {name: mark.__forward_arg__ for name, mark in options.__annotations__.items()}
            kinds |= {name: object for name, mark in marks.items() if mark in _CHECKED_INSIDE}
        elif each.kind is each.VAR_KEYWORD:
            kinds["**"] = kinds[name]
    return kinds


def listed(value: object) -> tuple[Any, ...]:
    """The items of a list, an array or what else holds several; one thing alone, as a tensor is."""
    is_one = isinstance(value, str | bytes | Mapping | Checked) or getattr(value, "shape", 0) == ()
    return tuple(value) if isinstance(value, Iterable) and not is_one else (value,)


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
        is_lazy = isinstance(value, Checked)
        fits = is_lazy or len(parts) == 2 or parts[1] <= value <= parts[2]
    elif origin is Literal or kind is bool:
        fits = isinstance(value, str | int | None) and value in (parts or (False, True))
        value = bool(value) if fits and kind is bool else value
    elif kind is float:
        fits = isinstance(value, int | float | Checked)
    else:
        if kind is int and isinstance(value, float) and value.is_integer():
            value = int(value)
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
