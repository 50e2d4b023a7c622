import numpy as np
import pytest

from kernelet import Tensor, nn
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


def convolved(x, weight, stride, dilation):
    """A convolution of one space axis more than numpy has, window by window."""
    axes = weight.ndim - 2
    spans = [(size - 1) * dilation + 1 for size in weight.shape[2:]]
    sizes = [(x.shape[2 + at] - spans[at]) // stride + 1 for at in range(axes)]
    found = np.zeros((x.shape[0], weight.shape[0], *sizes))
    for place in np.ndindex(*sizes):
        window = tuple(
            slice(stride * at, stride * at + span, dilation)
            for at, span in zip(place, spans, strict=True)
        )
        patch = x[(slice(None), slice(None), *window)]
        found[(slice(None), slice(None), *place)] = np.tensordot(
            patch, weight, [range(1, axes + 2), range(1, axes + 2)]
        )
    return found


MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
LAYERS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("axes", "padding", "stride", "dilation"),
    [(1, 2, 2, 1), (2, "same", 1, 2), (2, 1, 2, 1), (3, 1, 1, 1), (1, "valid", 1, 1)],
)
def test_what_lies_around_follows_the_padding_mode(axes, padding, stride, dilation, mode):
    layer = LAYERS[axes](
        2, 3, 3, stride=stride, padding=padding, dilation=dilation, padding_mode=mode
    )
    x = np.random.default_rng(axes).standard_normal((2, 2, *[5, 6, 7][:axes])).astype(np.float32)
    amount = {"same": dilation, "valid": 0}.get(padding, padding)
    around = np.pad(x, [(0, 0), (0, 0), *[(amount, amount)] * axes], MODES[mode])
    want = convolved(around, layer.weight.numpy(), stride, dilation)
    want = want + layer.bias.numpy().reshape(3, *[1] * axes)
    np.testing.assert_allclose(layer(Tensor(x)).numpy(), want, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("axes", TRANSPOSED)
def test_a_transposed_layer_is_the_gradient_of_the_other(axes):
    layer = TRANSPOSED[axes](3, 2, 3, stride=2, padding=1, output_padding=1, bias=False)
    x = np.random.default_rng(axes).standard_normal((2, 3, *[3] * axes)).astype(np.float32)
    found = layer(Tensor(x))
    other = LAYERS[axes](2, 3, 3, stride=2, padding=1, bias=False)
    other.weight = layer.weight
    start = Tensor.zeros(*found.shape).requires_grad_()
    (other(start) * Tensor(x)).sum().backward()
    np.testing.assert_allclose(found.numpy(), start.grad.numpy(), rtol=1e-4, atol=1e-5)
