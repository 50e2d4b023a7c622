"""The machine that Python runs on: its memory and what its processor can do.

In:  nothing but the operating system; what differs between systems is in this file.
Out: aligned memory by address, and the facts a Target is made of.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import sys
from functools import cache

from kernelet.base import config
from kernelet.base.dtype import FORMATS
from kernelet.base.helpers import round_up
from kernelet.base.target import Target

ALIGNMENT = 64
_HUGE_PAGE = 2 << 20
_ADVISE_HUGE_PAGE = 14
_WINDOWS = sys.platform == "win32"


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL("ucrtbase" if _WINDOWS else None)
    if _WINDOWS:
        library._aligned_malloc.restype = ctypes.c_void_p
        library._aligned_malloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
        library._aligned_free.argtypes = [ctypes.c_void_p]
        library._aligned_free.restype = None
        return library
    library.posix_memalign.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    library.free.restype = None
    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return library


def allocate(nbytes: int) -> int:
    """The address of new memory, 64-byte aligned; MemoryError when there is none."""
    library = _library()
    huge = nbytes >= 2 * _HUGE_PAGE and sys.platform == "linux"
    size = round_up(max(nbytes, 1), _HUGE_PAGE if huge else ALIGNMENT)
    if _WINDOWS:
        address = library._aligned_malloc(size, ALIGNMENT)
        if not address:
            raise MemoryError(f"{size} bytes")
        return int(address)
    found = ctypes.c_void_p()
    pointer = ctypes.byref(found)
    if library.posix_memalign(pointer, _HUGE_PAGE if huge else ALIGNMENT, size) or not found.value:
        raise MemoryError(f"{size} bytes")
    if huge:
        # The first touch of a 4 KB page costs 1 to 3 us; a huge page is 512 of them at once.
        library.madvise(found, size, _ADVISE_HUGE_PAGE)
    return found.value


def free(address: int) -> None:
    """Give memory back to the system."""
    if _WINDOWS:
        _library()._aligned_free(address)
    else:
        _library().free(address)


def memory_at(address: int, nbytes: int) -> memoryview:
    """The bytes from `address` on, to read and write; nothing keeps them alive."""
    if not nbytes:
        return memoryview(bytearray())
    view: memoryview = _view_of_memory()(address, nbytes, 0x200)
    return view


@cache
def load_mathematics() -> None:
    """Make the C library's functions of mathematics visible to code that is loaded later."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # where it is a part of libc
            ctypes.CDLL("libm.so.6", mode=ctypes.RTLD_GLOBAL)


@cache
def _view_of_memory() -> ctypes._FuncPointer:
    function = ctypes.pythonapi.PyMemoryView_FromMemory
    function.restype = ctypes.py_object
    function.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]
    return function


@cache
def physical_memory() -> int:
    """Bytes of memory in this machine; a cautious guess where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 4 << 30


# ---- the processor ----


@cache
def cores() -> int:
    """Processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    quota, _, period = _read("/sys/fs/cgroup/cpu.max").partition(" ")
    if quota.isdigit() and period.strip().isdigit():
        count = min(count, -(-int(quota) // int(period)))
    return max(1, count)


def threads() -> int:
    """Threads that a launch may use: the THREADS setting, or one a core."""
    return config.current().threads or cores()


@cache
def processor() -> str:
    """The name of the processor: the same name means the same machine code runs."""
    for line in _read("/proc/cpuinfo").splitlines():
        if line.lower().startswith(("model name", "cpu model", "cpu part")):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@cache
def features() -> frozenset[str]:
    """The vector extensions of the processor, in the words of Linux; empty where unknown."""
    found: set[str] = set()
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith(("flags", "Features")):
            found = set(line.partition(":")[2].split())
            break
    if sys.platform == "darwin" and is_x86():
        found = set(_sysctl_text("machdep.cpu.features").lower().split())
        found |= set(_sysctl_text("machdep.cpu.leaf7_features").lower().split())
    if _WINDOWS and is_x86():
        present = ctypes.CDLL("kernel32").IsProcessorFeaturePresent
        codes = {"sse4_1": 37, "avx": 39, "avx2": 40, "avx512f": 41}
        found = {name for name, code in codes.items() if present(code)}
        if "avx2" in found:
            found |= {"fma", "f16c"}  # every processor with AVX2 has both
    prefixes = ("avx", "sse", "fma", "f16c", "bmi", "asimd", "sve", "bf16", "amx", "neon")
    return frozenset(name for name in found if name.startswith(prefixes))


def is_x86() -> bool:
    """Whether this is an Intel or AMD processor."""
    return platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")


def _vectors() -> tuple[int, int]:
    """Bytes of a vector register, and how many there are."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return 16, 32
    if not is_x86():
        return 0, 16
    known = features()
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= known:
        return 64, 32
    if {"avx2", "fma"} <= known:
        return 32, 16
    return 16, 16


@cache
def _cache_bytes() -> tuple[int, ...]:
    """Data bytes of the first and the second cache of a core."""
    sizes = {1: 32 << 10, 2: 1 << 20}
    if sys.platform == "darwin":
        for level, name in ((1, "hw.l1dcachesize"), (2, "hw.l2cachesize")):
            sizes[level] = _sysctl_number(name) or sizes[level]
    for index in range(5):
        folder = f"/sys/devices/system/cpu/cpu0/cache/index{index}/"
        level, size = _read(folder + "level").strip(), _read(folder + "size").strip()
        if _read(folder + "type").strip() != "Instruction" and level in ("1", "2"):
            units = {"K": 1 << 10, "M": 1 << 20}
            number = size.rstrip("KM")
            if number.isdigit():
                sizes[int(level)] = int(number) * units.get(size[-1], 1)
    return sizes[1], sizes[2]


def target(name: str) -> Target:
    """What compiled code on this processor can do."""
    return _target(name, threads())


@cache
def _target(name: str, thread_count: int) -> Target:
    vector_bytes, registers = _vectors()
    operations = {"SUB", "FDIV", "TRUNCDIV", "TRUNCMOD"}
    if "fma" in features() or not is_x86():
        operations.add("MULACC")
    return Target(
        name,
        vector_bytes=vector_bytes,
        vector_registers=registers,
        cache_bytes=_cache_bytes(),
        threads=thread_count,
        operations=frozenset(operations),
        storage_only=frozenset({"float16", *FORMATS}),
        features=" ".join([sys.platform, platform.machine(), processor(), *sorted(features())]),
    )


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _sysctl(name: str) -> bytes:
    size = ctypes.c_size_t(4096)
    data = ctypes.create_string_buffer(size.value)
    failed = _library().sysctlbyname(name.encode(), data, ctypes.byref(size), None, 0)
    return b"" if failed else data.raw[: size.value]


def _sysctl_text(name: str) -> str:
    return _sysctl(name).rstrip(b"\0").decode(errors="replace")


def _sysctl_number(name: str) -> int:
    return int.from_bytes(_sysctl(name), "little")
