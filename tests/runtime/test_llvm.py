"""LLVM IR through llvmlite."""

import subprocess
import sys

import pytest

from kernelet.base.errors import DeviceError, InternalError
from kernelet.runtime import llvm
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


@pytest.mark.parametrize(
    ("wide", "code", "value"), [("float", "f", 1.5), ("double", "d", 1 + 2**-11 + 2**-30)]
)
def test_half_floats_convert_with_one_rounding(wide, code, value):
    source = f"""
define void @f(ptr %x, ptr %out, i64 %b, i64 %e) {{
  %1 = load {wide}, ptr %x
  %2 = fptrunc {wide} %1 to half
  store half %2, ptr %out
  ret void
}}"""
    function = loaded("LLVM", source, "f", 2, 0)
    memory, out = filled("LLVM", code, [value]), filled("LLVM", "e", [0])
    function([memory.address, out.address], [], 0, 0)
    assert contents(out, "e") == [1.5 if value == 1.5 else 1 + 2**-10]


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
    assert llvm._with_wide_vectors("+avx512f,+prefer-256-bit") == "+avx512f,-prefer-256-bit"


def test_the_assembly_can_be_read():
    assert "add:" in llvm.assembly(IR_ADD, "add")
