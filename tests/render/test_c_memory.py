"""Signatures and scratch in C."""

from __future__ import annotations

from kernelet.base.dtype import dtypes
from kernelet.render.c_helpers import Prelude
from kernelet.render.c_memory import scratch_lines, signature
from kernelet.render.renderer import STACK_BYTES, outline
from tests.render.linear_programs import Builder, constant, vector_add


def test_the_signature_has_pointers_then_variables_then_the_thread_bounds() -> None:
    make = Builder()
    out, memory = make.parameter(0, dtypes.float32), make.parameter(1, dtypes.bfloat16)
    start = make.variable("start pos")
    make.store(out, start, make.load(memory, start).cast(dtypes.float32))
    assert signature(outline(make.program), "copy") == (
        "void copy(float* out0, const unsigned short* in1, long long n_start_pos, "
        "long long thread_begin, long long thread_end)"
    )


def test_no_pointer_is_restrict_because_memory_may_be_given_twice() -> None:
    assert "restrict" not in signature(outline(vector_add(4)), "add")


def test_large_scratch_comes_from_the_heap() -> None:
    for size, first in ((64, "float scratch0[64]"), (STACK_BYTES, "char* const heap")):
        make = Builder()
        array = make.scratch(dtypes.float32, size)
        make.store(array, 0, constant(1.0, dtypes.float32))
        assert scratch_lines(outline(make.program), Prelude())[0].startswith(first)


def test_only_registers_that_occur_are_declared() -> None:
    make = Builder()
    tile = make.scratch(dtypes.float32, 8, register=True)
    make.store(tile, 3, constant(1.0, dtypes.float32))
    make.store(tile, 1, constant(1.0, dtypes.float32))
    assert scratch_lines(outline(make.program), Prelude()) == ["float acc0_1, acc0_3;"]
