import io
import os
import pickle
import random
import struct
import zipfile
from collections import OrderedDict

import numpy as np
import pytest

from kernelet import Tensor, dtypes
from kernelet.base.errors import DataError
from kernelet.nn.torch_files import torch_load


class Global:
    """Pickled as the name of something, without importing it."""

    def __init__(self, module, name):
        self.module, self.name = module, name


class Call:
    """Pickled as a call of a named function."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments


class Stored:
    """Pickled as a reference to a storage."""

    def __init__(self, *parts):
        self.parts = parts


class Pickler(pickle._Pickler):
    def save(self, obj, save_persistent_id=True):
        if isinstance(obj, Global):
            self.write(pickle.GLOBAL + f"{obj.module}\n{obj.name}\n".encode())
        elif isinstance(obj, Call):
            self.save(obj.function)
            self.save(obj.arguments)
            self.write(pickle.REDUCE)
        elif isinstance(obj, Stored):
            self.save(obj.parts)
            self.write(pickle.BINPERSID)
        else:
            super().save(obj, save_persistent_id)


def pickled(*values):
    target = io.BytesIO()
    for value in values:
        Pickler(target, 2).dump(value)
    return target.getvalue()


REBUILD = Global("torch._utils", "_rebuild_tensor_v2")
FLOATS = np.arange(12, dtype=np.float32)
WORDS = np.array([1, 2, 65535], np.uint16)
KINDS = {"0": "FloatStorage", "1": "HalfStorage", "2": "UntypedStorage"}
BYTES = {"0": FLOATS.tobytes(), "1": np.float16([0.5]).tobytes(), "2": WORDS.tobytes()}
COUNTS = {"0": 12, "1": 1, "2": 6}


def storage(key, legacy):
    kind = Global("torch.storage" if key == "2" else "torch", KINDS[key])
    parts = ("storage", kind, key, "cuda:0", COUNTS[key])
    return Stored(*parts, None) if legacy else Stored(*parts)


def tensor(key, offset, shape, strides, legacy=False):
    hooks = Call(Global("collections", "OrderedDict"))
    return Call(REBUILD, storage(key, legacy), offset, shape, strides, False, hooks)


def checkpoint(legacy=False):
    words = Call(
        Global("torch._utils", "_rebuild_tensor_v3"),
        *(storage("2", legacy), 0, (3,), (1,), False, None, Global("torch", "uint16")),
    )
    whole = tensor("0", 0, (3, 4), (4, 1), legacy)
    return {
        "whole": whole,
        "part": tensor("0", 4, (2, 2), (4, 1), legacy),
        "turned": tensor("0", 0, (4, 3), (1, 4), legacy),
        "repeated": tensor("0", 1, (2, 3), (0, 2), legacy),
        "scalar": tensor("1", 0, (), (), legacy),
        "empty": tensor("0", 0, (0, 3), (3, 1), legacy),
        "words": words,
        "parameter": Call(Global("torch._utils", "_rebuild_parameter"), whole, True, None),
        "facts": [1, 0.5, "text", None, (True, {"deep": -3})],
        "type": Global("torch", "float32"),
        "place": Call(Global("torch", "device"), "cuda", 1),
        "shape": Call(Global("torch", "Size"), [2, 3]),
        "bytes": Call(Global("_codecs", "encode"), "a\xff", "latin1"),
        "numbers": Call(Global("__builtin__", "set"), [1, 2]),
    }


def zipped(data, storages=BYTES, **more):
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("model/data.pkl", data)
        for key, content in storages.items():
            archive.writestr(f"model/data/{key}", content)
        for name, content in more.items():
            archive.writestr(f"model/{name}", content)
    return target.getvalue()


def in_a_row(obj, keys=("0", "1", "2")):
    facts = {"protocol_version": 1001, "little_endian": True}
    data = pickled(0x1950A86A20F9469CFC6C, 1001, facts, obj, list(keys))
    sizes = {"0": 12, "1": 1, "2": 6}
    return data + b"".join(struct.pack("<q", sizes[key]) + BYTES[key] for key in keys)


FORMS = {
    "zip": zipped(pickled(checkpoint()), byteorder="little"),
    "old": in_a_row(checkpoint(True)),
}


@pytest.fixture
def load(tmp_path):
    def loaded(data):
        path = tmp_path / "model.pt"
        path.write_bytes(data)
        return torch_load(path)

    return loaded


@pytest.mark.parametrize("form", FORMS)
def test_tensors_of_every_layout_are_read(load, form):
    found = load(FORMS[form])
    rows = FLOATS.reshape(3, 4)
    want = {
        "whole": rows,
        "part": rows[1:3, :2],
        "turned": rows.T,
        "repeated": np.tile(FLOATS[1:6:2], (2, 1)),
        "scalar": np.float16(0.5),
        "empty": np.zeros((0, 3), np.float32),
        "words": WORDS,
        "parameter": rows,
    }
    for name, values in want.items():
        np.testing.assert_array_equal(found[name].numpy(), values, err_msg=name)
        assert found[name].dtype.name == values.dtype.name


@pytest.mark.parametrize("form", FORMS)
def test_what_is_no_tensor_comes_along(load, form):
    found = load(FORMS[form])
    assert found["facts"] == [1, 0.5, "text", None, (True, {"deep": -3})]
    assert found["type"] is dtypes.float32
    assert (found["place"], found["shape"]) == ("cuda:1", (2, 3))
    assert (found["bytes"], found["numbers"]) == (b"a\xff", {1, 2})


def test_a_tensor_of_bytes_is_read_too():
    found = torch_load(Tensor(FORMS["zip"], dtype=dtypes.uint8))
    assert found["part"].tolist() == [[4.0, 5.0], [8.0, 9.0]]


def test_attributes_of_a_state_dict_are_left_out(load):
    data = pickled(OrderedDict(a=1))[:-1]
    data += pickled({"_metadata": {"version": 1}})[2:-1] + pickle.BUILD + pickle.STOP
    found = load(zipped(data))
    assert found == {"a": 1}
    assert not hasattr(found, "_metadata")


# ---- no code runs ----


class Attack:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


MARK = "the_attack_succeeded"
ATTACKS = {
    "system": pickle.dumps(Attack(os.system, f"touch {MARK}")),
    "eval": pickle.dumps(Attack(eval, f"open({MARK!r}, 'w')")),
    "exec": pickle.dumps({"weight": [Attack(exec, f"open({MARK!r}, 'w')")]}, 4),
    "open": pickle.dumps(Attack(open, MARK, "w")),
    "dotted": b"\x80\x04\x8c\x0bcollections\x8c\x17OrderedDict.fromkeys.x\x93.",
    "getattr": pickled(Call(Global("builtins", "getattr"), Global("torch", "Size"), "mro")),
    "import": pickled(Call(Global("builtins", "__import__"), "os")),
    "instance": b"(S'touch x'\nios\nsystem\n.",
    "object": b"(cos\nsystem\nS'touch x'\no.",
    "parts of kernelet": pickled(Global("kernelet.nn.torch_files", "_KNOWN")),
    "a codec": pickled(Call(Global("codecs", "decode"), b"", "zip")),
    "changed defaults": pickled(REBUILD)[:-1] + pickled((None, {"__defaults__": ()}))[2:-1] + b"b.",
    "extension": b"\x80\x02\x82\x01.",
}


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("form", ["zip", "old", "old, later"])
def test_a_pickle_that_would_run_code_is_refused(load, tmp_path, monkeypatch, name, form):
    monkeypatch.chdir(tmp_path)
    attack = ATTACKS[name]
    start = pickled(0x1950A86A20F9469CFC6C, 1001, {})
    data = {"zip": zipped(attack), "old": attack, "old, later": start + attack}[form]
    with pytest.raises(DataError, match="not a torch checkpoint"):
        load(data)
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt"]


def test_the_refused_name_is_told(load):
    with pytest.raises(DataError, match=r"model\.pt: .*names (posix|nt)\.system, which is not run"):
        load(zipped(ATTACKS["system"]))


# ---- damaged files ----


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "Ran out|input|EOF"),
        (b"hello, this is no checkpoint", "not a torch checkpoint"),
        (pickle.dumps({"a": 1}), "not a torch checkpoint"),
        (zipped(pickled(checkpoint()), {}), "no item named"),
        (zipped(pickled(checkpoint()), {**BYTES, "0": b"short"}), "storage 0 has 5 bytes"),
        (zipped(pickled(checkpoint()), byteorder="big"), "big-endian"),
        (zipped(pickled(tensor("0", 0, (13,), (1,)))), "reaches past"),
        (zipped(pickled(tensor("0", 1, (3, 4), (4, 1)))), "reaches past"),
        (zipped(pickled(tensor("0", -1, (3,), (1,)))), "offset -1"),
        (zipped(pickled(tensor("0", 0, (3,), (1, 1)))), "strides"),
        (zipped(pickled(tensor("0", 0, (-3,), (1,)))), "sizes"),
        (zipped(pickled(Stored("module", 3))), "no storage like"),
        (FORMS["old"][:-3], "more than are there"),
        (zipped(b"\x80\x02]" + b"r\xff\xff\xff\x7f" + b"."), "^"),
    ],
)
def test_a_damaged_checkpoint_says_what_is_wrong(load, data, found):
    if found == "^":  # a huge memo number costs nothing
        assert load(data) == []
        return
    with pytest.raises(DataError, match=found):
        load(data)


@pytest.mark.parametrize("form", FORMS)
def test_any_changed_byte_gives_values_or_a_data_error(load, form):
    draw = random.Random(1)
    for _ in range(60):
        data = bytearray(FORMS[form])
        data[draw.randrange(len(data))] = draw.randrange(256)
        try:
            load(bytes(data))
        except DataError as error:
            assert "model.pt" in str(error)


@pytest.mark.parametrize("is_zip", [True, False])
def test_what_torch_saves_is_read(tmp_path, is_zip):
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3))
    saved = {"model": model.state_dict(), "epoch": 3, "turned": torch.arange(6).reshape(2, 3).T}
    path = tmp_path / "model.pt"
    torch.save(saved, path, _use_new_zipfile_serialization=is_zip)
    found = torch_load(path)
    assert found["epoch"] == 3
    assert list(found["model"]) == list(saved["model"])
    for name, want in {**saved["model"], "turned": saved["turned"]}.items():
        got = found["turned"] if name == "turned" else found["model"][name]
        np.testing.assert_array_equal(got.numpy(), want.numpy())
