import sys

import pytest

from kernelet import GlobalCounters, Tensor, dtypes, nn
from kernelet.base.errors import ArgumentError


class Block:
    def __init__(self):
        self.convolution = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)

    def __call__(self, x):
        return self.norm(self.convolution(x)).relu()


class Network:
    def __init__(self):
        self.blocks = [Block()]
        self.memory = nn.LSTM(8, 5)
        self.unused = nn.Linear(1, 1)
        self.name = "small"

    def __call__(self, x):
        x = x.sequential(self.blocks).mean((2, 3)).unsqueeze(0)
        return self.memory(x)[0]


def cells(table):
    return [line.split() for line in table.splitlines()]


def test_each_layer_has_a_line_with_its_shape_and_parameters():
    before = GlobalCounters.kernel_count
    table = nn.summary(Network(), (2, 3, 6, 6))
    assert [" ".join(line) for line in cells(table)] == [
        "layer kind result parameters",
        "model Network (1, 2, 5) 534",
        "blocks.0 Block (2, 8, 6, 6) 232",
        "blocks.0.convolution Conv2d (2, 8, 6, 6) 216",
        "blocks.0.norm BatchNorm (2, 8, 6, 6) 16",
        "memory LSTM (1, 2, 5), (1, 2, 5), (1, 2, 5) 300",
        "unused Linear 2",
        "total 534",
    ]
    assert len({len(line) for line in table.splitlines()}) == 1
    assert GlobalCounters.kernel_count - before <= 20  # what makes the parameters


def test_a_shared_parameter_counts_once_in_the_total():
    first, second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
    second.weight = first.weight
    assert cells(nn.summary([first, second], (1, 3)))[-1] == ["total", "9"]


def test_models_may_take_several_tensors_and_numbers():
    assert cells(nn.summary(nn.Bilinear(3, 4, 2), (5, 3), (5, 4)))[1][2:4] == ["(5,", "2)"]
    table = nn.summary(nn.Embedding(7, 2), (4,), dtype=dtypes.int32)
    assert cells(table)[1] == ["model", "Embedding", "(4,", "2)", "14"]


def test_tensors_show_their_shape_and_type():
    model = [nn.Embedding(5, 4), nn.Linear(4, 3)]
    assert nn.summary(model, Tensor([[1, 2]])) == nn.summary(model, (1, 2), dtype=dtypes.int32)


def test_a_profiler_is_put_back():
    def mine(*_):
        return None

    sys.setprofile(mine)
    try:
        nn.summary([nn.Linear(3, 3), Tensor.relu], (1, 3))
        assert sys.getprofile() is mine
    finally:
        sys.setprofile(None)


def test_what_cannot_be_called_is_refused():
    with pytest.raises(ArgumentError, match="summary: a model of type dict"):
        nn.summary({"a": Tensor([1.0])}, (1,))
