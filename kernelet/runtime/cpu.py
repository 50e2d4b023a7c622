"""The CPU device: kernels in C, compiled by clang or gcc.

In:  C source of `void NAME(pointers, long long variables, long long begin, long long end)`.
Out: a shared library as bytes, loaded and called in this process.

Products and sums are never contracted (`-ffp-contract=off`): what is fused is written as a fused
multiply-add, so that gcc, clang, LLVM and the reference device give the same bits. For the same
reason there is no -ffast-math.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import weakref
from functools import cache
from typing import final

from kernelet.base import cache as disk
from kernelet.base import config
from kernelet.base.errors import DeviceError, InternalError
from kernelet.base.target import Target
from kernelet.runtime import host
from kernelet.runtime.device import Launcher
from kernelet.runtime.host_driver import HostDriver
from kernelet.runtime.pool_source import POOL_FUNCTIONS, c_source
from kernelet.runtime.threads import NativeLauncher, PoolCode

_COMMON_FLAGS = (
    *("-x", "c", "-std=gnu11", "-shared", "-fPIC", "-O2", "-w", "-Wno-psabi"),
    *("-fwrapv", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
)


@final
class CpuDriver(HostDriver):
    """Runs C on the processor."""

    @property
    def target(self) -> Target:
        """The facts of this processor."""
        return host.target("CPU")

    def problem(self) -> str:
        """Why there is no C compiler; empty when there is one."""
        return "" if _found(config.current().compiler) else _no_compiler("device CPU")

    def compiler_key(self) -> str:
        """Which compiler, and which build of it."""
        command = compiler()
        with contextlib.suppress(OSError):
            path = os.path.realpath(command[0])
            state = os.stat(path)
            return f"{command} {path} {state.st_size} {state.st_mtime_ns} {_flags(command[0])}"
        return str(command)

    def compile(self, source: str, name: str) -> bytes:
        """The shared library of one kernel."""
        return compile_c(source, name)

    def assembly(self, source: str, name: str) -> str:
        """The assembly of one kernel, to read."""
        return compile_c(source, name, "-S").decode(errors="replace")

    def load(self, binary: bytes, name: str, slots: int, variables: int) -> Launcher:
        """Make a compiled kernel callable; it is unloaded with its launcher."""
        library = _load_library(binary, name)
        entry = _address(library, name)
        return NativeLauncher(entry, slots + variables, self.build_pool, library)

    def build_pool(self) -> PoolCode:
        """Compile and load the thread pool."""
        source = c_source(platform.machine())
        key = disk.key_of(source, self.compiler_key(), self.target.features)
        binary = disk.get("pool", key)
        if binary is None:
            binary = compile_c(source, "pool")
            disk.put("pool", key, binary)
        library = _load_library(binary, "pool")
        return PoolCode(tuple(_address(library, name) for name in POOL_FUNCTIONS), library)


# ---- compiling ----


def compiler() -> list[str]:
    """The command of the C compiler: what CC says, else clang, gcc or cc."""
    found = _found(config.current().compiler)
    if not found:
        raise DeviceError(_no_compiler("compile for CPU"))
    return found


def _found(asked: str) -> list[str]:
    for candidate in [asked] if asked else ["clang", "gcc", "cc"]:
        program, *arguments = shlex.split(candidate)
        path = shutil.which(program)
        if path:
            return [path, *arguments]
    return []


def _no_compiler(what: str) -> str:
    asked = config.current().compiler
    looked = f"CC={asked}, which is not there" if asked else "clang, gcc and cc; none is on PATH"
    return (
        f"{what}: it needs a C compiler. Looked for {looked}. Install clang or gcc, or "
        "`pip install llvmlite` and use LLVM=1, which needs no compiler."
    )


@cache
def _flags(program: str) -> tuple[str, ...]:
    """The flags for a compiler on this machine."""
    kind = os.path.basename(program)
    flags = [*_COMMON_FLAGS]
    if sys.platform == "linux":
        # What libraries offer is in the process already: looking for them costs 10 ms a kernel.
        flags.append("-nostdlib")
    if sys.platform == "win32" or (sys.platform == "darwin" and not host.is_x86()):
        return (*flags, "-mcpu=native") if sys.platform == "darwin" else tuple(flags)
    flags.append("-march=native" if host.is_x86() else "-mcpu=native")
    if "avx512f" in host.features() and ("clang" in kind or "gcc" in kind or kind == "cc"):
        # Some processors' defaults split 512-bit vectors in two, which halves the speed.
        flags.append("-mprefer-vector-width=512")
    return tuple(flags)


def compile_c(source: str, name: str, *options: str) -> bytes:
    """C source -> the bytes of a shared library, or what other `options` ask for."""
    command = compiler()
    with tempfile.TemporaryDirectory(prefix="kernelet-") as folder:
        path = os.path.join(folder, "kernel.so")
        libraries = ["-lgcc"] if sys.platform == "linux" else ["-lm"]
        result = subprocess.run(
            [*command, *_flags(command[0]), *options, "-", "-o", path, *libraries],
            input=source.encode(),
            capture_output=True,
            check=False,
        )
        if result.returncode == 0:
            with open(path, "rb") as file:
                return file.read()
    message = result.stderr.decode(errors="replace").strip()
    raise InternalError(
        f"compile {name}: {os.path.basename(command[0])} fails: {message[:2000]}\n"
        "DEBUG=4 shows the source. If the compiler is broken or very old, name another in CC."
    )


# ---- loading ----


def _load_library(binary: bytes, name: str) -> ctypes.CDLL:
    """Load a shared library from its bytes; it is unloaded when the result is freed."""
    suffix = ".dll" if sys.platform == "win32" else ".so"
    handle, path = tempfile.mkstemp(suffix, "kernelet-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(binary)
        host.load_mathematics()
        library = ctypes.CDLL(path)
    except OSError as error:
        raise DeviceError(
            f"load {name}: the system does not load {path}: {error}. If programs may not run from "
            "that folder, set TMPDIR to one from which they may."
        ) from error
    finally:
        # A loaded library needs its name no more, but Windows keeps the file until the end.
        with contextlib.suppress(OSError):
            os.unlink(path)
    unload = weakref.finalize(library, _unload, library._handle)
    unload.atexit = False
    return library


def _unload(handle: int) -> None:
    if sys.platform != "win32":
        ctypes.CDLL(None).dlclose(ctypes.c_void_p(handle))


def _address(library: ctypes.CDLL, name: str) -> int:
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    if address is None:
        raise InternalError(f"load {name}: the library has no such function")
    return address
