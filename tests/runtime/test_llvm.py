"""LLVM IR through llvmlite."""

import math
import struct
import subprocess
import sys

import pytest

from kernelet import Tensor
from kernelet.base.dtype import dtypes, round_to
from kernelet.base.errors import DeviceError, InternalError
from kernelet.runtime import host, llvm
from kernelet.runtime.buffer import Buffer
from kernelet.runtime.device import driver
from tests.runtime.kernels import IR_ADD, contents, filled, loaded

pytest.importorskip("llvmlite")


def test_ir_is_compiled_loaded_and_run(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))  # no compiler and no linker
    add = loaded("LLVM", IR_ADD, "add", 3, 1)
    x, y, out = (filled("LLVM", "f", [value] * 10) for value in (1, 2, 0))
    add([out.address, x.address, y.address], [4], 2, 5)
    assert contents(out, "f") == [0, 0, 7, 7, 7, 0, 0, 0, 0, 0]


def test_two_kernels_may_share_a_name():
    text = "define void @f(ptr %x, i64 %b, i64 %e) {{ store i32 {}, ptr %x ret void }}"
    one, two = (loaded("LLVM", text.format(value), "f", 1, 0) for value in (1, 2))
    memory = filled("LLVM", "i", [0])
    for launcher, value in ((one, 1), (two, 2)):
        launcher([memory.address], [], 0, 0)
        assert contents(memory, "i") == [value]


def test_products_and_sums_are_not_fused():
    source = """
define void @f(ptr %p, double %unused) { ret void }
define void @g(ptr %x, i64 %b, i64 %e) {
  %y = getelementptr double, ptr %x, i64 1
  %z = getelementptr double, ptr %x, i64 2
  %out = getelementptr double, ptr %x, i64 3
  %1 = load double, ptr %x
  %2 = load double, ptr %y
  %3 = load double, ptr %z
  %4 = fmul double %1, %2
  %5 = fadd double %4, %3
  store double %5, ptr %out
  ret void
}"""
    function = loaded("LLVM", source, "g", 1, 0)
    memory = filled("LLVM", "d", [1 + 2**-30, 1 - 2**-30, -1, 7])
    function([memory.address], [], 0, 0)
    assert contents(memory, "d")[3] == 0


def test_signs_are_those_of_the_vector_in_any_register():
    rows = [[math.inf, -math.inf, 1.0, 0.0], [3.0, math.inf, -math.inf, 0.0]] * 2
    ordered = Tensor(rows, device="LLVM").sort(1)[0]
    assert ordered.tolist() == [sorted(row) for row in rows]


HALVES = """
define void @f(ptr %floats, ptr %halves, ptr %back, i64 %begin, i64 %end) {
entry:
  br label %loop
loop:
  %i = phi i64 [%begin, %entry], [%next, %loop]
  %x = getelementptr float, ptr %floats, i64 %i
  %y = getelementptr half, ptr %halves, i64 %i
  %z = getelementptr float, ptr %back, i64 %i
  %value = load float, ptr %x
  %narrow = fptrunc float %value to half
  store half %narrow, ptr %y
  %wide = fpext half %narrow to float
  store float %wide, ptr %z
  %next = add i64 %i, 1
  %again = icmp slt i64 %next, %end
  br i1 %again, label %loop, label %over
over:
  ret void
}"""


