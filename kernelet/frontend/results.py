"""What a captured function returns: tensors inside of nested Python values.

In:  the value that a call returned.
Out: its tensors, and the same value with others in their place.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kernelet import holdings
from kernelet.frontend.signature import Inputs, parts_of
from kernelet.frontend.tensor import Tensor
from kernelet.graph.uop import UOp
from kernelet.graph.walk import substitute, with_free_variables
from kernelet.launches import Given, Place
from kernelet.runtime.buffer import Buffer


@dataclass(frozen=True, slots=True)
class Slot:
    """Where the n-th of some tensors belongs."""

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

    def node(self, inputs: Inputs, given: Sequence[Given], leaves: dict[Place, UOp]) -> UOp:
        """The node in one call; results on the same memory share their leaf."""
        found = inputs.binds
        for param, place in self.memory:
            if isinstance(place, Kept):
                found[param] = place.current()
            elif given[place.number] in [part.given for part in inputs.parts]:
                found[param] = inputs.memory_node(place.number)
            else:
                if place not in leaves:
                    memory, _ = given[place.number]
                    leaves[place] = holdings.adopt(memory, param.arg.size, param.dtype)
                found[param] = leaves[place]
        return substitute(self.view, found)


def mapped(value: object, function: Callable[[object], object]) -> object:
    """A list, tuple, dict or dataclass with `function` of each part; anything else as it is."""
    parts = parts_of(value)
    if parts is None:
        return value
    found: dict[Any, Any] = {place: function(part) for place, part in parts.items()}
    if isinstance(value, list | tuple):
        if hasattr(value, "_fields"):
            return type(value)(*found.values())
        return [*found.values()] if isinstance(value, list) else tuple(found.values())
    other = copy.copy(value)
    if isinstance(other, dict):
        other.update(found)
    else:
        for name, part in found.items():
            object.__setattr__(other, name, part)
    return other


def for_each_tensor(value: object, function: Callable[[Tensor], object]) -> object:
    """A nested value with `function` of each tensor in place of it."""
    if isinstance(value, Tensor):
        return function(value)
    return mapped(value, lambda part: for_each_tensor(part, function))


def exchanged(value: object, others: Mapping[int, object]) -> object:
    """The value with others in place of the tensors with these ids."""
    return for_each_tensor(value, lambda tensor: others.get(id(tensor), tensor))


def filled(value: object, tensors: Sequence[Tensor], inputs: Inputs) -> object:
    """The value with tensors in the slots, and with the values that variables have now.

    Not a function inside of a function: one that calls itself is a cycle, and would keep the memory
    of each call until the garbage collector comes by.
    """
    if isinstance(value, Slot):
        return tensors[value.number]
    if isinstance(value, UOp):
        return substitute(with_free_variables(value), inputs.binds)
    return mapped(value, lambda part: filled(part, tensors, inputs))


def tensors_in(value: object) -> list[Tensor]:
    """The tensors in a returned value, as often as they are in it."""
    found: list[Tensor] = []
    for_each_tensor(value, found.append)
    return found
