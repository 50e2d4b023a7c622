"""The text of a graph is complete, short and never raises."""

from kernelet.base.dtype import dtypes
from kernelet.graph.ops import Op
from kernelet.graph.show import show, show_expression
from kernelet.graph.uop import RangeArg, ReduceArg, ScratchArg, UOp


def matrix() -> UOp:
    return UOp(Op.RESHAPE, dtypes.float32, (UOp(Op.BUFFER, dtypes.float32, (), None),), (4, 5))


def named_buffer(size: int) -> tuple[UOp, int]:
    buffer = UOp.buffer(size, dtypes.float32, "CPU")
    return buffer, buffer.arg.number


def test_a_leaf_is_one_line() -> None:
    buffer, number = named_buffer(20)
    assert repr(buffer) == f"BUFFER float32 (20,) number={number} CPU"
    assert repr(UOp.const(2, dtypes.int32)) == "CONST int32 2"
    assert repr(UOp.variable("n", 1, 9)) == "VARIABLE index n=1..9"


def test_a_shared_node_is_written_once() -> None:
    buffer, number = named_buffer(20)
    x = UOp(Op.RESHAPE, dtypes.float32, (buffer,), (4, 5))
    total = UOp(Op.REDUCE, dtypes.float32, (x + x,), ReduceArg(Op.ADD, (1,)))
    assert show(total).splitlines() == [
        f"%0 = BUFFER float32 (20,) number={number} CPU",
        "%1 = RESHAPE float32 (4, 5) %0",
        "%2 = ADD float32 (4, 5) %1 %1",
        "%3 = REDUCE float32 (4, 1) %2 ADD axes=(1,)",
    ]


def test_constants_are_written_in_place() -> None:
    n = UOp.variable("n", 1, 9)
    assert show(n * 2 + 1).splitlines() == [
        "%0 = VARIABLE index n=1..9",
        "%1 = MUL index %0 2",
        "%2 = ADD index %1 1",
    ]


def test_kernel_payloads_are_readable() -> None:
    loop = UOp(Op.RANGE, dtypes.index, (UOp.const(8, dtypes.index),), RangeArg(3, "loop"))
    assert show(loop) == "%0 = RANGE index 8 r3 loop"
    scratch = UOp(Op.SCRATCH, dtypes.float32.vec(8), (), ScratchArg(0, 4, True))
    assert show(scratch) == "SCRATCH float32x8 s0[4] register"


def test_symbolic_sizes_read_as_formulas() -> None:
    n = UOp.variable("n", 1, 9)
    node = UOp(Op.RESHAPE, dtypes.float32, (UOp.buffer(9, dtypes.float32, "CPU"),), ((n + 1) * 4,))
    assert show(node).splitlines()[-1] == "%1 = RESHAPE float32 ((n + 1) * 4,) %0"
    assert show_expression(-n.maximum(n // 2) % 3) == "(-max(n, n // 2)) % 3"
    assert show_expression(n.bind(3)) == "n=3"


def test_the_middle_of_a_big_graph_is_left_out() -> None:
    x = UOp.variable("n", 1, 9)
    for _ in range(3000):
        x = x + 1
    lines = repr(x).splitlines()
    assert len(lines) == 201
    assert "... 2801 more nodes ..." in lines
    assert lines[-1].startswith("%3000 = ADD")
    assert len(show(x, limit=None).splitlines()) == 3001


def test_a_malformed_graph_prints_too() -> None:
    assert repr(UOp(Op.PAD, dtypes.float32, (matrix(),), 3)).splitlines()[-1].startswith("%2 = PAD")
    assert "REDUCE" in repr(UOp(Op.REDUCE, dtypes.float32, (matrix(),), "?"))


def test_a_deep_expression_is_cut() -> None:
    x = UOp.variable("n", 1, 9)
    for _ in range(100):
        x = x + 1
    assert "..." in show_expression(x)
