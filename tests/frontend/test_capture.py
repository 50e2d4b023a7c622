"""What the first call computes and what a capture keeps."""

import gc

import pytest

from kernelet import GlobalCounters, Tensor, TinyJit
from kernelet.frontend.capture import Capture, first_call
from kernelet.frontend.signature import read_inputs


def inputs_of(*arguments):
    return read_inputs(None, arguments, {})


def test_parameters_that_were_lazy_are_computed_once():
    weight = Tensor.rand(3)
    other = Tensor.rand(3)
    x = Tensor([1.0, 2.0, 3.0]).realize()
    first_call(lambda: x * weight, inputs_of(x))
    assert "lazy" not in repr(weight)
    assert "lazy" in repr(other)


def test_a_capture_replays_with_other_inputs():
    weight = Tensor([2.0]).realize()
    x = Tensor([1.0]).realize()

    def run(x):
        return {"y": x * weight}

    assert first_call(lambda: run(x), inputs_of(x))["y"].item() == 2.0
    capture = Capture(lambda own: run(own[id(x)]), inputs_of(x), run)
    assert capture.result["y"].item() == 2.0
    inputs = inputs_of(Tensor([5.0]))
    assert capture.is_valid(inputs)
    assert capture.replay(inputs)["y"].item() == 10.0
    weight.replace(Tensor([3.0]))
    assert not capture.is_valid(inputs)


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x[1:3], lambda x: x.T, lambda x: x[:, 1]])
def test_what_the_captured_call_writes_is_seen_by_nobody_else(view):
    whole, state = Tensor([[1.0, 2.0]] * 4).realize(), Tensor([5.0]).realize()
    x = view(whole)
    readers = [whole * 1, whole.detach(), state * 1, state.detach()]

    def run(x):
        Tensor.realize(x.assign(x + 1), state.assign(state + 1))

    Capture(lambda own: run(own[id(x)]), inputs_of(x), run)
    assert [each.tolist() for each in readers] == [[[1.0, 2.0]] * 4] * 2 + [[5.0]] * 2
    added = (whole - readers[0]).sum().item()
    assert (added, (x - view(readers[0])).min().item(), state.item()) == (x.numel(), 1.0, 6.0)


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
