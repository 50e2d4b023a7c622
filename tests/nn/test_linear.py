import numpy as np
import pytest

from kernelet import Tensor, nn
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


def test_a_bilinear_layer_follows_its_formula():
    layer = nn.Bilinear(3, 4, 2)
    left, right = np.arange(12.0).reshape(2, 2, 3), np.arange(16.0).reshape(2, 2, 4) / 4
    want = np.einsum("abi,kij,abj->abk", left, layer.weight.numpy(), right) + layer.bias.numpy()
    found = layer(Tensor(left.astype(np.float32)), Tensor(right.astype(np.float32)))
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-4)
    assert nn.Bilinear(3, 4, 2, bias=False).bias is None


@pytest.mark.parametrize("kind", ["int32", "int64", "uint8"])
def test_known_numbers_without_a_row_are_refused(kind):
    layer = nn.Embedding(4, 2)
    for given in ([4], [[1, 3], [9, 0]]):
        with pytest.raises(IndexError, match=r"Embedding\(4, 2\): 1 of \d numbers .* [49]\."):
            layer(Tensor(given, dtype=kind))
    assert layer(Tensor([3, 0], dtype=kind)).shape == (2, 2)


def test_numbers_from_the_end_and_views_are_looked_up():
    layer = nn.Embedding(4, 2)
    index = np.array([[0, 7], [-1, 7], [2, 7]])
    found = layer(Tensor(index)[:, 0])
    np.testing.assert_array_equal(found.numpy(), layer.weight.numpy()[[0, 3, 2]])


def test_numbers_that_are_not_known_cheaply_give_zeros():
    layer = nn.Embedding(4, 2)
    assert layer(Tensor([3]) + 1).tolist() == [[0.0, 0.0]]
    many = Tensor(np.full(5000, 9)).realize()
    assert not layer(many).numpy().any()


@pytest.mark.parametrize("padding", [3, -2])
def test_padding_has_no_gradient_and_starts_as_zeros(padding: int) -> None:
    layer = nn.Embedding(5, 2, padding_idx=padding)
    assert layer.weight[3].tolist() == [0.0, 0.0]
    found = layer(Tensor([[0, 3, -2], [3, 4, 0]]))
    assert found[0, 1:].tolist() == [[0.0, 0.0]] * 2
    (slope,) = found.sum().gradient(layer.weight)
    assert slope.tolist() == [[2.0] * 2, [0.0] * 2, [0.0] * 2, [0.0] * 2, [1.0] * 2]
    # What the row holds is read all the same.
    layer.weight[3] = 7.0
    assert layer(Tensor([3])).tolist() == [[7.0, 7.0]]


def test_padding_is_one_of_the_rows() -> None:
    with pytest.raises(IndexError, match=r"padding_idx=5 has no row"):
        nn.Embedding(5, 2, padding_idx=5)
