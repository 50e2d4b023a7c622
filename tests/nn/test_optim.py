import numpy as np
import pytest

from kernelet import Tensor, TinyJit, nn
from kernelet.base.counters import GlobalCounters
from kernelet.base.errors import ArgumentError
from kernelet.nn import optim

START = np.random.default_rng(4).standard_normal((2, 3)).astype(np.float32)
ROWS = np.random.default_rng(5).standard_normal((6, 3)).astype(np.float32)
SLOPES = [
    np.random.default_rng(number).standard_normal((2, 3)).astype(np.float32) for number in range(4)
]


FILTERS = np.random.default_rng(6).standard_normal((2, 3, 2)).astype(np.float32)


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


def dampened(rate, momentum, dampening):
    weight, velocity = START.astype(np.float64), None
    for slope in SLOPES:
        added = slope if velocity is None else momentum * velocity + (1 - dampening) * slope
        velocity = added
        weight = weight - rate * velocity
    return weight


def lars(rate, momentum, decay, coefficient):
    weight, velocity = START.astype(np.float64), 0.0
    for slope in SLOPES:
        size, steepness = np.linalg.norm(weight), np.linalg.norm(slope)
        own_rate = rate * coefficient * size / (steepness + decay * size)
        velocity = momentum * velocity + own_rate * (slope + decay * weight)
        weight = weight - velocity
    return weight


def orthogonal(matrix, steps=5):
    x = matrix / np.linalg.norm(matrix)
    for _ in range(steps):
        square = x @ x.T
        x = 3.4445 * x + (-4.775 * square + 2.0315 * square @ square) @ x
    return x


def muon(rate, momentum, decay, nesterov):
    weight, velocity = START.astype(np.float64), 0.0
    for slope in SLOPES:
        velocity = momentum * velocity + slope
        step = slope + momentum * velocity if nesterov else velocity
        weight = weight * (1 - rate * decay) - rate * orthogonal(step)
    return weight


def rmsprop(rate, alpha, momentum, centered):
    weight, square, mean, velocity = START.astype(np.float64), 0.0, 0.0, 0.0
    for slope in SLOPES:
        square = alpha * square + (1 - alpha) * slope**2
        mean = alpha * mean + (1 - alpha) * slope
        spread = square - mean**2 if centered else square
        velocity = momentum * velocity + slope / (np.sqrt(spread) + 1e-8)
        weight = weight - rate * velocity
    return weight


def lion(rate, decay):
    weight, mean = START.astype(np.float64), 0.0
    for slope in SLOPES:
        direction = np.sign(0.9 * mean + 0.1 * slope)
        mean = 0.99 * mean + 0.01 * slope
        weight = weight - rate * (direction + decay * weight)
    return weight


def adam(rate, decay=0.0, coupled=0.0, scaled=False, eps=1e-8, betas=(0.9, 0.999), peak=False):
    weight, mean, square = START.astype(np.float64), 0.0, 0.0
    first, second = betas
    greatest = 0.0
    for count, slope in enumerate(SLOPES, 1):
        slope = slope + coupled * weight
        mean = first * mean + (1 - first) * slope
        square = second * square + (1 - second) * slope * slope
        greatest = np.maximum(greatest, square) if peak else square
        step = mean / (1 - first**count) / (np.sqrt(greatest / (1 - second**count)) + eps)
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
        (
            lambda params: optim.Adam(params, lr=0.05, betas=(0.6, 0.7), amsgrad=True),
            adam(0.05, betas=(0.6, 0.7), peak=True),
        ),
        (lambda params: optim.AdamW(params, 0.05, 0.6, 0.7), adam(0.05, 0.01, betas=(0.6, 0.7))),
        (
            lambda params: optim.SGD(params, lr=0.1, momentum=0.9, dampening=0.3),
            dampened(0.1, 0.9, 0.3),
        ),
        (
            lambda params: optim.LARS(params, lr=2.0, weight_decay=0.1, tcoef=0.01),
            lars(2.0, 0.9, 0.1, 0.01),
        ),
        (lambda params: optim.Muon(params, lr=0.1), muon(0.1, 0.95, 0.1, True)),
        (
            lambda params: optim.Muon(params, 0.1, 0.8, weight_decay=0.0, nesterov=False),
            muon(0.1, 0.8, 0.0, False),
        ),
        (lambda params: optim.RMSprop(params, alpha=0.8), rmsprop(0.01, 0.8, 0.0, False)),
        (
            lambda params: optim.RMSprop(params, 0.1, 0.7, momentum=0.9, centered=True),
            rmsprop(0.1, 0.7, 0.9, True),
        ),
        (lambda params: optim.Lion(params, lr=0.1, weight_decay=0.1), lion(0.1, 0.1)),
    ],
    ids=[
        *("sgd", "decay", "momentum", "nesterov", "classic", "adam", "l2", "adamw", "lamb"),
        *("amsgrad", "betas", "dampening", "lars", "muon", "plain muon", "rmsprop", "centered"),
        "lion",
    ],
)
def test_optimizers_follow_their_formulas(make, want):
    np.testing.assert_allclose(trained(make), want, rtol=1e-4, atol=1e-5)


