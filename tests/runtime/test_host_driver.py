"""Memory of the drivers in this process."""

import pytest

from kernelet.runtime.device import driver


@pytest.mark.parametrize("name", ["CPU", "LLVM", "PYTHON"])
def test_bytes_go_in_and_come_out_by_address(name):
    host = driver(name)
    address = host.allocate(16)
    try:
        host.copy_in(address + 4, memoryview(b"abcd"))
        host.synchronize()
        assert host.is_host
        assert host.copy_out(address + 5, 2) == b"bc"
    finally:
        host.free(address)


def test_devices_have_pools_of_their_own():
    first, second = driver("CPU"), driver("CPU:1")
    assert first.allocator is not second.allocator
    assert 0 < first.allocator.limit <= 4 << 30
