"""What LLVM IR looks like; what it computes is checked in test_renderer.py."""

from __future__ import annotations

import pytest

from kernelet.base.dtype import DType, dtypes
from kernelet.base.errors import InternalError
from kernelet.graph.ops import Op
from kernelet.render.llvm import render
from tests.render.linear_programs import Builder, constant, matmul_tile, vector_add


def test_a_loop_is_a_header_a_body_and_a_latch() -> None:
    text = render(vector_add(4), "add")
    assert "%i0 = phi i64 [ %thread_begin, %entry ], [ %i0.next, %i0.latch ]" in text
    for label in ("i0.head:", "i0.body:", "i0.latch:", "i0.exit:"):
        assert f"\n{label}\n" in text


def test_only_the_fused_multiply_add_that_is_asked_for_is_made() -> None:
    text = render(matmul_tile(64, 2, 8, 2), "tile")
    assert text.count("call <8 x float> @llvm.fma.v8f32") == 4
    assert "fast" not in text
    assert "contract" not in text


def test_parameters_that_are_only_read_say_so() -> None:
    assert "(ptr %out0, ptr readonly %in1, ptr readonly %in2, " in render(vector_add(4), "add")
    assert "noalias" not in render(vector_add(4), "add")


def test_an_address_behind_a_gate_may_be_outside() -> None:
    make = Builder()
    out = make.parameter(0, dtypes.float32)
    loop = make.loop(4)
    make.store(out, loop, make.load(out, loop + 100, gate=loop < 2))
    make.end(loop)
    text = render(make.program, "kernel")
    assert "= getelementptr float, ptr %out0" in text
    assert "= getelementptr inbounds float, ptr %out0, i64 %i0" in text


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.int32])
def test_one_number_of_two_is_chosen_without_a_jump(dtype: DType) -> None:
    make = Builder()
    out = make.parameter(0, dtype)
    value = make.load(out, 0)
    make.store(out, 1, (value < 3).where(value.alu(Op.MAX, make.load(out, 2)), value))
    selects = [line for line in render(make.program, "kernel").splitlines() if "= select" in line]
    assert selects
    assert all(line.endswith("!unpredictable !{}") for line in selects)


def test_loops_that_share_a_range_have_labels_of_their_own() -> None:
    make = Builder()
    out = make.parameter(0, dtypes.float32)
    loop = make.loop(4)
    make.store(out, loop, constant(1.0, dtypes.float32))
    make.end(loop)
    twice = [*make.program, *make.program[1:]]
    text = render(twice, "kernel")
    labels = [line for line in text.splitlines() if line.endswith(":") and ".head" in line]
    assert len(set(labels)) == len(labels) == 2


def test_an_op_that_should_have_been_decomposed_is_reported() -> None:
    make = Builder()
    out = make.parameter(0, dtypes.float32)
    make.store(out, 0, make.load(out, 0).alu(Op.SIN))
    with pytest.raises(InternalError, match="SIN"):
        render(make.program, "kernel")
