"""Small floats as integer arithmetic, against what their bits stand for."""

from __future__ import annotations

import math

import pytest

from kernelet.base.dtype import FORMATS, DType, Scalar, dtypes, round_float
from kernelet.graph.ops import Op
from kernelet.graph.rewrite import graph_rewrite
from kernelet.graph.uop import UOp
from kernelet.lower.formats import CODED_FLOATS
from tests.reference.evaluate import evaluate

CODED = [dtypes.from_name(name) for name in FORMATS]


def value_of(value: Scalar, source: DType, target: DType) -> Scalar:
    """The value of a cast that was written as bits, by the reference evaluator."""
    x = UOp.const(value, source)
    written = graph_rewrite(UOp(Op.CAST, target, (x,)), CODED_FLOATS)
    casts = [node for node in written.toposort() if node.op is Op.CAST]
    assert not [node for node in casts if {node.dtype.name, node.src[0].dtype.name} & set(FORMATS)]
    return evaluate(written)[0]


@pytest.mark.parametrize("dtype", CODED, ids=str)
@pytest.mark.parametrize(
    "value",
    [0.0, -0.0, 1.0, -1.0625, 0.1, 1e-3, 448.0, 463.9, 464.0, 500.0, 57344.0, 61440.0, 3e38]
    + [2.0**-power for power in range(5, 20)]
    + [1.5 * 2.0**-power for power in range(5, 20)]
    + [math.inf, -math.inf],
)
def test_bits_are_those_of_the_nearest_number(dtype: DType, value: float) -> None:
    found = value_of(value, dtypes.float32, dtype)
    assert found == round_float(dtype, value)
    assert math.copysign(1, found) == math.copysign(1, value)
    assert value_of(found, dtype, dtypes.float32) == found


@pytest.mark.parametrize("dtype", CODED, ids=str)
def test_nan_stays_nan(dtype: DType) -> None:
    assert math.isnan(value_of(math.nan, dtypes.float32, dtype))
    assert math.isnan(value_of(math.nan, dtype, dtypes.float32))


@pytest.mark.parametrize("dtype", CODED, ids=str)
def test_integers_and_truth_values_pass_by_way_of_float32(dtype: DType) -> None:
    assert value_of(3, dtypes.int64, dtype) == 3.0
    assert value_of(True, dtypes.bool, dtype) == 1.0
    assert value_of(1.5, dtype, dtypes.int8) == 1
    assert value_of(-0.0, dtype, dtypes.bool) is False
