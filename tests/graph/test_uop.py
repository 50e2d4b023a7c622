"""A node is immutable, unique, cheap, safe between threads, and leaves nothing behind."""

import copy
import gc
import math
import pickle
import subprocess
import sys
import threading
import weakref

import pytest

from kernelet.base.dtype import DType, dtypes
from kernelet.base.errors import ArgumentError
from kernelet.graph import uop as uop_module
from kernelet.graph.ops import Op
from kernelet.graph.uop import RangeArg, ReduceArg, UOp
from tests.reference.evaluate import evaluate

F32 = dtypes.float32


def chain(length: int) -> UOp:
    x = UOp.variable("x", 0, 9)
    for _ in range(length):
        x = x + 1
    return x


def test_equal_fields_are_the_same_node() -> None:
    x = UOp.variable("x", 0, 9)
    assert (x + 1) * 2 is (UOp.variable("x", 0, 9) + 1) * 2
    assert x + 1 is not x + 2
    assert UOp.const(1, dtypes.int32) is not UOp.const(1, dtypes.int64)


def test_zeros_of_both_signs_are_two_constants_and_nan_is_one() -> None:
    assert UOp.const(0.0, F32) is not UOp.const(-0.0, F32)
    assert UOp.const(-0.0, F32) is UOp.const(-0.0, F32)
    assert UOp.const(math.nan, F32) is UOp.const(float("nan"), F32)
    assert UOp(Op.CONST, F32, (), float("nan")) is UOp.const(math.nan, F32)


def test_equal_numbers_of_different_types_are_different_constants() -> None:
    whole, real = UOp(Op.CONST, F32, (), 1), UOp(Op.CONST, F32, (), 1.0)
    assert whole is not real
    assert type(UOp.const(1, F32).arg) is float
    assert UOp(Op.CONST, dtypes.int32, (), True) is not UOp.const(1, dtypes.int32)


def test_constants_are_what_their_dtype_holds() -> None:
    assert UOp.const(0.1, F32).arg == 0.10000000149011612
    assert UOp.const(300, dtypes.uint8).arg == 44
    assert UOp.const(2.7, dtypes.int32).arg == 2
    assert UOp.const(3, dtypes.bool).arg is True
    assert (-UOp.const(-128, dtypes.int8)).arg == -128


def test_fields_cannot_be_set() -> None:
    x = UOp.variable("x", 0, 9)
    with pytest.raises(AttributeError, match="immutable"):
        x.arg = 3  # type: ignore[misc]
    with pytest.raises(AttributeError, match="immutable"):
        del x.arg
    with pytest.raises(AttributeError):
        x.other = 3  # type: ignore[attr-defined]


def test_a_node_has_fewer_than_60_public_attributes() -> None:
    assert len([name for name in dir(UOp) if not name.startswith("_")]) < 60


