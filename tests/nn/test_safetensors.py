import contextlib
import json
import random
import struct

import numpy as np
import pytest

from kernelet import Tensor, Variable, dtypes
from kernelet.base.errors import ArgumentError, DataError
from kernelet.nn.safetensors import safe_load, safe_load_metadata, safe_save

HEADER = {"x": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}


def file_of(header, data=bytes(16)):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def changed(**fields):
    return {"x": {**HEADER["x"], **fields}}


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda dtype: dtype.name)
def test_every_type_comes_back(tmp_path, dtype):
    value = Tensor([[0, 1], [1, 0]]).cast(dtype)
    safe_save({"x": value}, tmp_path / "a.safetensors")
    found = safe_load(tmp_path / "a.safetensors")["x"]
    assert found.dtype is dtype
    assert found.tolist() == value.tolist()


def test_views_scalars_and_empty_tensors_come_back(tmp_path):
    values = {
        "turned": Tensor([[1, 2], [3, 4]]).T,
        "every second": Tensor.arange(10)[2:8:2],
        "scalar": Tensor(3.5),
        "empty": Tensor.zeros(0, 3),
    }
    safe_save(values, tmp_path / "a.safetensors")
    found = safe_load(tmp_path / "a.safetensors")
    assert list(found) == list(values)
    for name, value in values.items():
        assert found[name].shape == value.shape
        assert found[name].numpy().tolist() == value.numpy().tolist()


def test_the_header_is_padded_and_keeps_notes(tmp_path):
    safe_save({"x": Tensor([1.0])}, tmp_path / "a.safetensors", metadata={"made": "today"})
    start, entries, notes = safe_load_metadata(tmp_path / "a.safetensors")
    assert start % 8 == 0
    assert entries["x"].shape == (1,)
    assert notes == {"made": "today"}


def test_tensors_may_stand_in_any_order_in_the_header(tmp_path):
    header = {
        "late": {"dtype": "I32", "shape": [2], "data_offsets": [4, 12]},
        "early": {"dtype": "I32", "shape": [1], "data_offsets": [0, 4]},
    }
    path = tmp_path / "a.safetensors"
    path.write_bytes(file_of(header, np.int32([7, 8, 9]).tobytes()))
    assert {name: value.tolist() for name, value in safe_load(path).items()} == {
        "late": [8, 9],
        "early": [7],
    }


def test_an_empty_dict_is_a_file(tmp_path):
    safe_save({}, tmp_path / "a.safetensors")
    assert safe_load(tmp_path / "a.safetensors") == {}


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "0 bytes"),
        (b"\0" * 7, "7 bytes"),
        (struct.pack("<Q", 1 << 40) + b"{}", str(1 << 40)),
        (file_of(HEADER, bytes(8)), "take 16 bytes and 8 are there"),
        (file_of(HEADER, bytes(20)), "take 16 bytes and 20 are there"),
        (file_of(b"{not json"), "not JSON"),
        (file_of(b"\xff\xfe\xff"), "not JSON"),
        (file_of([1]), "not a JSON object"),
        (file_of({"__metadata__": 3}), "__metadata__"),
        (file_of({"x": 3}), "x has no dtype"),
        (file_of(changed(dtype="F99")), "F99"),
        (file_of(changed(shape=[8])), r"shape \[8\] in 16 bytes"),
        (file_of(changed(shape=[-4])), r"shape \[-4\]"),
        (file_of(changed(shape=["4"])), "shape"),
        (file_of(changed(data_offsets=[0])), "x has no dtype"),
        (file_of(changed(data_offsets=[16, 32]), bytes(32)), "starts at 16"),
        (file_of({**HEADER, "y": HEADER["x"]}), "starts at 0"),
    ],
)
def test_a_damaged_file_says_what_is_wrong(tmp_path, content, found):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"bad\.safetensors: not a whole safetensors.*{found}"):
        safe_load(path)


def test_only_tensors_are_saved(tmp_path):
    with pytest.raises(ArgumentError, match="safetensors: x is of type list"):
        safe_save({"x": [1, 2]}, tmp_path / "x.safetensors")


@pytest.mark.parametrize("name", ["__metadata__", 3, None])
def test_names_are_texts_that_the_header_does_not_use(tmp_path, name):
    with pytest.raises(ArgumentError, match="safetensors: .* cannot be the name of a tensor"):
        safe_save({name: Tensor([1.0])}, tmp_path / "x.safetensors")
    assert not (tmp_path / "x.safetensors").exists()


def test_a_tensor_of_bound_length_is_saved_as_long_as_it_is(tmp_path):
    rows = Tensor.arange(12).reshape(6, 2).contiguous()[: Variable("rows", 1, 6).bind(4)]
    safe_save({"rows": rows, "last": Tensor([5.0])}, tmp_path / "x.safetensors")
    back = safe_load(tmp_path / "x.safetensors")
    assert back["rows"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert back["last"].tolist() == [5.0]


def test_any_changed_byte_gives_values_or_a_data_error(tmp_path):
    path = tmp_path / "a.safetensors"
    safe_save({"x": Tensor([[1.0, 2.0]]), "y": Tensor([True]), "e": Tensor.zeros(0, 3)}, path)
    whole, draw = path.read_bytes(), random.Random(1)
    for _ in range(300):
        data = bytearray(whole)
        data[draw.randrange(len(data))] = draw.randrange(256)
        path.write_bytes(data)
        with contextlib.suppress(DataError):
            safe_load(path)


def test_the_bytes_of_a_file_may_be_in_a_tensor(tmp_path):
    safe_save({"x": Tensor([1.0, 2.0])}, tmp_path / "a.safetensors")
    source = Tensor((tmp_path / "a.safetensors").read_bytes(), dtype=dtypes.uint8)
    assert safe_load(source)["x"].tolist() == [1.0, 2.0]
    source = Tensor(b"nothing", dtype=dtypes.uint8)
    with pytest.raises(DataError, match="a tensor's bytes: not a whole safetensors file"):
        safe_load(source)
