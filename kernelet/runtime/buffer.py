"""Memory of a device with a life of its own: allocated when first used, freed with its last user.

In:  a device and a number of bytes.
Out: `Buffer`, or a part of one that shares its memory.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any, final

from kernelet.base.counters import GlobalCounters
from kernelet.base.errors import ArgumentError, InternalError
from kernelet.runtime import device


@final
class Buffer:
    """A block of bytes on one device, or `nbytes` of `base` from `offset` on."""

    __slots__ = ("__weakref__", "_address", "_owner", "base", "driver", "nbytes", "offset")

    driver: device.Driver
    nbytes: int
    base: Buffer | None
    offset: int
    _address: int | None

    def __init__(self, name: str, nbytes: int, base: Buffer | None = None, offset: int = 0) -> None:
        if base is not None and not 0 <= offset <= offset + nbytes <= base.nbytes:
            raise InternalError(
                f"Buffer: bytes {offset} to {offset + nbytes} of a buffer of {base.nbytes} bytes"
            )
        self._address = None
        self._owner: object = None
        self.driver = device.driver(name)
        self.nbytes = nbytes
        self.base = base
        self.offset = offset

    @classmethod
    def over(cls, name: str, address: int, nbytes: int, owner: object) -> Buffer:
        """Memory of this process that is there already; `owner` keeps it alive."""
        buffer = cls(name, nbytes)
        buffer._address, buffer._owner = address, owner
        return buffer

    @property
    def device(self) -> str:
        """The name of the device."""
        return self.driver.name

    @property
    def whole(self) -> Buffer:
        """The buffer that this is a part of, or itself."""
        return self if self.base is None else self.base

    @property
    def is_allocated(self) -> bool:
        """Whether there is memory yet."""
        return self._address is not None if self.base is None else self.base.is_allocated

    @property
    def address(self) -> int:
        """Where the first byte is; allocates on first use."""
        if self._address is not None:
            return self._address
        if self.base is not None:
            return self.base.address + self.offset
        self._address = self.driver.allocator.take(self.nbytes)
        GlobalCounters.add_memory(self.nbytes)
        return self._address

    def view(self, offset: int, nbytes: int) -> Buffer:
        """A part of this buffer, which stays alive as long as the part does."""
        base = self if self.base is None else self.base
        return Buffer(self.device, nbytes, base, self.offset + offset)

    def copy_in(self, data: bytes | bytearray | memoryview) -> None:
        """Write `data`, as many bytes as the buffer has."""
        view = _as_bytes(memoryview(data))
        if view.nbytes != self.nbytes:
            raise ArgumentError(
                f"copy to {self.device}: {view.nbytes} bytes do not fit into a buffer of "
                f"{self.nbytes} bytes. Give as many as there are."
            )
        if self.nbytes:
            self.driver.copy_in(self.address, view)

    def copy_out(self) -> bytearray:
        """A copy of the contents, which no later write changes."""
        return self.driver.copy_out(self.address, self.nbytes)

    def copy_from(self, source: Buffer) -> None:
        """Write the contents of a buffer of the same size, on this or another device."""
        source.driver.synchronize()
        self.copy_in(source.contents())

    def memory(self) -> memoryview:
        """The memory itself, on a host device; the view keeps this buffer alive."""
        if not self.driver.is_host:
            raise InternalError(f"memory: that of {self.device} is not in reach")
        if not self.nbytes:
            return memoryview(bytearray())
        block: Any = (ctypes.c_char * self.nbytes).from_address(self.address)
        block.owner = self
        return memoryview(block).cast("B")

    def contents(self) -> memoryview:
        """The bytes, read-only: on a host device those of `memory`, elsewhere a copy."""
        view = self.memory() if self.driver.is_host else memoryview(self.copy_out())
        return view.toreadonly()

    # At the end of the process the names of modules are gone before the last buffers are.
    def __del__(self, is_over: Callable[[], bool] = sys.is_finalizing) -> None:
        address = getattr(self, "_address", None)
        if address is not None and self._owner is None and not is_over():
            self.driver.allocator.give_back(address, self.nbytes)
            GlobalCounters.add_memory(-self.nbytes)

    def __repr__(self) -> str:
        part = "" if self.base is None else f", offset={self.offset}"
        return f"Buffer({self.device!r}, {self.nbytes}{part})"


def _as_bytes(view: memoryview) -> memoryview:
    try:
        return view.cast("B")
    except TypeError:  # not contiguous, or of elements that memoryview does not know
        return memoryview(view.tobytes())
