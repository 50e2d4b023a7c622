import numpy as np
import pytest

from kernelet import Tensor, TinyJit, holdings, nn
from kernelet.base.errors import ArgumentError, GradientError
from kernelet.nn import optim


def test_the_learning_rate_can_change_between_steps():
    weight = Tensor([1.0, 2.0]).realize()
    optimizer = optim.SGD([weight], lr=1.0)
    with Tensor.train():
        for rate in (1.0, 0.5):
            optimizer.lr = rate
            optimizer.zero_grad()
            weight.sum().backward()
            optimizer.step()
    assert weight.tolist() == [-0.5, 0.5]
    assert optimizer.lr.item() == 0.5


@pytest.mark.parametrize(
    "rate", [1.0, Tensor(1.0), Tensor.full((1,), 1.0), Tensor.full((1,), 1.0).realize()]
)
def test_a_captured_step_sees_a_later_learning_rate(rate):
    weight = Tensor([10.0]).realize()
    optimizer = optim.SGD([weight], lr=rate)

    @TinyJit
    def step():
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()

    with Tensor.train():
        for number in range(4):
            if number == 3:
                optimizer.lr = 0.5
            step()
    assert weight.tolist() == [6.5]


def test_parameters_may_come_from_a_generator():
    weights = [Tensor([1.0]), Tensor([2.0])]
    assert len(optim.SGD(each for each in weights).params) == 2


def test_a_parameter_given_twice_moves_once():
    weight = Tensor([1.0]).realize()
    optimizer = optim.SGD([weight, weight], lr=1.0)
    with Tensor.train():
        weight.sum().backward()
        optimizer.step()
    assert weight.tolist() == [0.0]


def test_a_parameter_without_gradient_is_named():
    used, unused = Tensor([1.0]).realize(), Tensor([5.0, 6.0]).realize()
    optimizer = optim.Adam([used, unused], lr=1.0)
    with Tensor.train():
        used.sum().backward()
        with pytest.raises(GradientError, match=r"1 of the 2 .*: number 1 of shape \(2,\)\."):
            optimizer.step()
    assert used.item() == 1.0


@pytest.mark.parametrize("given", [True, False])
def test_what_is_pending_for_untrained_state_runs_with_the_step(given):
    weight, state = Tensor([1.0]).realize(), Tensor([0.0], requires_grad=False).realize()
    optimizer = optim.SGD([weight, state] if given else [weight], lr=1.0)
    with Tensor.train():
        weight.sum().backward()
        state.assign(state + 1)
        assert any(each is state for each in optimizer.schedule_step())
    assert state.item() == 1.0


def test_a_group_steps_all_its_optimizers():
    left, right = Tensor([1.0]).realize(), Tensor([1.0]).realize()
    group = optim.OptimizerGroup(optim.SGD([left], lr=1.0), optim.SGD([right], lr=0.5))
    with Tensor.train():
        (left + right).sum().backward()
        group.step()
    assert [left.item(), right.item()] == [0.0, 0.5]
    group.zero_grad()
    assert left.grad is None
    assert [each is one for each, one in zip(group.params, (left, right), strict=True)] == [
        True
    ] * 2


def test_parameters_are_marked_as_trained():
    weight = Tensor([1.0])
    optim.SGD([weight])
    assert weight.requires_grad is True


def test_a_step_outside_training_says_what_to_do():
    weight = Tensor([1.0]).realize()
    optimizer = optim.SGD([weight])
    weight.sum().backward()
    with pytest.raises(GradientError, match=r"TRAINING is 0.*Tensor\.train"):
        optimizer.step()


def test_a_step_before_backward_says_what_to_do():
    optimizer = optim.SGD([Tensor([1.0])])
    with Tensor.train(), pytest.raises(RuntimeError, match=r"1 of the 1 .*backward"):
        optimizer.step()


def test_groups_of_parameters_are_told_of_optimizer_groups():
    for kind in (optim.SGD, optim.AdamW, optim.RMSprop):
        with pytest.raises(ArgumentError, match="of one optimizer; OptimizerGroup joins several"):
            kind([{"params": [Tensor([1.0])], "lr": 0.1}])


def test_what_cannot_be_trained_is_refused():
    with pytest.raises(ArgumentError, match="none can be trained"):
        optim.SGD([Tensor([1, 2])])
    with pytest.raises(ArgumentError, match=r"SGD: params=.*Give Iterable\[Tensor\]"):
        optim.SGD([[Tensor([1.0])]])
    with pytest.raises(ArgumentError, match="momentum"):
        optim.SGD([Tensor([1.0])], nesterov=True)


def test_an_optimizer_keeps_its_memory_over_many_steps():
    weight = Tensor([1.0, 2.0]).realize()
    optimizer = optim.Adam([weight], lr=0.01)
    places = []
    with Tensor.train():
        for _ in range(4):
            optimizer.zero_grad()
            (weight * weight).sum().backward()
            optimizer.step()
            kept = (weight, optimizer.m[0], optimizer.corrections)
            places.append(tuple(id(holdings.memories[each.uop]) for each in kept))
    assert len(set(places)) == 1


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda params: optim.SGD(params, lr=0.5, momentum=0.9, dampening=0.1, weight_decay=0.1),
        lambda params: optim.Adam(params, lr=0.5, amsgrad=True),
        lambda params: optim.RMSprop(params, momentum=0.9, centered=True),
        lambda params: optim.Lion(params),
    ],
    ids=["sgd", "adam", "rmsprop", "lion"],
)
def test_a_skipped_step_leaves_parameters_and_state_as_they_were(make, captured):
    weight = Tensor(np.float32([[1, 2], [3, 4]])).realize()
    optimizer = make([weight])

    def step(slope, skip):
        weight.grad = slope * 1
        optimizer.skipped = skip
        optimizer.step()
        optimizer.skipped = None

    run = TinyJit(step) if captured else step
    seen = []
    with Tensor.train():
        for skip in (False, True, True, False):
            run(
                Tensor([[1.0, float("inf" if skip else 2)]] * 2).realize(), Tensor([skip]).realize()
            )
            seen.append([each.tolist() for each in nn.state.get_state_dict(optimizer).values()])
    assert seen[0] == seen[1] == seen[2]
    assert seen[3] != seen[2]


def test_the_state_of_an_optimizer_is_the_same_before_and_after_a_step():
    weight = Tensor([1.0]).realize()
    optimizer = optim.Adam([weight])
    names = list(nn.state.get_state_dict(optimizer))
    weight.grad = Tensor([1.0])
    with Tensor.train():
        optimizer.step()
    assert list(nn.state.get_state_dict(optimizer)) == names
