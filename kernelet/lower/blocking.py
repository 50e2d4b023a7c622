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

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from kernelet.base.dtype import dtypes
from kernelet.graph.division import (
    ZERO,
    add_index,
    index_const,
    replace_ranges,
    scale_index,
)
from kernelet.graph.ops import Op
from kernelet.graph.placement import Chain
from kernelet.graph.uop import RangeArg, ScratchArg, UOp
from kernelet.graph.walk import substitute
from kernelet.lower.loops import statements_of
from kernelet.lower.transforms import BlockSum

LARGEST_PARTS = 1 << 24  # bytes


def block_sum(block: UOp, blocked: BlockSum) -> UOp:
    """The program with its sum cut; unchanged where it does not have the form above."""
    program = _Program(block)
    return change_loops(block, blocked.depth, lambda loop: _cut(program, loop, blocked) or [loop])


class _Program:
    """Loops and scratch that the program does not have yet, and which it uses where."""

    def __init__(self, block: UOp) -> None:
        nodes = block.toposort()
        loops = (node.arg.number for node in nodes if node.op is Op.RANGE)
        scratch = (node.arg.number for node in nodes if node.op is Op.SCRATCH)
        self.loops = itertools.count(1 + max(loops, default=0))
        self.scratch = itertools.count(1 + max(scratch, default=0))
        self.uses = _uses_in(block)

    def is_all_in(self, loop: UOp, memories: Iterable[UOp]) -> bool:
        """Whether nothing outside of a loop uses the memories."""
        inside = _uses_in(loop)
        return all(self.uses[memory] == inside[memory] for memory in memories)


def _uses_in(statement: UOp) -> Counter[UOp]:
    """How many statements use each memory."""
    return Counter(
        memory
        for part, _ in statements_of(statement)
        for memory in {node.src[0] for node in part.toposort() if node.op is Op.INDEX}
    )


def change_loops(statement: UOp, depth: int, change: Callable[[UOp], list[UOp]]) -> UOp:
    """Replace the loops that are `depth` loops deep."""
    first = 1 if statement.op is Op.LOOP else 0
    parts: list[UOp] = list(statement.src[:first])
    for part in statement.src[first:]:
        if part.op is not Op.LOOP:
            parts.append(part)
        elif depth:
            parts.append(change_loops(part, depth - 1, change))
        else:
            parts += change(part)
    return statement.replace(src=tuple(parts))


def _cut(program: _Program, loop: UOp, blocked: BlockSum) -> list[UOp] | None:
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
    stores = {
        node.src[0].src[0] for part in start for node in part.toposort() if node.op is Op.STORE
    }
    outer: list[UOp] = []
    for _ in range(blocked.whole):
        if len(total.src) != 2 or total.src[1].op is not Op.LOOP:
            return None
        outer.append(total.src[0])
        total = total.src[1]
    known = all(variable.src[0].op is Op.CONST for variable in (*around, *outer, total.src[0]))
    count = total.src[0].src[0].arg
    # Sums that are read after all loops have room for all results already.
    kept = all(memory.op is Op.SCRATCH for memory in stores) and program.is_all_in(loop, stores)
    if not (stores and kept and known) or count % blocked.size:
        return None
    if count == blocked.size and not outer:
        return None
    results = math.prod(variable.src[0].arg for variable in around)
    if sum(results * memory.arg.size * memory.dtype.itemsize for memory in stores) > LARGEST_PARTS:
        return None
    accumulators = sorted(stores, key=lambda memory: memory.arg.number)
    parts = _Parts(program, tuple(around), accumulators)
    return parts.write(start, total, end, blocked.size, outer)


class _Parts:
    """The partial sums of all accumulators, for each iteration of the loops around them."""

    def __init__(self, program: _Program, around: Chain, accumulators: Sequence[UOp]) -> None:
        self.program = program
        self.around = around
        sizes = [variable.src[0].arg for variable in around]
        self.parts = {
            memory: UOp(
                Op.SCRATCH,
                memory.dtype,
                (),
                ScratchArg(next(program.scratch), memory.arg.size * math.prod(sizes)),
            )
            for memory in accumulators
        }
        self.base = ZERO
        for variable, size in zip(around, sizes, strict=True):
            self.base = add_index(scale_index(self.base, size), variable)

    def write(
        self, start: list[UOp], total: UOp, end: list[UOp], size: int, outer: Sequence[UOp]
    ) -> list[UOp]:
        """Three nests; the middle one inside the outer part of the sum."""
        variable = total.src[0]
        part = self._range(variable.src[0].arg // size, "reduce")
        inner = self._range(size, "reduce")
        here = add_index(scale_index(part, size), inner)
        parts = tuple(replace_ranges(one, {variable: here}) for one in total.src[1:])
        steps = [UOp(Op.LOOP, dtypes.void, (inner, *parts))] if size > 1 else list(parts)
        middle = [
            *(self._copied(one, to_parts=False) for one in start),
            *steps,
            *(self._copied(one, to_parts=True) for one in start),
        ]
        before = self._nest([self._in_parts(one) for one in start])
        nest = self._nest(middle)
        for loop in (part, *reversed(outer)):
            nest = nest if loop is ZERO else UOp(Op.LOOP, dtypes.void, (loop, nest))
        return [before, nest, self._nest([self._in_parts(one) for one in end])]

    def _nest(self, body: list[UOp]) -> UOp:
        fresh = {v: self._range(v.src[0].arg, v.arg.kind) for v in self.around}
        statements = [replace_ranges(part, fresh) for part in body]
        for variable in reversed(self.around):
            statements = [UOp(Op.LOOP, dtypes.void, (fresh[variable], *statements))]
        return statements[0]

    def _range(self, size: int, kind: str) -> UOp:
        if size == 1:
            return ZERO
        arg = RangeArg(next(self.program.loops), kind)
        return UOp(Op.RANGE, dtypes.index, (index_const(size),), arg)

    def _address(self, place: UOp) -> UOp:
        accumulator, offset = place.src
        offset = add_index(scale_index(self.base, accumulator.arg.size), offset)
        return UOp(Op.INDEX, dtypes.index, (self.parts[accumulator], offset))

    def _copied(self, statement: UOp, *, to_parts: bool) -> UOp:
        """The statement that starts the sum, moving it to or from its part instead."""
        if statement.op is Op.LOOP:
            parts = (self._copied(part, to_parts=to_parts) for part in statement.src[1:])
            return statement.replace(src=(statement.src[0], *parts))
        here = statement.src[0]
        source, target = self._address(here), here
        if to_parts:
            source, target = target, source
        return statement.replace(src=(target, UOp(Op.LOAD, here.src[0].dtype, (source,))))

    def _in_parts(self, statement: UOp) -> UOp:
        """The statement over the partial sums instead of the accumulators."""
        mapping: Mapping[UOp, UOp] = {
            node: self._address(node)
            for node in statement.toposort()
            if node.op is Op.INDEX and node.src[0] in self.parts
        }
        return substitute(statement, mapping)
