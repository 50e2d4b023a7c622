"""Sizes that may be known at each launch only, and the device that a node is on."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, TypeVar, Union

from kernelet.graph.ops import Op

if TYPE_CHECKING:
    from kernelet.graph.uop import UOp

Dim = Union[int, "UOp"]
Shape = tuple[Dim, ...]
Placement = str | tuple[str, ...] | None
OrderKey = tuple[int, int, str, tuple["OrderKey", ...]]
Fact = TypeVar("Fact")


def kept(find: Callable[[UOp], Fact]) -> Callable[[UOp], Fact]:
    """A fact about nodes that is found once for each and kept with it."""
    name = find.__qualname__

    @wraps(find)
    def fact(node: UOp) -> Fact:
        known: dict[str, Fact] = node.cache
        if name not in known:
            known[name] = find(node)
        return known[name]

    return fact


@kept
def order_key(node: UOp) -> OrderKey:
    """A key that sorts the atoms of a sum by what they are, the same in every process."""
    kind, number, text = int(node.op), 0, ""
    if node.op is Op.RANGE:
        kind, number, text = 0, node.arg.number, node.arg.kind
    elif node.op is Op.CONST:
        number = node.arg
    elif node.op is Op.VARIABLE:
        text = node.arg.name
    return kind, number, text, tuple(order_key(source) for source in node.src)


def as_dim(index: UOp) -> Dim:
    """A size as a number where it is known."""
    low, high = index.bounds
    return int(low) if low == high else index


def max_dim(dim: Dim) -> int:
    """The greatest value that a size can have."""
    return dim if isinstance(dim, int) else int(dim.bounds.max)


def device_of(node: UOp) -> Placement:
    """The device that holds the value; several names if parts of it, or the whole, are on each.

    None where only constants are below.
    """
    op = node.op
    if op in (Op.BUFFER, Op.PARAM):
        return node.arg.device  # type: ignore[no-any-return]
    if op is Op.COPY or (op is Op.CONTIGUOUS and node.arg is not None):
        return node.arg if isinstance(node.arg, str | tuple) else node.arg.devices
    if op is Op.MULTI:
        return tuple([str(source.device) for source in node.src])
    found: Placement = None
    for source in node.src:
        device = source.device
        if isinstance(device, tuple):
            return device
        if found is None:
            found = device
    return found
