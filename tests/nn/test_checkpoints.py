import json
import struct

import pytest

from kernelet import Tensor, TinyJit, nn
from kernelet.base.errors import ArgumentError, DataError, ShapeError
from kernelet.nn import optim
from kernelet.nn.state import get_state_dict, safe_save


class Training:
    """A network with dropout and batch statistics, and everything that goes with it."""

    def __init__(self, seed, captured, width=6):
        Tensor.manual_seed(seed)
        self.model = [nn.Linear(4, width), nn.BatchNorm(width), nn.Linear(width, 3)]
        parameters = nn.state.get_parameters(self.model)
        self.optimizer = optim.AdamW(parameters, lr=0.05, amsgrad=True)
        self.scheduler = optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 20)
        self.scaler = optim.GradScaler(growth_interval=3)
        self.average = optim.EMA(parameters, 0.8)
        self.step = TinyJit(self.learn) if captured else self.learn

    def learn(self, x):
        with Tensor.train():
            self.optimizer.zero_grad()
            hidden = self.model[1](self.model[0](x)).relu().dropout(0.4)
            loss = (self.model[2](hidden) + Tensor.randn(3)).square().mean()
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.scheduler.step()
            self.average.update()
            return loss.realize()

    def parts(self):
        names = ("model", "optimizer", "scheduler", "scaler", "average")
        return {name: getattr(self, name) for name in names}

    def contents(self):
        tensors = get_state_dict(self.parts())
        return {name: bytes(tensor.data()) for name, tensor in tensors.items()}

    def run(self, start, end):
        rows = [
            Tensor([[float(at + i + j) for j in range(4)] for i in range(5)]) for at in range(end)
        ]
        return [bytes(self.step(rows[at].realize()).data()) for at in range(start, end)]


@pytest.mark.parametrize(("captured", "used"), [(False, 0), (True, 0), (True, 4)])
def test_a_resumed_run_goes_on_bit_by_bit(tmp_path, captured, used):
    path = tmp_path / "run.safetensors"
    first = Training(1, captured)
    first.run(0, 4)
    nn.save_checkpoint(path, **first.parts(), step=4, names=["a", "b"])
    wanted = first.run(4, 7), first.contents()

    second = Training(2, captured)
    second.run(0, used)
    values = nn.load_checkpoint(path, **second.parts())
    assert values == {"step": 4, "names": ["a", "b"]}
    assert (second.run(values["step"], 7), second.contents()) == wanted


def test_a_tensor_with_two_names_is_saved_once(tmp_path):
    path = tmp_path / "run.safetensors"
    weight = Tensor([1.0, 2.0])
    optimizer = optim.SGD([weight])
    nn.save_checkpoint(path, model={"weight": weight, "tied": weight}, optimizer=optimizer)
    assert list(nn.state.safe_load(path)) == ["model.weight", "optimizer._lr"]


def test_random_numbers_go_on_where_they_were(tmp_path):
    Tensor.manual_seed(7)
    Tensor.rand(10).realize()
    nn.save_checkpoint(tmp_path / "run", x=Tensor([1]))
    wanted = Tensor.rand(3).tolist()
    Tensor.manual_seed(0)
    nn.load_checkpoint(tmp_path / "run", x=Tensor([0]))
    assert Tensor.rand(3).tolist() == wanted


def test_what_does_not_fit_is_named(tmp_path):
    path = tmp_path / "run"
    nn.save_checkpoint(path, model={"a": Tensor([1.0])})
    with pytest.raises(ArgumentError, match=r"model\.b"):
        nn.load_checkpoint(path, model={"b": Tensor([1.0])})
    with pytest.raises(ShapeError, match=r"model\.a"):
        nn.load_checkpoint(path, model={"a": Tensor([1.0, 2.0])})
    with pytest.raises(ArgumentError, match=r"save_checkpoint: .*set"):
        nn.save_checkpoint(path, step={1, 2})


@pytest.mark.parametrize("notes", [None, {"kernelet": "no json"}, {"kernelet": "[1]"}])
def test_another_file_is_refused(tmp_path, notes):
    path = tmp_path / "other.safetensors"
    safe_save({"a": Tensor([1.0])}, path, notes)
    with pytest.raises(DataError, match=r"other\.safetensors: .*save_checkpoint"):
        nn.load_checkpoint(path, a=Tensor([1.0]))
    path.write_bytes(struct.pack("<Q", 2) + json.dumps({}).encode()[:1])
    with pytest.raises(DataError, match="not a whole safetensors file"):
        nn.load_checkpoint(path, a=Tensor([1.0]))
