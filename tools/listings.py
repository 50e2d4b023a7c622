"""Write the generated C into the documents: `python -m tools.listings docs/performance.md`.

In:  a markdown file with sections `listing NAME`; with --check it is only compared.
Out: the file with the C that the compiler writes today, for one processor whatever this one is.

What is left out says so: a comment after each "…" counts the lines that would have followed.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from pathlib import Path

from kernelet import Tensor, dtypes, engine
from kernelet.base.target import Target
from kernelet.pipeline import lower
from kernelet.programs import kernel_name
from kernelet.render.c import render
from tools.documents import section, with_section

# Two threads, 32 vector registers of 16 floats, 32 KB and 1 MB of cache.
PROCESSOR = Target(
    "CPU",
    vector_bytes=64,
    vector_registers=32,
    cache_bytes=(32 << 10, 1 << 20),
    threads=2,
    operations=frozenset({"MULACC", "SUB", "FDIV", "TRUNCDIV", "TRUNCMOD"}),
    storage_only=frozenset({"float16", "bfloat16"}),
)
LONGEST_GROUP = 8  # lines that are repeated together
LEAST_DROPPED = 3  # fewer lines are not worth a comment
LEAST_LISTED = 5  # of things in one line
_NUMBER = re.compile(r"0x[\da-fp.+-]+f|\d+(\.\d+f?)?")


def tensor(*shape: int) -> Tensor:
    """Memory of that shape; nothing is computed with it."""
    return Tensor(bytes(4 * math.prod(shape)), dtype=dtypes.float32).reshape(shape)


def matmul() -> Tensor:
    """The workload matmul_1024x1024x1024."""
    return tensor(1024, 1024) @ tensor(1024, 1024)


def convolution() -> Tensor:
    """The workload conv3x3_64_56."""
    return tensor(8, 64, 56, 56).conv2d(tensor(64, 64, 3, 3), padding=1)


def attention() -> Tensor:
    """The workload attn."""
    query, key, value = (tensor(4, 8, 512, 64) for _ in range(3))
    return query.scaled_dot_product_attention(key, value)


LISTINGS: dict[str, Callable[[], Tensor]] = {
    "matmul": matmul,
    "convolution": convolution,
    "attention": attention,
}


def source(result: Tensor) -> str:
    """The C of the one kernel that computes a tensor."""
    (kernel,) = engine.schedule([result.uop]).kernels
    return render(lower(kernel, PROCESSOR).program, kernel_name(kernel))


def trimmed(text: str) -> str:
    """Source without what stands before the kernel and without what repeats itself."""
    lines = text[text.index("\nvoid ") :].strip().splitlines()
    kept: list[str] = []
    at = 0
    while at < len(lines):
        size, times = _repetition(lines, at)
        kept += map(_short, lines[at : at + size])
        at += size
        dropped = size * (times - 1)
        if dropped >= LEAST_DROPPED:
            indent = " " * (len(lines[at]) - len(lines[at].lstrip()))
            shape = "the line above" if size == 1 else f"the {size} lines above"
            kept.append(f"{indent}…  // {dropped} more lines like {shape}")
            at += dropped
    return "\n".join(kept)


def _repetition(lines: list[str], at: int) -> tuple[int, int]:
    """The size of the group of lines at `at` that repeats itself for longest, and how often."""
    shapes = [_shape(line) for line in lines[at : at + 40 * LONGEST_GROUP]]
    best = 1, 1
    for size in range(1, LONGEST_GROUP + 1):
        times = 1
        while shapes[times * size : (times + 1) * size] == shapes[:size]:
            times += 1
        if size * (times - 1) > max(best[0] * (best[1] - 1), LEAST_DROPPED - 1):
            best = size, times
    return best


def _shape(line: str) -> str:
    """A line without its numbers, but for those that say how large scratch is."""
    return line if " scratch" in line and "aligned" in line else _NUMBER.sub("#", line)


def _short(line: str) -> str:
    """`a_0, a_1, a_2, a_3, a_4` -> `a_0, …, a_4`"""
    item = r"[\w.-]*?\d+f?"
    listed = re.compile(rf"({item})(?:, {item}){{{LEAST_LISTED - 2},}}, ({item})(?=[;}})])")
    return listed.sub(r"\1, …, \2", line)


def listing(name: str) -> str:
    """A section's content: the trimmed source in a block of C."""
    return f"```c\n{trimmed(source(LISTINGS[name]()))}\n```"


def stale(text: str) -> list[str]:
    """The listings of a document that are not what the compiler writes today."""
    return [name for name in LISTINGS if section(text, f"listing {name}") != listing(name)]


def main(arguments: list[str]) -> int:
    """Write or check the documents that are named."""
    failed = False
    for path in (Path(name) for name in arguments if name != "--check"):
        text = path.read_text()
        old = stale(text)
        if "--check" in arguments:
            failed = failed or bool(old)
            hint = "" if not old else f": run `python -m tools.listings {path}`"
            print(f"{path}: {len(old)} listings are not what is generated{hint}")
            continue
        for name in old:
            text = with_section(text, f"listing {name}", listing(name))
        path.write_text(text)
        print(f"{path}: {len(old)} listings written")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