def test_arithmetic_builds_the_ops_it_names() -> None:
    x, y = UOp.variable("x", 0, 9), UOp.variable("y", 0, 9)
    values = {x: 7, y: 3}
    cases = [
        (x + y, 10), (x - y, 4), (x * y, 21), (x // y, 2), (x % y, 1), (-x, -7), (x < y, False),
        (x > y, True), (x <= y, False), (x >= y, True), (x & y, 3), (x | y, 7), (x ^ y, 4),
        (x << y, 56), (x >> y, 0), (x.not_equal(y), True), (x.maximum(y), 7), (1 + x, 8),
        (10 - x, 3), (2 * x, 14), ((x < y).where(x, y), 3), ((x < y).where(x, 5), 5),
        ((x > y).where(4, y), 4), ((x < y).logical_not(), True),
    ]  # fmt: skip
    for node, expected in cases:
        assert evaluate(node, values) == [expected], node


def test_where_of_two_numbers_asks_for_a_node() -> None:
    with pytest.raises(ArgumentError, match="give at least one node"):
        (UOp.variable("x", 0, 9) < 3).where(1, 2)


def test_the_truth_of_a_node_must_be_known() -> None:
    x = UOp.variable("x", 2, 9)
    assert x
    assert x < 10
    assert not x < 2
    with pytest.raises(ArgumentError, match=r"bool\(x < 5\)"):
        bool(x < 5)


def test_binding_checks_the_range_and_unbinding_gives_both_back() -> None:
    x = UOp.variable("x", 2, 9)
    assert x.bind(4).unbind() == (x, 4)
    with pytest.raises(ArgumentError, match=r"must be in 2\.\.9"):
        x.bind(10)
    with pytest.raises(ArgumentError, match="not a Variable"):
        (x + 1).bind(3)
    with pytest.raises(ArgumentError, match="not a bound Variable"):
        x.unbind()
    with pytest.raises(ArgumentError, match="swap them"):
        UOp.variable("x", 3, 2)


def test_const_like_has_the_shape_and_the_lanes() -> None:
    tensor = UOp(Op.RESHAPE, F32, (UOp.buffer(6, F32, "CPU"),), (2, 3))
    assert tensor.const_like(1).shape == (2, 3)
    ones = UOp(Op.RESHAPE, F32, (UOp.buffer(1, F32, "CPU"),), (1, 1))
    assert ones.const_like(1).op is Op.RESHAPE
    vector = UOp(Op.VECTORIZE, F32.vec(2), (UOp.const(1, F32),) * 2)
    assert vector.const_like(3) is UOp(Op.CONST, F32.vec(2), (), 3.0)


def test_replace_cast_and_bitcast_return_the_node_when_nothing_changes() -> None:
    x = UOp.variable("x", 0, 9)
    assert x.replace() is x
    assert x.cast(dtypes.index) is x
    assert x.bitcast(dtypes.index) is x
    assert x.cast(F32).dtype is F32
    assert (x + 1).replace(op=Op.MUL) is x * 1


def test_toposort_lists_sources_first_and_once() -> None:
    x = UOp.variable("x", 0, 9)
    root = (x + 1) * (x + 1)
    order = list(root.toposort())
    assert order == [x, UOp.const(1, dtypes.index), x + 1, root]
    with pytest.raises(TypeError):
        iter(root)


def test_a_deep_graph_has_facts_prints_and_dies_without_recursion() -> None:
    deep = chain(100_000)
    assert deep.bounds == (100_000, 100_009)
    assert deep.shape == ()
    assert deep.device is None
    assert "more nodes" in repr(deep)
    probe = weakref.ref(deep)
    del deep
    assert probe() is None


def test_a_deep_graph_can_be_pickled() -> None:
    deep = chain(20_000)
    assert pickle.loads(pickle.dumps(deep)) is deep


@pytest.mark.parametrize(
    "node",
    [
        UOp.const(math.nan, F32),
        UOp.const(-0.0, F32),
        UOp(Op.CONST, F32.vec(4), (), 1.0),
        UOp.variable("x", 0, 9).bind(3) + 1,
        UOp(Op.RANGE, dtypes.index, (UOp.const(4, dtypes.index),), RangeArg(0, "loop")),
        UOp(Op.REDUCE, F32, (UOp.buffer(4, F32, "CPU"),), ReduceArg(Op.ADD, (0,))),
        UOp(Op.SHRINK, F32, (UOp.buffer(9, F32, "CPU"),), ((0, UOp.variable("x", 0, 9)),)),
    ],
)
def test_a_pickled_or_copied_node_is_the_same_node(node: UOp) -> None:
    assert pickle.loads(pickle.dumps(node)) is node
    assert copy.copy(node) is node
    assert copy.deepcopy(node) is node
    assert pickle.loads(pickle.dumps([node, {"again": node}])) == [node, {"again": node}]


def test_nodes_in_another_process_are_unique_there() -> None:
    x = UOp.variable("x", 0, 9)
    program = (
        "import sys, pickle; a, b = pickle.load(sys.stdin.buffer); from kernelet.graph.uop import *;"
        "assert a is b.src[0] and b is a + 1, (a, b)"
    )
    data = pickle.dumps([x * 2, x * 2 + 1])
    done = subprocess.run([sys.executable, "-c", program], input=data, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_threads_get_the_same_nodes() -> None:
    results: list[list[UOp]] = []
    barrier = threading.Barrier(4)

    def build() -> None:
        made = []
        barrier.wait()
        for number in range(300):
            x = UOp.variable(f"threads{number}", 0, 9)
            made.append((x + number) * x)
        results.append(made)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=build) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    for nodes in zip(*results, strict=True):
        assert len(set(nodes)) == 1


def test_nodes_that_come_and_go_in_threads_stay_unique() -> None:
    x = UOp.variable("x", 0, 9)
    failures: list[int] = []

    def churn() -> None:
        for number in range(2000):
            node = x + number % 7
            if node is not x + number % 7:
                failures.append(number)

    threads = [threading.Thread(target=churn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_nothing_is_left_when_nodes_die() -> None:
    gc.collect()
    table = vars(uop_module)["_table"]
    before = len(table)
    made = [chain(50) * number for number in range(2, 50)]
    made.append(made[0].cast(F32).cast(dtypes.int8))
    assert made[0].bounds.max > 0
    made[0].cache["fact"] = made[1]
    assert len(table) > before
    del made
    gc.collect()
    assert len(table) == before


def test_no_noise_at_interpreter_exit() -> None:
    program = "from kernelet.graph.uop import *; x = UOp.variable('x', 0, 9); y = [x + i for i in range(99)]"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def each_dtype() -> list[DType]:
    return [*dtypes.all, dtypes.index]


@pytest.mark.parametrize("dtype", each_dtype(), ids=lambda dtype: dtype.name)
def test_a_comparison_is_bool_and_where_takes_its_branches_dtype(dtype: DType) -> None:
    x, y = UOp.const(1, dtype), UOp.const(0, dtype)
    assert (x < y).dtype is dtypes.bool
    assert x.not_equal(y).dtype is dtypes.bool
    assert (x < y).where(x, y).dtype is dtype
    assert x.maximum(y).dtype is dtype
