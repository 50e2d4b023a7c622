"""Each way in which a node of a tensor graph can be wrong is found, in words."""

import math

import pytest

from kernelet.base.dtype import DType, dtypes
from kernelet.base.errors import InternalError
from kernelet.graph.ops import Op
from kernelet.graph.spec import KERNEL, TENSOR, Spec, verify
from kernelet.graph.uop import BufferArg, ParamArg, ReduceArg, UOp, VariableArg

F32, I32, INDEX, BOOL = dtypes.float32, dtypes.int32, dtypes.index, dtypes.bool
N = UOp.variable("n", 1, 8)


def tensor(*shape: int, dtype: DType = F32, device: str = "CPU") -> UOp:
    size = math.prod(shape)
    return UOp(Op.RESHAPE, dtype, (UOp.buffer(size, dtype, device),), shape)


def param(*shape: int, slot: int = 0) -> UOp:
    memory = UOp(Op.PARAM, F32, (), ParamArg(slot, math.prod(shape), "CPU"))
    return UOp(Op.RESHAPE, F32, (memory,), shape)


def broken(graph: UOp, spec: Spec = TENSOR) -> str:
    with pytest.raises(InternalError) as caught:
        verify(graph, spec, "the pass")
    return str(caught.value)


A, B = tensor(2, 3), tensor(3, 2)
BUFFER = UOp.buffer(6, F32, "CPU")
OTHER = UOp.buffer(6, F32, "CPU")
PART = UOp(Op.SHRINK, F32, (BUFFER,), ((1, 3),))
WRITE = UOp(Op.ASSIGN, F32, (PART, tensor(2)))

RIGHT = [
    A + A * 2.0,
    (A < 1.0).where(A, 0.0),
    UOp(Op.REDUCE, F32, (UOp(Op.PERMUTE, F32, (A,), (1, 0)),), ReduceArg(Op.MAX, (0, 1))),
    UOp(Op.PAD, F32, (UOp(Op.FLIP, F32, (A,), (0,)),), ((1, 0), (0, 2))),
    UOp(Op.SHRINK, F32, (BUFFER,), ((0, N.bind(3)),)),
    UOp(Op.RESHAPE, F32, (UOp(Op.SHRINK, F32, (tensor(8, 2),), ((0, N), (0, 2))),), (N * 2,)),
    UOp(Op.EXPAND, F32, (tensor(1, 3),), (N, 3)),
    UOp(Op.AFTER, F32, (BUFFER, WRITE)),
    UOp(Op.COPY, F32, (UOp(Op.CONTIGUOUS, F32, (A,)),), "LLVM"),
    UOp(Op.ARANGE, I32, (), (N,)),
    A.cast(dtypes.float16).bitcast(dtypes.int16) & 3,
    UOp.sink(A, UOp(Op.DETACH, F32, (B,))),
]

