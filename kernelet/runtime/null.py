"""The NULL device: everything succeeds and nothing runs, to measure the compiler alone.

In:  source.
Out: the source as bytes; memory reads as zeros.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import final

from kernelet.base.target import Target
from kernelet.runtime import host
from kernelet.runtime.device import Driver, Launcher


@final
class NullDriver(Driver):
    """Memory without bytes, launches without work."""

    def __init__(self, name: str) -> None:
        self._addresses = itertools.count(1 << 32, 1 << 32)
        super().__init__(name, 0)

    @property
    def target(self) -> Target:
        """That of the processor, so that kernels come out as they would there."""
        return host.target("NULL")

    def allocate(self, nbytes: int) -> int:
        """An address where nothing is."""
        return next(self._addresses)

    def free(self, address: int) -> None:
        """There is nothing to free."""

    def copy_in(self, address: int, data: memoryview) -> None:
        """The data is dropped."""

    def copy_out(self, address: int, nbytes: int) -> bytearray:
        """Zeros."""
        return bytearray(nbytes)

    def compile(self, source: str, name: str) -> bytes:
        """The source itself."""
        return source.encode()

    def load(self, binary: bytes, name: str, slots: int, variables: int) -> Launcher:
        """A launcher that does nothing."""
        return NullLauncher()

    def synchronize(self) -> None:
        """Nothing to wait for."""


@final
class NullLauncher(Launcher):
    """Does nothing when it is called."""

    def __call__(
        self, addresses: Sequence[int], values: Sequence[int], begin: int, end: int
    ) -> None:
        """Do nothing."""
