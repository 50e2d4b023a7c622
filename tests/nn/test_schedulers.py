import math

import numpy as np
import pytest

from kernelet import Tensor, TinyJit
from kernelet.base.counters import GlobalCounters
from kernelet.base.errors import ArgumentError
from kernelet.nn import optim
from kernelet.nn import schedulers as ours

STEPS, START = 15, 0.5


def wave(share):
    return (1 + math.cos(math.pi * share)) / 2


def one_cycle(count, top, last, between):
    first, most, final = 1 / 25, 1.0, 1 / 25 / 1e4
    if count <= top:
        return between(first, most, count / top)
    return between(most, final, min(1, (count - top) / (last - top)))


def along_line(begin, end, share):
    return begin + (end - begin) * share


def along_wave(begin, end, share):
    return end + (begin - end) * wave(share)


def restarted(count, length, factor):
    while count >= length:
        count, length = count - length, length * factor
    return count / length


# A scheduler, of this module or of torch, and the rate after `n` steps.
CASES = {
    "step": (lambda m, o: m.StepLR(o, 3, 0.5), lambda n: START * 0.5 ** (n // 3)),
    "milestones": (
        lambda m, o: m.MultiStepLR(o, [2, 5, 5, 9], 0.3),
        lambda n: START * 0.3 ** sum(n >= each for each in (2, 5, 5, 9)),
    ),
    "exponential": (lambda m, o: m.ExponentialLR(o, 0.9), lambda n: START * 0.9**n),
    "warm-up": (
        lambda m, o: m.LinearLR(o, 0.1, 1.0, 7),
        lambda n: START * along_line(0.1, 1, min(1, n / 7)),
    ),
    "constant": (lambda m, o: m.ConstantLR(o), lambda n: START / (3 if n < 5 else 1)),
    "polynomial": (
        lambda m, o: m.PolynomialLR(o, 8, 2.0),
        lambda n: START * (1 - min(1, n / 8)) ** 2,
    ),
    "cosine": (
        lambda m, o: m.CosineAnnealingLR(o, 10, 0.05),
        lambda n: 0.05 + (START - 0.05) * wave(n / 10),
    ),
    **{
        f"waves that grow by {factor}": (
            lambda m, o, factor=factor: m.CosineAnnealingWarmRestarts(
                o, T_0=3, T_mult=factor, eta_min=0.05
            ),
            lambda n, factor=factor: 0.05 + (START - 0.05) * wave(restarted(n, 3, factor)),
        )
        for factor in (1, 2, 3)
    },
    "chained": (
        lambda m, o: m.ChainedScheduler([m.LinearLR(o, 0.1, 1.0, 4), m.StepLR(o, 5)]),
        lambda n: START * along_line(0.1, 1, min(1, n / 4)) * 0.1 ** (n // 5),
    ),
    "sequential": (
        lambda m, o: m.SequentialLR(
            o,
            [m.LinearLR(o, 0.1, 1.0, 4), m.CosineAnnealingLR(o, 8), m.ConstantLR(o, 0.5, 2)],
            [4, 10],
        ),
        lambda n: (
            START * along_line(0.1, 1, n / 4)
            if n < 4
            else START * wave((n - 4) / 8)
            if n < 10
            else START * (0.5 if n < 12 else 1)
        ),
    ),
    "function": (lambda m, o: m.LambdaLR(o, lambda n: 1 / (1 + n)), lambda n: START / (1 + n)),
    "one cycle": (
        lambda m, o: m.OneCycleLR(o, 1.0, total_steps=16),
        lambda n: one_cycle(n, 0.3 * 16 - 1, 15, along_wave),
    ),
    "one cycle, straight": (
        lambda m, o: m.OneCycleLR(o, 1.0, total_steps=16, pct_start=0.4, anneal_strategy="linear"),
        lambda n: one_cycle(n, 0.4 * 16 - 1, 15, along_line),
    ),
}


def optimizer():
    return optim.SGD([Tensor([1.0]).realize()], lr=START)


def rates(make, captured):
    trained = optimizer()
    scheduler = make(ours, trained)
    step = TinyJit(scheduler.step) if captured else scheduler.step
    found = [trained.lr.item()]
    for _ in range(STEPS):
        step()
        found.append(trained.lr.item())
    assert scheduler.get_last_lr() == found[-1:]
    return found


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_the_rate_follows_its_formula(name, captured):
    make, want = CASES[name]
    wanted = [want(count) for count in range(STEPS + 1)]
    np.testing.assert_allclose(rates(make, captured), wanted, rtol=2e-6, atol=1e-7)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_the_rate_is_that_of_torch(name):
    torch = pytest.importorskip("torch")
    theirs = torch.optim.SGD([torch.tensor([1.0], requires_grad=True)], lr=START, momentum=0.5)
    scheduler = CASES[name][0](torch.optim.lr_scheduler, theirs)
    wanted = [theirs.param_groups[0]["lr"]]
    for _ in range(STEPS):
        theirs.step()
        scheduler.step()
        wanted.append(theirs.param_groups[0]["lr"])
    np.testing.assert_allclose(rates(CASES[name][0], False), wanted, rtol=2e-6, atol=1e-7)


def test_a_captured_training_step_slows_down():
    weight = Tensor([10.0]).realize()
    trained = optim.SGD([weight], lr=1.0)
    scheduler = ours.StepLR(trained, 2)

    @TinyJit
    def step():
        trained.zero_grad()
        weight.sum().backward()
        Tensor.realize(*trained.schedule_step(), *scheduler.schedule_step())

    seen, kernels = [], []
    with Tensor.train():
        for _ in range(6):
            before = GlobalCounters.kernel_count
            step()
            kernels.append(GlobalCounters.kernel_count - before)
            seen.append(weight.item())
    np.testing.assert_allclose(seen, [9, 8, 7.9, 7.8, 7.79, 7.78], rtol=1e-6)
    assert kernels[-1] <= 3


def test_large_counts_stay_exact():
    found = ours.ExponentialLR(optimizer(), 0.9999).rate(Tensor(100000.0), Tensor(1.0))
    np.testing.assert_allclose(found.item(), 0.9999**100000, rtol=1e-5)


VALUES = [1, 0.9, 0.9, 0.9, 0.9, 0.9, 0.89, 0.95, 0.95, 0.95, 0.5, *[0.6] * 9]


def plateau(values, mode, factor, patience, cooldown=0, floor=0.0):
    """The rate after each value, with a threshold of 1e-4 of the best."""
    rate, best, bad, waiting, found = START, None, 0, 0, []
    for value in values:
        value = value if mode == "min" else -value
        if best is None or value < best - abs(best) * 1e-4:
            best, bad = value, 0
        else:
            bad += 1
        if waiting:
            waiting, bad = waiting - 1, 0
        if bad > patience:
            rate, waiting, bad = max(rate * factor, floor), cooldown, 0
        found.append(rate)
    return found


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"patience": 2, "factor": 0.5}, plateau(VALUES, "min", 0.5, 2)),
        ({"patience": 1, "cooldown": 2}, plateau(VALUES, "min", 0.1, 1, 2)),
        ({"mode": "max", "patience": 3, "min_lr": 0.03}, plateau(VALUES, "max", 0.1, 3, 0, 0.03)),
    ],
    ids=["patience", "cooldown", "max"],
)
def test_the_rate_falls_on_a_plateau(options, wanted, captured):
    trained = optimizer()
    scheduler = ours.ReduceLROnPlateau(trained, **options)
    step = TinyJit(lambda value: scheduler.step(value)) if captured else scheduler.step
    found = []
    for value in VALUES:
        step(Tensor(float(value)).realize())
        found.append(trained.lr.item())
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_plateau_may_be_told_plain_numbers():
    trained = optimizer()
    scheduler = ours.ReduceLROnPlateau(trained, patience=0, threshold=0.3, threshold_mode="abs")
    for value in (1.0, 0.6, 0.5):
        scheduler.step(value)
    np.testing.assert_allclose(trained.lr.item(), 0.05)


def test_wrong_options_are_named():
    trained = optimizer()
    with pytest.raises(ArgumentError, match="anneal_strategy='flat'"):
        ours.OneCycleLR(trained, 1.0, 10, anneal_strategy="flat")
    with pytest.raises(ArgumentError, match="1 schedulers and 2 milestones"):
        ours.SequentialLR(trained, [ours.StepLR(trained, 2)], [1, 2])
    with pytest.raises(ArgumentError, match="mode='best'"):
        ours.ReduceLROnPlateau(trained, mode="best")


@pytest.mark.parametrize("size", [41, 47, 49, 55, 61, 97, 107])
def test_steps_of_any_size_come_in_time(size: int) -> None:
    """Also where ``size * (1 / size)`` is rounded to less than 1."""
    optimizer = optim.SGD([Tensor([1.0])], lr=START)
    scheduler = ours.StepLR(optimizer, size, 0.5)
    counts = Tensor([size - 1.0, size, 2 * size - 1, 2 * size, 3 * size])
    assert scheduler.rate(counts, Tensor([1.0])).tolist() == [1, 0.5, 0.5, 0.25, 0.125]
