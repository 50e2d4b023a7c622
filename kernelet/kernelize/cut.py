"""Cut a graph into kernels.

In:  a graph whose stored values are CONTIGUOUS, COPY, ASSIGN and AFTER nodes.
Out: one call for each of them, in order, over numbered slots.

The order keeps program order: whoever reads memory before a write runs before the write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kernelet.base.dtype import dtypes
from kernelet.base.errors import DeviceError
from kernelet.graph.infer import Dim, max_dim
from kernelet.graph.ops import ELEMENTWISE, MOVEMENT, Op
from kernelet.graph.uop import ParamArg, UOp
from kernelet.graph.walk import base_of, reachable, substitute
from kernelet.kernelize.boundaries import is_kernel, numel
from kernelet.kernelize.schedule import Call, Slot

_INLINE = ELEMENTWISE | MOVEMENT | {Op.CONST, Op.ARANGE, Op.VARIABLE, Op.PARAM, Op.STORE, Op.SINK}


@dataclass(slots=True)
class Pieces:
    """The calls of a schedule before they are ordered.

    Each needs to run after others: those that it reads, and those that read what it overwrites.
    `stores` are what a kernel does, over the slots.
    """

    slots: list[Slot]
    calls: dict[UOp, Call] = field(default_factory=dict)
    stores: dict[UOp, tuple[UOp, ...]] = field(default_factory=dict)
    reads: dict[UOp, frozenset[UOp]] = field(default_factory=dict)
    needs: dict[UOp, set[UOp]] = field(default_factory=dict)
    slot_of: dict[UOp, int] = field(default_factory=dict)


def slot_view(slot: int, shape: tuple[Dim, ...], info: Slot) -> UOp:
    """A value of `shape` in row-major order in a slot; room for the greatest size of each axis."""
    memory = UOp(Op.PARAM, info.dtype, (), ParamArg(slot, info.size, info.device))
    room = tuple(max_dim(dim) for dim in shape)
    view = memory if room == (info.size,) else UOp(Op.RESHAPE, info.dtype, (memory,), room)
    if room == shape:
        return view
    return UOp(Op.SHRINK, info.dtype, (view,), tuple((0, dim) for dim in shape))


class Cutter:
    """Numbers the slots and writes one call for each stored value."""

    def __init__(self, sink: UOp, device: str, given: int) -> None:
        self.device = device
        self.order = list(sink.toposort())
        memories = [node for node in self.order if node.op is Op.PARAM]
        given = max([given, *[node.arg.slot + 1 for node in memories]])
        empty = Slot(0, dtypes.void, device)
        self.pieces = Pieces([empty] * given)
        self.given = given
        # What stands for a stored node inside other graphs: a view of its slot.
        self.views: dict[UOp, UOp] = {}
        for node in self.order:
            self._number(node)
        for node in self.order:
            if is_kernel(node) or node.op is Op.COPY:
                self._call(node)
        self._keep_order()

    def _number(self, node: UOp) -> None:
        pieces = self.pieces
        if node.op is Op.PARAM:
            slot = node.arg.slot
            pieces.slots[slot] = Slot(node.arg.size, node.dtype, node.arg.device)
            pieces.slot_of[node] = slot
        elif node.op in (Op.CONTIGUOUS, Op.COPY):
            device = node.device if isinstance(node.device, str) else self.device
            pieces.slots.append(Slot(numel(node.shape), node.dtype, device))
            slot = pieces.slot_of[node] = len(pieces.slots) - 1
            self.views[node] = slot_view(slot, node.shape, pieces.slots[slot])
        elif node.op is Op.AFTER:
            pieces.slot_of[node] = pieces.slot_of[node.src[0]]
            self.views[node] = self.views.get(node.src[0], node.src[0])
        elif node.op is Op.ASSIGN:
            pieces.slot_of[node] = pieces.slot_of[base_of(node.src[0])]

    def _call(self, node: UOp) -> None:
        pieces = self.pieces
        slot = pieces.slot_of[node]
        pieces.needs[node] = self._needed(node.src)
        if node.op is Op.COPY:
            source = base_of(node.src[0], {Op.RESHAPE})
            pieces.calls[node] = Call(None, (slot, pieces.slot_of[source]))
            return
        # The value over views of the memory that it reads.
        value = substitute(node.src[-1], self.views)
        if node.op is Op.ASSIGN:
            target = substitute(node.src[0], self.views)
        else:
            target = slot_view(slot, node.shape, pieces.slots[slot])
        stores = pieces.stores[node] = (UOp(Op.STORE, dtypes.void, (target, value)),)
        pieces.calls[node] = numbered(stores, [slot])

    def _needed(self, roots: tuple[UOp, ...]) -> set[UOp]:
        """The stored nodes that a kernel reads; memory as it was after given writes."""

        def is_stored(node: UOp) -> bool:
            return node.op in (Op.AFTER, Op.PARAM) or node in self.views

        below = reachable(roots, lambda node: () if is_stored(node) else node.src)
        found = {node for node in below if is_stored(node)}
        # The writes need the earlier state themselves.
        return found.union(*[node.src[1:] for node in found if node.op is Op.AFTER])

    def _keep_order(self) -> None:
        """Readers of memory before a write come before the write."""
        needs = self.pieces.needs
        self.pieces.reads = {node: frozenset(found) for node, found in needs.items()}
        for after in self.order:
            if after.op is not Op.AFTER:
                continue
            before = after.src[0]
            for node, needed in needs.items():
                if before in needed and node not in after.src[1:]:
                    for write in after.src[1:]:
                        needs[write].add(node)


def numbered(stores: Sequence[UOp], written: Sequence[int]) -> Call:
    """The kernel over arguments 0, 1, ..., the written first, so that equal kernels are one."""
    kernel = UOp.sink(*stores)
    memories = [node for node in kernel.toposort() if node.op is Op.PARAM]
    used = list(dict.fromkeys([*written, *[node.arg.slot for node in memories]]))
    devices = {node.arg.device for node in memories}
    if len(devices) > 1:
        raise DeviceError(
            f"realize: one kernel would read memory of {' and '.join(sorted(devices))}. "
            "Move the tensors to one device with .to(device)."
        )
    number = {slot: at for at, slot in enumerate(used)}
    mapping = {n: n.replace(arg=replace(n.arg, slot=number[n.arg.slot])) for n in memories}
    return Call(substitute(kernel, mapping), tuple(used), len(set(written)))


def reductions_of(stores: Sequence[UOp]) -> list[UOp] | None:
    """The reductions in one nest; None where elements are picked, which ends what is known."""
    nodes = [node for node in UOp.sink(*stores).toposort() if node.op not in _INLINE]
    return None if any(node.op is not Op.REDUCE for node in nodes) else nodes
