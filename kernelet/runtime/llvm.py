"""The LLVM device: kernels in LLVM IR, compiled in this process by llvmlite.

In:  IR text of `define void @NAME(ptr ..., i64 variables ..., i64 begin, i64 end)`.
Out: object code as bytes, linked and called in this process. No compiler or linker is needed.

llvmlite is imported when the first kernel is compiled or loaded. A compilation holds a lock of
llvmlite's: processes compile in parallel, threads do not (`compile_ir` is what a worker calls).
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import platform
import threading
from collections.abc import Callable
from functools import cache
from typing import Protocol, cast, final

from kernelet.base import cache as disk
from kernelet.base.errors import DeviceError, InternalError
from kernelet.base.target import Target
from kernelet.runtime import host
from kernelet.runtime.device import Launcher
from kernelet.runtime.host_driver import HostDriver
from kernelet.runtime.pool_source import POOL_FUNCTIONS, llvm_source
from kernelet.runtime.threads import NativeLauncher, PoolCode

_SPEED_LEVEL = 2
# LLVM's usual passes compare each pair of accesses in a loop. Where register tiles are written out
# these are many, and the loops are arranged already: such a program gets a few passes only.
_LONG = 1 << 14
_LONG_PASSES = (
    *("always_inliner", "sroa", "instruction_combine", "loop_rotate", "aggressive_instcombine"),
    *("sccp", "jump_threading", "loop_unroll", "instruction_combine", "simplify_cfg"),
)
_library_numbers = itertools.count()


# ---- what is used of llvmlite, which has no types of its own ----


class _Module(Protocol):
    def verify(self) -> None: ...
    def __str__(self) -> str: ...


class _TargetMachine(Protocol):
    def emit_object(self, module: _Module) -> bytes: ...
    def emit_assembly(self, module: _Module) -> str: ...


class _PassManager(Protocol):
    def run(self, module: _Module, builder: object) -> bool: ...


class _Tuning(Protocol):
    loop_vectorization: bool
    slp_vectorization: bool
    loop_unrolling: bool


class _PassBuilder(Protocol):
    def getModulePassManager(self) -> _PassManager: ...


class _Tracker(Protocol):
    def __getitem__(self, name: str) -> int: ...


class _LibraryBuilder(Protocol):
    def add_object_img(self, data: bytes) -> _LibraryBuilder: ...
    def add_current_process(self) -> _LibraryBuilder: ...
    def export_symbol(self, name: str) -> _LibraryBuilder: ...
    def link(self, engine: object, name: str) -> _Tracker: ...


class _Target(Protocol):
    def create_target_machine(self, **settings: str | int | bool) -> _TargetMachine: ...


class _Features(Protocol):
    def flatten(self, sort: bool = True) -> str: ...


class _TargetFamily(Protocol):
    def from_default_triple(self) -> _Target: ...


class _Binding(Protocol):
    """The module `llvmlite.binding`."""

    Target: _TargetFamily
    JITLibraryBuilder: Callable[[], _LibraryBuilder]
    initialize_native_target: Callable[[], None]
    initialize_native_asmprinter: Callable[[], None]
    get_host_cpu_name: Callable[[], str]
    get_host_cpu_features: Callable[[], _Features]
    parse_assembly: Callable[[str], _Module]
    create_pipeline_tuning_options: Callable[[int], _Tuning]
    create_pass_builder: Callable[[_TargetMachine, _Tuning], _PassBuilder]
    create_new_module_pass_manager: Callable[[], _PassManager]
    create_lljit_compiler: Callable[[_TargetMachine], object]


@cache
def _binding() -> _Binding:
    try:
        binding = cast(_Binding, importlib.import_module("llvmlite.binding"))
    except (ImportError, OSError) as error:
        raise DeviceError(_no_llvmlite("device LLVM", str(error))) from error
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding


def _no_llvmlite(what: str, found: str) -> str:
    return (
        f"{what}: it needs the package llvmlite, and {found}. `pip install llvmlite`, or use "
        "CPU=1 with clang or gcc."
    )


# ---- compiling ----


def _target_machine(extra: str = "") -> _TargetMachine:
    binding = _binding()
    features = _with_wide_vectors(binding.get_host_cpu_features().flatten()) + extra
    return binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(),
        features=features,
        opt=_SPEED_LEVEL,
        reloc="pic",
        codemodel="jitdefault",
        jit=True,
    )


def _with_wide_vectors(features: str) -> str:
    """Some processors' defaults split 512-bit vectors in two, which halves the speed.

    avx512dq is off: with it LLVM 22 reads the signs of a vector in register 16 to 31 with an
    instruction that only reaches registers 0 to 15, and so takes those of another vector.
    """
    if "+avx512f" not in features:
        return features
    off = ("prefer-256-bit", "avx512dq")
    kept = [word for word in features.split(",") if word[1:] not in off]
    return ",".join([*kept, *(f"-{word}" for word in off)])


@cache
def _compiling_machine() -> _TargetMachine:
    return _target_machine()


def _converts_halves() -> bool:
    """Whether the processor has instructions between float16 and float32."""
    return "f16c" in host.features() or not host.is_x86()


# What LLVM calls where the processor cannot convert, and what no library here may have.
_HALF_FUNCTIONS = """
define float @__extendhfsf2(half %x) {
  %short = bitcast half %x to i16
  %bits = zext i16 %short to i32
  %magnitude = and i32 %bits, 32767
  %shifted = shl i32 %magnitude, 13
  %small = bitcast i32 %shifted to float
  %scaled = fmul float %small, 0x46F0000000000000
  %finite = bitcast float %scaled to i32
  %infinite = icmp ugt i32 %magnitude, 31743
  %high = or i32 %finite, 2139095040
  %unsigned = select i1 %infinite, i32 %high, i32 %finite
  %sign = and i32 %bits, 32768
  %top = shl i32 %sign, 16
  %result = or i32 %unsigned, %top
  %value = bitcast i32 %result to float
  ret float %value
}

