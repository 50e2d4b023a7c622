"""What C source looks like; what it computes is checked in test_renderer.py."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kernelet.base.dtype import dtypes
from kernelet.base.errors import InternalError
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.render.c import render
from tests.render.linear_programs import C_FLAGS, Builder, constant, matmul_tile, vector_add


def body(program: list[UOp]) -> list[str]:
    """The lines inside the function."""
    lines = render(program, "kernel").splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("void "))
    return [line.strip() for line in lines[start + 1 : -1]]


def test_a_value_used_once_is_written_where_it_is_used() -> None:
    assert body(vector_add(1))[1:3] == [
        "const long long v0 = i0 * 1;",
        "out0[v0] = in1[v0] + in2[v0];",
    ]


def test_the_thread_loop_runs_between_the_bounds_of_the_launch() -> None:
    assert body(vector_add(1))[0] == "for (long long i0 = thread_begin; i0 < thread_end; i0++) {"


def test_a_load_is_written_before_a_store_that_may_change_it() -> None:
    make = Builder()
    out, memory = make.parameter(0, dtypes.int32), make.parameter(1, dtypes.int32)
    value = make.load(memory, 0)
    make.store(out, 0, constant(1, dtypes.int32))
    make.store(out, 1, value)
    assert body(make.program) == ["const int v0 = in1[0];", "out0[0] = 1;", "out0[1] = v0;"]


def test_a_load_is_written_before_a_loop_that_follows_it() -> None:
    make = Builder()
    out, memory = make.parameter(0, dtypes.int32), make.parameter(1, dtypes.int32)
    value = make.load(memory, 0)
    loop = make.loop(3)
    make.store(out, loop, value)
    make.end(loop)
    assert body(make.program)[0] == "const int v0 = in1[0];"


def test_parentheses_stand_only_where_they_matter() -> None:
    make = Builder()
    out, memory = make.parameter(0, dtypes.float32), make.parameter(1, dtypes.float32)
    x, y, z = (make.load(memory, place) for place in range(3))
    make.store(out, 0, (x + y) * z)
    make.store(out, 1, x + (y + z))
    text = "\n".join(body(make.program))
    assert "out0[0] = (v0 + v1) * v2;" in text
    assert "out0[1] = v0 + (v1 + v2);" in text


def test_narrow_integers_are_cut_back_after_each_step() -> None:
    make = Builder()
    out, memory = make.parameter(0, dtypes.bool), make.parameter(1, dtypes.uint8)
    sums = make.load(memory, 0) + make.load(memory, 1)
    make.store(out, 0, sums < make.load(memory, 2))
    assert body(make.program) == ["out0[0] = (unsigned char)(in1[0] + in1[1]) < in1[2];"]


def test_a_node_that_is_not_computed_yet_is_reported() -> None:
    out = Builder().parameter(0, dtypes.float32)
    value = UOp(Op.NEG, dtypes.float32, (UOp(Op.SQRT, dtypes.float32, (out,)),))
    index = UOp(Op.INDEX, dtypes.float32, (out, constant(0, dtypes.index)))
    with pytest.raises(InternalError, match="before it is computed"):
        render([out, index, UOp(Op.STORE, dtypes.void, (index, value))], "kernel")


def test_an_op_that_should_have_been_decomposed_is_reported() -> None:
    make = Builder()
    out = make.parameter(0, dtypes.float32)
    make.store(out, 0, make.load(out, 0).alu(Op.EXP2))
    with pytest.raises(InternalError, match="EXP2"):
        render(make.program, "kernel")


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_a_register_tile_is_fused_multiply_adds_without_spills(
    compiler: str, tmp_path: Path
) -> None:
    """Every accumulator of the inner loop is one instruction on one register."""
    if shutil.which(compiler) is None or "avx512f" not in Path("/proc/cpuinfo").read_text():
        pytest.skip(f"{compiler} for a processor with AVX-512 is needed")
    source = tmp_path / "tile.c"
    source.write_text(render(matmul_tile(512, 8, 16, 2), "tile"))
    flags = [flag for flag in C_FLAGS if flag != "-shared"] + ["-mprefer-vector-width=512"]
    command = [compiler, *flags, "-S", str(source), "-o", str(tmp_path / "tile.s")]
    subprocess.run(command, check=True)
    text = (tmp_path / "tile.s").read_text()
    # The compiler may write several turns of the loop one after the other.
    steps, rest = divmod(len(re.findall(r"vfmadd\d+ps", text)), 16)
    assert steps >= 1
    assert rest == 0
    inner = text[text.index("vfmadd") : text.rindex("vfmadd")]
    assert "sp)" not in inner


def test_the_lanes_of_a_sum_are_read_from_one_register_after_its_loop() -> None:
    make = Builder()
    vector = dtypes.float32.vec(4)
    out, memory = (make.parameter(slot, dtypes.float32, 64) for slot in range(2))
    tile = make.scratch(vector, 1, register=True)
    make.store(tile, 0, constant(0.0, vector))
    step = make.loop(16, "reduce")
    make.store(tile, 0, make.load(tile, 0) + make.load(memory, step * 4, 4))
    make.end(step)
    for value, first in ((make.load(tile, 0), 0), (make.load(memory, 0, 4), 1)):
        for lane in range(4):
            make.store(out, lane * 16 + first, UOp(Op.EXTRACT, dtypes.float32, (value,), lane))
    lines = body(make.program)
    (taken,) = (line for line in lines if "whole_float32x4" in line)
    # Neither in the loop nor where memory is read.
    assert lines.index(taken) > lines.index("}")
    assert "in1" not in taken
