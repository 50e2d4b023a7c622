"""Reuse of freed memory."""

import pytest

from kernelet.base.errors import DeviceError
from kernelet.runtime.allocator import Allocator, block_size


class Machine:
    """Counts what is taken from it."""

    def __init__(self, room=1 << 40):
        self.room, self.held, self.count = room, {}, 0

    def allocate(self, nbytes):
        if sum(self.held.values()) + nbytes > self.room:
            raise MemoryError
        self.count += 1
        self.held[self.count] = nbytes
        return self.count

    def free(self, address):
        del self.held[address]


def allocator(machine, limit=1 << 20):
    return Allocator("TEST", machine.allocate, machine.free, limit)


def test_a_freed_block_serves_the_next_request_of_its_size():
    machine = Machine()
    memory = allocator(machine)
    first = memory.take(1000)
    memory.give_back(first, 1000)
    assert memory.take(1000) == first
    assert memory.take(1000) != first


def test_the_pool_stays_below_its_limit():
    machine = Machine()
    memory = allocator(machine, limit=4096)
    blocks = [memory.take(1024) for _ in range(10)]
    for block in blocks:
        memory.give_back(block, 1024)
    assert memory.pooled_bytes == sum(machine.held.values()) == 4096


def test_the_size_unused_for_longest_leaves_first():
    machine = Machine()
    memory = allocator(machine, limit=2048)
    old, recent = memory.take(512), memory.take(1024)
    memory.give_back(old, 512)
    memory.give_back(recent, 1024)
    memory.give_back(memory.take(1088), 1088)
    assert old not in machine.held
    assert memory.take(1088) in machine.held


def test_pooled_memory_goes_before_an_allocation_fails():
    machine = Machine(room=4096)
    memory = allocator(machine)
    memory.give_back(memory.take(4096), 4096)
    memory.take(2048)
    with pytest.raises(DeviceError, match="TEST: 4,096 bytes of memory .* smaller batch"):
        memory.take(4096)


def test_trimming_gives_everything_unused_back():
    machine = Machine()
    memory = allocator(machine)
    kept = memory.take(64)
    memory.give_back(memory.take(640), 640)
    memory.trim()
    assert list(machine.held) == [kept]
    assert memory.pooled_bytes == 0


@pytest.mark.parametrize("nbytes", [0, 1, 64, 65, 4096, 4097, 1 << 20, (1 << 20) + 1])
def test_a_block_holds_its_request_and_wastes_little(nbytes):
    assert nbytes <= block_size(nbytes) <= max(64, 2 * nbytes)
    assert block_size(nbytes) % 64 == 0


def test_exact_blocks_have_no_spare_bytes():
    machine = Machine()
    memory = Allocator("TEST", machine.allocate, machine.free, 1 << 20, exact=True)
    memory.take(7)
    assert list(machine.held.values()) == [7]
