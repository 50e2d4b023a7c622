"""What a model consists of, as a table.

In:  a model and the shape of what it is called with.
Out: a line for each of its layers: name, kind, shape of the result, number of parameters.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from types import FrameType

from kernelet.base.dtype import DType, dtypes
from kernelet.base.errors import ArgumentError
from kernelet.frontend.host import known_shape
from kernelet.frontend.primitives import show_shape
from kernelet.frontend.tensor import Tensor
from kernelet.nn.state import get_state_dict, parts


def summary(model: object, *shapes: tuple[int, ...] | Tensor, dtype: DType = dtypes.float32) -> str:
    """Call the model with zeros of these shapes, or like these tensors; computes nothing.

    >>> from kernelet import nn
    >>> print(nn.summary([nn.Linear(3, 4), Tensor.relu, nn.Linear(4, 2)], (5, 3)))
    layer  kind    result  parameters
    0      Linear  (5, 4)          16
    2      Linear  (5, 2)          10
    total                          26
    """
    results: dict[int, object] = {}

    def note(frame: FrameType, event: str, value: object) -> None:
        if event == "return" and frame.f_code.co_name == "__call__" and frame.f_code.co_varnames:
            results[id(frame.f_locals[frame.f_code.co_varnames[0]])] = value

    given = [
        each.zeros_like() if isinstance(each, Tensor) else Tensor.zeros(each, dtype=dtype)
        for each in shapes
    ]
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        _call(model, given)
    finally:
        sys.setprofile(before)
    rows = [("layer", "kind", "result", "parameters")]
    for name, layer in _layers(model, "", set()):
        kind, result = type(layer).__name__, _shown(results.get(id(layer)))
        rows.append((name or "model", kind, result, str(_count(layer))))
    rows.append(("total", "", "", str(_count(model))))
    wide = [max(len(row[at]) for row in rows) for at in range(4)]
    return "\n".join(
        f"{row[0]:{wide[0]}}  {row[1]:{wide[1]}}  {row[2]:{wide[2]}}  {row[3]:>{wide[3]}}"
        for row in rows
    )


def _call(model: object, given: list[Tensor]) -> None:
    if isinstance(model, list | tuple):
        given[0].sequential(list(model))
    elif callable(model):
        model(*given)
    else:
        raise ArgumentError(
            f"summary: a model of type {type(model).__name__} cannot be called. Give a layer, an "
            "object with __call__, or a list of layers."
        )


def _layers(holder: object, name: str, seen: set[int]) -> Iterator[tuple[str, object]]:
    """What holds parameters and can be called, with its name; what is inside comes after it."""
    if id(holder) in seen or not get_state_dict(holder) or isinstance(holder, Tensor):
        return
    seen.add(id(holder))
    if callable(holder):
        yield name, holder
    for key, value in parts(holder):
        yield from _layers(value, f"{name}.{key}".strip("."), seen)


def _count(model: object) -> int:
    """The number of trained elements, each once."""
    found = {id(each): each for each in get_state_dict(model).values()}
    trained = [each for each in found.values() if each.requires_grad is not False]
    return sum(math.prod(known_shape(each.shape)) for each in trained if each.dtype.is_float)


def _shown(result: object) -> str:
    if isinstance(result, Tensor):
        return show_shape(result.shape)
    if isinstance(result, list | tuple):
        return ", ".join(_shown(each) for each in result)
    return "" if result is None else type(result).__name__