WRONG = [
    (UOp(Op.CONST, F32, (), 1), "not a Python float"),
    (UOp(Op.CONST, BOOL, (), 2), "not a Python bool"),
    (UOp(Op.CONST, dtypes.uint8, (), 300), "cannot hold 300"),
    (UOp(Op.CONST, F32, (), 0.1), "cannot hold 0.1"),
    (UOp(Op.CONST, F32, (A,), 0.5), "1 sources, not 0"),
    (UOp(Op.BUFFER, F32, (), ParamArg(0, 6, "CPU")), "not BufferArg"),
    (UOp(Op.BUFFER, F32, (), BufferArg(-1, -6, "CPU")), "-6 elements"),
    (UOp(Op.VARIABLE, I32, (), VariableArg("n", 0, 3)), "int32, not dtypes.index"),
    (UOp(Op.VARIABLE, INDEX, (), VariableArg("n", 4, 3)), "no value is from 4 to 3"),
    (UOp(Op.BIND, INDEX, (N, UOp.const(9, INDEX))), "9 is not in 1..8"),
    (UOp(Op.BIND, INDEX, (N, N)), "not VARIABLE to CONST"),
    (UOp(Op.ARANGE, F32, (), (3,)), "not integers along one axis"),
    (UOp(Op.ADD, F32, (A,)), "1 sources, not 2"),
    (UOp(Op.ADD, F32, (A, A), 3), "its payload is 3, not NoneType"),
    (UOp(Op.ADD, F32, (A, tensor(2, 3, dtype=I32))), "not alike"),
    (UOp(Op.ADD, I32, (A, A)), "its sources make dtypes.float32"),
    (UOp(Op.CMPLT, F32, (A, A)), "its sources make dtypes.bool"),
    (UOp(Op.WHERE, F32, (A, A, A)), "its condition is dtypes.float32"),
    (UOp(Op.BITCAST, dtypes.int8, (A,)), "not of the same width"),
    (UOp(Op.CAST, dtypes.void, (A,)), "no dtype"),
    (UOp(Op.ADD, F32.vec(2), (A, A)), "its lanes are 2"),
    (UOp(Op.SQRT, I32, (tensor(2, 3, dtype=I32),)), "SQRT is for floats"),
    (UOp(Op.AND, F32, (A, A)), "AND is not for floats"),
    (UOp(Op.ADD, F32, (A, B)), "the shapes of its sources differ"),
    (A + tensor(2, 3, device="LLVM"), "its sources are on ['CPU', 'LLVM']"),
    (UOp(Op.SUB, F32, (A, A)), "SUB may not occur"),
    (UOp(Op.RESHAPE, I32, (A,), (6,)), "it is dtypes.int32, not dtypes.float32"),
    (UOp(Op.RESHAPE, F32, (A,), (7,)), "the same number of elements"),
    (UOp(Op.PERMUTE, F32, (A,), (0, 0)), "not an order of 2 axes"),
    (UOp(Op.EXPAND, F32, (A,), (4, 3)), "only axes of size 1"),
    (UOp(Op.EXPAND, F32, (A,), (6,)), "not one part for each"),
    (UOp(Op.PAD, F32, (A,), ((-1, 0), (0, 0))), "may be negative"),
    (UOp(Op.PAD, F32, (A,), ((1, 0),)), "not one part for each"),
    (UOp(Op.SHRINK, F32, (A,), ((0, 3), (0, 3))), "0..3 is not inside 0..2"),
    (UOp(Op.SHRINK, F32, (A,), ((0, 2),)), "not one part for each"),
    (UOp(Op.FLIP, F32, (A,), (2,)), "not different axes"),
    (UOp(Op.FLIP, F32, (A, A), (1,)), "2 sources, not 1"),
    (UOp(Op.PERMUTE, F32, (A,), (0, "1")), "malformed"),
    (UOp(Op.REDUCE, F32, (A,), ReduceArg(Op.XOR, (0,))), "it combines by XOR"),
    (UOp(Op.REDUCE, F32, (A,), ReduceArg(Op.ADD, (1, 0))), "in order"),
    (UOp(Op.REDUCE, F32, (A,), ReduceArg(Op.ADD, (2,))), "are not axes"),
    (UOp(Op.REDUCE, I32, (A,), ReduceArg(Op.ADD, (0,))), "it is dtypes.int32"),
    (UOp(Op.CONTIGUOUS, I32, (A,)), "it is dtypes.int32"),
    (UOp(Op.COPY, F32, (A,), 3), "its payload is 3, not str"),
    (UOp(Op.ASSIGN, F32, (A + A, A)), "not a view of memory"),
    (UOp(Op.ASSIGN, F32, (A, B)), "it writes (3, 2) over (2, 3)"),
    (UOp(Op.ASSIGN, F32, (A, tensor(2, 3, dtype=I32))), "it writes dtypes.int32"),
    (UOp(Op.ASSIGN, I32, (A, A)), "it is dtypes.int32"),
    (UOp(Op.AFTER, F32, (A, WRITE)), "of RESHAPE"),
    (UOp(Op.AFTER, F32, (OTHER, WRITE)), "a write to other memory"),
    (UOp(Op.AFTER, F32, (BUFFER, A)), "waits for RESHAPE"),
    (UOp(Op.SINK, F32, (A,)), "it is dtypes.float32"),
    (UOp(Op.STORE, dtypes.void, (A, A)), "STORE may not occur"),
]

STORE = UOp(Op.STORE, dtypes.void, (param(2, 3), param(2, 3, slot=1) + 1.0))
WRONG_KERNELS = [
    (UOp.sink(), "a kernel is stores"),
    (UOp.sink(param(2, 3)), "a kernel is stores"),
    (UOp(Op.SINK, F32, (STORE,)), "it is dtypes.float32"),
    (UOp.sink(STORE.replace(src=(A, A))), "BUFFER may not occur"),
    (UOp.sink(STORE.replace(src=(param(3, 2), param(2, 3)))), "it writes (2, 3) over (3, 2)"),
    (UOp.sink(STORE.replace(dtype=F32)), "it is dtypes.float32"),
    (UOp.sink(STORE.replace(src=(param(2, 3) + 1.0, param(2, 3)))), "not a view of memory"),
]


@pytest.mark.parametrize("graph", RIGHT, ids=lambda graph: graph.op.name)
def test_a_right_graph_passes(graph: UOp) -> None:
    verify(graph, TENSOR, "the pass")


@pytest.mark.parametrize(("graph", "problem"), WRONG, ids=lambda part: str(part)[-40:])
def test_a_wrong_tensor_graph_is_found(graph: UOp, problem: str) -> None:
    message = broken(graph)
    assert problem in message
    assert message.startswith("the pass: the result breaks the spec 'tensor graph'")


@pytest.mark.parametrize(("graph", "problem"), WRONG_KERNELS, ids=lambda part: str(part)[-40:])
def test_a_wrong_kernel_is_found(graph: UOp, problem: str) -> None:
    assert problem in broken(graph, KERNEL)


def test_a_right_kernel_passes() -> None:
    verify(UOp.sink(STORE), KERNEL, "the pass")
