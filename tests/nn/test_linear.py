import numpy as np

from kernelet import Tensor
from kernelet.nn import Embedding, Linear


def test_linear_is_the_input_times_the_transposed_weight_plus_bias():
    layer, x = Linear(5, 3), Tensor.randn(4, 5).realize()
    Tensor.realize(layer.weight, layer.bias)
    want = x.numpy() @ layer.weight.numpy().T + layer.bias.numpy()
    np.testing.assert_allclose(layer(x).numpy(), want, rtol=1e-4, atol=1e-5)


def test_linear_without_bias_has_none():
    layer = Linear(5, 3, bias=False)
    assert layer.bias is None
    assert layer(Tensor.zeros(2, 5)).tolist() == [[0.0] * 3] * 2


def test_first_weights_fill_the_range_that_pytorch_uses():
    Tensor.manual_seed(0)
    weight = Linear(100, 200).weight.numpy()
    assert np.abs(weight).max() <= 0.1
    assert np.abs(weight).max() > 0.099
    assert abs(weight.mean()) < 0.005


def test_a_lazy_weight_has_one_value():
    layer = Linear(4, 4)
    x = Tensor.eye(4).contiguous().realize()
    assert layer(x).tolist() == layer(x).tolist()


def test_embedding_takes_rows_and_its_gradient_adds_them_up():
    layer = Embedding(6, 2)
    found = layer(Tensor([[1, 5], [1, 0]]))
    weight = layer.weight.numpy()
    np.testing.assert_array_equal(found.numpy(), weight[[[1, 5], [1, 0]]])
    layer(Tensor([[1, 5], [1, 0]])).sum().backward()
    assert layer.weight.grad.tolist() == [[1, 1], [2, 2], [0, 0], [0, 0], [0, 0], [1, 1]]
