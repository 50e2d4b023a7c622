"""The whole stage: from a SINK to a Schedule.

In:  a SINK over a tensor-level graph whose memory is PARAM nodes.
Out: a Schedule.
"""

from __future__ import annotations

from kernelet.base.errors import InternalError
from kernelet.graph.ops import Op
from kernelet.graph.show import show
from kernelet.graph.uop import UOp
from kernelet.graph.walk import apply_view, split_view
from kernelet.kernelize.cut import Cutter
from kernelet.kernelize.cycles import join_cycles
from kernelet.kernelize.join import join_calls
from kernelet.kernelize.memory import plan_memory
from kernelet.kernelize.order import hold_less, lost_states, order_calls
from kernelet.kernelize.overlap import read_copies
from kernelet.kernelize.schedule import Schedule


def cut_into_kernels(sink: UOp, device: str, given: int = 0) -> Schedule:
    """Calls in order over numbered slots; `device` is for values made of constants alone.

    The caller gives at least `given` memories, though the graph may not need the last of them.
    """
    states = [node for node in sink.toposort() if node.op is Op.AFTER]
    # Each turn copies a state that was not copied before.
    for _ in range(len(states) + 1):
        cutter = Cutter(sink, device, given)
        order, is_right = order_calls(cutter.pieces)
        if not is_right:
            join_cycles(cutter.pieces, order)
            order, is_right = order_calls(cutter.pieces)
        if is_right:
            return _schedule(sink, cutter, order)
        sink = read_copies(sink, lost_states(cutter.pieces, cutter.order))
    raise InternalError(f"cut into kernels: no order respects all reads:\n{show(sink)}")


def _schedule(sink: UOp, cutter: Cutter, order: list[UOp]) -> Schedule:
    pieces = cutter.pieces
    results = []
    kept = set(range(cutter.given))
    for root in sink.src:
        if root.op is Op.ASSIGN:
            root = root.src[0]  # what was written is the target
        moves, base = split_view(root)
        kept.add(pieces.slot_of[base])
        results.append(apply_view(moves, cutter.views.get(base, base)))
    order = hold_less(pieces, order, frozenset(kept))
    calls = [pieces.calls[node] for node in order]
    written = {slot for call in calls for slot in call.written if slot < cutter.given}
    calls = join_calls(calls, [pieces.stores.get(node, ()) for node in order], pieces.slots, kept)
    slots = plan_memory(calls, pieces.slots, kept)
    return Schedule(
        tuple(calls),
        slots,
        cutter.given,
        tuple(results),
        frozenset(written),
    )
