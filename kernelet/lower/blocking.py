"""The transform `BlockSum`: cut a sum so that its outer part encloses loops over results.

In:  a BLOCK of loops over scalar expressions.
Out: the same program; partial sums wait in scratch between the parts.

for p: acc = 0; for k in 512: acc += a[k] * b[k, p]; y[p] = f(acc)
->  for p: part[p] = 0
    for k0 in 2: for p: acc = part[p]; for k in 256: acc += ...; part[p] = acc
    for p: y[p] = f(part[p])

What is staged inside the outer part is a slice that fits a cache.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from kernelet.base.dtype import dtypes
from kernelet.graph.division import add_index, replace_ranges, scale_index
from kernelet.graph.movement import flatten_index, row_major_strides
from kernelet.graph.ops import Op
from kernelet.graph.placement import Chain
from kernelet.graph.uop import ScratchArg, UOp
from kernelet.graph.walk import rebuild, substitute
from kernelet.lower.loops import body_of, fresh_numbers, statements_of, with_body
from kernelet.lower.statements import memories, open_loop, wrap
from kernelet.lower.transforms import BlockSum

LARGEST_PARTS = 1 << 24  # bytes


def block_sum(block: UOp, blocked: BlockSum) -> UOp:
    """The program with its sum cut; unchanged where it does not have the form above."""
    fresh = fresh_numbers(block, Op.RANGE), fresh_numbers(block, Op.SCRATCH)
    uses = _uses_in(block)
    return change_loops(
        block, blocked.depth, lambda loop: _cut(loop, blocked, uses, fresh) or [loop]
    )


def _uses_in(statement: UOp) -> Counter[UOp]:
    """How many statements use each memory."""
    return Counter(
        memory
        for part, _ in statements_of(statement)
        for memory in {node.src[0] for node in part.toposort() if node.op is Op.INDEX}
    )


def change_loops(statement: UOp, depth: int, change: Callable[[UOp], list[UOp]]) -> UOp:
    """Replace the loops that are `depth` loops deep."""
    parts: list[UOp] = []
    for part in body_of(statement):
        if part.op is Op.LOOP:
            parts += [change_loops(part, depth - 1, change)] if depth else change(part)
        else:
            parts.append(part)
    return with_body(statement, parts)


def _cut(
    loop: UOp, blocked: BlockSum, uses: Counter[UOp], fresh: tuple[Iterator[int], Iterator[int]]
) -> list[UOp] | None:
    """The nests that take the place of one: start, parts, end."""
    around: list[UOp] = []
    body = [loop]
    while len(body) == 1 and body[0].op is Op.LOOP and body[0].src[0].arg.kind == "loop":
        around.append(body[0].src[0])
        body = list(body[0].src[1:])
    sums = [
        n for n, part in enumerate(body) if part.op is Op.LOOP and part.src[0].arg.kind == "reduce"
    ]
    if len(sums) != 1 or not around:
        return None
    start, total, end = body[: sums[0]], body[sums[0]], body[sums[0] + 1 :]
    stores = memories(start, Op.STORE)
    outer: list[UOp] = []
    for _ in range(blocked.whole):
        if len(total.src) != 2 or total.src[1].op is not Op.LOOP:
            return None
        outer.append(total.src[0])
        total = total.src[1]
    known = all(variable.src[0].op is Op.CONST for variable in (*around, *outer, total.src[0]))
    count = total.src[0].src[0].arg
    # Sums that are read after all loops have room for all results already.
    inside = _uses_in(loop)
    kept = all(n.op is Op.SCRATCH and uses[n] == inside[n] for n in stores)
    if not (stores and kept and known) or count % blocked.size:
        return None
    if count == blocked.size and not outer:
        return None
    results = math.prod(variable.src[0].arg for variable in around)
    if sum(results * memory.arg.size * memory.dtype.itemsize for memory in stores) > LARGEST_PARTS:
        return None
    accumulators = sorted(stores, key=lambda memory: memory.arg.number)
    parts = _Parts(*fresh, tuple(around), accumulators)
    return parts.write(start, total, end, blocked.size, outer)


class _Parts:
    """The partial sums of all accumulators, for each iteration of the loops around them."""

    def __init__(
        self,
        loops: Iterator[int],
        scratch: Iterator[int],
        around: Chain,
        accumulators: Sequence[UOp],
    ) -> None:
        self.loops = loops
        self.around = around
        sizes = [variable.src[0].arg for variable in around]
        self.parts = {}
        for memory in accumulators:
            arg = ScratchArg(next(scratch), memory.arg.size * math.prod(sizes))
            self.parts[memory] = memory.replace(arg=arg)
        self.base = flatten_index(around, row_major_strides(tuple(sizes)))

    def write(
        self, start: list[UOp], total: UOp, end: list[UOp], size: int, outer: Sequence[UOp]
    ) -> list[UOp]:
        """Three nests; the middle one inside the outer part of the sum."""
        variable = total.src[0]
        part = open_loop(variable.src[0].arg // size, self.loops, "reduce")
        inner = open_loop(size, self.loops, "reduce")
        here = add_index(scale_index(part, size), inner)
        parts = tuple(replace_ranges(one, {variable: here}) for one in total.src[1:])
        before = self._nest([self._in_parts(one) for one in start])
        middle = self._nest(
            [
                *(self._copied(one, to_parts=False) for one in start),
                *wrap((inner,), list(parts)),
                *(self._copied(one, to_parts=True) for one in start),
            ]
        )
        after = self._nest([self._in_parts(one) for one in end])
        return [*before, *wrap((*outer, part), middle), *after]

    def _nest(self, body: list[UOp]) -> list[UOp]:
        fresh = {v: open_loop(v.src[0].arg, self.loops, v.arg.kind) for v in self.around}
        return wrap(tuple(fresh.values()), [replace_ranges(part, fresh) for part in body])

    def _address(self, place: UOp) -> UOp:
        accumulator, offset = place.src
        offset = add_index(scale_index(self.base, accumulator.arg.size), offset)
        return UOp(Op.INDEX, dtypes.index, (self.parts[accumulator], offset))

    def _copied(self, statement: UOp, *, to_parts: bool) -> UOp:
        """The statement that starts the sum, moving it to or from its part instead."""

        def change(_: UOp, made: UOp) -> UOp:
            if made.op is not Op.STORE:
                return made
            target, source = made.src[0], self._address(made.src[0])
            if to_parts:
                source, target = target, source
            return made.replace(src=(target, UOp(Op.LOAD, made.src[0].src[0].dtype, (source,))))

        return rebuild(statement, change)

    def _in_parts(self, statement: UOp) -> UOp:
        """The statement over the partial sums instead of the accumulators."""
        places = [node for node in statement.toposort() if node.op is Op.INDEX]
        mapping = {node: self._address(node) for node in places if node.src[0] in self.parts}
        return substitute(statement, mapping)
