import numpy as np
import pytest

from kernelet import Tensor, TinyJit, dtypes, nn
from kernelet.base.errors import ArgumentError
from kernelet.nn import optim


class Layer:
    def __init__(self):
        self.weight = Tensor([1.0, 2.0])
        self.others = [Tensor([3.0]), {"deep": Tensor([4.0]), "count": Tensor([5])}]
        self.kept = Tensor([6.0], requires_grad=False)
        self.itself = self

    def types(self):
        deep = self.others[1]
        tensors = (self.weight, self.others[0], deep["deep"], deep["count"], self.kept)
        return [each.dtype.name for each in tensors]


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
def test_parameters_are_half_as_wide_inside_only(dtype):
    layer = Layer()
    weight = layer.weight
    with optim.mixed_precision(layer, dtype):
        assert layer.types() == [*[dtype.name] * 3, "int32", "float32"]
        (layer.weight * 3).float().sum().backward()
    assert layer.types() == [*["float32"] * 3, "int32", "float32"]
    assert layer.weight is weight
    assert weight.grad.tolist() == [3.0, 3.0]
    assert weight.grad.dtype is dtypes.float32
    with pytest.raises(ZeroDivisionError), optim.mixed_precision(layer):
        raise ZeroDivisionError
    assert layer.weight is weight


def test_a_parameter_in_a_tuple_is_told_of():
    model = {"first": Tensor([1.0]), "pair": (Tensor([2.0]), 3)}
    with pytest.raises(ArgumentError, match="held by a tuple"), optim.mixed_precision(model):
        pass
    assert model["first"].dtype is dtypes.float32


@pytest.mark.parametrize("captured", [False, True])
def test_the_scale_falls_after_overflow_and_rises_after_good_steps(captured):
    weight = Tensor([1.0]).realize()
    optimizer = optim.SGD([weight], lr=0.5)
    scaler = optim.GradScaler(init_scale=8.0, growth_interval=2)

    def step(slope):
        optimizer.zero_grad()
        scaler.scale((weight * slope).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    run = TinyJit(step) if captured else step
    seen = []
    with Tensor.train():
        for slope in (1.0, 1.0, float("inf"), float("nan"), 1.0, 1.0, 1.0):
            run(Tensor([slope]).realize())
            seen.append((weight.item(), scaler.factor.item(), scaler.good_steps.item()))
    assert seen == [
        (0.5, 8.0, 1),
        (0.0, 16.0, 0),
        (0.0, 8.0, 0),
        (0.0, 4.0, 0),
        (-0.5, 4.0, 1),
        (-1.0, 8.0, 0),
        (-1.5, 8.0, 1),
    ]


def test_gradients_may_be_clipped_between():
    weight = Tensor([0.0]).realize()
    optimizer, scaler = optim.SGD([weight], lr=1.0), optim.GradScaler(init_scale=1024.0)
    with Tensor.train():
        scaler.scale((weight * 5).sum()).backward()
        scaler.unscale_(optimizer)
        assert optim.clip_grad_norm_(optimizer.params, 2.0).item() == 5.0
        scaler.step(optimizer)
        scaler.update()
    np.testing.assert_allclose(weight.item(), -2.0, rtol=1e-5)


@pytest.mark.parametrize("as_group", [False, True])
def test_one_bad_optimizer_does_not_stop_the_other(as_group):
    left, right = Tensor([1.0]).realize(), Tensor([1.0]).realize()
    optimizers = [optim.SGD([each], lr=1.0) for each in (left, right)]
    scaler = optim.GradScaler(init_scale=4.0)
    with Tensor.train():
        scaler.scale((left * float("inf")).sum() + right.sum()).backward()
        for each in [optim.OptimizerGroup(*optimizers)] if as_group else optimizers:
            scaler.step(each)
        scaler.update()
    assert (left.item(), right.item(), scaler.factor.item()) == (1.0, 0.0, 2.0)


def test_a_small_gradient_survives_half_precision_with_the_scale():
    def slope(scale):
        weight = Tensor([1.0]).realize()
        scaler = optim.GradScaler(init_scale=scale)
        tiny = (weight.half() * Tensor([1e-3], dtype="float16")).float() * 1e-5
        scaler.scale(tiny.sum()).backward()
        scaler.unscale_(optim.SGD([weight]))
        return weight.grad.item()

    assert slope(65536.0) == pytest.approx(1e-8, rel=1e-3)
    assert slope(1.0) == 0


def test_a_network_learns_in_half_precision():
    Tensor.manual_seed(5)
    layers = [nn.Linear(4, 16), nn.BatchNorm(16), Tensor.relu, nn.Linear(16, 2)]
    optimizer = optim.Adam(nn.state.get_parameters(layers), lr=0.02)
    scaler = optim.GradScaler()
    x = Tensor.randn(32, 4).realize()
    labels = (x[:, 0] > 0).cast(dtypes.int32).realize()

    @TinyJit
    def step():
        optimizer.zero_grad()
        with optim.mixed_precision(layers):
            scores = x.half().sequential(layers)
        assert scores.dtype is dtypes.float16
        loss = scores.float().sparse_categorical_crossentropy(labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.realize()

    with Tensor.train():
        losses = [step().item() for _ in range(40)]
    assert losses[-1] < losses[0] / 3
