"""Join calls into kernels with several stores.

In:  the calls of a schedule in order, and its slots.
Out: fewer calls, in an order that keeps each read before the write that ends its value.

Elementwise calls that touch the same elements share one nest, which reads them once: a parameter
and its moments; so do sums of the same elements to results of the same shape, also where one
needs the result of the other: a mean and a variance. Small updates of any shapes follow each
other in one kernel: all biases of a model.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from kernelet.base.dtype import dtypes
from kernelet.graph.infer import Shape
from kernelet.graph.ops import ELEMENTWISE, MOVEMENT, Op
from kernelet.graph.uop import UOp
from kernelet.graph.walk import base_of, reachable, substitute
from kernelet.kernelize.boundaries import MOST_WORK, cost_of, numel
from kernelet.kernelize.cut import numbered, reductions_of
from kernelet.kernelize.overlap import reads_in_place
from kernelet.kernelize.schedule import Call, Slot

Numbers = tuple[int, ...]

MOST_MEMORIES = 32  # of one kernel; more is slow to compile
PART_ELEMENTS = 1 << 14  # an update of more elements has work for several threads
PARTS_ELEMENTS = 1 << 15  # what one thread may do for all parts of a kernel
NEAR = 4  # a large value that is computed more calls too early takes memory meanwhile
LARGE = 1 << 12
MOST_TRIED = 8


def join_calls(
    calls: Sequence[Call], stores: Sequence[Sequence[UOp]], slots: Sequence[Slot], kept: set[int]
) -> list[Call]:
    """m = f(m, g); p = h(p, m, g)  ->  m, p = f(m, g), h(p, m, g)

    `stores` are what each call does, over the slots; `kept` are the slots that outlive the schedule.
    """
    statements = {n: found for n, each in enumerate(stores) if (found := _statement(each))}
    joiner = _Joiner(calls, statements, slots, kept)
    joiner.share_nests()
    joiner.line_up()
    return joiner.joined()


@dataclass(frozen=True, slots=True)
class _Statement:
    """One call over the slots of the schedule, elementwise or with one sum.

    `form` is equal for calls whose loops may be the same. `views` are the parts of memory of which
    it touches every element once, where there is a sum in that sum. `work` is what it costs for
    each element. An update writes a function of what was there before, and sums nothing.
    """

    stores: tuple[UOp, ...]
    shape: Shape
    form: tuple[object, ...]
    views: tuple[UOp, ...]
    work: int
    is_update: bool


@dataclass(slots=True, eq=False)
class _Group:
    """Calls that will be one kernel, and all that must run before and after, as bits."""

    members: int
    before: int
    after: int
    parts: list[Numbers]
    memories: set[int]

    @property
    def numbers(self) -> Numbers:
        """The calls."""
        return tuple(itertools.chain(*self.parts))


class _Joiner:
    def __init__(
        self,
        calls: Sequence[Call],
        statements: dict[int, _Statement],
        slots: Sequence[Slot],
        kept: set[int],
    ) -> None:
        self.calls = calls
        self.slots = slots
        self.kept = kept
        self.statements = statements
        self.before = _before(calls)
        self.users: dict[int, int] = {}
        for number, call in enumerate(calls):
            for slot in call.slots:
                self.users[slot] = self.users.get(slot, 0) | 1 << number
        after = [0] * len(calls)
        for number, found in enumerate(self.before):
            for other in _bits(found):
                after[other] |= 1 << number
        self.groups = [
            _Group(1 << n, self.before[n], after[n], [(n,)], set(call.slots))
            for n, call in enumerate(calls)
        ]
        self.group_of = dict(enumerate(self.groups))

    # ---- which calls ----

    def share_nests(self) -> None:
        """Give one nest to calls that touch the same elements."""
        places: dict[tuple[object, ...], list[_Group]] = {}
        for number, statement in self.statements.items():
            own = self.group_of[number]
            keys = [(self._device(own), statement.form, view) for view in statement.views]
            near = {id(g): g for key in keys for g in places.get(key, ())[-MOST_TRIED:]}
            for group in near.values():
                if self._shares(group, number) and self._may_join(group, own):
                    self._join(group, own)
                    group.parts = [tuple(sorted(group.numbers))]
                    break
            for key in keys:
                places.setdefault(key, []).append(self.group_of[number])

    def line_up(self) -> None:
        """Put small updates behind each other."""
        bundles: list[_Group] = []
        for group in [group for group in self.groups if self._is_part(group)]:
            for bundle in bundles:
                elements = self._elements(bundle) + self._elements(group)
                fits = elements <= PARTS_ELEMENTS and self._are_apart(bundle, group)
                if fits and self._may_join(bundle, group):
                    self._join(bundle, group)
                    break
            else:
                bundles.append(group)

    def _are_apart(self, left: _Group, right: _Group) -> bool:
        """Whether two groups are on one device and do not hold the same statement."""
        done = {store for number in left.numbers for store in self.statements[number].stores}
        own = {store for number in right.numbers for store in self.statements[number].stores}
        return self._device(left) == self._device(right) and done.isdisjoint(own)

    def _device(self, group: _Group) -> str:
        return self.slots[min(group.memories)].device

    def _is_part(self, group: _Group) -> bool:
        found = [self.statements.get(number) for number in group.numbers]
        updates = all(each is not None and each.is_update for each in found)
        return updates and self._elements(group) <= PART_ELEMENTS

    def _elements(self, group: _Group) -> int:
        return sum(numel(self.statements[number].shape) for number in group.numbers)

    def _shares(self, group: _Group, number: int) -> bool:
        """Whether a call may be in the nest of a group: there all values are read, then written."""
        statement = self.statements[number]
        is_near = min(abs(number - other) for other in group.numbers) <= NEAR
        is_kept = self.kept.issuperset(self.calls[number].written)
        work = statement.work + sum(self.statements[other].work for other in group.numbers)
        if work > MOST_WORK or not (is_kept or is_near or numel(statement.shape) <= LARGE):
            return False
        return all(self._at_once(*sorted((number, other))) for other in group.numbers)

    def _at_once(self, early: int, late: int) -> bool:
        """Whether two calls do the same when both read before either writes.

        What the second reads of the first is then the value that is written: see `_stores`.
        """
        written, ended = self.calls[early].written, self.calls[late].written
        if not set(written).isdisjoint(ended):
            return False
        read = set(written).intersection(self.calls[late].slots)
        if not read and set(ended).isdisjoint(self.calls[early].slots):
            return True
        for slot in read:
            # What no third call reads was stored for a reason.
            if slot not in self.kept and not self.users[slot] & ~(1 << early | 1 << late):
                return False
        first, second = self.statements[early].stores, self.statements[late].stores
        pairs = itertools.chain(itertools.product(first, second), itertools.product(second, first))
        return all(reads_in_place(one.src[1], other.src[0]) for one, other in pairs)

    def _may_join(self, left: _Group, right: _Group) -> bool:
        """Whether no other call must run between the two, and the kernel stays small."""
        between = left.after & right.before | right.after & left.before
        is_free = not between & ~(left.members | right.members)
        return is_free and len(left.memories | right.memories) <= MOST_MEMORIES

    def _join(self, group: _Group, other: _Group) -> None:
        group.members |= other.members
        group.before = (group.before | other.before) & ~group.members
        group.after = (group.after | other.after) & ~group.members
        group.parts = group.parts + other.parts
        group.memories |= other.memories
        self.groups.remove(other)
        for number in other.numbers:
            self.group_of[number] = group
        # What was between two others is now between all of them.
        for each in self.groups:
            if each.before & group.members:
                each.before |= group.members | group.before
            if each.after & group.members:
                each.after |= group.members | group.after

    # ---- the calls anew ----

    def joined(self) -> list[Call]:
        """A call for each group, where the first of its members was if the others allow it."""
        groups = {group.numbers: group for group in self.groups}
        return [self._call(groups[numbers]) for numbers in self._in_order(groups)]

    def _in_order(self, parts: Collection[Numbers]) -> Iterator[Numbers]:
        """Each after those that must run before it, otherwise by their first calls."""
        waiting = sorted(parts, key=min)
        left = _mask(itertools.chain(*waiting))
        while waiting:
            part = next(part for part in waiting if not self._needed(part) & left)
            waiting.remove(part)
            left &= ~_mask(part)
            yield part

    def _needed(self, part: Numbers) -> int:
        return functools.reduce(int.__or__, [self.before[n] for n in part]) & ~_mask(part)

    def _call(self, group: _Group) -> Call:
        if len(group.numbers) == 1:
            return self.calls[group.numbers[0]]
        parts = [UOp.sink(*self._stores(part)) for part in self._in_order(group.parts)]
        written = [base_of(store.src[0]).arg.slot for part in parts for store in part.src]
        return numbered(parts[0].src if len(parts) == 1 else parts, written)

    def _stores(self, part: Numbers) -> list[UOp]:
        """The stores of one nest, where nothing is read that it writes before.

        y = f(x); z = g(y)  ->  y = f(x); z = g(f(x))  ->  z = g(f(x)), if nobody else reads y
        """
        members = _mask(part)
        found = []
        values: dict[UOp, UOp] = {}
        for number in part:
            sources = [store.src for store in self.statements[number].stores]
            own = {target: substitute(value, values) for target, value in sources}
            values |= own
            stores = [UOp(Op.STORE, dtypes.void, pair) for pair in own.items()]
            for store, slot in zip(stores, self.calls[number].written, strict=True):
                readers = self.users[slot] & ~(1 << number)
                if slot in self.kept or readers & ~members or not readers:
                    found.append(store)
        alike = len({store.src[1].shape for store in found}) == 1
        return found if alike else [_without_ones(store) for store in found]


def _long(shape: Shape) -> Shape:
    """The sizes of the axes that have more than one element."""
    return tuple(dim for dim in shape if dim != 1)


def _without_ones(store: UOp) -> UOp:
    shape = _long(store.src[1].shape)
    return store.replace(
        src=tuple(UOp(Op.RESHAPE, part.dtype, (part,), shape) for part in store.src)
    )


def _mask(numbers: Iterable[int]) -> int:
    return sum(1 << number for number in numbers)


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _before(calls: Sequence[Call]) -> list[int]:
    """The calls that must run before each, as bits."""
    before: list[int] = []
    writer: dict[int, int] = {}
    readers: dict[int, int] = {}
    for number, call in enumerate(calls):
        found = 0
        for slot in call.slots:
            found |= writer.get(slot, 0)
        for slot in call.written:
            found |= readers.get(slot, 0)
        for other in _bits(found):
            found |= before[other]
        before.append(found)
        for slot in call.slots:
            readers[slot] = readers.get(slot, 0) | 1 << number
        for slot in call.written:
            writer[slot] = readers[slot] = 1 << number
    return before


def _statement(stores: Sequence[UOp]) -> _Statement | None:
    """What is to be known of a call that may be joined to others."""
    sums = reductions_of(stores) if stores else None
    if sums is None or len(sums) > 1 or (sums and len(stores) > 1):
        return None
    shape = _long(stores[0].src[1].shape)
    # With a sum, what it reads is what counts: a whole operand of it.
    views = {} if sums else dict.fromkeys(store.src[0] for store in stores)
    values = [node.src[0] for node in sums] or [store.src[1] for store in stores]
    # Reshaped is the same elements in the same order.
    passed = ELEMENTWISE | {Op.RESHAPE}
    for node in reachable(values, lambda node: node.src if node.op in passed else ()):
        # A view of memory that shows no element twice.
        if base_of(node, MOVEMENT - {Op.EXPAND}).op is Op.PARAM and node.op is not Op.RESHAPE:
            views[node] = None
    is_update = all(base_of(store.src[0]) in store.src[1].toposort() for store in stores)
    form = (shape, *[(node.src[0].shape, node.arg.axes) for node in sums])
    work = sum(map(cost_of, UOp.sink(*stores).toposort()))
    return _Statement(tuple(stores), shape, form, tuple(views), work, is_update and not sums)
