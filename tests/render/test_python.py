"""What Python source looks like; what it computes is checked in test_renderer.py."""

from __future__ import annotations

import math

from kernelet.base.dtype import dtypes
from kernelet.graph.ops import OP_TABLE, Op
from kernelet.render.python import render
from tests.render.conftest import python_machine
from tests.render.linear_programs import Builder, Case, check_cases, constant, vector_add


def test_a_vector_is_a_tuple() -> None:
    text = render(vector_add(4), "add")
    assert "tuple([load_float32(in1, v0 + lane) for lane in range(4)])" in text
    assert "tuple([round_float32(x + y) for x, y in zip(v1, v2)])" in text


def test_integers_whose_bounds_are_known_are_not_wrapped() -> None:
    make = Builder()
    out = make.parameter(0, dtypes.int32)
    loop = make.loop(10)
    small = loop.cast(dtypes.int32) * constant(3, dtypes.int32)
    make.store(out, loop, small + make.load(out, 0))
    make.end(loop)
    text = render(make.program, "kernel")
    assert "* 3\n" in text
    assert text.count("round_int32(") == 2  # the cast, and the sum with what memory holds


def test_an_empty_loop_is_python() -> None:
    make = Builder()
    make.end(make.loop(3))
    assert render(make.program, "kernel").endswith("for i0 in range(3):\n        pass\n")


def test_every_op_of_the_graph_has_a_formula() -> None:
    values = [0.25, 1.0, 2.0, 10.5]
    floats = [
        Case(
            op.name,
            (dtypes.float64,),
            dtypes.float64,
            lambda x, op=op: x.alu(op),
            meaning,
            (values,),
        )
        for op in (Op.EXP2, Op.LOG2, Op.SIN)
        for meaning in [OP_TABLE[op].meaning]
    ]
    whole = ([7, -7, 7, -7, -(1 << 31)], [2, 2, -2, 0, -1])
    integers = [
        Case(
            op.name,
            (dtypes.int32,) * 2,
            dtypes.int32,
            lambda x, y, op=op: x.alu(op, y),
            meaning,
            whole,
        )
        for op in (Op.IDIV, Op.MOD)
        for meaning in [OP_TABLE[op].meaning]
    ]
    check_cases(python_machine(), [*floats, *integers], 1)


def test_infinities_and_nan_are_constants() -> None:
    make = Builder()
    out = make.parameter(0, dtypes.float32)
    for place, value in enumerate((math.inf, -math.inf, math.nan)):
        make.store(out, place, constant(value, dtypes.float32))
    text = render(make.program, "kernel")
    assert "0, inf)" in text
    assert "1, (-inf))" in text
    assert "2, nan)" in text


def test_text_depends_on_the_program_alone() -> None:
    assert render(vector_add(4), "add") == render(vector_add(4), "add")
