"""What a captured function returns: tensors inside of nested Python values.

In:  the value that a call returned.
Out: its tensors, and the same value with others in their place.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelet import holdings
from kernelet.base.dtype import DType
from kernelet.frontend.signature import Inputs
from kernelet.frontend.tensor import Tensor
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.graph.walk import apply_view, substitute
from kernelet.launches import Place
from kernelet.runtime.buffer import Buffer


@dataclass(frozen=True, slots=True)
class Argument:
    """A returned tensor that is the n-th input itself."""

    number: int


@dataclass(frozen=True, slots=True)
class Result:
    """A returned tensor: a view of the memory at `place`, or of memory that stays the same.

    `views` are the movements from the top down, with variables in place of bound ones; `base` was
    the node of the memory in the captured call.
    """

    place: Place | None
    views: tuple[UOp, ...]
    base: UOp | None
    buffer: Buffer | None
    size: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class Spread:
    """A returned tensor on several devices: what each has, and the axis along which it is cut."""

    parts: tuple[Result, ...]
    axis: int | None


def node_of_result(
    result: Result | Spread, inputs: Inputs, memory: Sequence[Buffer], leaves: dict[Place, UOp]
) -> UOp:
    """The node of a returned tensor in one call; results on the same memory share their leaf."""
    if isinstance(result, Spread):
        parts = [node_of_result(part, inputs, memory, leaves) for part in result.parts]
        return UOp(Op.MULTI, parts[0].dtype, tuple(parts), result.axis)
    place = result.place
    if place is None:
        assert result.base is not None
        assert result.buffer is not None
        leaf = result.base
        if holdings.memory_if_current(leaf) is None:
            leaf = holdings.node_over(result.buffer, result.size, result.dtype)
    elif place.number < len(inputs.parts):
        leaf = inputs.parts[place.number].memory_node
    else:
        if place not in leaves:
            leaves[place] = holdings.adopt(memory[place.number], result.size, result.dtype)
        leaf = leaves[place]
    node = apply_view(result.views, leaf)
    return substitute(node, inputs.binds) if inputs.variables else node


def held_elsewhere(results: Sequence[Tensor]) -> set[int]:
    """The ids of tensors that something else than this list and the returned value refers to."""
    times = Counter([id(tensor) for tensor in results])
    # One reference is the argument of getrefcount itself.
    return {
        id(results[n])
        for n in range(len(results))
        if sys.getrefcount(results[n]) > 2 * times[id(results[n])] + 1
    }


def mapped(value: object, function: Callable[[object], object]) -> object:
    """A list, tuple, dict or dataclass with `function` of each part; anything else as it is."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        parts: list[Any] = [function(part) for part in value]
        return type(value)(*parts)
    if isinstance(value, tuple):
        return tuple([function(part) for part in value])
    if isinstance(value, list):
        return [function(part) for part in value]
    if isinstance(value, dict):
        found = copy.copy(value)
        for name, part in value.items():
            found[name] = function(part)
        return found
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        other = copy.copy(value)
        for each in dataclasses.fields(value):
            object.__setattr__(other, each.name, function(getattr(value, each.name)))
        return other
    return value


def exchanged(value: object, others: Mapping[int, Tensor]) -> object:
    """The value with other tensors for those with these ids."""
    if isinstance(value, Tensor):
        return others.get(id(value), value)
    return mapped(value, lambda part: exchanged(part, others))


def tensors_in(value: object) -> list[Tensor]:
    """The tensors in a returned value, as often as they are in it."""
    if isinstance(value, Tensor):
        return [value]
    found: list[Tensor] = []

    def visit(part: object) -> object:
        found.extend(tensors_in(part))
        return part

    mapped(value, visit)
    return found
