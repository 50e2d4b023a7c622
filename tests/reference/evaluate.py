"""The reference evaluator: what a graph means, in plain Python; the oracle of every test.

In:  nodes, and values for the leaves that hold data.
Out: each value as the flat list of its elements in row-major order.

Every result is rounded to its dtype; a float reduction adds up in double and rounds once.
Nothing here is fast, and nothing here shares code with the compiler.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence

from kernelet.base.dtype import (
    FORMATS,
    DType,
    Scalar,
    dtypes,
    float_from_bits,
    float_to_bits,
    round_to,
)
from kernelet.base.errors import InternalError
from kernelet.graph.infer import Dim
from kernelet.graph.ops import ELEMENTWISE, MOVEMENT, OP_TABLE, Op
from kernelet.graph.show import show
from kernelet.graph.uop import UOp

Values = list[Scalar]
Bindings = Mapping[UOp, Sequence[Scalar] | Scalar]

_SAME_VALUE = frozenset({Op.CONTIGUOUS, Op.DETACH, Op.FUNCTION, Op.COPY})


def evaluate(node: UOp, bindings: Bindings | None = None) -> Values:
    """The elements of `node`, given those of the BUFFER, PARAM, VARIABLE and RANGE nodes below.

    Any node may be given a value: what is below it is then not looked at.

    >>> n = UOp.variable("n", 0, 9)
    >>> evaluate(n * 2 + 1, {n: 3})
    [7]
    """
    return evaluate_all((node,), bindings)[0]


def evaluate_all(nodes: Iterable[UOp], bindings: Bindings | None = None) -> list[Values]:
    """`evaluate` for several nodes, with common work done once."""
    evaluator = Evaluator(bindings or {})
    return [evaluator.value(node) for node in nodes]


class Evaluator:
    """Values found so far, for one set of bindings."""

    def __init__(self, bindings: Bindings) -> None:
        self.known: dict[UOp, Values] = {
            node: round_all(node.dtype, list(value) if isinstance(value, Sequence) else [value])
            for node, value in bindings.items()
        }

    def value(self, root: UOp) -> Values:
        """The elements of `root`; on a stack of its own, for graphs may be deep."""
        known = self.known
        stack = [root]
        while stack:
            node = stack[-1]
            if node in known:
                stack.pop()
                continue
            missing = [source for source in self._needed(node) if source not in known]
            if missing:
                stack.extend(reversed(missing))
                continue
            known[node] = self._compute(node)
            stack.pop()
        return known[root]

    @staticmethod
    def _needed(node: UOp) -> tuple[UOp, ...]:
        if node.op is Op.BIND:
            return (node.src[1],)
        return node.src[1:] if node.op is Op.ASSIGN else node.src

    def _compute(self, node: UOp) -> Values:
        op = node.op
        sources = [self.known[source] for source in self._needed(node)]
        if op is Op.CONST:
            return [node.arg] * node.dtype.lanes
        if op is Op.ARANGE:
            return list(range(self._size(node.arg[0])))
        if op in ELEMENTWISE:
            return elementwise(node, sources)
        if op in MOVEMENT:
            return self._move(node, sources[0])
        if op is Op.GATHER:
            return self._gather(node, *sources)
        if op is Op.REDUCE:
            return self._reduce(node, sources[0])
        if op in _SAME_VALUE or op in (Op.BIND, Op.ASSIGN):
            return sources[0]
        if op is Op.MULTI:
            return self._join(node, sources)
        if op is Op.AFTER:
            return self._write(node, sources)
        if op is Op.VECTORIZE:
            return [source[0] for source in sources]
        if op is Op.EXTRACT:
            return [sources[0][node.arg]]
        found = "has no value given for it" if not node.src else "is not a value over a tensor"
        raise InternalError(f"evaluate: {op.name} {found}; bind it or a node above:\n{show(node)}")

    def _join(self, node: UOp, parts: Sequence[Values]) -> Values:
        if node.arg is None:
            return list(parts[0])
        lead = math.prod(self._sizes(node.shape[: node.arg]))
        rows = [
            [part[n * len(part) // lead :][: len(part) // lead] for part in parts]
            for n in range(lead)
        ]
        return [value for row in rows for piece in row for value in piece]

    def _size(self, dim: Dim) -> int:
        return dim if isinstance(dim, int) else int(self.value(dim)[0])

    def _sizes(self, shape: Iterable[Dim]) -> list[int]:
        return [self._size(dim) for dim in shape]

    def _move(self, node: UOp, values: Sequence[Scalar]) -> Values:
        op, arg = node.op, node.arg
        shape = self._sizes(node.src[0].shape)
        if op is Op.RESHAPE:
            sizes = self._sizes(arg)
            if math.prod(sizes) != len(values):
                raise InternalError(f"evaluate: {len(values)} elements as {sizes}:\n{show(node)}")
            return list(values)
        strides = row_major(shape)
        if op is Op.PAD:
            pads = [(self._size(before), self._size(after)) for before, after in arg]
            return _pad(values, shape, pads, round_to(node.dtype, 0))
        start = 0
        if op is Op.PERMUTE:
            shape, strides = [shape[axis] for axis in arg], [strides[axis] for axis in arg]
        elif op is Op.EXPAND:
            sizes = self._sizes(arg)
            pairs = zip(shape, sizes, strides, strict=True)
            strides = [stride if old == size else 0 for old, size, stride in pairs]
            shape = sizes
        elif op is Op.SHRINK:
            ends = [(self._size(begin), self._size(end)) for begin, end in arg]
            start = sum(begin * stride for (begin, _), stride in zip(ends, strides, strict=True))
            shape = [end - begin for begin, end in ends]
        elif op is Op.FLIP:
            start = sum((shape[axis] - 1) * strides[axis] for axis in arg)
            strides = [-stride if axis in arg else stride for axis, stride in enumerate(strides)]
        return [values[index] for index in _positions(shape, strides, start)]

    def _gather(self, node: UOp, values: Values, picks: Values) -> Values:
        shape, axis = self._sizes(node.src[0].shape), node.arg
        strides = row_major(shape)
        kept = [0 if a == axis else stride for a, stride in enumerate(strides)]
        places = _positions(self._sizes(node.shape), kept, 0)
        size, stride, nothing = shape[axis], strides[axis], round_to(node.dtype, 0)
        return [
            values[place + int(pick) * stride] if 0 <= pick < size else nothing
            for place, pick in zip(places, picks, strict=True)
        ]

    def _reduce(self, node: UOp, values: Values) -> Values:
        shape = self._sizes(node.src[0].shape)
        axes, dtype = node.arg.axes, node.dtype
        kept = row_major([1 if axis in axes else size for axis, size in enumerate(shape)])
        strides = [0 if axis in axes else stride for axis, stride in enumerate(kept)]
        count = math.prod(size for axis, size in enumerate(shape) if axis not in axes)
        first = dtype.min if node.arg.op is Op.MAX else OP_TABLE[node.arg.op].identity
        combine = OP_TABLE[node.arg.op].meaning
        totals: Values = [first if first is not None else 0] * count
        for index, value in zip(_positions(shape, strides, 0), values, strict=True):
            totals[index] = combine(totals[index], value)
        return round_all(dtype, totals)

    def _write(self, node: UOp, sources: Sequence[Values]) -> Values:
        written = list(sources[0])
        for assign, values in zip(node.src[1:], sources[1:], strict=True):
            chain = []
            view = assign.src[0]
            while view.op in MOVEMENT and view.op is not Op.PAD:
                chain.append(view)
                view = view.src[0]
            if storage_of(view) is not storage_of(node):
                raise InternalError(
                    f"evaluate: a write to other storage than AFTER's:\n{show(node)}"
                )
            positions: Sequence[Scalar] = range(len(written))
            for step in reversed(chain):
                positions = self._move(step, positions)
            for position, value in zip(positions, values, strict=True):
                written[int(position)] = value
        return written


def storage_of(node: UOp) -> UOp:
    """The node whose memory a chain of AFTER nodes writes to."""
    while node.op is Op.AFTER:
        node = node.src[0]
    return node


def elementwise(node: UOp, sources: Sequence[Sequence[Scalar]]) -> Values:
    """The elements of an elementwise node, given those of its sources."""
    if node.op is Op.BITCAST:
        return [_bitcast(node.src[0].dtype, node.dtype, value) for value in sources[0]]
    meaning: Callable[..., Scalar] = OP_TABLE[node.op].meaning
    if len({len(source) for source in sources}) > 1:
        raise InternalError(f"evaluate: {node.op.name} of unequal shapes:\n{show(node)}")
    return round_all(node.dtype, list(map(meaning, *sources)))


def round_all(dtype: DType, values: Values) -> Values:
    """Each value as an element of `dtype` holds it."""
    single = dtype.scalar is dtypes.float32 and all(isinstance(value, float) for value in values)
    if single or dtype.is_integer:
        layout = f"<{len(values)}{dtype.code}"
        try:
            return list(struct.unpack(layout, struct.pack(layout, *values)))
        except (OverflowError, struct.error):  # one is out of range, or not a whole number
            pass
    return [round_to(dtype, value) for value in values]


def row_major(shape: Sequence[int]) -> list[int]:
    """How many elements apart two neighbours of each axis are."""
    strides = [1] * len(shape)
    for axis in reversed(range(len(shape) - 1)):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return strides


def _positions(shape: Sequence[int], strides: Sequence[int], start: int) -> list[int]:
    positions = [start]
    for size, stride in zip(shape, strides, strict=True):
        steps = [step * stride for step in range(size)]
        positions = [position + step for position in positions for step in steps]
    return positions


def _pad(
    values: Sequence[Scalar], shape: Sequence[int], pads: Sequence[tuple[int, int]], fill: Scalar
) -> Values:
    grown = [size + before + after for size, (before, after) in zip(shape, pads, strict=True)]
    strides = row_major(grown)
    start = sum(before * stride for (before, _), stride in zip(pads, strides, strict=True))
    result = [fill] * math.prod(grown)
    for position, value in zip(_positions(shape, strides, start), values, strict=True):
        result[position] = value
    return result


def _bitcast(old: DType, new: DType, value: Scalar) -> Scalar:
    raw = struct.pack(f"<{old.code}", float_to_bits(old, value) if old.name in FORMATS else value)
    found: Scalar = struct.unpack(f"<{new.code}", raw)[0]
    return float_from_bits(new, int(found)) if new.name in FORMATS else found
