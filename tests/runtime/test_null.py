"""The device that does nothing."""

from kernelet.runtime.buffer import Buffer
from kernelet.runtime.device import driver


def test_everything_succeeds_and_nothing_runs():
    null = driver("NULL")
    binary = null.compile("not a language", "kernel")
    buffer = Buffer("NULL", 8)
    buffer.copy_in(b"12345678")
    null.load(binary, "kernel", 1, 0)([buffer.address], [], 0, 8)
    null.synchronize()
    assert buffer.copy_out() == bytes(8)
    assert Buffer("NULL", 8).address != buffer.address
