"""What shows how far a program is: `tqdm`, `trange`, `Timing`.

In:  iterables, blocks of code.
Out: a bar on standard error, a line on standard output, as programs that use them expect.
"""

from __future__ import annotations

import contextlib
import operator
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")

_MILLION = 1_000_000


class tqdm(Generic[Item]):  # the name that programs know
    """A bar that grows as the iterable is read, or with `update`.

    `rate` is how many times a second it is drawn at most, and `total` what counts as all.
    """

    def __init__(
        self,
        iterable: Iterable[Item] | None = None,
        desc: str = "",
        disable: bool | None = False,
        unit: str = "it",
        unit_scale: bool | int = False,
        total: int | None = None,
        rate: int = 100,
    ) -> None:
        self.iterable, self.unit, self.unit_scale = iterable, unit, unit_scale
        self.disable, self.rate, self.n = bool(disable), rate, 0
        known = operator.length_hint(iterable)
        self.total = known if total is None else total
        self._start = time.perf_counter()
        self._next = 0.0
        self.set_description(desc)
        self.update(0)

    def __iter__(self) -> Iterator[Item]:
        assert self.iterable is not None, "this bar has no iterable; call update"
        for item in self.iterable:
            yield item
            self.update(1)
        self.update(0, close=True)

    def __enter__(self) -> tqdm[Item]:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def set_description(self, desc: str) -> None:
        """The text before the bar."""
        self.desc = f"{desc}: " if desc else ""

    def close(self) -> None:
        """Draw the bar for the last time."""
        self.update(0, close=True)

    def update(self, n: int = 0, close: bool = False) -> None:
        """Count `n` more as done."""
        self.n += n
        now = time.perf_counter()
        if self.disable or (not close and now < self._next):
            return
        self._next = now + 1 / self.rate
        sys.stderr.write(f"\r{self._line(now - self._start)}{chr(10) * close}")
        sys.stderr.flush()

    def _line(self, seconds: float) -> str:
        speed = self.n / seconds if self.n and seconds else 0.0
        rate = f"{self._amount(speed)}{self.unit}/s" if speed else f"?{self.unit}/s"
        if not self.total:
            return f"{self.desc}{self._amount(self.n)}{self.unit} [{_clock(seconds)}, {rate}]"
        share = min(self.n / self.total, 1.0)
        left = _clock(seconds / share - seconds) if share else "?"
        head = f"{self.desc}{100 * share:3.0f}%|"
        amounts = f"{self._amount(self.n)}/{self._amount(self.total)}"
        tail = f"| {amounts} [{_clock(seconds)}<{left}, {rate}]"
        width = max(shutil.get_terminal_size().columns - len(head) - len(tail), 1)
        return f"{head}{('█' * round(share * width)).ljust(width)}{tail}"

    def _amount(self, number: float) -> str:
        if not self.unit_scale:
            return f"{number:.2f}" if number % 1 else f"{number:.0f}"
        for letter in ("", "k", "M", "G"):
            if number < 1000:
                return f"{number:.3g}{letter}"
            number /= 1000
        return f"{number:.3g}T"

    @classmethod
    def write(cls, text: str) -> None:
        """A line of text above the bar."""
        sys.stderr.write(f"\r\033[K{text}\n")


class trange(tqdm[int]):  # the name that programs know
    """A bar over the integers below `n`."""

    def __init__(
        self, n: int, desc: str = "", disable: bool | None = False, unit: str = "it"
    ) -> None:
        super().__init__(range(n), desc, disable, unit)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


class Timing(contextlib.ContextDecorator):
    """Tells how long a block took; `on_exit` adds text for the nanoseconds that it is given."""

    def __init__(
        self,
        prefix: str = "",
        on_exit: Callable[[int], str] | None = None,
        enabled: bool = True,
    ) -> None:
        self.prefix, self.on_exit, self.enabled = prefix, on_exit, enabled

    def __enter__(self) -> Timing:
        self.st = time.perf_counter_ns()
        return self

    def __exit__(self, *_error: object) -> None:
        self.et = time.perf_counter_ns() - self.st
        more = self.on_exit(self.et) if self.on_exit else ""
        if self.enabled:
            sys.stdout.write(f"{self.prefix}{self.et / _MILLION:6.2f} ms{more}\n")
