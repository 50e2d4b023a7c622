"""Memory of drivers whose device is the processor that Python runs on.

In:  addresses of this process.
Out: bytes copied in and out; launches are over when they return.
"""

from __future__ import annotations

from kernelet.runtime import host
from kernelet.runtime.device import Driver

_POOL_LIMIT = 4 << 30


class HostDriver(Driver):
    """A device in this process; its launches are synchronous."""

    is_host = True

    def __init__(self, name: str) -> None:
        super().__init__(name, min(host.physical_memory() // 4, _POOL_LIMIT))

    def allocate(self, nbytes: int) -> int:
        """The address of new memory, 64-byte aligned."""
        return host.allocate(nbytes)

    def free(self, address: int) -> None:
        """Give memory back to the system."""
        host.free(address)

    def copy_in(self, address: int, data: memoryview) -> None:
        """Write bytes to memory."""
        host.memory_at(address, data.nbytes)[:] = data

    def copy_out(self, address: int, nbytes: int) -> bytearray:
        """A copy of memory."""
        return bytearray(host.memory_at(address, nbytes))

    def synchronize(self) -> None:
        """Nothing to wait for."""
