"""A compiled kernel, ready to be loaded and launched.

In:  what the renderer, the compiler and the lowering found out about one kernel.
Out: `Program`, plain data that a disk cache keeps and another process may make.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimates:
    """The work of one launch: arithmetic operations, and bytes read and written."""

    operations: int = 0
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class Program:
    """Source, binary and launch size of one kernel.

    `slots` is the number of memory arguments, `variables` the names of the integers that follow
    them. `thread_size` is the extent of the thread loop (its greatest if it depends on a
    variable); 0: there is no such loop, and the launch covers (0, 0).
    """

    name: str
    source: str
    binary: bytes
    slots: int
    variables: tuple[str, ...] = ()
    thread_size: int = 0
    estimates: Estimates = Estimates()
