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
    (UOp(Op.CONST, F32, (), 1), "a Python number of its dtype"),
    (UOp(Op.CONST, BOOL, (), 2), "a Python number of its dtype"),
    (UOp(Op.CONST, dtypes.uint8, (), 300), "its dtype can hold"),
    (UOp(Op.CONST, F32, (), 0.1), "its dtype can hold"),
    (UOp(Op.CONST, F32, (A,), 0.5), "its sources are 0"),
    (UOp(Op.BUFFER, F32, (), ParamArg(0, 6, "CPU")), "its payload is BufferArg"),
    (UOp(Op.BUFFER, F32, (), BufferArg(-1, -6, "CPU")), "it has room for elements"),
    (UOp(Op.VARIABLE, I32, (), VariableArg("n", 0, 3)), "it is dtypes.index"),
    (UOp(Op.VARIABLE, INDEX, (), VariableArg("n", 4, 3)), "its minimum is at most its maximum"),
    (UOp(Op.BIND, INDEX, (N, UOp.const(9, INDEX))), "its value is in range"),
    (UOp(Op.BIND, INDEX, (N, N)), "it binds a VARIABLE to a CONST"),
    (UOp(Op.ARANGE, F32, (), (3,)), "it is integers along one axis"),
    (UOp(Op.ADD, F32, (A,)), "its sources are 2"),
    (UOp(Op.ADD, F32, (A, A), 3), "its payload is NoneType"),
    (UOp(Op.ADD, F32, (A, tensor(2, 3, dtype=I32))), "its sources are of one dtype"),
    (UOp(Op.ADD, I32, (A, A)), "it is what its sources make"),
    (UOp(Op.CMPLT, F32, (A, A)), "it is what its sources make"),
    (UOp(Op.WHERE, F32, (A, A, A)), "its condition is bool"),
    (UOp(Op.BITCAST, dtypes.int8, (A,)), "its source is of the same width"),
    (UOp(Op.CAST, dtypes.void, (A,)), "it has a dtype"),
    (UOp(Op.ADD, F32.vec(2), (A, A)), "its sources have its lanes"),
    (UOp(Op.SQRT, I32, (tensor(2, 3, dtype=I32),)), "its op is for floats"),
    (UOp(Op.AND, F32, (A, A)), "its op is not for floats"),
    (UOp(Op.ADD, F32, (A, B)), "its sources are of one shape"),
    (A + tensor(2, 3, device="LLVM"), "its sources are on one device"),
    (UOp(Op.SUB, F32, (A, A)), "SUB does not occur"),
    (UOp(Op.RESHAPE, I32, (A,), (6,)), "it is dtypes.float32"),
    (UOp(Op.RESHAPE, F32, (A,), (7,)), "as many elements as its source"),
    (UOp(Op.PERMUTE, F32, (A,), (0, 0)), "it names each axis once"),
    (UOp(Op.EXPAND, F32, (A,), (4, 3)), "only axes of size 1"),
    (UOp(Op.EXPAND, F32, (A,), (6,)), "one part for each axis"),
    (UOp(Op.PAD, F32, (A,), ((-1, 0), (0, 0))), "it pads by no negative number"),
    (UOp(Op.PAD, F32, (A,), ((1, 0),)), "one part for each axis"),
    (UOp(Op.SHRINK, F32, (A,), ((0, 3), (0, 3))), "its part is inside its source"),
    (UOp(Op.SHRINK, F32, (A,), ((0, 2),)), "one part for each axis"),
    (UOp(Op.FLIP, F32, (A,), (2,)), "it names axes of its source"),
    (UOp(Op.FLIP, F32, (A, A), (1,)), "its sources are 1"),
    (UOp(Op.PERMUTE, F32, (A,), (0, "1")), "it is well formed ('<' not supported"),
    (UOp(Op.REDUCE, F32, (A,), ReduceArg(Op.XOR, (0,))), "it combines by ADD, MUL or MAX"),
    (UOp(Op.REDUCE, F32, (A,), ReduceArg(Op.ADD, (1, 0))), "its axes are in order"),
    (UOp(Op.REDUCE, F32, (A,), ReduceArg(Op.ADD, (2,))), "its axes are those of its source"),
    (UOp(Op.REDUCE, I32, (A,), ReduceArg(Op.ADD, (0,))), "it is dtypes.float32"),
    (UOp(Op.CONTIGUOUS, I32, (A,)), "it is dtypes.float32"),
    (UOp(Op.COPY, F32, (A,), 3), "its payload is str"),
    (UOp(Op.ASSIGN, F32, (A + A, A)), "its target is a view of memory"),
    (UOp(Op.ASSIGN, F32, (A, B)), "a value of the target's shape"),
    (UOp(Op.ASSIGN, F32, (A, tensor(2, 3, dtype=I32))), "a value of the target's dtype"),
    (UOp(Op.ASSIGN, I32, (A, A)), "it is dtypes.float32"),
    (UOp(Op.AFTER, F32, (A, WRITE)), "it is of memory"),
    (UOp(Op.AFTER, F32, (OTHER, WRITE)), "it waits for writes to its own memory"),
    (UOp(Op.AFTER, F32, (BUFFER, A)), "it waits for ASSIGN"),
    (UOp(Op.SINK, F32, (A,)), "it is dtypes.void"),
    (UOp(Op.STORE, dtypes.void, (A, A)), "STORE does not occur"),
]

STORE = UOp(Op.STORE, dtypes.void, (param(2, 3), param(2, 3, slot=1) + 1.0))
WRONG_KERNELS = [
    (UOp.sink(), "a kernel is stores"),
    (UOp.sink(param(2, 3)), "a kernel is stores"),
    (UOp(Op.SINK, F32, (STORE,)), "it is dtypes.void"),
    (UOp.sink(STORE.replace(src=(A, A))), "BUFFER does not occur"),
    (UOp.sink(STORE.replace(src=(param(3, 2), param(2, 3)))), "a value of the target's shape"),
    (UOp.sink(STORE.replace(dtype=F32)), "it is dtypes.void"),
    (
        UOp.sink(STORE.replace(src=(param(2, 3) + 1.0, param(2, 3)))),
        "its target is a view of memory",
    ),
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
