"""Turn unrolled loops into copies, and lanes into vector instructions.

In:  a BLOCK with loops of kind unroll and vector.
Out: the same program without them.

for l in 16 (vector): y[i + l] = x[i + l] * w[i]
->  y[i : i + 16] = x[i : i + 16] * (w[i], ..., w[i])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kernelet.base.dtype import DType, dtypes
from kernelet.base.errors import InternalError
from kernelet.graph.division import (
    ZERO,
    add_index,
    copies_of,
    index_const,
    substitute_index,
    terms_of,
    with_factored_maxima,
)
from kernelet.graph.ops import COMPARISONS, ELEMENTWISE, Op
from kernelet.graph.placement import ranges_in
from kernelet.graph.uop import UOp
from kernelet.lower.loops import stride_of, with_body
from kernelet.lower.statements import Statements
from kernelet.lower.turning import turn_stores

INT32_LIMIT = 1 << 31
NEAR_VECTORS = 4  # elements within so many vectors are picked from them, not read one by one


def expand_tiles(block: UOp) -> UOp:
    """The program with every loop of the register tile written out."""
    return UOp(Op.BLOCK, dtypes.void, tuple(turn_stores(_expand_all(block.src))))


def _expand_all(statements: Iterable[UOp]) -> Statements:
    return [part for statement in statements for part in _expand(statement)]


def _expand(statement: UOp) -> Statements:
    if statement.op is not Op.LOOP:
        return [statement]
    variable, *body = statement.src
    kind = variable.arg.kind
    if kind == "unroll":
        inner = _expand_all(body)
        copies = [copies_of(part, _steps(variable)) for part in inner]
        return [part for step in zip(*copies, strict=True) for part in step]
    if kind == "vector":
        return [_Vectorizer(variable).statement(part) for part in body]
    return [with_body(statement, turn_stores(_expand_all(body)))]


def _steps(variable: UOp) -> list[dict[UOp, UOp]]:
    """A loop variable at each iteration."""
    return [{variable: index_const(step)} for step in range(variable.src[0].arg)]


# ---- lanes ----


class _Vectorizer:
    """Rewrites the statements inside one vector loop."""

    def __init__(self, variable: UOp) -> None:
        self.variable = variable
        self.lanes: int = variable.src[0].arg
        self.steps = _steps(variable)
        self.done: dict[UOp, UOp] = {}
        self.varying: set[UOp] = set()

    def statement(self, statement: UOp) -> UOp:
        """The statement for all lanes at once."""
        for node in statement.toposort():
            if node in self.done:
                continue
            if node.dtype is dtypes.index and node.op is not Op.INDEX:
                if self.variable in ranges_in(node):
                    self.varying.add(node)
                continue
            if any(source in self.varying for source in node.src):
                self.varying.add(node)
                self.done[node] = self._vector(node)
            else:
                self.done[node] = node
        return self.done[statement]

    def _vector(self, node: UOp) -> UOp:
        op = node.op
        if op is Op.INDEX:
            return node
        if op is Op.LOAD:
            return self._load(node)
        if op is Op.STORE:
            return self._store(node)
        if op is Op.BLOCK:
            return node.replace(src=tuple(self.done[source] for source in node.src))
        if op is Op.CAST and node.src[0].dtype is dtypes.index:
            return self._index_vector(node.src[0], node.dtype)
        if op in COMPARISONS and node.src[0].dtype is dtypes.index:
            return self._compare_indices(node)
        if op in ELEMENTWISE:
            sources = tuple(self._spread(self.done[source]) for source in node.src)
            return UOp(op, node.dtype.vec(self.lanes), sources, node.arg)
        raise InternalError(f"lower: {op.name} has no vector form: {node!r}")

    def _spread(self, value: UOp) -> UOp:
        """A scalar in every lane."""
        if value.dtype.lanes == self.lanes:
            return value
        dtype = value.dtype.vec(self.lanes)
        # An inverse is spread as one, so that a product with it is seen to be a quotient.
        if value.op in (Op.CONST, Op.RECIPROCAL):
            return value.replace(dtype=dtype, src=tuple(map(self._spread, value.src)))
        return UOp(Op.VECTORIZE, dtype, (value,) * self.lanes)

    def _at_lane(self, node: UOp, lane: int) -> UOp:
        return substitute_index(node, self.steps[lane])

    def _index_vector(self, index: UOp, dtype: DType) -> UOp:
        """An index as a number in every lane: start + (0, stride, 2 * stride, ...)."""
        stride = stride_of(index, self.variable)
        wide = dtype if dtype.is_integer and dtype is not dtypes.index else dtypes.index
        if stride is None:
            lanes = tuple(self._at_lane(index, lane).cast(wide) for lane in range(self.lanes))
            return UOp(Op.VECTORIZE, wide.vec(self.lanes), lanes).cast(dtype.vec(self.lanes))
        start = self._at_lane(index, 0)
        first = UOp.const(start.arg, wide) if start.op is Op.CONST else start.cast(wide)
        steps = tuple(UOp.const(stride * lane, wide) for lane in range(self.lanes))
        vector = UOp(Op.VECTORIZE, wide.vec(self.lanes), steps)
        if start is not ZERO:
            vector = self._spread(first).alu(Op.ADD, vector)
        return vector.cast(dtype.vec(self.lanes))

    def _compare_indices(self, node: UOp) -> UOp:
        bounds = [limit for source in node.src for limit in source.bounds]
        narrow = all(-INT32_LIMIT <= limit < INT32_LIMIT for limit in bounds)
        dtype = dtypes.int32 if narrow else dtypes.index
        left, right = (self._index_vector(source, dtype) for source in node.src)
        return left.alu(node.op, right)

    def _load(self, node: UOp) -> UOp:
        memory, offset = node.src[0].src
        dtype = node.dtype.vec(self.lanes)
        if stride_of(offset, self.variable) != 1:
            lanes = copies_of(node, self.steps)
            place = UOp(Op.INDEX, dtypes.index, (memory, with_factored_maxima(offset)))
            exact = node.replace(src=(place, *node.src[1:]))
            picked = _picked_from_near(lanes if exact is node else copies_of(exact, self.steps))
            return UOp(Op.VECTORIZE, dtype, tuple(lanes)) if picked is None else picked
        start = UOp(Op.INDEX, dtypes.index, (memory, self._at_lane(offset, 0)))
        return UOp(Op.LOAD, dtype, (start, *(self.done[gate] for gate in node.src[1:])))

    def _store(self, node: UOp) -> UOp:
        memory, offset = node.src[0].src
        value = self._spread(self.done[node.src[1]])
        if stride_of(offset, self.variable) == 1:
            start = UOp(Op.INDEX, dtypes.index, (memory, self._at_lane(offset, 0)))
            return UOp(Op.STORE, dtypes.void, (start, value))
        stores = []
        for lane, place in enumerate(copies_of(node.src[0], self.steps)):
            part = UOp(Op.EXTRACT, value.dtype.scalar, (value,), lane)
            stores.append(UOp(Op.STORE, dtypes.void, (place, part)))
        return UOp(Op.BLOCK, dtypes.void, tuple(stores))


def _picked_from_near(loads: Sequence[UOp]) -> UOp | None:
    """Elements that lie near each other, as lanes of the few vectors that hold them all.

    (x[i], x[i + 2], x[i + 4], x[i + 6])  ->  a[0], a[2], b[1], b[3] of x[i : i + 4], x[i + 3 : i + 7]

    The vectors begin and end at elements that are read anyway, so no other memory is touched.
    """
    if any(load.op is not Op.LOAD or len(load.src) > 1 for load in loads):
        return None
    memory, first = loads[0].src[0].src
    places = [terms_of(load.src[0].src[1]) for load in loads]
    if memory.op is Op.SCRATCH:
        return None
    if any(place.coefficients != places[0].coefficients for place in places):
        return None
    offsets = [place.constant - places[0].constant for place in places]
    low, span = min(offsets), max(offsets) - min(offsets) + 1
    width = min(len(loads), 1 << span.bit_length() - 1)
    if width == 1 or span > NEAR_VECTORS * width:
        return None
    starts = [min(low + step, low + span - width) for step in range(0, span, width)]
    dtype = loads[0].dtype.vec(width)
    indices = [add_index(first, index_const(start)) for start in starts]
    addresses = [UOp(Op.INDEX, dtypes.index, (memory, index)) for index in indices]
    lanes = [((offset - low) // width, offset) for offset in offsets]
    return _picked(
        [UOp(Op.LOAD, dtype, (address,)) for address in addresses],
        [(vector, offset - starts[vector]) for vector, offset in lanes],
    )


def _picked(vectors: Sequence[UOp], lanes: Sequence[tuple[int, int]]) -> UOp:
    """Lanes (which vector, which of its lanes) of some vectors, of two vectors at a time."""
    if len(vectors) > 2:
        half = len(vectors) // 2
        low = [(vector, lane) if vector < half else (0, 0) for vector, lane in lanes]
        high = [(vector - half, lane) if vector >= half else (0, 0) for vector, lane in lanes]
        lanes = [(int(vector >= half), place) for place, (vector, _) in enumerate(lanes)]
        vectors = [_picked(vectors[:half], low), _picked(vectors[half:], high)]
    dtype = vectors[0].dtype.scalar
    parts = [UOp(Op.EXTRACT, dtype, (vectors[vector],), lane) for vector, lane in lanes]
    return UOp(Op.VECTORIZE, dtype.vec(len(lanes)), tuple(parts))
