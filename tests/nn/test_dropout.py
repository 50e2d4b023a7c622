import numpy as np
import pytest

from kernelet import Tensor, nn


def test_elements_are_left_out_in_training_only():
    Tensor.manual_seed(1)
    layer, x = nn.Dropout(0.25), Tensor.ones(100, 100)
    np.testing.assert_array_equal(layer(x).numpy(), 1)
    with Tensor.train():
        found = layer(x).numpy()
    assert 0.22 < (found == 0).mean() < 0.28
    np.testing.assert_allclose(found[found != 0], 4 / 3, rtol=1e-6)


@pytest.mark.parametrize("make", [nn.Dropout1d, nn.Dropout2d, nn.Dropout3d])
def test_whole_channels_are_left_out(make):
    Tensor.manual_seed(2)
    axes = int(make is nn.Dropout1d) or 2
    x = Tensor.ones(20, 30, *[4] * axes)
    np.testing.assert_array_equal(make(0.5)(x).numpy(), 1)
    with Tensor.train():
        found = make(0.5)(x).numpy().reshape(20, 30, -1)
    assert set(np.unique(found)) == {0.0, 2.0}
    assert (found == found[..., :1]).all()
    assert 0.4 < (found == 0).mean() < 0.6
