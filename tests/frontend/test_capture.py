"""What the first call shows and what a capture refuses or keeps."""

import gc

import pytest

from kernelet import GlobalCounters, Tensor, TinyJit
from kernelet.base.errors import JitError
from kernelet.frontend.capture import Capture, FirstCall
from kernelet.frontend.signature import read_inputs


def inputs_of(*arguments):
    return read_inputs(None, arguments, {})


def test_the_first_call_shows_what_is_written():
    x, weight = Tensor([1.0]).realize(), Tensor([2.0]).realize()
    first = FirstCall(lambda: weight.assign(weight + x).realize(), inputs_of(x))
    assert first.inputs_written == set()
    assert len(first.written_elsewhere) == 1
    assert id(weight) not in first.writers  # it was returned: a result
    first = FirstCall(lambda: x.assign(x + 1) and None, inputs_of(x, weight))
    assert first.inputs_written == {0}
    assert first.written_elsewhere == set()


def test_parameters_that_were_lazy_are_computed_once():
    weight = Tensor.rand(3)
    other = Tensor.rand(3)
    x = Tensor([1.0, 2.0, 3.0]).realize()
    FirstCall(lambda: x * weight, inputs_of(x))
    assert "lazy" not in repr(weight)
    assert "lazy" in repr(other)


def test_a_capture_replays_with_other_inputs():
    weight = Tensor([2.0]).realize()
    x = Tensor([1.0]).realize()

    def run(x):
        return {"y": x * weight}

    first = FirstCall(lambda: run(x), inputs_of(x))
    assert first.result["y"].item() == 2.0
    capture = Capture(lambda own: run(own[id(x)]), inputs_of(x), first)
    assert capture.result["y"].item() == 2.0
    inputs = inputs_of(Tensor([5.0]))
    assert capture.is_valid(inputs)
    assert capture.replay(inputs)["y"].item() == 10.0
    weight.replace(Tensor([3.0]))
    assert not capture.is_valid(inputs)


def test_other_writes_than_in_the_first_call_are_refused():
    x = Tensor([1.0]).realize()
    first = FirstCall(lambda: x + 1, inputs_of(x))
    with pytest.raises(JitError, match="jit"):
        Capture(lambda own: own[id(x)].assign(x + 1), inputs_of(x), first)


def test_the_memory_of_a_result_is_free_as_soon_as_nobody_holds_it() -> None:
    x = Tensor.zeros(1 << 12).contiguous().realize()
    jit = TinyJit(lambda x: {"one": [(x + 1).realize()], "two": (x * 2).realize()})
    for _ in range(4):
        kept = jit(x)
    gc.collect()
    gc.disable()
    try:
        before = GlobalCounters.mem_used
        for _ in range(20):
            kept = jit(x)
        assert GlobalCounters.mem_used == before
    finally:
        gc.enable()
    assert kept["two"].shape == (1 << 12,)
