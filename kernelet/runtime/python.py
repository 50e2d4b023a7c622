"""The PYTHON device: runs kernels as plain Python, the reference for all others.

In:  Python source of `def NAME(memories, values, thread_begin, thread_end)`, which calls the
     functions of `base.scalars.NAMESPACE`; `memories` are memoryviews of bytes.
Out: the same bytes that compiled code leaves, and an IndexError where it would leave a block.
"""

from __future__ import annotations

import bisect
import linecache
from collections.abc import Callable, Sequence
from typing import final

from kernelet.base import scalars
from kernelet.base.errors import InternalError
from kernelet.base.target import Target
from kernelet.runtime import host
from kernelet.runtime.device import Launcher
from kernelet.runtime.host_driver import HostDriver

Kernel = Callable[[Sequence[memoryview], Sequence[int], int, int], None]

_ALL_OPERATIONS = frozenset(
    ("EXP2", "LOG2", "SIN", "IDIV", "MOD", "SUB", "FDIV", "TRUNCDIV", "TRUNCMOD", "MULACC")
)


@final
class PythonDriver(HostDriver):
    """Executes kernels with the interpreter."""

    checks_accesses = True

    def __init__(self, name: str) -> None:
        self._sizes: dict[int, int] = {}
        self._starts: list[int] = []
        super().__init__(name)

    @property
    def target(self) -> Target:
        """Scalar code, and every op."""
        return Target("PYTHON", vector_bytes=0, operations=_ALL_OPERATIONS)

    def allocate(self, nbytes: int) -> int:
        """The address of new memory, whose bounds each access is checked against."""
        address = host.allocate(nbytes)
        self._sizes[address] = nbytes
        bisect.insort(self._starts, address)
        return address

    def free(self, address: int) -> None:
        """Give memory back to the system."""
        del self._sizes[address]
        self._starts.remove(address)
        host.free(address)

    def compile(self, source: str, name: str) -> bytes:
        """The source itself, once it is known to be Python."""
        try:
            compile(source, name, "exec")
        except SyntaxError as error:
            raise InternalError(
                f"compile {name}: the rendered Python is not valid: {error}. DEBUG=4 shows it."
            ) from error
        return source.encode()

    def load(self, binary: bytes, name: str, slots: int, variables: int) -> Launcher:
        """The function that the source defines."""
        source, file = binary.decode(), f"<kernel {name}>"
        # A traceback through the kernel then shows its lines.
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        namespace = dict(scalars.NAMESPACE)
        exec(compile(source, file, "exec"), namespace)
        return PythonLauncher(self, namespace[name])  # type: ignore[arg-type]

    def memory_from(self, address: int) -> memoryview:
        """The bytes from `address` to the end of its block."""
        start = self._starts[bisect.bisect_right(self._starts, address) - 1]
        return host.memory_at(address, start + self._sizes[start] - address)


@final
class PythonLauncher(Launcher):
    """Calls the Python function of one kernel."""

    def __init__(self, driver: PythonDriver, kernel: Kernel) -> None:
        self._driver, self._kernel = driver, kernel

    def __call__(
        self, addresses: Sequence[int], values: Sequence[int], begin: int, end: int
    ) -> None:
        """Run over [begin, end) of the thread loop."""
        memories = [self._driver.memory_from(address) for address in addresses]
        self._kernel(memories, values, begin, end)
