"""The reference evaluator agrees with NumPy on every op."""

import math

import numpy as np
import pytest

from kernelet.base.dtype import DType, dtypes
from kernelet.base.errors import InternalError
from kernelet.graph.ops import Op
from kernelet.graph.uop import ParamArg, RangeArg, ReduceArg, UOp
from tests.reference.evaluate import evaluate, evaluate_all

F32 = dtypes.float32


def tensor(dtype: DType, *shape: int) -> tuple[UOp, UOp]:
    """A buffer and a view of it of that shape."""
    buffer = UOp.buffer(math.prod(shape), dtype, "CPU")
    return buffer, UOp(Op.RESHAPE, dtype, (buffer,), shape)


def numbers(count: int) -> list[float]:
    return [float(i) * 0.5 - 3 for i in range(count)]


def test_elementwise_results_are_rounded_to_float32() -> None:
    buffer, x = tensor(F32, 4)
    values = [0.1, 1e29, -3.0, 16777216.0]
    with np.errstate(over="ignore"):
        expected = np.array(values, np.float32) * np.float32(1e10) + np.float32(1)
    node = x * x.const_like(np.float32(1e10).item()) + 1
    rounded = [float(np.float32(value)) for value in values]
    assert evaluate(node, {buffer: rounded}) == expected.tolist()


@pytest.mark.parametrize(
    ("dtype", "left", "right", "total"),
    [
        (dtypes.int8, 127, 1, -128),
        (dtypes.uint8, 255, 1, 0),
        (dtypes.int32, 2**31 - 1, 1, -(2**31)),
        (dtypes.uint64, 2**64 - 1, 2, 1),
        (dtypes.bool, True, True, True),
    ],
)
def test_integers_wrap(dtype: DType, left: int, right: int, total: int) -> None:
    assert evaluate(UOp.const(left, dtype) + UOp.const(right, dtype)) == [total]


@pytest.mark.parametrize(("x", "y"), [(7, 2), (-7, 2), (7, -2), (-7, -2), (5, 0), (-128, -1)])
def test_division_rounds_down_and_never_fails(x: int, y: int) -> None:
    left, right = UOp.const(x, dtypes.int8), UOp.const(y, dtypes.int8)
    quotient, rest = evaluate_all((left // right, left % right))
    wrapped = {128: -128}.get(x // y, x // y) if y else 0
    assert (quotient, rest) == ([wrapped], [x % y if y else 0])


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (2.9, dtypes.int32, 2),
        (-2.9, dtypes.int32, -2),
        (math.nan, dtypes.int32, 0),
        (math.inf, dtypes.int32, 2**31 - 1),
        (-5.0, dtypes.uint8, 0),
        (0.1, dtypes.float16, float(np.float16(0.1))),
        (1e6, dtypes.float16, math.inf),
        (1.00390625, dtypes.bfloat16, 1.0),
        (math.nan, dtypes.bool, True),
        (-0.0, dtypes.bool, False),
    ],
)
def test_casts_truncate_saturate_and_round(value: float, dtype: DType, expected: float) -> None:
    assert evaluate(UOp.const(value, F32).cast(dtype)) == [expected]


def test_a_wide_integer_is_rounded_to_float32_once() -> None:
    value = (1 << 60) + (1 << 36) + 1
    assert evaluate(UOp.const(value, dtypes.int64).cast(F32)) == [
        float(np.float32(np.int64(value)))
    ]


def test_bitcast_keeps_the_bits() -> None:
    assert evaluate(UOp.const(1.0, F32).bitcast(dtypes.uint32)) == [0x3F800000]
    assert evaluate(UOp.const(0x3F80, dtypes.uint16).bitcast(dtypes.bfloat16)) == [1.0]
    assert evaluate(UOp.const(-2.0, dtypes.bfloat16).bitcast(dtypes.int16)) == [-16384]


def test_maximum_of_nan_is_nan() -> None:
    nan, one = UOp.const(math.nan, F32), UOp.const(1.0, F32)
    assert all(math.isnan(evaluate(node)[0]) for node in (nan.maximum(one), one.maximum(nan)))


def test_movement_agrees_with_numpy() -> None:
    buffer, x = tensor(F32, 2, 3, 4)
    array = np.array(numbers(24), np.float32).reshape(2, 3, 4)
    cases = [
        (UOp(Op.PERMUTE, F32, (x,), (2, 0, 1)), array.transpose(2, 0, 1)),
        (UOp(Op.SHRINK, F32, (x,), ((1, 2), (0, 2), (1, 4))), array[1:2, 0:2, 1:4]),
        (UOp(Op.FLIP, F32, (x,), (0, 2)), array[::-1, :, ::-1]),
        (UOp(Op.PAD, F32, (x,), ((1, 0), (0, 2), (3, 1))), np.pad(array, [(1, 0), (0, 2), (3, 1)])),
        (UOp(Op.RESHAPE, F32, (x,), (4, 6)), array.reshape(4, 6)),
    ]
    for node, expected in cases:
        assert node.shape == expected.shape
        assert evaluate(node, {buffer: numbers(24)}) == expected.reshape(-1).tolist()


def test_expand_repeats_axes_of_size_one() -> None:
    buffer, x = tensor(F32, 2, 1, 2)
    node = UOp(Op.EXPAND, F32, (x,), (2, 3, 2))
    expected = np.broadcast_to(np.arange(4.0).reshape(2, 1, 2), (2, 3, 2))
    assert evaluate(node, {buffer: [0.0, 1.0, 2.0, 3.0]}) == expected.reshape(-1).tolist()


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2), (0, 1, 2), ()])
def test_reductions_agree_with_numpy(axes: tuple[int, ...]) -> None:
    buffer, x = tensor(F32, 2, 3, 4)
    array = np.array(numbers(24)).reshape(2, 3, 4)
    for op, reduce in ((Op.ADD, np.sum), (Op.MUL, np.prod), (Op.MAX, np.max)):
        node = UOp(Op.REDUCE, F32, (x,), ReduceArg(op, axes))
        expected = reduce(array, axis=axes, keepdims=True).astype(np.float32)
        assert node.shape == expected.shape
        assert evaluate(node, {buffer: numbers(24)}) == expected.reshape(-1).tolist()


