"""Put a program into one list, every expression at the outermost loop where it can be computed.

In:  a BLOCK of loops and stores.
Out: the linear program: each node after its sources, loops between RANGE and END.

A load of memory that the kernel writes stays inside the loops that write it; all other nodes move
out of the loops that they do not depend on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kernelet.base.dtype import dtypes
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.lower.loops import statements_of


@dataclass(slots=True)
class _Scope:
    """The body of one open loop."""

    variable: UOp | None
    written: frozenset[UOp]
    nodes: list[UOp] = field(default_factory=list)
    settled: list[UOp] = field(default_factory=list)


class _Linearizer:
    def __init__(self, block: UOp) -> None:
        self.scopes: list[_Scope] = [_Scope(None, _written(block))]
        # The scope in which each value has been computed that can be used now.
        self.depths: dict[UOp, int] = {}
        # The written memories that a value depends on, and the values that depend on each.
        self.reads: dict[UOp, frozenset[UOp]] = {}
        self.readers: dict[UOp, set[UOp]] = {memory: set() for memory in _written(block)}

    def run(self, block: UOp) -> list[UOp]:
        """The whole program."""
        for statement in block.src:
            self._statement(statement)
        return self.scopes[0].nodes

    def _statement(self, statement: UOp) -> None:
        if statement.op is Op.LOOP:
            self._loop(statement)
            return
        # The stores of a group happen at once.
        stores = [node for node, _ in statements_of(statement)]
        for node in stores:
            for source in node.src:
                self._emit(source)
        self.scopes[-1].nodes += stores
        self._forget(_written(statement))

    def _loop(self, statement: UOp) -> None:
        variable, *body = statement.src
        self._emit(variable.src[0])
        scope = _Scope(variable, _written(statement))
        self._forget(scope.written)
        scope.nodes.append(variable)
        self.scopes.append(scope)
        self._settle(variable, len(self.scopes) - 1)
        for part in body:
            self._statement(part)
        self.scopes.pop()
        for node in scope.settled:
            if self.depths.get(node) == len(self.scopes):
                del self.depths[node]
        scope.nodes.append(UOp(Op.END, dtypes.void, (variable,)))
        self.scopes[-1].nodes += scope.nodes

    def _settle(self, node: UOp, depth: int) -> None:
        self.depths[node] = depth
        self.scopes[depth].settled.append(node)

    def _emit(self, root: UOp) -> None:
        """Compute a value, and all below it, as far out as possible."""
        depths = self.depths
        stack = [root]
        while stack:
            node = stack[-1]
            if node in depths:
                stack.pop()
                continue
            missing = [source for source in node.src if source not in depths]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            depth = max([depths[source] for source in node.src], default=0)
            if node.op is Op.LOAD:
                depth = max(depth, self._innermost_writer(node.src[0].src[0]))
            self.scopes[depth].nodes.append(node)
            self._settle(node, depth)
            self._note_reads(node)

    def _note_reads(self, node: UOp) -> None:
        reads = self.reads
        below = [reads[source] for source in node.src if source in reads]
        if node.op is Op.LOAD and node.src[0].src[0] in self.readers:
            below.append(frozenset({node.src[0].src[0]}))
        if below:
            reads[node] = below[0] if len(below) == 1 else frozenset().union(*below)
            for memory in reads[node]:
                self.readers[memory].add(node)

    def _forget(self, written: frozenset[UOp]) -> None:
        """Drop what was computed from memory that has changed, or will inside a loop."""
        for memory in written:
            stale = self.readers[memory]
            for node in stale:
                self.depths.pop(node, None)
            stale.clear()

    def _innermost_writer(self, memory: UOp) -> int:
        scopes = reversed([*enumerate(self.scopes)])
        return next((depth for depth, scope in scopes if memory in scope.written), 0)


def _written(statement: UOp) -> frozenset[UOp]:
    """The memories that a statement stores to."""
    return frozenset(store.src[0].src[0] for store, _ in statements_of(statement))


def linearize(block: UOp, given: Iterable[UOp] = ()) -> list[UOp]:
    """The linear program, memory arguments first in the order of their slots.

    The `given` memory is an argument also where nothing is left that touches it.
    """
    body = _Linearizer(block).run(block)
    memories = {*given, *(node for node in body if node.op is Op.PARAM)}
    variables = {node for node in body if node.op is Op.VARIABLE}
    first = sorted(memories, key=lambda node: node.arg.slot)
    first += sorted(variables, key=lambda node: node.arg.name)
    return first + [node for node in body if node.op not in (Op.PARAM, Op.VARIABLE)]
