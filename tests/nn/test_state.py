from collections import namedtuple
from dataclasses import dataclass, field

import numpy as np
import pytest

from kernelet import Tensor, TinyJit, dtypes, holdings, nn
from kernelet.base.errors import ArgumentError, ShapeError
from kernelet.nn.state import (
    get_parameters,
    get_state_dict,
    load_state_dict,
    safe_load,
    safe_save,
)

Pair = namedtuple("Pair", ["left", "right"])


class Network:
    def __init__(self):
        self.layers = [nn.Linear(4, 3), Tensor.relu, nn.Linear(3, 2, bias=False)]
        self.norm = nn.BatchNorm(2)
        self.options = {"scale": Tensor([2.0]), "name": "small"}
        self.pair = Pair(Tensor([1]), Tensor([2]))


def test_names_follow_attributes_positions_and_keys():
    assert list(get_state_dict(Network())) == [
        "layers.0.weight",
        "layers.0.bias",
        "layers.2.weight",
        "norm.weight",
        "norm.bias",
        "norm.num_batches_tracked",
        "norm.running_mean",
        "norm.running_var",
        "options.scale",
        "pair.left",
        "pair.right",
    ]


def test_a_prefix_comes_first():
    assert list(get_state_dict([Tensor([1])], prefix="model")) == ["model.0"]


def test_objects_that_hold_each_other_are_walked_once():
    network = Network()
    network.layers[0].parent = network
    assert len(get_parameters(network)) == 11


@dataclass(slots=True)
class Block:
    weight: Tensor
    inner: nn.Linear


def test_data_classes_are_walked():
    block = Block(Tensor([1.0]), nn.Linear(2, 2, bias=False))
    assert list(get_state_dict(block)) == ["weight", "inner.weight"]


@pytest.mark.parametrize("slots", [False, True])
def test_a_data_class_holds_its_fields_and_what_it_was_given_later(slots):
    @dataclass(slots=slots)
    class Model:
        width: int
        scale: Tensor
        layer: nn.Linear = field(init=False)
        unset: Tensor = field(init=False)

        def __post_init__(self):
            self.layer = nn.Linear(self.width, 1, bias=False)
            if not slots:
                self.other = Tensor([2.0])

    names = ["scale", "layer.weight", *([] if slots else ["other"])]
    assert list(get_state_dict(Model(3, Tensor([1.0])))) == names


@pytest.mark.parametrize("kind", [np.array, list, Tensor])
def test_values_may_be_arrays_and_lists(kind):
    layer = nn.Linear(2, 1)
    weight = layer.weight
    load_state_dict(layer, {"weight": kind([[1, 2]]), "bias": kind([3])})
    assert layer.weight is weight
    assert (layer.weight.tolist(), layer.bias.tolist()) == ([[1.0, 2.0]], [3.0])
    assert layer.weight.dtype is dtypes.float32
    with pytest.raises(ShapeError, match=r"weight has shape \(1, 2\) in the model and \(2,\)"):
        load_state_dict(layer, {"weight": kind([1, 2]), "bias": kind([3])})


def test_functions_modules_and_captured_steps_are_no_part_of_a_model():
    layer = nn.Linear(2, 2, bias=False)
    layer.step, layer.library, layer.kind = TinyJit(layer), nn, nn.Linear
    for _ in range(3):
        layer.step(Tensor([[1.0, 2.0]]))
    assert list(get_state_dict(layer)) == ["weight"]


def test_a_shared_parameter_has_two_names_and_is_one_parameter():
    shared = nn.Linear(2, 2)
    assert len(get_state_dict([shared, shared])) == 4
    assert len(get_parameters([shared, shared])) == 2


def test_a_saved_model_loads_into_another(tmp_path):
    saved, loaded = Network(), Network()
    safe_save(get_state_dict(saved), tmp_path / "model.safetensors")
    filled = load_state_dict(loaded, safe_load(tmp_path / "model.safetensors"))
    assert len(filled) == 11
    for name, value in get_state_dict(saved).items():
        assert get_state_dict(loaded)[name].tolist() == value.tolist(), name


def test_loading_keeps_type_memory_and_trainability():
    layer = nn.Linear(2, 1, bias=False)
    layer.weight = Tensor([[1.0, 2.0]], requires_grad=True).realize()
    memory = holdings.memories[next(iter(layer.weight.uop.toposort()))]
    load_state_dict(layer, {"weight": Tensor([[3.0, 4.0]], dtype=dtypes.float16)})
    assert layer.weight.tolist() == [[3.0, 4.0]]
    assert layer.weight.dtype is dtypes.float32
    assert layer.weight.requires_grad is True
    assert holdings.memories[next(iter(layer.weight.uop.toposort()))] is memory


def test_a_missing_name_is_an_error_unless_strict_is_off():
    layer = nn.Linear(2, 1)
    with pytest.raises(ArgumentError, match=r"1 of the model's 2 .*bias.*strict=False"):
        load_state_dict(layer, {"weight": Tensor.zeros(1, 2)})
    assert len(load_state_dict(layer, {"weight": Tensor.zeros(1, 2)}, strict=False)) == 1


def test_a_wrong_shape_names_the_tensor():
    with pytest.raises(ShapeError, match=r"weight has shape \(1, 2\) in the model and \(2, 1\)"):
        load_state_dict(nn.Linear(2, 1, bias=False), {"weight": Tensor.zeros(2, 1)})


def test_names_that_the_model_lacks_are_told_and_ignored(capsys):
    layer = nn.Linear(2, 1, bias=False)
    found = {"weight": Tensor.zeros(1, 2), "head": Tensor([1])}
    load_state_dict(layer, found, verbose=True)
    assert "no head" in capsys.readouterr().err


def test_consuming_empties_the_dict():
    found = {"weight": Tensor.ones(1, 2)}
    layer = nn.Linear(2, 1, bias=False)
    load_state_dict(layer, found, consume=True)
    assert found == {}
    np.testing.assert_array_equal(layer.weight.numpy(), [[1, 1]])
