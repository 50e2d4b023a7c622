"""C through clang or gcc."""

import os
import shutil
import subprocess
import sys

import pytest

from kernelet.base.config import Context
from kernelet.base.errors import DeviceError, InternalError
from kernelet.runtime import cpu
from kernelet.runtime.device import available, driver
from tests.runtime.kernels import C_ADD, contents, filled, loaded

COMPILERS = [name for name in ("clang", "gcc") if shutil.which(name)]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_c_is_compiled_loaded_and_run(compiler):
    with Context(CC=compiler, THREADS=1):
        add = loaded("CPU", C_ADD, "add", 3, 1)
    x, y, out = (filled("CPU", "f", [value] * 10) for value in (1, 2, 0))
    add([out.address, x.address, y.address], [4], 2, 5)
    assert contents(out, "f") == [0, 0, 7, 7, 7, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_products_and_sums_are_not_fused(compiler):
    source = "void f(double* x, long long b, long long e) { x[3] = x[0] * x[1] + x[2]; }"
    with Context(CC=compiler):
        function = loaded("CPU", source, "f", 1, 0)
    memory = filled("CPU", "d", [1 + 2**-30, 1 - 2**-30, -1, 7])
    function([memory.address], [], 0, 0)
    assert contents(memory, "d")[3] == 0  # fused it is -2**-60


@pytest.mark.parametrize("compiler", COMPILERS)
def test_functions_of_the_c_library_are_found(compiler):
    source = """
void f(float* x, long long b, long long e) {
    float copy[64];
    __builtin_memcpy(copy, x, sizeof copy);
    x[0] = __builtin_fmodf(copy[1], 3.0f);
}"""
    with Context(CC=compiler):
        function = loaded("CPU", source, "f", 1, 0)
    memory = filled("CPU", "f", [0, 7] + [0] * 62)
    function([memory.address], [], 0, 0)
    assert contents(memory, "f")[0] == 1


def test_two_kernels_may_share_a_name():
    one, two = (
        loaded("CPU", f"void f(int* x, long long b, long long e) {{ *x = {value}; }}", "f", 1, 0)
        for value in (1, 2)
    )
    memory = filled("CPU", "i", [0])
    for launcher, value in ((one, 1), (two, 2)):
        launcher([memory.address], [], 0, 0)
        assert contents(memory, "i") == [value]


def test_without_a_compiler_the_error_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DeviceError, match="clang, gcc and cc; none is on PATH.*LLVM=1"):
        driver("CPU").compile(C_ADD, "add")
    assert "needs a C compiler" in driver("CPU").problem()
    assert "CPU" not in available()
    with Context(CC="/nowhere/tcc -O1"), pytest.raises(DeviceError, match="CC=/nowhere/tcc -O1"):
        driver("CPU").compile(C_ADD, "add")


def test_code_that_the_compiler_refuses_is_an_internal_error():
    with pytest.raises(InternalError, match=r"(?s)compile f: .* fails: .*DEBUG=4"):
        driver("CPU").compile("this is no C", "f")


def test_the_compiler_may_have_arguments():
    with Context(CC=f"{COMPILERS[0]} -DVALUE=3"):
        source = "void f(int* x, long long b, long long e) { *x = VALUE; }"
        function = loaded("CPU", source, "f", 1, 0)
        assert "-DVALUE=3" in driver("CPU").compiler_key()
    memory = filled("CPU", "i", [0])
    function([memory.address], [], 0, 0)
    assert contents(memory, "i") == [3]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_assembly_can_be_read(compiler):
    with Context(CC=compiler):
        assert "add:" in driver("CPU").assembly(C_ADD, "add")


def test_a_folder_from_which_nothing_loads_is_named(monkeypatch):
    with pytest.raises(DeviceError, match="load f: .*TMPDIR"):
        driver("CPU").load(b"no library", "f", 0, 0)


def test_no_file_is_left_behind(monkeypatch, tmp_path):
    monkeypatch.setattr(cpu.tempfile, "tempdir", str(tmp_path))
    loaded("CPU", C_ADD, "add", 3, 1)
    assert os.listdir(tmp_path) == []


def test_the_standard_library_and_a_compiler_are_enough():
    program = f"""
import sys
sys.path[:0] = {sys.path!r}
sys.modules["numpy"] = sys.modules["llvmlite"] = None
from kernelet.runtime import device
from kernelet.runtime.cpu import CpuDriver
device.register("CPU", CpuDriver)
from tests.runtime.kernels import *
add = loaded("CPU", C_ADD, "add", 3, 1)
x, y, out = (filled("CPU", "f", [value] * 4) for value in (1, 2, 0))
add([out.address, x.address, y.address], [4], 0, 4)
assert contents(out, "f") == [7] * 4
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