def test_empty_reductions_give_the_identity() -> None:
    for op, dtype, expected in (
        (Op.ADD, F32, 0.0),
        (Op.MUL, dtypes.int32, 1),
        (Op.MAX, dtypes.int8, -128),
        (Op.MAX, F32, -math.inf),
    ):
        empty = UOp(Op.PARAM, dtype, (), ParamArg(0, 0, "CPU"))
        assert evaluate(UOp(Op.REDUCE, dtype, (empty,), ReduceArg(op, (0,))), {empty: []}) == [
            expected
        ]


def test_a_maximum_over_nan_is_nan() -> None:
    buffer = UOp.buffer(3, F32, "CPU")
    node = UOp(Op.REDUCE, F32, (buffer,), ReduceArg(Op.MAX, (0,)))
    assert math.isnan(evaluate(node, {buffer: [1.0, math.nan, 2.0]})[0])


def test_after_is_the_storage_with_the_viewed_elements_replaced() -> None:
    buffer, x = tensor(F32, 3, 4)
    rows = UOp(Op.SHRINK, F32, (x,), ((1, 3), (1, 3)))
    view = UOp(Op.FLIP, F32, (UOp(Op.PERMUTE, F32, (rows,), (1, 0)),), (0,))
    source, value = tensor(F32, 2, 2)
    first = UOp(Op.AFTER, F32, (buffer, UOp(Op.ASSIGN, F32, (view, value))))
    again = UOp(Op.SHRINK, F32, (first,), ((0, 1),))
    one = UOp.const(7.0, F32).broadcast_to((1,))
    second = UOp(Op.AFTER, F32, (first, UOp(Op.ASSIGN, F32, (again, one))))
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    array[1:3, 1:3].T[::-1] = np.array([[-1, -2], [-3, -4]])
    array[0, 0] = 7
    data = {buffer: [float(i) for i in range(12)], source: [-1.0, -2.0, -3.0, -4.0]}
    assert evaluate(second, data) == array.reshape(-1).tolist()
    assert evaluate(x, data) == data[buffer]


def test_a_write_to_other_storage_is_an_error() -> None:
    buffer, other = UOp.buffer(2, F32, "CPU"), UOp.buffer(2, F32, "CPU")
    node = UOp(Op.AFTER, F32, (buffer, UOp(Op.ASSIGN, F32, (other, buffer))))
    with pytest.raises(InternalError, match="other storage"):
        evaluate(node, {buffer: [1.0, 2.0], other: [1.0, 2.0]})


def test_symbolic_sizes_come_from_bindings() -> None:
    n = UOp.variable("n", 1, 8)
    buffer = UOp.buffer(8, F32, "CPU")
    for size, bindings in ((n, {n: 3}), (n.bind(3), {})):
        part = UOp(Op.SHRINK, F32, (buffer,), ((0, size),))
        node = UOp(Op.REDUCE, F32, (part,), ReduceArg(Op.ADD, (0,)))
        assert evaluate(node, {buffer: [1.0] * 8, **bindings}) == [3.0]


def test_index_expressions_use_the_bound_loops() -> None:
    loop = UOp(Op.RANGE, dtypes.index, (UOp.const(12, dtypes.index),), RangeArg(0, "loop"))
    assert evaluate(loop // 4 * 10 + loop % 4, {loop: 7}) == [13]


def test_vectors_are_one_value_a_lane() -> None:
    x, y = UOp.const(1.0, F32), UOp.const(2.0, F32)
    pair = UOp(Op.VECTORIZE, F32.vec(2), (x, y))
    twice = pair + pair.const_like(10)
    assert evaluate(twice) == [11.0, 12.0]
    assert evaluate(UOp(Op.EXTRACT, F32, (twice,), 1)) == [12.0]


def test_a_deep_graph_does_not_recurse() -> None:
    x = n = UOp.variable("n", 0, 9)
    for _ in range(20_000):
        x = x + 1
    assert evaluate(x, {n: 5}) == [20_005]


def test_a_leaf_without_a_value_is_named() -> None:
    with pytest.raises(InternalError, match="VARIABLE has no value"):
        evaluate(UOp.variable("missing", 0, 9) + 1)
    with pytest.raises(InternalError, match="SINK is not a value"):
        evaluate(UOp.sink(UOp.const(1, F32)))
