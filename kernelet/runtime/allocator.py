"""Reuse of freed memory: a block that is given back serves the next request of its size.

In:  requests in bytes.
Out: addresses, from the pool or from the device.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import final

from kernelet.base.errors import DeviceError
from kernelet.base.helpers import round_up


def block_size(nbytes: int) -> int:
    """The size of the block that serves a request: near sizes share blocks.

    >>> block_size(1), block_size(5000)
    (64, 8192)
    """
    if nbytes <= 4096:
        return max(64, round_up(nbytes, 64))
    return round_up(nbytes, 4096 if nbytes < 1 << 20 else 1 << 16)


@final
class Allocator:
    """Memory of one device; keeps at most `limit` bytes that nobody uses.

    `exact` blocks have no spare bytes at their end, for a device that checks its accesses.
    """

    def __init__(
        self,
        device: str,
        allocate: Callable[[int], int],
        free: Callable[[int], None],
        limit: int,
        exact: bool = False,
    ) -> None:
        self.limit = limit
        self._size_of = (lambda nbytes: nbytes) if exact else block_size
        self.pooled_bytes = 0
        self._device, self._allocate, self._free = device, allocate, free
        self._blocks: OrderedDict[int, list[int]] = OrderedDict()  # the size used last is last
        self._returned: deque[tuple[int, int]] = deque()
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> int:
        """The address of memory for `nbytes`, with whatever it held before."""
        size = self._size_of(nbytes)
        with self._lock:
            self._collect()
            blocks = self._blocks.get(size)
            if blocks:
                self.pooled_bytes -= size
                address = blocks.pop()
                self._blocks.move_to_end(size)
                return address
            try:
                return self._allocate(size)
            except MemoryError:
                self._shrink(0)
        try:
            return self._allocate(size)
        except MemoryError as error:
            raise DeviceError(
                f"{self._device}: {nbytes:,} bytes of memory were asked for, and there is no "
                "room for them. Use a smaller batch, or free tensors that are still referenced."
            ) from error

    def give_back(self, address: int, nbytes: int) -> None:
        """Keep the memory at `address` for the next request of its size."""
        # The garbage collector may call this inside `take`: the queue needs no lock.
        self._returned.append((address, self._size_of(nbytes)))
        if self._lock.acquire(blocking=False):
            try:
                self._collect()
            finally:
                self._lock.release()

    def trim(self) -> None:
        """Give all memory that nobody uses back to the device."""
        with self._lock:
            self._collect()
            self._shrink(0)

    def _collect(self) -> None:
        while self._returned:
            address, size = self._returned.popleft()
            self._blocks.setdefault(size, []).append(address)
            self._blocks.move_to_end(size)
            self.pooled_bytes += size
        if self.pooled_bytes > self.limit:
            self._shrink(self.limit)

    def _shrink(self, limit: int) -> None:
        """Free blocks, those of the size unused for longest first."""
        while self.pooled_bytes > limit:
            size, blocks = next(iter(self._blocks.items()))
            if blocks:
                self._free(blocks.pop())
                self.pooled_bytes -= size
            else:
                del self._blocks[size]
