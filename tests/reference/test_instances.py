"""An equation can be looked at with real nodes."""

from kernelet.base.dtype import dtypes
from kernelet.graph.pattern import ANY_DTYPE, INTEGERS, constants, equation, variables
from tests.reference.instances import written_out


def test_an_equation_can_be_written_out_at_a_dtype() -> None:
    x, c = variables("x")[0], constants("c")[0]
    shorter = equation((x + 1) < c, x < c, dtypes=INTEGERS)
    left, right, places = written_out(shorter, dtypes.int8)
    assert [node.dtype for node in left.src] == [dtypes.int8, dtypes.int8]
    assert left.dtype is right.dtype is dtypes.bool
    assert [(node.arg.name, node.bounds) for node in places] == [
        ("x", (-128, 127)),
        ("c", (-128, 127)),
    ]
    assert all(node.dtype is not ANY_DTYPE for node in left.toposort())
