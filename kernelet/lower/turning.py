"""Lanes that are stored far apart, turned in registers so that neighbours are stored together.

In:  statements in order, after the lanes of each are written out.
Out: the same statements; four vectors whose lanes belong side by side become short vectors.

y[0 * s] = a[0], y[1 * s] = a[1], ...; y[0 * s + 1] = b[0], y[1 * s + 1] = b[1], ...; c; d
->  y[0 * s : 0 * s + 4] = (a[0], b[0], c[0], d[0]), y[1 * s : 1 * s + 4] = ...

Four vectors are turned by eight shuffles of two vectors each, within their quarters.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from kernelet.base.dtype import dtypes
from kernelet.graph.division import terms_of
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.lower.statements import Statements, memories, store

TURNED_ROWS = 4  # the vectors that are turned together, each of a multiple of so many lanes


def turn_stores(statements: Statements) -> Statements:
    """The statements with scattered vectors that are neighbours stored together."""
    found: Statements = []
    for is_scattered, run in itertools.groupby(statements, _is_scattered):
        group = list(run)
        found += _turned(group) if is_scattered else group
    return found


def _is_scattered(statement: UOp) -> bool:
    """Whether a statement stores the lanes of one vector one by one, and reads no such memory."""
    if statement.op is not Op.BLOCK:
        return False
    if any(len(each.src) != 2 or each.src[1].op is not Op.EXTRACT for each in statement.src):
        return False
    vector = statement.src[0].src[1].src[0]
    lanes, memory = vector.dtype.lanes, statement.src[0].src[0].src[0]
    is_whole = len(statement.src) == lanes and lanes % TURNED_ROWS == 0
    if not is_whole or vector.dtype.itemsize != dtypes.float32.itemsize:
        return False
    is_one = all(each.src[1].src[0] is vector for each in statement.src)
    return is_one and memory not in memories([vector], Op.LOAD)


def _turned(run: Statements) -> Statements:
    """Groups of four that are neighbours in memory, then what is left."""
    ordered = sorted(run, key=_constants)
    found, left = Statements(), set(run)
    while len(ordered) >= TURNED_ROWS:
        four = ordered[:TURNED_ROWS]
        if all(_is_behind(four[0], each, step) for step, each in enumerate(four)):
            found.append(_stored_together(four))
            left.difference_update(four)
            ordered = ordered[TURNED_ROWS:]
        else:
            ordered = ordered[1:]
    return found + [statement for statement in run if statement in left]


def _constants(statement: UOp) -> int:
    return int(terms_of(statement.src[0].src[0].src[1]).constant)


def _is_behind(first: UOp, statement: UOp, step: int) -> bool:
    """Whether each lane is stored `step` elements behind the same lane of the first vector."""
    for one, other in zip(first.src, statement.src, strict=True):
        (memory, start), (same, place) = one.src[0].src, other.src[0].src
        before, after = terms_of(start), terms_of(place)
        if memory is not same or before.coefficients != after.coefficients:
            return False
        if after.constant - before.constant != step:
            return False
    return True


def _stored_together(four: Sequence[UOp]) -> UOp:
    """The stores of four neighbours at a time."""
    a, b, c, d = (statement.src[0].src[1].src[0] for statement in four)
    low, high = (0, 1), (2, 3)
    pairs = [(_shuffled(a, b, part, 1), _shuffled(c, d, part, 1)) for part in (low, high)]
    turned = [_shuffled(*pair, part, 2) for pair in pairs for part in (low, high)]
    stores = []
    for lane, each in enumerate(four[0].src):
        vector, quarter = turned[lane % TURNED_ROWS], lane // TURNED_ROWS * TURNED_ROWS
        parts = [_lane(vector, quarter + row) for row in range(TURNED_ROWS)]
        dtype = vector.dtype.scalar.vec(TURNED_ROWS)
        stores.append(store(each.src[0], UOp(Op.VECTORIZE, dtype, tuple(parts))))
    return UOp(Op.BLOCK, dtypes.void, tuple(stores))


def _shuffled(a: UOp, b: UOp, part: tuple[int, int], width: int) -> UOp:
    """In each quarter two elements of both vectors, one by one or (width 2) in pairs.

    (0, 1) of a0 a1 a2 a3 and b0 b1 b2 b3  ->  a0 b0 a1 b1, or a0 a1 b0 b1
    """
    first, second = part
    picks = [(a, first), (b, first), (a, second), (b, second)]
    picks = picks if width == 1 else [picks[0], picks[2], picks[1], picks[3]]
    quarters = range(0, a.dtype.lanes, TURNED_ROWS)
    lanes = [_lane(vector, quarter + lane) for quarter in quarters for vector, lane in picks]
    return UOp(Op.VECTORIZE, a.dtype, tuple(lanes))


def _lane(vector: UOp, lane: int) -> UOp:
    return UOp(Op.EXTRACT, vector.dtype.scalar, (vector,), lane)
