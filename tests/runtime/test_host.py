"""Aligned memory and the facts of the processor."""

import pytest

from kernelet.base.config import Context
from kernelet.runtime import host


@pytest.mark.parametrize("nbytes", [1, 100, 5 << 20])
def test_memory_is_aligned_and_writable(nbytes):
    address = host.allocate(nbytes)
    try:
        assert address % 64 == 0
        view = host.memory_at(address, nbytes)
        view[nbytes - 1] = 7
        assert host.memory_at(address + nbytes - 1, 1)[0] == 7
    finally:
        host.free(address)


def test_the_target_follows_the_threads_setting():
    with Context(THREADS=3):
        assert host.target("CPU").threads == 3
    with Context(THREADS=0):
        assert host.target("CPU").threads == host.cores() >= 1


def test_the_target_is_plausible():
    target = host.target("CPU")
    assert target.vector_bytes in (0, 16, 32, 64)
    assert target.vector_registers in (16, 32)
    near, far = target.cache_bytes
    assert 8 << 10 <= near <= far
    assert "SUB" in target.operations
    assert host.physical_memory() > 1 << 28
