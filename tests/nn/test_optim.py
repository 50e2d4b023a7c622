import numpy as np
import pytest

from kernelet import Tensor, TinyJit, holdings, nn
from kernelet.base.counters import GlobalCounters
from kernelet.base.errors import ArgumentError, GradientError
from kernelet.nn import optim

START = np.random.default_rng(4).standard_normal((2, 3)).astype(np.float32)
ROWS = np.random.default_rng(5).standard_normal((6, 3)).astype(np.float32)
SLOPES = [
    np.random.default_rng(number).standard_normal((2, 3)).astype(np.float32) for number in range(4)
]


def trained(make, start=START, dtype=None):
    weight = Tensor(start.copy(), dtype=dtype).realize()
    optimizer = make([weight])
    with Tensor.train():
        for slope in SLOPES:
            optimizer.zero_grad()
            (weight * Tensor(slope)).sum().backward()
            optimizer.step()
    return weight.numpy()


def sgd(rate, momentum=0.0, decay=0.0, nesterov=False):
    weight, velocity = START.astype(np.float64), 0.0
    for slope in SLOPES:
        step = slope + decay * weight
        velocity = momentum * velocity + step
        weight = weight - rate * (step + momentum * velocity if nesterov else velocity)
    return weight


def adam(rate, decay=0.0, coupled=0.0, scaled=False, eps=1e-8):
    weight, mean, square = START.astype(np.float64), 0.0, 0.0
    for count, slope in enumerate(SLOPES, 1):
        slope = slope + coupled * weight
        mean = 0.9 * mean + 0.1 * slope
        square = 0.999 * square + 0.001 * slope * slope
        step = mean / (1 - 0.9**count) / (np.sqrt(square / (1 - 0.999**count)) + eps)
        step = step + decay * weight
        ratio = np.linalg.norm(weight) / np.linalg.norm(step) if scaled else 1.0
        weight = weight - rate * ratio * step
    return weight


@pytest.mark.parametrize(
    ("make", "want"),
    [
        (lambda params: optim.SGD(params, lr=0.1), sgd(0.1)),
        (lambda params: optim.SGD(params, lr=0.1, weight_decay=0.2), sgd(0.1, decay=0.2)),
        (
            lambda params: optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=0.1),
            sgd(0.1, 0.9, 0.1),
        ),
        (
            lambda params: optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True),
            sgd(0.1, 0.9, nesterov=True),
        ),
        (
            lambda params: optim.SGD(params, lr=0.1, momentum=0.9, classic=True),
            sgd(0.1, 0.9),
        ),
        (lambda params: optim.Adam(params, lr=0.05), adam(0.05)),
        (lambda params: optim.Adam(params, lr=0.05, weight_decay=0.1), adam(0.05, coupled=0.1)),
        (lambda params: optim.AdamW(params, lr=0.05, weight_decay=0.2), adam(0.05, decay=0.2)),
        (
            lambda params: optim.LAMB(params, lr=0.05, weight_decay=0.2),
            adam(0.05, decay=0.2, scaled=True, eps=1e-6),
        ),
    ],
    ids=["sgd", "decay", "momentum", "nesterov", "classic", "adam", "l2", "adamw", "lamb"],
)
def test_optimizers_follow_their_formulas(make, want):
    np.testing.assert_allclose(trained(make), want, rtol=1e-4, atol=1e-5)


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


def test_half_precision_parameters_keep_their_type_and_their_small_steps():
    got = trained(lambda params: optim.Adam(params, lr=0.05), dtype="float16")
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, adam(0.05), rtol=1e-2, atol=1e-2)


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


def test_a_captured_step_moves_what_a_free_one_moves():
    def losses(captured):
        Tensor.manual_seed(3)
        layer, norm = nn.Linear(3, 4), nn.BatchNorm(4)
        optimizer = optim.Adam([layer.weight, layer.bias, norm.weight, norm.bias], lr=0.1)

        def step(x):
            optimizer.zero_grad()
            loss = (norm(layer(x)).relu() - 1).square().mean().backward()
            optimizer.step()
            return loss.realize()

        run = TinyJit(step) if captured else step
        found = []
        with Tensor.train():
            for number in range(5):
                if number == 4:
                    optimizer.lr = 0.01
                found.append(run(Tensor(ROWS + number).realize()).item())
        return [*found, *norm.running_mean.tolist(), norm.num_batches_tracked.item()]

    np.testing.assert_allclose(losses(True), losses(False), rtol=1e-4, atol=1e-5)


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


def test_what_cannot_be_trained_is_refused():
    with pytest.raises(ArgumentError, match="none can be trained"):
        optim.SGD([Tensor([1, 2])])
    with pytest.raises(ArgumentError, match="list, not Tensor"):
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
            places.append(tuple(id(holdings.memory(each.uop)) for each in kept))
    assert len(set(places)) == 1