define half @__truncsfhf2(float %x) {
  %bits = bitcast float %x to i32
  %magnitude = and i32 %bits, 2147483647
  %positive = bitcast i32 %magnitude to float
  %sum = fadd float %positive, 5.0e-1
  %aligned = bitcast float %sum to i32
  %subnormal = sub i32 %aligned, 1056964608
  %last = lshr i32 %magnitude, 13
  %odd = and i32 %last, 1
  %moved = add i32 %magnitude, 3355447295
  %nearest = add i32 %moved, %odd
  %normal = lshr i32 %nearest, 13
  %is_small = icmp ult i32 %magnitude, 947912704
  %finite = select i1 %is_small, i32 %subnormal, i32 %normal
  %is_large = icmp uge i32 %magnitude, 1199566848
  %limited = select i1 %is_large, i32 31744, i32 %finite
  %is_nan = icmp ugt i32 %magnitude, 2139095040
  %payload = or i32 %last, 32256
  %quiet = and i32 %payload, 32767
  %unsigned = select i1 %is_nan, i32 %quiet, i32 %limited
  %high = lshr i32 %bits, 16
  %sign = and i32 %high, 32768
  %result = or i32 %unsigned, %sign
  %short = trunc i32 %result to i16
  %value = bitcast i16 %short to half
  ret half %value
}
"""


def optimise(source: str, name: str) -> _Module:
    """IR text -> the module after LLVM's passes."""
    binding = _binding()
    if " half" in source and not _converts_halves():
        source += _HALF_FUNCTIONS
    try:
        module = binding.parse_assembly(source)
        module.verify()
    except RuntimeError as error:
        raise InternalError(
            f"compile {name}: LLVM does not accept the IR: {str(error)[:2000]}\n"
            "DEBUG=4 shows the source."
        ) from error
    tuning = binding.create_pipeline_tuning_options(_SPEED_LEVEL)
    tuning.loop_vectorization = tuning.slp_vectorization = True
    builder = binding.create_pass_builder(_compiling_machine(), tuning)
    passes = _short_pipeline() if len(source) > _LONG else builder.getModulePassManager()
    passes.run(module, builder)
    return module


def _short_pipeline() -> _PassManager:
    passes = _binding().create_new_module_pass_manager()
    for name in _LONG_PASSES:
        getattr(passes, f"add_{name}_pass")()
    return passes


def compile_ir(source: str, name: str) -> bytes:
    """IR text -> object code."""
    return _compiling_machine().emit_object(optimise(source, name))


# ---- loading ----

_link_lock = threading.Lock()


@cache
def _engine() -> object:
    host.load_mathematics()
    return _binding().create_lljit_compiler(_target_machine())


def _link(binary: bytes, names: tuple[str, ...]) -> _Tracker:
    """Load object code; it is unloaded when the result is freed."""
    # Each library has its own name space: kernels may share a name.
    builder = _binding().JITLibraryBuilder().add_object_img(binary).add_current_process()
    for name in names:
        builder.export_symbol(name)
    with _link_lock:
        try:
            return builder.link(_engine(), f"{names[0]}.{next(_library_numbers)}")
        except RuntimeError as error:
            raise InternalError(f"load {names[0]}: LLVM cannot link the code: {error}") from error


@final
class LlvmDriver(HostDriver):
    """Runs LLVM IR on the processor."""

    compiles_in_process = True

    @property
    def target(self) -> Target:
        """The facts of this processor."""
        return host.target("LLVM")

    def problem(self) -> str:
        """Why llvmlite is not there; empty when it is."""
        if importlib.util.find_spec("llvmlite") is None:
            return _no_llvmlite("device LLVM", "it is not installed")
        return ""

    def compiler_key(self) -> str:
        """Which LLVM."""
        return f"llvmlite {importlib.import_module('llvmlite').__version__} O{_SPEED_LEVEL}"

    def compile(self, source: str, name: str) -> bytes:
        """The object code of one kernel."""
        return compile_ir(source, name)

    def prepare_compiler(self) -> None:
        """Import llvmlite and set it up."""
        _compiling_machine()

    def assembly(self, source: str, name: str) -> str:
        """The assembly of one kernel, to read."""
        return _compiling_machine().emit_assembly(optimise(source, name))

    def load(self, binary: bytes, name: str, slots: int, variables: int) -> Launcher:
        """Make a compiled kernel callable; it is unloaded with its launcher."""
        tracker = _link(binary, (name,))
        return NativeLauncher(tracker[name], slots + variables, self.build_pool, tracker)

    def build_pool(self) -> PoolCode:
        """Compile and link the thread pool."""
        source = llvm_source(platform.machine())
        key = disk.key_of(source, self.compiler_key(), self.target.features)
        binary = disk.get("pool", key)
        if binary is None:
            binary = compile_ir(source, "pool")
            disk.put("pool", key, binary)
        tracker = _link(binary, POOL_FUNCTIONS)
        return PoolCode(tuple(tracker[name] for name in POOL_FUNCTIONS), tracker)
