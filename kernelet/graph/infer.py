"""Shape and device of a node, from its op, its payload and its sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Union

from kernelet.graph.ops import ELEMENTWISE, Op

if TYPE_CHECKING:
    from kernelet.graph.uop import UOp

Dim = Union[int, "UOp"]
Shape = tuple[Dim, ...]
Placement = str | tuple[str, ...] | None
OrderKey = tuple[int, int, str, tuple["OrderKey", ...]]

_SAME_SHAPE = frozenset(
    {Op.FLIP, Op.CONTIGUOUS, Op.DETACH, Op.FUNCTION, Op.COPY, Op.ASSIGN, Op.AFTER}
)


def shape_of(node: UOp) -> Shape:
    """The sizes of the axes of a tensor-level node; () for all others."""
    op = node.op
    if op in ELEMENTWISE:
        # A kernel-level scalar has shape (): the longest shape among the sources is the shape.
        return max((source.shape for source in node.src), key=len)
    if op in (Op.RESHAPE, Op.EXPAND, Op.ARANGE):
        return node.arg  # type: ignore[no-any-return]
    if op in _SAME_SHAPE:
        return node.src[0].shape
    if op is Op.PERMUTE:
        shape = node.src[0].shape
        return tuple(shape[axis] for axis in node.arg)
    if op is Op.PAD:
        pads = zip(node.src[0].shape, node.arg, strict=True)
        return tuple(grow_dim(dim, before + after) for dim, (before, after) in pads)
    if op is Op.SHRINK:
        return tuple(grow_dim(end, 0 if begin == 0 else -begin) for begin, end in node.arg)
    if op is Op.GATHER:
        return node.src[1].shape
    if op is Op.MULTI:
        rows = enumerate(zip(*[source.shape for source in node.src], strict=True))
        return tuple(sum(dims) if axis == node.arg else dims[0] for axis, dims in rows)
    if op is Op.REDUCE:
        axes = node.arg.axes
        return tuple(1 if axis in axes else dim for axis, dim in enumerate(node.src[0].shape))
    if op in (Op.BUFFER, Op.PARAM):
        return (node.arg.size,)
    return ()


def grow_dim(dim: Dim, amount: Dim) -> Dim:
    """`dim + amount`, a number where that is known; in the normal form of `division.py`.

    (p + 1) - p -> 1
    """
    if isinstance(dim, int) and isinstance(amount, int):
        return dim + amount
    coefficients: dict[UOp, int] = {}
    constant = _collect(dim, 1, coefficients) + _collect(amount, 1, coefficients)
    total: Dim = constant
    atoms = sorted((atom for atom, factor in coefficients.items() if factor), key=order_key)
    for place, atom in enumerate(atoms):
        factor = coefficients[atom]
        term = atom if factor == 1 else atom * factor
        total = total + term if place else term
    if not atoms:
        return constant
    total = total + constant if constant else total
    low, high = total.bounds  # type: ignore[union-attr]
    return int(low) if low == high else total


def _collect(dim: Dim, factor: int, coefficients: dict[UOp, int]) -> int:
    """Add `dim * factor` to the coefficients of its atoms; the constant part is returned."""
    if isinstance(dim, int):
        return dim * factor
    if dim.op is Op.CONST:
        return int(dim.arg) * factor
    if dim.op is Op.NEG:
        return _collect(dim.src[0], -factor, coefficients)
    if dim.op is Op.ADD:
        left, right = dim.src
        return _collect(left, factor, coefficients) + _collect(right, factor, coefficients)
    if dim.op is Op.MUL and dim.src[1].op is Op.CONST:
        return _collect(dim.src[0], factor * int(dim.src[1].arg), coefficients)
    coefficients[dim] = coefficients.get(dim, 0) + factor
    return 0


def order_key(node: UOp) -> OrderKey:
    """A key that sorts the atoms of a sum by what they are, the same in every process."""
    key = node.cache.get("order")
    if key is None:
        number, text = 0, ""
        if node.op is Op.RANGE:
            number = node.arg.number
        elif node.op is Op.CONST:
            number = node.arg
        elif node.op is Op.VARIABLE:
            text = node.arg.name
        key = (int(node.op), number, text, tuple(order_key(source) for source in node.src))
        if node.op is Op.RANGE:
            key = (0, number, node.arg.kind, key[3])
        node.cache["order"] = key
    return key


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
    if op is Op.COPY:
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
