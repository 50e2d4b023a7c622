"""Buffers: allocation, parts, copies, accounting."""

import array
import ctypes
import gc

import pytest

from kernelet.base.counters import GlobalCounters
from kernelet.base.errors import ArgumentError, InternalError
from kernelet.runtime import device
from kernelet.runtime.buffer import Buffer


@pytest.fixture(params=["CPU", "PYTHON", "LLVM"])
def name(request):
    return request.param


def test_memory_is_allocated_when_it_is_first_used(name):
    before = GlobalCounters.mem_used
    buffer = Buffer(name, 1000)
    assert not buffer.is_allocated
    assert GlobalCounters.mem_used == before
    assert buffer.address % 64 == 0
    assert buffer.is_allocated
    assert GlobalCounters.mem_used == before + 1000


def test_memory_goes_with_the_last_reference(name):
    before = GlobalCounters.mem_used
    buffer = Buffer(name, 1000)
    buffer.copy_in(bytes(1000))
    part = buffer.view(100, 10)
    del buffer
    assert GlobalCounters.mem_used == before + 1000
    del part
    gc.collect()
    assert GlobalCounters.mem_used == before
    assert GlobalCounters.peak_mem >= before + 1000


def test_what_goes_in_comes_out(name):
    buffer = Buffer(name, 8)
    buffer.copy_in(b"abcdefgh")
    assert buffer.copy_out() == b"abcdefgh"
    buffer.copy_in(array.array("i", [1, 2]))
    assert bytes(buffer.copy_out()) == array.array("i", [1, 2]).tobytes()
    buffer.copy_in(memoryview(b"a-b-c-d-e-f-g-h-")[::2])
    assert buffer.copy_out() == b"abcdefgh"


def test_a_copy_is_not_changed_by_a_later_write(name):
    buffer = Buffer(name, 4)
    buffer.copy_in(b"1234")
    copied = buffer.copy_out()
    buffer.copy_in(b"5678")
    assert copied == b"1234"
    copied[0] = 0
    assert buffer.copy_out() == b"5678"


def test_a_part_shares_memory_with_the_whole(name):
    buffer = Buffer(name, 8)
    buffer.copy_in(b"abcdefgh")
    part = buffer.view(2, 4).view(1, 2)
    assert (part.base, part.offset) == (buffer, 3)
    assert part.copy_out() == b"de"
    part.copy_in(b"DE")
    assert buffer.copy_out() == b"abcDEfgh"
    with pytest.raises(InternalError):
        buffer.view(4, 5)


def test_memory_is_seen_without_a_copy_on_host_devices(name):
    buffer = Buffer(name, 4)
    buffer.copy_in(b"1234")
    view, seen = buffer.memory(), buffer.contents()
    view[1] = ord("x")
    assert buffer.copy_out() == seen == b"1x34"
    with pytest.raises(TypeError):
        seen[1] = ord("y")
    del buffer
    assert seen == b"1x34"


def test_memory_of_others_is_used_and_never_freed(name):
    block = bytearray(b"1234")
    address = ctypes.addressof(ctypes.c_char.from_buffer(block))
    buffer = Buffer.over(name, address, 4, block)
    buffer.view(1, 2).copy_in(b"xy")
    assert buffer.contents() == b"1xy4"
    used, pooled = GlobalCounters.mem_used, device.driver(name).allocator.pooled_bytes
    del buffer
    assert block == b"1xy4"
    assert GlobalCounters.mem_used == used
    assert device.driver(name).allocator.pooled_bytes == pooled


def test_contents_of_a_device_apart_are_a_copy():
    buffer = Buffer("NULL", 4)
    assert buffer.contents() == bytes(4)
    with pytest.raises(InternalError, match="NULL is not in reach"):
        buffer.memory()


@pytest.mark.parametrize("other", ["PYTHON", "CPU", "CPU:1"])
def test_contents_copy_between_devices(name, other):
    source, target = Buffer(name, 4), Buffer(other, 4)
    source.copy_in(b"1234")
    target.copy_from(source)
    source.copy_in(b"5678")
    assert target.copy_out() == b"1234"


def test_data_of_another_size_is_refused(name):
    with pytest.raises(ArgumentError, match=f"copy to {name}: 3 bytes .* 4 bytes"):
        Buffer(name, 4).copy_in(b"123")


def test_an_empty_buffer_has_an_address(name):
    buffer = Buffer(name, 0)
    buffer.copy_in(b"")
    assert buffer.address
    assert buffer.copy_out() == b""


def test_freed_memory_serves_the_next_buffer_of_its_size(name):
    first = Buffer(name, 12345)
    address = first.address
    del first
    assert Buffer(name, 12345).address == address
