"""Vectors whose lanes are stored far apart are turned where they are neighbours, and only there."""

from __future__ import annotations

import random

import pytest

from kernelet.base.dtype import DType, dtypes
from kernelet.graph.division import terms_of
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.lower.statements import Statements
from kernelet.lower.turning import turn_stores
from tests.lower.pseudocode import F32, block, load, loop, memory, store

I = loop(0, 5)
FAR = 100
OUT = memory(0, 5000)


def scattered(row: int, vector: UOp, place: UOp = OUT) -> UOp:
    """The lanes of a vector at row, row + FAR, row + 2 * FAR, ..."""
    lanes = range(vector.dtype.lanes)
    parts = [UOp(Op.EXTRACT, vector.dtype.scalar, (vector,), lane) for lane in lanes]
    return block(*(store(place, I * 7 + (row + FAR * n), part) for n, part in enumerate(parts)))


def vector(number: int, lanes: int = 8, dtype: DType = F32) -> UOp:
    return load(memory(1, 900, dtype=dtype), number * lanes, lanes)


def sources(statements: Statements) -> dict[int, UOp]:
    """Which lane of which vector ends at which place of a row, behind all shuffles."""
    found = {}
    for each in [each for statement in statements for each in statement.src]:
        start, value = terms_of(each.src[0].src[1]).constant, each.src[1]
        lanes = value.src if value.op is Op.VECTORIZE else (value,)
        for step, lane in enumerate(lanes):
            while lane.src[0].op is Op.VECTORIZE:
                lane = lane.src[0].src[lane.arg]
            assert start + step not in found
            found[start + step] = lane
    return found


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("rows", [4, 5, 7, 8])
def test_every_lane_ends_where_it_did_before(lanes: int, rows: int) -> None:
    statements = [scattered(row, vector(row, lanes)) for row in range(rows)]
    random.Random(rows).shuffle(statements)
    turned = turn_stores(statements)
    assert sources(turned) == sources(statements)
    stores = sum(len(statement.src) for statement in turned)
    assert stores == lanes * (rows // 4 + rows % 4)


def test_tiles_of_several_vectors_are_turned_apart() -> None:
    statements = [
        scattered(row + wide, vector(row + wide)) for row in range(4) for wide in (0, 800)
    ]
    turned = turn_stores(statements)
    assert sources(turned) == sources(statements)
    assert len(turned) == 2


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param([scattered(2 * row, vector(row)) for row in range(4)], id="gaps"),
        pytest.param([scattered(row, vector(row)) for row in range(3)], id="three"),
        pytest.param(
            [scattered(row, vector(row, dtype=dtypes.float64)) for row in range(4)], id="wide"
        ),
        pytest.param(
            [scattered(row, load(OUT, row * 8, 8)) for row in range(4)],
            id="what is read is written",
        ),
        pytest.param(
            [scattered(row, vector(row), memory(row, 5000)) for row in range(4)], id="other memory"
        ),
        pytest.param(
            [
                each
                for row in range(4)
                for each in (scattered(row, vector(row)), store(OUT, 0, load(OUT, 9)))
            ],
            id="something between",
        ),
        pytest.param(
            [store(OUT, I * 8 + 100 * row, vector(row)) for row in range(4)], id="stored whole"
        ),
    ],
)
def test_other_stores_stay(statements: Statements) -> None:
    assert turn_stores(statements) == statements
