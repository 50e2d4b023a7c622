import numpy as np
import pytest

from kernelet import Tensor, TinyJit
from kernelet.nn.optim import EMA


@pytest.mark.parametrize("captured", [False, True])
def test_averages_follow_their_formula(captured):
    weight, count = Tensor([1.0, 2.0]).realize(), Tensor([3]).realize()
    average = EMA([weight, count, weight], decay=0.75)
    assert len(average.averages) == 1

    def step(value):
        weight.assign(value).realize()
        average.update()

    run = TinyJit(step) if captured else step
    want = np.array([1.0, 2.0])
    for at in range(5):
        values = np.float32([at, -at])
        run(Tensor(values).realize())
        want = want * 0.75 + values * 0.25
    np.testing.assert_allclose(average.averages[0].numpy(), want, rtol=1e-6)


def test_parameters_have_the_averages_inside_only():
    weight = Tensor([1.0]).realize()
    average = EMA([weight], decay=0.5)
    weight.assign([3.0])
    average.update()
    read = TinyJit(lambda x: (weight * x).realize())
    one = Tensor([1.0]).realize()
    for _ in range(3):
        with average.in_use():
            assert read(one).tolist() == [2.0]
        assert read(one).tolist() == [3.0]
    with pytest.raises(ZeroDivisionError), average.in_use():
        raise ZeroDivisionError
    assert weight.tolist() == [3.0]
    assert average.averages[0].tolist() == [2.0]


def test_half_precision_parameters_are_averaged():
    weight = Tensor([1.0], dtype="float16").realize()
    average = EMA([weight], decay=0.5)
    weight.assign([2.0])
    average.update()
    assert average.averages[0].tolist() == [1.5]