def test_muon_takes_filters_as_matrices_and_turns_high_ones():
    for shape, factor in (((2, 6), 1.0), ((6, 2), 3**0.5)):
        weight = (
            Tensor(np.zeros(shape, np.float32)).reshape(shape[0], shape[1] // 2, 2).contiguous()
        )
        weight.grad = Tensor(FILTERS.reshape(weight.shape))
        with Tensor.train():
            optim.Muon([weight.realize()], lr=1.0, weight_decay=0.0).step()
        slope = FILTERS.reshape(shape)
        want = orthogonal(slope) if shape[0] < shape[1] else orthogonal(slope.T).T
        got = weight.numpy().reshape(shape)
        np.testing.assert_allclose(got, -factor * want, rtol=1e-3, atol=1e-4)


def test_muon_refuses_what_is_no_matrix():
    with pytest.raises(ArgumentError, match=r"Muon: 1 of 2 .*\(3,\).*AdamW"):
        optim.Muon([Tensor.zeros(2, 2), Tensor.zeros(3)])


def test_nesterov_needs_momentum_and_no_dampening():
    for options in ({}, {"momentum": 0.9, "dampening": 0.1}):
        with pytest.raises(ArgumentError, match=r"SGD\(nesterov=True\): momentum"):
            optim.SGD([Tensor([1.0])], nesterov=True, **options)


def test_norms_of_zero_leave_the_step_as_it_is():
    for make in (optim.LAMB, lambda params, lr: optim.LARS(params, lr, momentum=0.0)):
        weight = Tensor([0.0, 0.0]).realize()
        weight.grad = Tensor([1.0, 0.0])
        with Tensor.train():
            make([weight], lr=0.5).step()
        assert np.isfinite(weight.numpy()).all()
        assert weight.tolist()[0] < 0


def test_half_precision_parameters_keep_their_type_and_their_small_steps():
    got = trained(lambda params: optim.Adam(params, lr=0.05), dtype="float16")
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, adam(0.05), rtol=1e-2, atol=1e-2)


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


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {"momentum": 0.9, "weight_decay": 0.1, "dampening": 0.3}),
        ("SGD", {"momentum": 0.8, "nesterov": True, "weight_decay": 0.1}),
        ("Adam", {"betas": (0.8, 0.95), "weight_decay": 0.1, "amsgrad": True}),
        ("AdamW", {"betas": (0.8, 0.95), "weight_decay": 0.1, "amsgrad": True}),
        ("RMSprop", {"alpha": 0.8, "momentum": 0.9, "weight_decay": 0.1, "centered": True}),
        ("RMSprop", {}),
        ("Muon", {"momentum": 0.9}),
        ("Muon", {"nesterov": False, "weight_decay": 0.0}),
    ],
)
def test_options_mean_what_they_mean_to_torch(name, options):
    torch = pytest.importorskip("torch")
    got = trained(lambda params: getattr(optim, name)(params, lr=0.05, **options))
    weight = torch.tensor(START.copy(), requires_grad=True)
    optimizer = getattr(torch.optim, name)([weight], lr=0.05, **options)
    for slope in SLOPES:
        weight.grad = torch.tensor(slope)
        optimizer.step()
    # torch orthogonalizes in bfloat16.
    tolerance = 5e-3 if name == "Muon" else 1e-5
    np.testing.assert_allclose(got, weight.detach().numpy(), rtol=tolerance, atol=tolerance)
