"""Devices by name, and what a driver must be able to do.

In:  names such as "CPU" or "cpu:1".
Out: one `Driver` for each device that was asked for.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from kernelet.base.errors import DeviceError
from kernelet.base.target import Target
from kernelet.runtime.allocator import Allocator


class Launcher(ABC):
    """A loaded kernel: call it to run it.

    `entry` is the address of its machine code where that can be called from this process; a
    list of launches is replayed through it without Python. It is valid while the launcher lives.
    """

    entry: int | None = None

    @abstractmethod
    def __call__(
        self, addresses: Sequence[int], values: Sequence[int], begin: int, end: int
    ) -> None:
        """Run over [begin, end) of the thread loop; `addresses` in slot order."""


class Driver(ABC):
    """One device: its memory, its compiler, its launches. Addresses are integers."""

    is_host = False  # whether this process may read and write its memory directly
    compiles_in_process = False  # whether compilations would wait for one another
    checks_accesses = False  # whether a kernel that leaves its memory is caught

    def __init__(self, name: str, pool_bytes: int) -> None:
        self.name = name
        self.allocator = Allocator(
            name, self.allocate, self.free, pool_bytes, exact=self.checks_accesses
        )

    @property
    @abstractmethod
    def target(self) -> Target:
        """What the device can do, under the settings that hold now."""

    @abstractmethod
    def allocate(self, nbytes: int) -> int:
        """The address of new memory; MemoryError when there is none."""

    @abstractmethod
    def free(self, address: int) -> None:
        """Give memory back to the system."""

    @abstractmethod
    def copy_in(self, address: int, data: memoryview) -> None:
        """Write bytes to device memory."""

    @abstractmethod
    def copy_out(self, address: int, nbytes: int) -> bytearray:
        """A copy of device memory, after all launches that write it."""

    @abstractmethod
    def compile(self, source: str, name: str) -> bytes:
        """The binary of one kernel; it may be kept on disk and loaded by another process."""

    @abstractmethod
    def load(self, binary: bytes, name: str, slots: int, variables: int) -> Launcher:
        """Make a compiled kernel callable."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for all launches."""

    def prepare_compiler(self) -> None:
        """Do what the first compilation would have to do beforehand."""
        return

    def assembly(self, source: str, name: str) -> str:
        """What the binary of one kernel does, to read; empty where that cannot be shown."""
        return ""

    def compiler_key(self) -> str:
        """What a cached binary depends on beside source, settings and Target."""
        return ""

    def problem(self) -> str:
        """Why no kernel can be compiled here and what to do about it; empty when it can."""
        return ""


Factory = Callable[[str], Driver]

_factories: dict[str, Factory] = {}
_aliases: dict[str, Callable[[], str]] = {}
_drivers: dict[str, Driver] = {}
_lock = threading.Lock()


def register(kind: str, factory: Factory) -> None:
    """Let `kind`, in upper case, name devices whose driver `factory(name)` makes."""
    _factories[kind] = factory


def register_alias(kind: str, resolve: Callable[[], str]) -> None:
    """Let `kind`, in upper case, be another name of the kind that `resolve()` tells."""
    _aliases[kind] = resolve


def kinds() -> tuple[str, ...]:
    """The kinds of devices that are registered."""
    return tuple(_factories)


def canonical(name: str) -> str:
    """The one spelling of a device's name: "cpu" and "CPU:0" are "CPU"."""
    kind, _, number = name.strip().upper().partition(":")
    kind = _aliases[kind]() if kind in _aliases else kind
    if kind not in _factories or (number and not number.isdecimal()):
        known = ", ".join(_factories) or "none"
        raise DeviceError(
            f"device {name!r}: there is no such device. Known: {known}; a number may follow, as "
            "in CPU:1."
        )
    return f"{kind}:{int(number)}" if number and int(number) else kind


def driver(name: str) -> Driver:
    """The driver of a device, made when it is first asked for."""
    found = _drivers.get(name)
    if found is not None:
        return found
    known = canonical(name)
    with _lock:
        if known not in _drivers:
            _drivers[known] = _factories[known.partition(":")[0]](known)
        return _drivers[known]


def available() -> tuple[str, ...]:
    """The kinds of devices on which kernels can be compiled and run here."""
    return tuple(kind for kind in _factories if _works(kind))


def _works(kind: str) -> bool:
    try:
        return not driver(kind).problem()
    except DeviceError:
        return False
