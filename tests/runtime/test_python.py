"""The reference device."""

import struct

import pytest

from kernelet.base.errors import InternalError
from kernelet.runtime.buffer import Buffer
from kernelet.runtime.device import driver

ADD = """
def add(memories, values, thread_begin, thread_end):
    out, left, right = memories
    (shift,) = values
    for i in range(thread_begin, thread_end):
        value = round_float32(load_float32(left, i) + load_float32(right, i))
        store_float32(out, i, round_float32(value + shift))
"""


def launch(source, name, buffers, values, begin, end):
    python = driver("PYTHON")
    launcher = python.load(python.compile(source, name), name, len(buffers), len(values))
    launcher([buffer.address for buffer in buffers], values, begin, end)


def floats(*values):
    buffer = Buffer("PYTHON", 4 * len(values))
    buffer.copy_in(struct.pack(f"<{len(values)}f", *values))
    return buffer


def test_a_kernel_runs_over_its_part_of_the_thread_loop():
    out, left, right = floats(0, 0, 0, 0), floats(1, 2, 3, 4), floats(10, 20, 30, 40)
    launch(ADD, "add", [out, left, right], [100], 1, 3)
    assert struct.unpack("<4f", out.copy_out()) == (0, 122, 133, 0)


def test_an_access_outside_a_buffer_is_caught():
    out, left, right = floats(0, 0), floats(1, 2), floats(10)
    with pytest.raises(IndexError, match="element 1 of float32 memory that holds 1 elements"):
        launch(ADD, "add", [out, left, right], [0], 0, 2)


def test_source_that_is_no_python_is_an_internal_error():
    with pytest.raises(InternalError, match="compile broken: .*DEBUG=4"):
        driver("PYTHON").compile("def broken(:", "broken")
