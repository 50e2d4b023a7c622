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
from typing import Any, NamedTuple

from kernelet import holdings
from kernelet.frontend.signature import Inputs
from kernelet.frontend.tensor import Tensor
from kernelet.graph.uop import UOp
from kernelet.graph.walk import substitute
from kernelet.launches import Place
from kernelet.runtime.buffer import Buffer


@dataclass(frozen=True, slots=True)
class Argument:
    """A returned tensor that is the n-th input itself."""

    number: int


class Kept(NamedTuple):
    """Memory that stays the same, and its node in the captured call."""

    buffer: Buffer
    node: UOp

    def current(self) -> UOp:
        """The node that stands for it now."""
        if holdings.memories.get(self.node) is not None:
            return self.node
        return holdings.node_over(self.buffer, self.node.arg.size, self.node.dtype)


@dataclass(frozen=True, slots=True)
class Result:
    """A returned tensor: `view` has a PARAM in place of each memory, variables of bound ones.

    `memory` says where a replay finds what each of these PARAMs stands for.
    """

    view: UOp
    memory: tuple[tuple[UOp, Place | Kept], ...]

    def node(self, inputs: Inputs, given: Sequence[Buffer], leaves: dict[Place, UOp]) -> UOp:
        """The node in one call; results on the same memory share their leaf."""
        found = inputs.binds
        for param, place in self.memory:
            if isinstance(place, Kept):
                found[param] = place.current()
            elif place.number < len(inputs.parts):
                found[param] = inputs.parts[place.number].memory_node
            else:
                if place not in leaves:
                    memory = given[place.number]
                    leaves[place] = holdings.adopt(memory, param.arg.size, param.dtype)
                found[param] = leaves[place]
        return substitute(self.view, found)


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
