"""Loop changes as data: how the axes of one stage become loops.

In:  the sizes of the axes of a stage.
Out: a `Nest`: loops from the outermost to the innermost, each a step along one axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kernelet.graph.division import (
    ZERO,
    add_index,
    index_const,
    index_of,
    minimum_index,
    scale_index,
    subtract_index,
)
from kernelet.graph.infer import Dim
from kernelet.graph.movement import add_dims, multiply_dims
from kernelet.graph.uop import UOp


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop: each iteration moves `stride` elements along `axis`.

    `limit` is the last start that a tile may have: an axis that the tile does not divide ends with
    a tile that overlaps the one before, so that every tile is whole. `mirror` is where a loop
    starts that runs down.
    """

    axis: int
    size: Dim
    stride: int = 1
    kind: str = "loop"
    limit: int | None = None
    mirror: Dim | None = None

    @property
    def steps(self) -> int:
        """The number of iterations; 0 where only a launch tells it."""
        return self.size if isinstance(self.size, int) else 0


Nest = tuple[Loop, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """Cut the innermost loop of an axis in two.

    for i in 64  ->  for i in 2: for j in 32 (kind): at i * 32 + j
    """

    axis: int
    factor: int
    kind: str = "loop"

    def apply(self, nest: Nest) -> Nest:
        """The nest with the inner half last of all loops."""
        # The loop with the smallest step: only it has no limit.
        own = [n for n, loop in enumerate(nest) if loop.axis == self.axis]
        position = min(own, key=lambda n: (nest[n].stride, -n))
        loop = nest[position]
        assert isinstance(loop.size, int), "a symbolic axis cannot be split"
        assert loop.mirror is None, "a loop that runs down cannot be split"
        inner = replace(loop, size=self.factor, kind=self.kind, limit=None)
        if loop.size == self.factor:
            return (*nest[:position], *nest[position + 1 :], inner)
        whole = loop.size % self.factor == 0
        outer = replace(
            loop,
            size=-(-loop.size // self.factor),
            stride=loop.stride * self.factor,
            limit=None if whole else (loop.size - self.factor) * loop.stride,
        )
        return (*nest[:position], outer, *nest[position + 1 :], inner)


@dataclass(frozen=True, slots=True)
class Backwards:
    """Run along an axis from its end, tile by tile.

    for i in 8: at i  ->  for i in 8: at 7 - i
    """

    axis: int

    def apply(self, nest: Nest) -> Nest:
        """The nest whose plain loops along the axis run down."""
        lasts = [multiply_dims(add_dims(loop.size, -1), loop.stride) for loop in nest]
        return tuple(
            replace(loop, mirror=last) if (loop.axis, loop.kind) == (self.axis, "loop") else loop
            for loop, last in zip(nest, lasts, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Reorder:
    """Put the loops in another order.

    for i: for j: ...  ->  for j: for i: ...
    """

    order: tuple[int, ...]

    def apply(self, nest: Nest) -> Nest:
        """The nest with loop `order[n]` at position n."""
        assert sorted(self.order) == list(range(len(nest)))
        return tuple(nest[position] for position in self.order)


@dataclass(frozen=True, slots=True)
class Parallel:
    """Share the outermost loop out to threads.

    for i in 64: ...  ->  for i in begin..end: ..., once for each thread
    """

    def apply(self, nest: Nest) -> Nest:
        """The nest with its first loop of kind thread."""
        return (replace(nest[0], kind="thread"), *nest[1:])


@dataclass(frozen=True, slots=True)
class GroupLanes:
    """Keep `unroll` * `lanes` partial results of a reduction and join them at the end.

    for k in K: acc += x[k]
    ->  for k in K // f: for l in f: part[l] += x[k * f + l]
        for k in K % f: acc += x[K // f * f + k]
        for l in f: acc += part[l]
    """

    axis: int
    unroll: int
    lanes: int


Transform = Split | Backwards | Reorder | Parallel


@dataclass(frozen=True, slots=True)
class StageLoad:
    """Copy what is read of memory argument `slot` into scratch inside the first `depth` loops.

    for i: for k: acc += a[i, k] * b[k, j]
    ->  for k: for j: p[k, j] = b[k, j]
        for i: for k: acc += a[i, k] * p[k, j]
    """

    slot: int
    depth: int
    number: int = -1  # of the loads of this memory in one statement


@dataclass(frozen=True, slots=True)
class BlockSum:
    """Cut the sum inside the first `depth` loops into parts of `size` steps of one of its loops.

    That is its first loop, or the one inside the `whole` first loops, which all go outside.

    for p: acc = 0; for k in 512: acc += x[k, p]; y[p] = acc
    ->  for p: part[p] = 0
        for k0 in 2: for p: acc = part[p]; for k in 256: acc += x[k0 * 256 + k, p]; part[p] = acc
        for p: y[p] = part[p]
    """

    depth: int
    size: int
    whole: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """An inline value that gets scratch of its own, beside what sums it up in registers.

    for j: for i: acc[j] += exp(x[i]) * w[i, j]
    ->  for i: e[i] = exp(x[i])
        for j: for i: acc[j] += e[i] * w[i, j]

    `position` is that of the node in the order of the kernel's graph, once its sums have the axes
    that the plan merges. The place goes outwards until the box has `least` elements; `transforms`
    are those of the loops over the box.
    """

    position: int
    least: int = 1
    transforms: tuple[Transform, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """All decisions about one kernel.

    `merged` joins neighbouring axes of the output: each entry lists the axes of one loop. `root`
    are the transforms of the output's nest, `grouped` those of reductions, by stage number;
    `stored` are the numbers of the inline values that get scratch, filled
    `lanes` at a time; `scatter` says how many loops are around a search that is none;
    `blocked` cuts the sum of a contraction; `staged` are the loads copied into
    scratch, first to last; `held`
    are inline values with scratch and transforms of their own. `parts` are the plans of a kernel's
    parts, which run one after the other. Where it is `trimmed`, loops end where all that follows
    is masked.
    """

    merged: tuple[tuple[int, ...], ...] = ()
    root: tuple[Transform, ...] = ()
    grouped: tuple[tuple[int, GroupLanes], ...] = ()
    stored: tuple[int, ...] = ()
    lanes: int = 1
    scatter: int | None = None
    blocked: BlockSum | None = None
    staged: tuple[StageLoad, ...] = ()
    held: tuple[Held, ...] = ()
    parts: tuple[Plan, ...] = ()
    trimmed: bool = False

    def __str__(self) -> str:
        if self.parts:
            return ", then ".join(map(str, self.parts))
        parts = [repr(transform) for transform in self.root]
        parts += [f"stage {number}: {group!r}" for number, group in self.grouped]
        parts += [repr(one) for one in (*self.held, self.blocked, *self.staged) if one is not None]
        return "; ".join(parts) or "no transforms"


def can_apply(transform: Transform, nest: Nest) -> bool:
    """Whether a nest has the loops that a transform changes, as long as it needs them."""
    if isinstance(transform, Reorder):
        return len(transform.order) == len(nest)
    if not isinstance(transform, Split):
        return bool(nest)
    sizes = [(loop.stride, loop.size) for loop in nest if loop.axis == transform.axis]
    size = min(sizes, key=lambda pair: pair[0])[1] if sizes else 0
    return isinstance(size, int) and transform.factor <= size


def apply_transforms(nest: Nest, transforms: Sequence[Transform]) -> Nest:
    """The nest after all transforms, first to last."""
    for transform in transforms:
        nest = transform.apply(nest)
    return nest


class Loops:
    """A nest while it is planned: its loops now, and the transforms that they came from."""

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self.transforms: tuple[Transform, ...] = ()

    def apply(self, *transforms: Transform) -> None:
        """Change the loops by these transforms, first to last."""
        self.nest = apply_transforms(self.nest, transforms)
        self.transforms += transforms

    def split(self, axis: int, factor: int, kind: str = "loop") -> None:
        """Cut the innermost loop of an axis, unless into loops of one iteration."""
        if factor > 1:
            self.apply(Split(axis, factor, kind))

    def tile(self, axis: int, lanes: int, vectors: int = 1) -> None:
        """Take `vectors` times `lanes` neighbours along an axis at once."""
        if vectors > 1:
            self.split(axis, lanes * vectors, "unroll")
        self.split(axis, lanes, "vector")

    def put_first(self, *positions: int) -> None:
        """Move these loops outermost, in this order; what is in order already stays so."""
        order = tuple(dict.fromkeys([*positions, *range(len(self.nest))]))
        self.nest = Reorder(order).apply(self.nest)
        if self.transforms and isinstance(last := self.transforms[-1], Reorder):
            self.transforms = self.transforms[:-1]
            order = tuple([last.order[n] for n in order])
        if list(order) != sorted(order):
            self.transforms += (Reorder(order),)

    def plain(self, axis: int | None = None) -> list[int]:
        """The positions of the loops, of all axes or of one, that are no part of a tile."""
        plain = (n for n, loop in enumerate(self.nest) if loop.kind == "loop")
        return [n for n in plain if axis in (None, self.nest[n].axis)]

    def evenly_shared(self, positions: Iterable[int], threads: int) -> list[int]:
        """Those of the loops that keep all threads about equally busy."""
        sizes = {n: self.nest[n].steps for n in positions}
        return [
            n
            for n, size in sizes.items()
            if size >= 4 * threads or (size >= threads and size % threads == 0)
        ]

    def share_out(self, positions: Sequence[int], threads: int) -> int | None:
        """Threads share the first of these loops that keeps them all busy, else the longest.

        The loop moves outermost; where it was is the result, None where nothing is shared.
        """
        longest = max(positions, key=lambda n: self.nest[n].steps, default=0)
        first = next(iter(self.evenly_shared(positions, threads)), longest)
        if threads < 2 or not positions or self.nest[first].steps < 2:
            return None
        self.put_first(first)
        self.apply(Parallel())
        return first


def lanes_for(size: int, widest: int) -> int:
    """The greatest power of two that is at most the register and at most the axis."""
    return min(widest, 1 << max(size.bit_length() - 1, 0))


def coordinate_of(nest: Nest, ranges: Sequence[UOp], axis: int) -> UOp:
    """Where along `axis` the loops stand."""
    total = ZERO
    for loop, variable in zip(nest, ranges, strict=True):
        if loop.axis != axis:
            continue
        step = scale_index(variable, loop.stride)
        if loop.limit is not None:
            step = minimum_index(step, index_const(loop.limit))
        if loop.mirror is not None:
            step = subtract_index(index_of(loop.mirror), step)
        total = add_index(total, step)
    return total
