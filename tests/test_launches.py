"""Launches run again with other memory, and are counted."""

import sys

import pytest

from kernelet import Tensor, TinyJit, backends, holdings
from kernelet.base import trace
from kernelet.base.config import Context
from kernelet.base.counters import GlobalCounters
from kernelet.launches import Launch, Place, Replay, part_of
from kernelet.runtime.buffer import Buffer

DEVICES = [name for name in ("PYTHON", "CPU", "LLVM") if name in backends.device.available()]


def captured(build):
    """The steps that `build` runs."""
    recorder = holdings.Recorder()
    with holdings.recording(recorder):
        build().realize()
    return recorder.steps


def floats(buffer):
    return memoryview(bytes(buffer.copy_out())).cast("f").tolist()


def given(values, device):
    return holdings.memories[Tensor(values, device=device).uop]


@pytest.mark.parametrize("device", DEVICES)
def test_a_replay_runs_the_same_kernels_on_other_memory(device):
    with Context(DEV=device):
        x = Tensor([1.0, 2.0, 3.0, 4.0])
        steps = captured(lambda: (x + 1).contiguous() * x.sum())
        places = [[None] * len(step.buffers) for step in steps]
        source = holdings.memories[x.uop]
        for step, row in zip(steps, places, strict=True):
            for position, buffer in enumerate(step.buffers):
                if buffer is source:
                    row[position] = Place(0, 0, 16)
        places[-1][0] = Place(1, 0, 16)
        replay = Replay(steps, [tuple(row) for row in places])
        for first in (1.0, 10.0):
            data, result = [first, 2.0, 3.0, 4.0], Buffer(device, 16)
            before = GlobalCounters.kernel_count
            replay.run([(given(data, device), 0), (result, 0)], {})
            assert GlobalCounters.kernel_count == before + len(steps)
            assert floats(result) == [(value + 1) * sum(data) for value in data]


@pytest.mark.parametrize("device", DEVICES)
def test_listeners_hear_of_every_replayed_kernel(device):
    with Context(DEV=device):
        x = Tensor([1.0, 2.0])
        steps = captured(lambda: x + 1)
        replay = Replay(steps, [(None, Place(0, 0, 8))])
        seen = []
        with trace.reading(seen.append, "kernel"):
            replay.run([(given([5.0, 6.0], device), 0)], {})
        assert len(seen) == 1
        assert floats(steps[0].buffers[0]) == [6.0, 7.0]


def test_a_part_of_given_memory_begins_where_that_begins():
    whole = given([1.0, 2.0, 3.0, 4.0], "PYTHON")
    assert floats(part_of(Place(0, 4, 8), [(whole, 4)])) == [3.0, 4.0]
    assert part_of(Place(0, 0, 16), [(whole, 0)]) is whole


def test_the_first_memory_of_a_step_is_written():
    target, source = Buffer("PYTHON", 4), Buffer("PYTHON", 4)
    assert Launch(None, (target, source)).written == (target,)
    with Context(DEV="PYTHON"):
        step = captured(lambda: Tensor([1.0]) + 1)[0]
    assert step.written == step.buffers[:1]


def test_a_launch_tells_how_much_it_writes():
    with Context(DEV="PYTHON"):
        x = Tensor([1.0, 2.0]).realize()
        recorder = holdings.Recorder()
        with holdings.recording(recorder):
            both = x + 1, x * 2
            Tensor.realize(*both)
    (step,) = recorder.steps
    assert step.outputs == 2
    assert [floats(each) for each in step.buffers] == [[2.0, 3.0], [2.0, 4.0], [1.0, 2.0]]
    written = [holdings.memories[holdings.realized(each.uop)] for each in both]
    assert all(recorder.changes(each) for each in written)
    assert not recorder.changes(holdings.memories[x.uop])


@pytest.mark.skipif(len(DEVICES) < 2, reason="no compiler: there is one device")
def test_copies_between_devices_are_replayed():
    x = Tensor([1.0, 2.0], device="PYTHON")
    steps = captured(lambda: (x + 1).to(DEVICES[1]) * 2)
    assert any(step.runner is None for step in steps)
    places = [(None, Place(0, 0, 8)), *[tuple([None] * len(s.buffers)) for s in steps[1:]]]
    replay = Replay(steps, places)
    replay.run([(given([5.0, 6.0], "PYTHON"), 0)], {})
    assert floats(steps[-1].buffers[0]) == [12.0, 14.0]


@pytest.mark.skipif(len(DEVICES) < 2, reason="no compiler: launches are not native")
def test_a_replay_does_as_much_in_python_for_few_kernels_as_for_many():
    def calls_of_replay(kernels):
        def function(x):
            for _ in range(kernels):
                x = (x + 1).contiguous()
            return x

        jit = TinyJit(function)
        data = Tensor([1.0]).realize()
        for _ in range(3):
            assert jit(data).item() == kernels + 1
        seen = []
        before = GlobalCounters.kernel_count
        sys.setprofile(lambda frame, event, arg: seen.append(event))
        try:
            result = jit(data)
        finally:
            sys.setprofile(None)
        assert GlobalCounters.kernel_count == before + kernels
        assert result.item() == kernels + 1
        return seen.count("call"), seen.count("c_call")

    with Context(DEV=DEVICES[-1]):
        calls_of_replay(2)
        few, many = calls_of_replay(3), calls_of_replay(60)
    assert abs(few[0] - many[0]) <= 4  # memory that is given back now and then
    assert abs(few[1] - many[1]) <= 8
