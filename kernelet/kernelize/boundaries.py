"""Decide which values are stored to memory.

In:  a graph in normal form.
Out: the same graph with CONTIGUOUS above each value that gets a buffer; all else is fused.

Readers are looked at before what they read, so it is known in which kernels a value is needed and
at which indices. A value is stored when fusing it would repeat work, take more scratch than fits,
or leave nothing to share out to threads; the methods of `_Boundaries` name the reasons.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection
from dataclasses import dataclass, field

from kernelet.graph import placement
from kernelet.graph.division import ZERO, add_index, index_const, index_of, subtract_index
from kernelet.graph.infer import max_dim
from kernelet.graph.movement import Index, all_numbers
from kernelet.graph.ops import ELEMENTWISE, MOVEMENT, Op
from kernelet.graph.reuse import absorbed_sums, elements_read, is_contraction, is_search
from kernelet.graph.reuse import numel as numel
from kernelet.graph.scan import scan_of
from kernelet.graph.uop import UOp
from kernelet.graph.walk import consumers_of, only_below, reachable, rebuild
from kernelet.kernelize.normalize import is_memory

SCRATCH_BYTES = 1 << 15  # the largest box that is kept inside a kernel
ROW_BYTES = 1 << 17  # the same for a row of a product, of which a tile of rows is kept
CHAINED_BYTES = 1 << 18  # a product of more is dearer to store and to load than its sums,
LAUNCH_BYTES = 1 << 16  # one of no more takes less time than launches of more kernels,
CHAINED_TERMS = 128  # where they have at most so many terms
CHAINED_GROWTH = 2  # and the operands are smaller by this factor, or the rows are read again
CHAINED = 2
REPEATED_ELEMENTS = 1 << 14  # reductions up to this size may be done again in each kernel
SERIAL_ELEMENTS = 1 << 12  # work up to this size needs no threads
SHARED_PRODUCTS = 1 << 22  # from so many products on, a contraction has a kernel of its own
SHARED_COST = 16  # values dearer than this are not computed in two kernels
STORED_COST = 48  # but storing and reading one again costs as much as two exponentials
MOST_READINGS = 8
MOST_WAYS = 16
COSTS = {Op.EXP2: 20, Op.LOG2: 20, Op.SIN: 60, Op.SQRT: 12, Op.RECIPROCAL: 8, Op.IDIV: 8, Op.MOD: 8}
MOST_COST = 1000
MOST_WORK = 1 << 12  # compilers take more than twice as long for a kernel of twice the operations
MOST_INDEX_COST = 100


def choose_boundaries(sink: UOp) -> UOp:
    """The graph with every stored value marked.

    (x @ w).relu() @ v  ->  CONTIGUOUS((x @ w).relu()) @ v
    """
    kept = _Boundaries(sink).kept
    return rebuild(
        sink, lambda node, made: UOp(Op.CONTIGUOUS, node.dtype, (made,)) if node in kept else made
    )


def is_kernel(node: UOp) -> bool:
    """Whether a node is what one kernel computes."""
    return node.op in (Op.CONTIGUOUS, Op.ASSIGN)


def cost_of(node: UOp) -> int:
    """What a node costs for each element, without what it reads; an addition costs 1."""
    return COSTS.get(node.op, 1) if node.op in ELEMENTWISE else 0


Readings = dict[Index, placement.Chain]


@dataclass(slots=True)
class _Uses:
    """How a value is needed.

    `readings` has an entry for each kernel that needs it; where a reduction is inside, with the
    indices at which it is read and the loops around. `repeats` is how often a contraction reads each
    element again, `reduced` whether a reduction in the same kernel reads it, `ways` are the chains
    of movements through which it is read, as numbers.
    """

    readings: dict[UOp, Readings] = field(default_factory=dict)
    repeats: float = 0
    reduced: bool = False
    ways: set[int] = field(default_factory=set)


class _Boundaries:
    """The decision for each node, readers first."""

    def __init__(self, sink: UOp) -> None:
        self.order = list(sink.toposort())
        held = [n.device for n in self.order if n.op in (Op.PARAM, Op.COPY)]
        self.is_spread = len(set(held)) > 1
        self.kept: set[UOp] = set()
        self.uses = {node: _Uses() for node in self.order}
        self.way_numbers: dict[tuple[UOp, int], int] = {}
        self.outputs: dict[UOp, placement.Chain] = {}
        self.fused: dict[UOp, list[frozenset[UOp]]] = {}
        self.ending: dict[UOp, UOp] = {}  # kernel -> the contraction that it is about
        self.running: dict[UOp, tuple[UOp, bool]] = {}  # kernel -> the loop that scans run along
        self.work: dict[UOp, int] = {}  # kernel -> what all that is fused in it costs
        self.numbers = itertools.count(1)
        self.cost: dict[UOp, int] = {}
        self.reduces: dict[UOp, int] = {}  # the most results of a reduction inside; 0: none
        # How well a product in it may be scratch, see `_chaining`.
        self.chained: dict[UOp, int] = {}
        self.rows: set[UOp] = set()  # operands of contractions that are scratch, row by row
        self.readers = consumers_of(sink)
        self.absorbed = absorbed_sums(sink)
        for node in self.order:
            self._measure(node)
        for node in reversed(self.order):
            self._visit(node)

    # ---- facts from below ----

    def _measure(self, node: UOp) -> None:
        """The cost of one element computed inline, and the reductions in it."""
        if is_memory(node) or node.op in (Op.PARAM, Op.ASSIGN, Op.SINK):
            self.cost[node], self.reduces[node], self.chained[node] = 1, 0, 0
            return
        cost = sum(self.cost[source] for source in node.src) + cost_of(node)
        inside = max((self.reduces[source] for source in node.src), default=0)
        chained = max((self.chained[source] for source in node.src), default=0)
        if node.op is Op.REDUCE:
            cost, inside = 1, numel(node.shape)
            chained = _chaining(node) if is_contraction(node) else chained and CHAINED
        self.chained[node] = chained
        self.cost[node], self.reduces[node] = min(cost, MOST_COST), inside

    # ---- walking from readers to what they read ----

    def _visit(self, node: UOp) -> None:
        if node.op in (Op.SINK, Op.AFTER, Op.PARAM, Op.COPY):
            return
        if is_kernel(node):
            self._open(node, node.src[-1])
        elif self.uses[node].readings:
            if self._decide(node, self.uses[node]):
                self.kept.add(node)
                self.uses[node] = _Uses()
                self._open(node, node)
            self._pass_on(node, self.uses[node])

    def _open(self, kernel: UOp, value: UOp) -> None:
        """Start a kernel that computes `value`."""
        index = placement.loops_over(value.shape, self.numbers)
        self.outputs[kernel] = tuple(part for part in index if part is not ZERO)
        self.fused[kernel], self.work[kernel] = [], 0
        self.uses[value].ways.add(self._way(kernel, -1))
        self.uses[value].readings[kernel] = {index: self.outputs[kernel]}

    def _pass_on(self, node: UOp, uses: _Uses) -> None:
        for kernel in uses.readings:
            self.work[kernel] += cost_of(node)
        repeats = 0 if node in self.rows else uses.repeats
        if node.op is Op.REDUCE:
            repeats = 1 if is_contraction(node) else 0
        elif node.op is Op.EXPAND:
            repeats *= numel(node.shape) / max(numel(node.src[0].shape), 1)
        ways = uses.ways
        if node.op in MOVEMENT or node.op in (Op.REDUCE, Op.GATHER):
            ways = {self._way(node, way) for way in ways}
        for source in node.src:
            below = self.uses[source]
            below.ways |= ways
            below.repeats = max(below.repeats, repeats)
            below.reduced |= uses.reduced or node.op is Op.REDUCE
            for kernel, readings in uses.readings.items():
                found = below.readings.setdefault(kernel, {})
                if self.reduces[source]:
                    self._pass_readings(node, source, readings, found)

    def _way(self, node: UOp, way: int) -> int:
        return self.way_numbers.setdefault((node, way), len(self.way_numbers))

    def _pass_readings(self, node: UOp, source: UOp, readings: Readings, found: Readings) -> None:
        for index, chain in readings.items():
            if len(found) > MOST_READINGS:
                return
            index = placement.source_index(node, source, index, self.numbers)
            if node.op is Op.REDUCE:
                opened = (index[axis] for axis in node.arg.axes)
                chain = (*chain, *(part for part in opened if part is not ZERO))
            found.setdefault(index, chain)

    # ---- the decision ----

    def _decide(self, node: UOp, uses: _Uses) -> bool:
        kernels = uses.readings
        if self.is_spread and node.device is None:
            return False  # memory is on one device, a number is found on each
        if node.op is Op.REDUCE:
            return self._keep_reduction(node, kernels)
        if node.op is Op.SHRINK:
            # Only the part that is needed is computed and stored.
            return self._shows_product(node) and not all(self._ends(node, k) for k in kernels)
        if node.op not in ELEMENTWISE or node.op is Op.CAST:
            return False
        if any(self.work[kernel] + cost_of(node) > MOST_WORK for kernel in kernels):
            return True
        if self.cost[node] > MOST_INDEX_COST and self._is_index(node):
            return True
        if numel(node.shape) == 1 and not self.reduces[node] and self.cost[node] < MOST_INDEX_COST:
            return False  # a number is computed once for a whole kernel
        if len(uses.ways) > MOST_WAYS and self.cost[node] > 2:
            # y + y.roll(1), many times over, would read its start at ever more places.
            return True
        if len(kernels) > 1 and self._is_shared(node):
            return True
        if not self._is_repeated_operand(node):
            return False
        if not all(self._is_row_of_chain(node, kernel) for kernel in kernels):
            return True
        self.rows.add(node)
        return False

    def _is_index(self, node: UOp) -> bool:
        """Whether a value says which elements are read; addresses are to stay small."""
        while True:
            readers = self.readers[node]
            if any(reader.op is Op.GATHER and reader.src[1] is node for reader in readers):
                return True
            if len(readers) != 1 or readers[0].op not in (*MOVEMENT, Op.CAST):
                return False
            node = readers[0]

    def _is_repeated_operand(self, node: UOp) -> bool:
        """A dear operand of a contraction is computed once, not for each row of the other one."""
        repeats = self.uses[node].repeats
        if repeats < 2 or repeats * numel(node.shape) < REPEATED_ELEMENTS:
            return False
        cost = self.cost[node] + (100 if self.reduces[node] else 0)
        return cost * (repeats - 1) > 4 * (repeats + 1)

    def _is_shared(self, node: UOp) -> bool:
        """What several kernels need is stored when it is dear, or rounds off a reduction."""
        if self.cost[node] >= SHARED_COST:
            return self.cost[node] >= STORED_COST or self._reads_much(node)
        inside = self.reduces[node]
        if not inside or numel(node.shape) > inside:
            return False

        def alike(value: UOp) -> list[UOp]:
            below = value.src if value.op in ELEMENTWISE else ()
            return [part for part in below if part.shape == node.shape and self.reduces[part]]

        # x.relu() is cheap: where x is needed elsewhere too, x is stored instead.
        return not any(self._is_read_beside(part, node) for part in reachable(alike(node), alike))

    def _reads_much(self, node: UOp) -> bool:
        """Whether computing a value again reads more memory than the value itself is."""
        computed = ELEMENTWISE | MOVEMENT
        below = reachable([node], lambda part: part.src if part.op in computed else ())
        read = [part for part in below if part.op not in computed]
        return sum(8 * numel(part.shape) > numel(node.shape) for part in read) > 1

    def _is_read_beside(self, source: UOp, node: UOp) -> bool:
        """Whether a value is needed for something else too than one elementwise node."""

        def beside(value: UOp) -> list[UOp]:
            return [reader for reader in self.readers[value] if reader is not node]

        return any(reader.op not in ELEMENTWISE for reader in reachable(beside(source), beside))

    def _keep_reduction(self, node: UOp, kernels: Collection[UOp]) -> bool:
        if scan_of(node) is not None:
            return len(kernels) > 1 or not all(self._runs(node, kernel) for kernel in kernels)
        if len(kernels) > 1:
            small = numel(node.src[0].shape) <= REPEATED_ELEMENTS
            if not small or is_contraction(node):
                return True
        return not all(self._fits(node, kernel) for kernel in kernels)

    def _fits(self, node: UOp, kernel: UOp) -> bool:
        """Whether a reduction can be computed inside a kernel without repeating work."""
        readings = self.uses[node].readings[kernel]
        if len(readings) > MOST_READINGS:
            return False
        outputs = self.outputs[kernel]
        if node in self.absorbed and self.absorbed[node] not in self.kept:
            return True
        limit = SCRATCH_BYTES
        if is_contraction(node) or is_search(node):
            if self._ends(node, kernel):
                main = self.ending.setdefault(kernel, node)
                return main is node or numel(node.src[0].shape) < SHARED_PRODUCTS
            if self.chained[node] < (CHAINED if len(readings) == 1 else 1):
                return False
            limit = ROW_BYTES
        first = self._loops_of_scratch(node, kernel, limit)
        is_serial = not first and outputs and numel(node.src[0].shape) > SERIAL_ELEMENTS
        if first is None or is_serial:
            return False
        self.fused[kernel].append(first)
        return True

    def _loops_of_scratch(self, node: UOp, kernel: UOp, limit: int) -> frozenset[UOp] | None:
        """The output loops around a value in scratch; None where it does not fit or is repeated."""
        outputs = self.outputs[kernel]
        readings = self.uses[node].readings[kernel]
        depends = _loops_read(readings)
        # The loops that it depends on are outside of the others.
        first = [variable for variable in outputs if variable in depends]
        rest = [variable for variable in outputs if variable not in depends]
        reads = [
            placement.Reading(index, (*first, *rest, *chain[len(outputs) :]))
            for index, chain in readings.items()
        ]
        box = placement.place_value(reads, node.shape)
        fits = box.size * node.dtype.itemsize <= limit and not _repeats(box, node)
        fits = fits and (limit != ROW_BYTES or _is_row(box, outputs))
        return frozenset(first) if fits and self._agrees(kernel, frozenset(first)) else None

    def _is_row_of_chain(self, node: UOp, kernel: UOp) -> bool:
        """Whether rows of a contraction's operand, with a product in it, are scratch.

        sum_t softmax(q @ k)[i, t] * v[t, j]: a row of scores is needed by all j, for one i only.
        """
        readings = self.uses[node].readings[kernel]
        if self.chained[node] < CHAINED or len(readings) != 1 or not _pays(node):
            return False
        (index,) = readings
        plain = all(part is ZERO or part.op is Op.RANGE for part in index)
        return plain and self._loops_of_scratch(node, kernel, ROW_BYTES) is not None

    def _ends(self, node: UOp, kernel: UOp) -> bool:
        """Whether a contraction is what a kernel is about: each result is read once, at its end."""
        uses = self.uses[node]
        readings = uses.readings[kernel]
        whole = _loops_read(readings) == frozenset(self.outputs[kernel])
        return len(readings) == 1 and whole and not uses.reduced

    def _shows_product(self, node: UOp) -> bool:
        """Whether a chain of movement ops shows a part of a contraction that is read nowhere else."""
        total = only_below(node, self.readers)
        return total is not None and total.op is Op.REDUCE and is_contraction(total)

    def _runs(self, node: UOp, kernel: UOp) -> bool:
        """Whether the results of a kernel follow a scan, each one read where it is used up."""
        scan = scan_of(node)
        readings = self.uses[node].readings[kernel]
        ((index, chain), *others) = readings.items()
        outputs = self.outputs[kernel]
        assert scan is not None
        if others or chain != outputs or _loops_read(readings) != {*outputs}:
            return False
        place, last = index[scan.axis], add_index(index_of(node.shape[scan.axis]), index_const(-1))
        mirrored = subtract_index(last, place)
        if place not in outputs and mirrored not in outputs:
            return False
        along = (place, scan.backwards) if place in outputs else (mirrored, not scan.backwards)
        if self.running.setdefault(kernel, along) != along:
            return False
        self.fused[kernel].append(frozenset(outputs))
        return True

    def _agrees(self, kernel: UOp, needed: frozenset[UOp]) -> bool:
        """Whether the output loops can be ordered so that every fused reduction has its own first."""
        return all(needed <= other or other <= needed for other in self.fused[kernel])


def _loops_read(readings: Readings) -> frozenset[UOp]:
    """The loops that a value depends on."""
    return frozenset().union(*[placement.ranges_in(part) for index in readings for part in index])


def _repeats(box: placement.Box, node: UOp) -> bool:
    """Whether some element would be computed more than once."""
    loops = math.prod(max_dim(variable.src[0]) for variable in box.place)
    return loops * box.size > numel(node.shape)


def _is_row(box: placement.Box, outputs: placement.Chain) -> bool:
    """Whether the box serves all of the last output axis, along which lanes run."""
    return bool(box.place) and bool(outputs) and outputs[-1] not in box.place


def _pays(node: UOp) -> bool:
    """Whether it costs more to store a value than to have it in the kernel that reads it."""
    nbytes = numel(node.shape) * node.dtype.itemsize
    return all_numbers(node.shape) and not LAUNCH_BYTES < nbytes < CHAINED_BYTES


def _chaining(node: UOp) -> int:
    """Whether an element of a product costs less to compute than to store and load.

    1 where that is so only if the rows are read several times, as by a softmax: where operands are
    as large as the product, layers of a network for one, there is little to save.
    """
    terms = numel(node.src[0].shape) // max(numel(node.shape), 1)
    if terms > CHAINED_TERMS or not _pays(node):
        return 0
    return CHAINED if numel(node.shape) >= CHAINED_GROWTH * elements_read(node) else 1
