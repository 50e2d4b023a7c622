"""Share memory among values that do not live at the same time.

In:  the calls of a schedule in order, and its slots.
Out: the slots, each temporary with the number of the arena block that holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernelet.kernelize.schedule import Call, Slot

WASTE = 2  # a block may be this many times larger than what it holds


def plan_memory(calls: Sequence[Call], slots: Sequence[Slot], kept: set[int]) -> tuple[Slot, ...]:
    """The slots with arena blocks given to all but the kept ones."""
    last = {slot: number for number, call in enumerate(calls) for slot in call.slots}
    planned = list(slots)
    blocks: list[tuple[int, str]] = []
    free: list[int] = []
    for number, call in enumerate(calls):
        for slot in call.slots:
            if slot not in kept and planned[slot].arena is None:
                planned[slot] = replace(slots[slot], arena=_block(slots[slot], blocks, free))
        for slot in call.slots:
            arena = planned[slot].arena
            if arena is not None and last[slot] == number and arena not in free:
                free.append(arena)
    return tuple(planned)


def _block(slot: Slot, blocks: list[tuple[int, str]], free: list[int]) -> int:
    """A free block that fits, the smallest one, or a fresh one."""
    needed = max(slot.nbytes, 1)
    fitting = [
        block
        for block in free
        if blocks[block][1] == slot.device and needed <= blocks[block][0] <= needed * WASTE
    ]
    if fitting:
        best = min(fitting, key=lambda block: blocks[block][0])
        free.remove(best)
        return best
    blocks.append((needed, slot.device))
    return len(blocks) - 1
