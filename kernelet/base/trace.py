"""The stream of events: what the framework did, for whoever listens.

In:  events, from every layer.
Out: calls of the readers that asked for their kind; DEBUG's printer is one of them.

Nothing else in the package writes to standard output.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from kernelet.base import config

# The DEBUG level from which the printer shows a kind of event; "warning" is always shown.
LEVELS: Mapping[str, int] = {
    "warning": 0,
    "progress": 0,
    "device": 1,
    "cache": 1,
    "kernel": 2,
    "cost": 2,
    "compile": 2,
    "totals": 2,
    "search": 2,
    "candidate": 3,
    "transform": 3,
    "source": 4,
    "linear": 5,
    "graph": 6,
    "assembly": 7,
}


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened: its kind (a key of `LEVELS`), its name, a text, when and how long.

    `numbers` are figures for readers that compute, as the profiler does.
    """

    kind: str
    name: str
    text: str = ""
    start: float = 0.0
    seconds: float = 0.0
    numbers: Mapping[str, float] = field(default_factory=dict)


Reader = Callable[[Event], None]
_readers: dict[str, tuple[Reader, ...]] = {}


def wants(kind: str) -> bool:
    """Whether an event of this kind would reach anybody: ask before building a costly text."""
    return kind in _readers or config.current().debug >= LEVELS[kind]


def emit(kind: str, name: str, text: str = "", **numbers: float) -> None:
    """Tell the readers of `kind`; does nothing when nobody listens."""
    if wants(kind):
        send(Event(kind, name, text, time.perf_counter(), 0.0, numbers))


def send(event: Event) -> None:
    """Give an event to the readers of its kind and to DEBUG's printer."""
    for reader in _readers.get(event.kind, ()):
        reader(event)
    if config.current().debug >= LEVELS[event.kind]:
        _show(event)


@contextlib.contextmanager
def reading(reader: Reader, *kinds: str) -> Iterator[None]:
    """Call `reader` with each event of these kinds inside the block."""
    subscribe(reader, *kinds)
    try:
        yield
    finally:
        unsubscribe(reader, *kinds)


def subscribe(reader: Reader, *kinds: str) -> None:
    """Call `reader` with each event of these kinds from now on."""
    for kind in kinds:
        _readers[kind] = (*_readers.get(kind, ()), reader)


def unsubscribe(reader: Reader, *kinds: str) -> None:
    """Stop calling `reader`."""
    for kind in kinds:
        left = tuple(other for other in _readers.get(kind, ()) if other is not reader)
        if left:
            _readers[kind] = left
        else:
            _readers.pop(kind, None)


def _show(event: Event) -> None:
    if event.kind in ("cost", "kernel"):
        _add_to_totals(event)
    if event.kind == "cost":
        return  # the totals show it
    if event.kind in ("warning", "progress"):
        stream, line = sys.stderr, f"kernelet: {event.text or event.name}"
    elif event.kind in ("source", "linear", "graph", "assembly"):
        stream, line = sys.stdout, f"--- {event.kind} {event.name}\n{event.text}"
    else:
        text = event.text or _figures(event)
        stream, line = sys.stdout, f"*** {event.name:28} {text}".rstrip()
    stream.write(line + "\n")


def _figures(event: Event) -> str:
    """The time of a launch, what it reached, and the memory that is held."""
    numbers = event.numbers
    if not event.seconds:
        return ""
    rates = (numbers.get(name, 0) / event.seconds / 1e9 for name in ("operations", "bytes"))
    work, traffic = rates
    held = numbers.get("memory", 0) / 1e6
    time_text = f"{event.seconds * 1e6:10.1f} us"
    return f"{time_text} {work:8.1f} GFLOP/s {traffic:7.1f} GB/s {held:9.2f} MB held"


# ---- what it all costs ----


@contextlib.contextmanager
def cost(group: str, name: str) -> Iterator[None]:
    """Tell how long the block takes, as a "cost" event, where anybody wants to know."""
    if not wants("cost"):
        yield
        return
    start = time.perf_counter()
    yield
    send(Event("cost", name, group, start, time.perf_counter() - start))


# For each group the times of its parts and how often they ran.
_totals: dict[str, dict[str, tuple[float, int]]] = {}


def _add_to_totals(event: Event) -> None:
    if not _totals:
        atexit.register(show_totals)
    group = event.text if event.kind == "cost" else "launches"
    parts = _totals.setdefault(group, {})
    name = event.name if event.kind == "cost" else ""
    seconds, count = parts.get(name, (0.0, 0))
    parts[name] = seconds + event.seconds, count + 1


def show_totals() -> None:
    """Tell what Python, compilers and launches have cost since DEBUG=2 has counted them."""
    for group, parts in _totals.items():
        seconds = sum(spent for spent, _ in parts.values())
        count = max(often for _, often in parts.values())
        ranked = sorted(parts.items(), key=lambda part: -part[1][0])
        detail = ", ".join(f"{name} {1e3 * spent:.0f}" for name, (spent, _) in ranked if name)
        text = f"{1e3 * seconds:8.0f} ms, {count} kernels {detail and f'({detail})'}".rstrip()
        emit("totals", f"total {group}", text, seconds=seconds, count=count)


class Progress:
    """Lines on how far a long task is, from its third second on.

    Use it as a context manager and call `advance` as work is done.
    """

    quiet_seconds = 2.0
    pause_seconds = 1.0

    def __init__(self, name: str, total: float, unit: str = "") -> None:
        self.name, self.total, self.unit = name, total, unit
        self.done = 0.0
        self._start = time.perf_counter()
        self._next = self._start + self.quiet_seconds
        self._shown = False

    def advance(self, amount: float = 1) -> None:
        """Count `amount` more as done."""
        self.done += amount
        now = time.perf_counter()
        if now >= self._next:
            self._tell(now)
            self._next = now + self.pause_seconds

    def _tell(self, now: float) -> None:
        self._shown = True
        share = f" ({100 * self.done / self.total:.0f}%)" if self.total else ""
        of_total = f"/{self.total:g}" if self.total else ""
        unit = f" {self.unit}" if self.unit else ""
        text = f"{self.name}: {self.done:g}{of_total}{unit}{share}, {now - self._start:.0f} s"
        emit("progress", self.name, text, done=self.done, total=self.total)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._shown:
            self._tell(time.perf_counter())
