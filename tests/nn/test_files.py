import pytest

from kernelet import Tensor, dtypes
from kernelet.nn.files import name_of, open_source, replacing, size_of


def test_a_path_and_a_tensor_of_bytes_read_alike(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"abcd")
    for source in (path, str(path), Tensor(b"abcd", dtype=dtypes.uint8)):
        with open_source(source) as file:
            assert file.read(1) == b"a"
            assert size_of(file) == 4
            assert file.read() == b"bcd"
    assert name_of(path) == str(path)
    assert "tensor" in name_of(Tensor([1]))


def test_a_file_is_replaced_once_it_is_whole(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), replacing(path) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