# ---- few kernels, and nothing read too late ----


def kernels_of(function):
    before = GlobalCounters.kernel_count
    function()
    return GlobalCounters.kernel_count - before


def model(*shapes):
    weights = [Tensor(np.full(shape, 0.5, np.float32)).realize() for shape in shapes]
    for weight in weights:
        weight.grad = Tensor(np.full(weight.shape, 0.25, np.float32)).realize()
    return weights


@pytest.mark.parametrize(
    ("make", "most"),
    [
        (lambda params: optim.SGD(params, lr=0.1), 1),
        (lambda params: optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True), 1),
        (lambda params: optim.Adam(params, lr=0.1, weight_decay=0.1), 1),
        (lambda params: optim.AdamW(params, lr=0.1), 1),
        (lambda params: optim.LAMB(params, lr=0.1), 1 + 3 * 3),
    ],
    ids=["sgd", "momentum", "adam", "adamw", "lamb"],
)
def test_small_parameters_are_all_moved_by_one_kernel(make, most):
    optimizer = make(model((3, 4), (5,), (2, 2, 2)))
    with Tensor.train():
        assert kernels_of(optimizer.step) <= most
        assert kernels_of(optimizer.step) <= most


def test_a_large_parameter_is_moved_with_its_moments_by_one_kernel():
    optimizer = optim.Adam(model((400, 300), (300, 400)), lr=0.1)
    with Tensor.train():
        assert kernels_of(optimizer.step) == 3  # one for the step counters


def test_many_parameters_take_few_kernels():
    optimizer = optim.Adam(model(*[(n,) for n in range(3, 43)]), lr=0.1)
    with Tensor.train():
        assert kernels_of(optimizer.step) <= 6


def test_gradients_can_be_read_after_a_step():
    weights = model((3,), (4,))
    optimizer = optim.Adam(weights, lr=0.1, weight_decay=0.5)
    with Tensor.train():
        optimizer.step()
    assert weights[0].grad.tolist() == [0.25] * 3


def test_a_weight_shared_by_two_losses_is_read_before_it_moves():
    weights = model((4,), (4,))
    old = weights[0] * 2  # lazy, and it must see the value before the step
    optimizer = optim.SGD(weights, lr=1.0)
    with Tensor.train():
        optimizer.step()
    assert old.tolist() == [1.0] * 4
    assert weights[0].tolist() == [0.25] * 4


def test_running_means_move_in_the_same_kernel_as_the_parameters():
    weights, means = model((3,), (5,)), Tensor([1.0, 2.0], requires_grad=False).realize()
    optimizer = optim.SGD([*weights, means], lr=0.5)
    with Tensor.train():
        means.assign(means * 0.5 + 1)
        assert kernels_of(optimizer.step) == 1
    assert means.tolist() == [1.5, 2.0]


def torch_optimizer(torch, name, params):
    made = {
        "sgd": lambda: torch.optim.SGD(params, lr=0.05, momentum=0.9, nesterov=True),
        "adam": lambda: torch.optim.Adam(params, lr=0.05, weight_decay=0.1),
        "adamw": lambda: torch.optim.AdamW(params, lr=0.05, weight_decay=0.1),
    }
    return made[name]()


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_a_model_moves_as_with_torch(name, captured):
    torch = pytest.importorskip("torch")
    draw = np.random.default_rng(7)
    start = [draw.standard_normal(shape).astype(np.float32) for shape in [(3, 8), (8,), (8, 2)]]
    rows = draw.standard_normal((6, 5, 3)).astype(np.float32)

    theirs = [torch.tensor(each, requires_grad=True) for each in start]
    other = torch_optimizer(torch, name, theirs)
    for row in rows:
        other.zero_grad()
        ((torch.tensor(row) @ theirs[0] + theirs[1]).relu() @ theirs[2]).square().mean().backward()
        other.step()

    weights = [Tensor(each).realize() for each in start]
    optimizer = {
        "sgd": lambda: optim.SGD(weights, lr=0.05, momentum=0.9, nesterov=True),
        "adam": lambda: optim.Adam(weights, lr=0.05, weight_decay=0.1),
        "adamw": lambda: optim.AdamW(weights, lr=0.05, weight_decay=0.1),
    }[name]()

    def step(row):
        optimizer.zero_grad()
        ((row @ weights[0] + weights[1]).relu() @ weights[2]).square().mean().backward()
        optimizer.step()

    run = TinyJit(step) if captured else step
    with Tensor.train():
        for row in rows:
            run(Tensor(row).realize())
    for mine, yours in zip(weights, theirs, strict=True):
        np.testing.assert_allclose(mine.numpy(), yours.detach().numpy(), rtol=1e-4, atol=1e-5)
