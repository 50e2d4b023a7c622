import math

import numpy as np
import pytest

from kernelet import Tensor, TinyJit, nn

SLOPES = [np.float32([[1, -2], [2, 4]]), np.float32([-6, 0.5])]


def parameters(dtype="float32"):
    made = [Tensor(np.zeros_like(each), dtype=dtype).realize() for each in SLOPES]
    for each, slope in zip(made, SLOPES, strict=True):
        each.grad = Tensor(slope, dtype=dtype).realize()
    return [*made, Tensor([1.0])]


@pytest.mark.parametrize("norm_type", [1, 2, 3.5, math.inf])
@pytest.mark.parametrize("most", [0.5, 1000.0])
def test_gradients_are_scaled_to_a_common_norm(most, norm_type):
    trained = parameters()
    total = nn.optim.clip_grad_norm_(trained, most, norm_type)
    flat = np.concatenate([each.ravel() for each in SLOPES])
    want = np.linalg.norm(flat, norm_type)
    np.testing.assert_allclose(total.item(), want, rtol=1e-5)
    for each, slope in zip(trained, SLOPES, strict=False):
        np.testing.assert_allclose(each.grad.numpy(), slope * min(1, most / want), rtol=1e-5)
    assert trained[2].grad is None


def test_gradients_are_cut_off_at_a_value():
    trained = parameters()
    nn.optim.clip_grad_value_(trained, 1.5)
    assert trained[0].grad.tolist() == [[1, -1.5], [1.5, 1.5]]
    assert trained[1].grad.tolist() == [-1.5, 0.5]


def test_half_precision_gradients_are_added_up_in_single():
    weight = Tensor([0.0], dtype="float16")
    weight.grad = Tensor([300.0] * 4, dtype="float16")
    assert nn.optim.clip_grad_norm_(weight, 1.0).item() == pytest.approx(600)
    assert weight.grad.dtype.name == "float16"
    np.testing.assert_allclose(weight.grad.numpy(), 0.5, rtol=1e-3)


def test_nothing_to_clip_has_the_norm_zero():
    assert nn.optim.clip_grad_norm_([Tensor([1.0])], 1.0).item() == 0


def test_a_captured_step_clips():
    weight = Tensor([0.0]).realize()
    optimizer = nn.optim.SGD([weight], lr=1.0)

    @TinyJit
    def step(slope):
        optimizer.zero_grad()
        (weight * slope).sum().backward()
        norm = nn.optim.clip_grad_norm_(optimizer.params, 1.0)
        optimizer.step()
        return norm.realize()

    with Tensor.train():
        norms = [step(Tensor([slope]).realize()).item() for slope in (4.0, 2.0, 0.5, 8.0)]
    assert norms == [4.0, 2.0, 0.5, 8.0]
    np.testing.assert_allclose(weight.item(), -3.5, rtol=1e-5)
