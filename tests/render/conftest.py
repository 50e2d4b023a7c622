"""The fixture that runs a linear program in every language that is installed."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from kernelet.base.scalars import NAMESPACE
from kernelet.graph.uop import UOp
from kernelet.render import c, llvm, python
from tests.render.linear_programs import Run, call, compile_c, compile_llvm


def c_machine(compiler: str, folder: Path) -> Run:
    """Run programs as C through gcc or clang."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")

    def run(
        program: Sequence[UOp],
        memories: Sequence[bytes],
        values: Sequence[int] = (),
        threads: range = range(1),
    ) -> list[bytes]:
        library = compile_c(compiler, c.render(program, "kernel"), folder)
        address = c_address(library)
        data = [bytearray(memory) for memory in memories]
        call(address, data, values, threads)
        return [bytes(memory) for memory in data]

    return run


def c_address(library: object) -> int:
    """Where the kernel of a loaded library starts."""
    import ctypes

    return ctypes.cast(library.kernel, ctypes.c_void_p).value  # type: ignore[attr-defined]


def llvm_machine(folder: Path) -> Run:
    """Run programs as LLVM IR through llvmlite."""
    binding = pytest.importorskip("llvmlite.binding")
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()

    def run(
        program: Sequence[UOp],
        memories: Sequence[bytes],
        values: Sequence[int] = (),
        threads: range = range(1),
    ) -> list[bytes]:
        engine = compile_llvm(llvm.render(program, "kernel"))
        data = [bytearray(memory) for memory in memories]
        call(engine.get_function_address("kernel"), data, values, threads)
        return [bytes(memory) for memory in data]

    return run


def python_machine() -> Run:
    """Run programs as Python."""

    def run(
        program: Sequence[UOp],
        memories: Sequence[bytes],
        values: Sequence[int] = (),
        threads: range = range(1),
    ) -> list[bytes]:
        scope = dict(NAMESPACE)
        exec(python.render(program, "kernel"), scope)
        data = [bytearray(memory) for memory in memories]
        kernel = scope["kernel"]
        kernel([memoryview(memory) for memory in data], values, threads.start, threads.stop)
        return [bytes(memory) for memory in data]

    return run


@pytest.fixture(params=["gcc", "clang", "llvm", "python"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """A way to run a linear program: memories in, memories after it out."""
    if request.param == "python":
        return python_machine()
    if request.param == "llvm":
        return llvm_machine(tmp_path)
    return c_machine(request.param, tmp_path)