@pytest.mark.parametrize("converts", [True, False])
def test_half_floats_convert_with_and_without_instructions_for_it(monkeypatch, converts):
    if not converts:
        extra = ",-f16c,-avx512fp16,-avx512f" if host.is_x86() else ""
        plain = llvm._target_machine(extra)
        monkeypatch.setattr(llvm, "_compiling_machine", lambda: plain)
        monkeypatch.setattr(llvm, "_converts_halves", lambda: False)
    halves = [struct.unpack("<e", struct.pack("<H", bits))[0] for bits in range(0, 1 << 16, 7)]
    between = [x * factor for x in halves[:4500] for factor in (1 + 2**-11, 1 + 2**-12, 1.0003)]
    values = [0.0, -0.0, math.inf, -math.inf, 65519.9, 65520.0, 2.0**-25, 2.0**-24, 1e-10]
    values = [round_to(dtypes.float32, x) for x in (*values, *halves, *between)]
    memory, size = filled("LLVM", "f", values), len(values)
    out, back = Buffer("LLVM", 2 * size), Buffer("LLVM", 4 * size)
    function = loaded("LLVM", HALVES, "f", 3, 0)
    function([memory.address, out.address, back.address], [], 0, size)
    for value, half, again in zip(values, contents(out, "e"), contents(back, "f"), strict=True):
        wanted = round_to(dtypes.float16, value)
        if math.isnan(value):
            assert math.isnan(half) and math.isnan(again)
        else:
            assert (half, math.copysign(1, half)) == (wanted, math.copysign(1, wanted)), value
            assert again == wanted


def test_ir_that_llvm_refuses_is_an_internal_error():
    with pytest.raises(InternalError, match=r"(?s)compile f: LLVM .*DEBUG=4"):
        driver("LLVM").compile("this is no IR", "f")


def test_a_binary_is_loaded_by_another_process(tmp_path):
    path = tmp_path / "add.o"
    path.write_bytes(driver("LLVM").compile(IR_ADD, "add"))
    program = f"""
import sys
sys.path[:0] = {sys.path!r}
from kernelet.runtime import device
from kernelet.runtime.llvm import LlvmDriver
device.register("LLVM", LlvmDriver)
from tests.runtime.kernels import *
add = device.driver("LLVM").load(open({str(path)!r}, "rb").read(), "add", 3, 1)
x, y, out = (filled("LLVM", "f", [value] * 4) for value in (1, 2, 0))
add([out.address, x.address, y.address], [4], 0, 4)
assert contents(out, "f") == [7] * 4
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


def test_without_llvmlite_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    llvm._binding.cache_clear()
    try:
        with pytest.raises(DeviceError, match="needs the package llvmlite.*CPU=1"):
            llvm.optimise(IR_ADD, "add")
    finally:
        llvm._binding.cache_clear()


def test_importing_the_driver_does_not_import_llvmlite():
    program = "import sys, kernelet.runtime.llvm; assert 'llvmlite' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_wide_vectors_are_not_split():
    assert llvm._with_wide_vectors("+avx2,+prefer-256-bit") == "+avx2,+prefer-256-bit"
    found = llvm._with_wide_vectors("+avx512f,+prefer-256-bit")
    assert found == "+avx512f,-prefer-256-bit,-avx512dq"


def test_the_assembly_can_be_read():
    assert "add:" in driver("LLVM").assembly(IR_ADD, "add")


@pytest.mark.parametrize("length", [0, 1 << 30])
def test_long_programs_and_short_ones_give_the_same(length, monkeypatch):
    monkeypatch.setattr(llvm, "_LONG", length)
    add = loaded("LLVM", IR_ADD, "add", 3, 1)
    x, y, out = (filled("LLVM", "f", [value] * 100) for value in (1, 2, 0))
    add([out.address, x.address, y.address], [4], 3, 99)
    assert contents(out, "f") == [0] * 3 + [7] * 96 + [0]


def test_long_programs_keep_their_sums_in_registers():
    steps = "\n".join(
        f"  %a{n} = load float, ptr %sum\n  %b{n} = fadd float %a{n}, {n}.0\n"
        f"  store float %b{n}, ptr %sum"
        for n in range(400)
    )
    source = f"""
define void @f(ptr %out, i64 %begin, i64 %end) {{
  %sum = alloca float
  store float 0.0, ptr %sum
{steps}
  %total = load float, ptr %sum
  store float %total, ptr %out
  ret void
}}"""
    assert len(source) > llvm._LONG
    assert str(llvm.optimise(source, "f")).count("load") == 0
    out = filled("LLVM", "f", [0])
    loaded("LLVM", source, "f", 1, 0)([out.address], [], 0, 0)
    assert contents(out, "f") == [sum(range(400))]
