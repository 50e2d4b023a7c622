"""Model files as tinygrad programs read them."""

import pytest

from kernelet import Tensor, nn
from kernelet.base.dtype import dtypes
from kernelet.compat import state as compat


def test_the_header_of_a_file_comes_as_it_is_written(tmp_path):
    path = tmp_path / "model.safetensors"
    nn.state.safe_save({"x": Tensor([[1, 2]], dtype=dtypes.int16)}, path, {"made": "here"})
    for source in (path, Tensor(path.read_bytes())):
        raw, start, header = compat.safe_load_metadata(source)
        assert header["x"] == {"dtype": "I16", "shape": [1, 2], "data_offsets": [0, 4]}
        assert header["__metadata__"] == {"made": "here"}
        assert bytes(raw.tolist())[start:] == b"\1\0\2\0"


def test_types_have_the_names_of_safetensors():
    assert compat.safe_dtypes["BF16"] is dtypes.bfloat16
    assert compat.inverse_safe_dtypes[dtypes.uint32] == "U32"
    for dtype in dtypes.all:
        assert compat.safe_dtypes[compat.inverse_safe_dtypes[dtype]] is dtype


def test_state_is_collected_and_loaded(capfd):
    model = {"w": Tensor([1.0, 2.0])}
    assert list(compat.get_state_dict(model, tensor_type=Tensor)) == ["w"]
    compat.load_state_dict(model, {"w": Tensor([3.0, 4.0]), "more": Tensor([1])}, verbose=False)
    assert model["w"].tolist() == [3.0, 4.0]
    assert "more" not in capfd.readouterr().err
    compat.load_state_dict(model, {"w": Tensor([3.0, 4.0]), "more": Tensor([1])})
    assert "more" in capfd.readouterr().err
    with pytest.raises(ValueError, match="w"):
        compat.load_state_dict(model, {})
