import numpy as np

from kernelet import Tensor
from kernelet.nn import LSTMCell


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_a_step_follows_the_formula_and_carries_its_state():
    cell, x = LSTMCell(3, 5), Tensor.randn(2, 3).realize()
    hidden, memory = cell(x)
    hidden, memory = cell(x, (hidden, memory))
    want_hidden, want_memory = np.zeros((2, 5)), np.zeros((2, 5))
    for _ in range(2):
        gates = x.numpy() @ cell.weight_ih.numpy().T + cell.bias_ih.numpy()
        gates = gates + want_hidden @ cell.weight_hh.numpy().T + cell.bias_hh.numpy()
        enter, keep, value, leave = np.split(gates, 4, axis=1)
        want_memory = sigmoid(keep) * want_memory + sigmoid(enter) * np.tanh(value)
        want_hidden = sigmoid(leave) * np.tanh(want_memory)
    np.testing.assert_allclose(hidden.numpy(), want_hidden, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(memory.numpy(), want_memory, rtol=1e-4, atol=1e-5)


def test_a_cell_without_bias_has_none():
    assert LSTMCell(3, 5, bias=False).bias_ih is None
