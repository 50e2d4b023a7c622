import pytest

from kernelet import Tensor
from kernelet.base.errors import ArgumentError
from kernelet.nn import Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d


@pytest.mark.parametrize(
    ("layer", "shape", "want"),
    [
        (Conv2d(4, 6, 3), (2, 4, 8, 8), (2, 6, 6, 6)),
        (Conv2d(4, 6, (3, 1), padding=(1, 0)), (2, 4, 8, 8), (2, 6, 8, 8)),
        (Conv2d(4, 6, 3, padding="same"), (2, 4, 8, 8), (2, 6, 8, 8)),
        (Conv2d(4, 6, 3, stride=2, groups=2), (2, 4, 9, 9), (2, 6, 4, 4)),
        (Conv2d(4, 6, 3, dilation=2), (2, 4, 9, 9), (2, 6, 5, 5)),
        (Conv1d(4, 6, 3, padding=1), (2, 4, 8), (2, 6, 8)),
        (ConvTranspose2d(4, 6, 2, stride=2), (2, 4, 3, 3), (2, 6, 6, 6)),
        (
            ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1),
            (2, 4, 3, 3),
            (2, 6, 6, 6),
        ),
        (ConvTranspose1d(4, 6, 2, stride=2, groups=2), (2, 4, 3), (2, 6, 6)),
    ],
)
def test_the_result_has_the_shape_that_the_arguments_say(layer, shape, want):
    assert layer(Tensor.ones(*shape)).shape == want


def test_a_convolution_of_ones_counts_its_window():
    layer = Conv2d(2, 1, 3, bias=False)
    layer.weight = Tensor.ones(1, 2, 3, 3)
    assert layer(Tensor.ones(1, 2, 4, 4)).tolist() == [[[[18.0, 18.0], [18.0, 18.0]]]]


def test_a_transposed_convolution_is_the_gradient_of_the_convolution():
    down, up = Conv2d(3, 5, 3, stride=2, bias=False), ConvTranspose2d(5, 3, 3, stride=2, bias=False)
    up.weight = down.weight
    x, seed = Tensor.randn(1, 3, 7, 7).realize(), Tensor.randn(1, 5, 3, 3).realize()
    gradient = down(x).gradient(x, gradient=seed)[0]
    difference = (gradient - up(seed)).abs().max().item()
    assert difference < 1e-4


def test_weights_and_biases_have_pytorch_shapes():
    assert Conv2d(4, 6, 3, groups=2).weight.shape == (6, 2, 3, 3)
    assert ConvTranspose2d(4, 6, 3, groups=2).weight.shape == (4, 3, 3, 3)
    assert Conv2d(4, 6, 3).bias.shape == (6,)
    assert Conv2d(4, 6, 3, bias=False).bias is None


def test_groups_that_do_not_divide_are_refused():
    with pytest.raises(ArgumentError, match=r"Conv2d\(4, 6\).*groups=4"):
        Conv2d(4, 6, 3, groups=4)
    with pytest.raises(ArgumentError, match=r"kernel_size=\(3,\)"):
        Conv2d(4, 6, (3,))
