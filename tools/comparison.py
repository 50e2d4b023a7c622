"""Compare every method of a tensor with torch or numpy: `python -m tools.comparison [METHOD...]`.

In:  the tables of `tools/comparisons/`; `--samples 100`, `--seed 0`, `--write docs/methods.md`.
Out: a line a method, also in the table of the document that `--write` names; exit status 1 when a
     result differs, or a method has no row.

The methods are found by looking at the class: its functions, properties and operators. Two names of
one function are one method.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelet import Tensor
from tools.comparisons.draws import EVERY, FLOATS, SETS
from tools.comparisons.row import Row, torch
from tools.comparisons.sample import Sample
from tools.comparisons.tables import ROWS
from tools.documents import section, with_section

_AT_ONCE = 200
# How Python itself deals with objects.
_PROTOCOL = frozenset(
    {"__init__", "__init_subclass__", "__new__", "__reduce__", "__subclasshook__"}
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the samples of one row have shown."""

    row: Row
    samples: tuple[Sample, ...]
    differences: tuple[str, ...]

    @property
    def dtypes(self) -> str:
        """The element types of the samples, in words."""
        found = {sample.dtype for sample in self.samples}
        names = tuple(name for name in EVERY if name in found)
        known = {frozenset(dtypes): name for name, dtypes in SETS.items()}
        return known.get(frozenset(names), ", ".join(names))

    def line(self) -> str:
        """A row of the table."""
        compared = "torch" if self.row.torch_function() is not None else "numpy"
        derived = "yes" if any(sample.derive for sample in self.samples) else "no"
        count, wrong = len(self.samples), len(self.differences)
        result = f"{wrong} differ" if wrong else "agrees"
        names = ", ".join(f"`{name}`" for name in names_of(self.row.method))
        return f"| {names} | {compared} | {count} | {self.dtypes} | {derived} | {result} |"


# ---- which methods there are ----


def public_methods() -> dict[str, list[str]]:
    """Every public method, property and operator, with the other names of each."""
    found: dict[int, list[str]] = {}
    for name in sorted(dir(Tensor), key=lambda name: (name.startswith("_"), name)):
        special = name.startswith("__") and name.endswith("__") and name not in _PROTOCOL
        value = next(vars(base)[name] for base in Tensor.__mro__ if name in vars(base))
        inner = getattr(value, "__func__", value)
        # Each name of a method is a wrapper of its own, which calls it by that name.
        inner = inspect.unwrap(inner) if inspect.isfunction(inner) else inner
        is_method = isinstance(value, property) or (callable(inner) and not isinstance(inner, type))
        if is_method and (special or not name.startswith("_")) and not _is_inherited(name):
            found.setdefault(id(inner), []).append(name)
    return {names[0]: names for names in found.values()}


def _is_inherited(name: str) -> bool:
    return name in dir(object) and getattr(Tensor, name) is getattr(object, name, None)


def names_of(method: str) -> list[str]:
    """All names of a method; its own first."""
    every = next((names for names in public_methods().values() if method in names), [method])
    return [method, *(name for name in every if name != method)]


def missing() -> list[str]:
    """The methods without a row."""
    known = {row.method for row in ROWS}
    return [names[0] for names in public_methods().values() if known.isdisjoint(names)]


# ---- comparing ----


def samples_of(row: Row, count: int, seed: int) -> Iterator[Sample]:
    """The samples of a row: the first is plain and in the widest type."""
    start = zlib.crc32(row.method.encode())
    for number in range(count):
        dtype = row.dtypes[-1] if number == 0 else row.dtypes[(start + number) % len(row.dtypes)]
        edges = row.edges and number % 2 == 1
        derive = dtype in FLOATS and (not edges or (row.gradient_edges and number % 4 == 1))
        yield Sample(row, (seed, start, number), dtype, edges, derive)


def compare(rows: Sequence[Row], count: int, seed: int) -> list[Comparison]:
    """Compare `count` samples of each row, many computed together."""
    every = [(row, list(samples_of(row, count, seed))) for row in rows]
    flat = [sample for _, samples in every for sample in samples]
    for first in range(0, len(flat), _AT_ONCE):
        _compute(flat[first : first + _AT_ONCE])
    found = []
    for row, samples in every:
        differences = [sample.difference() for sample in samples]
        wrong = tuple(each for each in differences if each is not None)
        found.append(Comparison(row, tuple(samples), wrong))
    return found


def _compute(samples: Sequence[Sample]) -> None:
    lazy = [tensor for sample in samples for tensor in sample.start()]
    try:
        Tensor.realize(*lazy)
    except Exception:
        # Each sample meets its own error when it is read.
        lazy.clear()
    for sample in samples:
        sample.finish()


def table(before: str, lines: Sequence[str]) -> str:
    """The table with new lines in place of those of the same methods."""
    kept = {line.split(" | ")[0]: line for line in before.splitlines() if line.startswith("| `")}
    kept |= {line.split(" | ")[0]: line for line in lines}
    head = ("| method | compared with | samples | types | gradients | result |",)
    return "\n".join([*head, "| --- | --- | --- | --- | --- | --- |", *sorted(kept.values())])


def main() -> int:
    """Compare the methods that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("methods", nargs="*")
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    wanted = {row.method for row in ROWS}
    if options.methods:
        wanted = {name for method in options.methods for name in names_of(method)}
    if torch is None:
        print("torch is not installed: numpy formulas alone.")
    found: list[Comparison] = []
    for row in [row for row in ROWS if row.method in wanted]:
        start = time.perf_counter()
        [comparison] = compare([row], options.samples, options.seed)
        print(f"{comparison.line()} {time.perf_counter() - start:.1f} s", flush=True)
        for difference in comparison.differences[:4]:
            print(f"    {difference}")
        found.append(comparison)
    if missing():
        print(f"No method without a comparison: {', '.join(missing())} have no row.")
    if options.write is not None:
        text = options.write.read_text()
        lines = table(section(text, "methods"), [each.line() for each in found])
        options.write.write_text(with_section(text, "methods", lines))
    wrong = sum(len(each.differences) for each in found)
    print(f"comparison: {len(found)} methods, {wrong} differences, {len(missing())} without a row")
    return 1 if wrong or (missing() and not options.methods) else 0


if __name__ == "__main__":
    sys.exit(main())
