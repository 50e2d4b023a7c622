"""Hashes are those of hashlib."""

import hashlib

import numpy as np
import pytest

from kernelet.base.config import Context
from kernelet.base.errors import ArgumentError, DTypeError
from kernelet.frontend.tensor import Tensor


def text(length: int) -> bytes:
    return bytes(np.random.default_rng(length).integers(0, 256, length, dtype=np.uint8))


# The padding has a block of its own, stands in the middle, or is a single byte.
LENGTHS = {"sha3_224": 0, "sha3_256": 3, "sha3_384": 103, "sha3_512": 72}


@pytest.mark.parametrize("name", LENGTHS)
def test_keccak_is_that_of_hashlib(name: str) -> None:
    given = text(LENGTHS[name])
    found = Tensor(np.frombuffer(given, np.uint8)).keccak(name)
    assert bytes(found.numpy()) == hashlib.new(name, given).digest()


def test_extendable_hashes_give_half_of_their_capacity() -> None:
    given = Tensor(np.frombuffer(text(20), np.uint8))
    assert bytes(given.keccak("shake_128").numpy()) == hashlib.shake_128(text(20)).digest(16)
    assert bytes(given.keccak((136, 6)).numpy()) == hashlib.sha3_256(text(20)).digest()


def test_rows_are_hashed_one_by_one() -> None:
    rows = np.frombuffer(text(24), np.uint8).reshape(2, 3, 4)
    found = Tensor(rows).keccak("sha3_256").numpy()
    assert found.shape == (2, 3, 32)
    assert bytes(found[1, 2]) == hashlib.sha3_256(bytes(rows[1, 2])).digest()


def test_equal_bytes_have_equal_hashes_and_others_do_not() -> None:
    x = Tensor.arange(40)
    hashes = [each.hash().tolist() for each in (x, x + 0, x[:5], x[:5].cast("float32"))]
    assert hashes[0] == hashes[1]
    assert len({tuple(each) for each in hashes}) == 3
    assert all(len(each) == 16 for each in hashes)


def test_compiled_code_hashes_as_well() -> None:
    with Context(DEV="LLVM"):
        found = Tensor(np.frombuffer(text(140), np.uint8)).keccak()
        assert bytes(found.numpy()) == hashlib.sha3_256(text(140)).digest()


def test_only_bytes_are_hashed_and_names_are_checked() -> None:
    with pytest.raises(DTypeError, match="rows of bytes"):
        Tensor([1.0]).keccak()
    with pytest.raises(ArgumentError, match="md5"):
        Tensor([1], dtype="uint8").keccak("md5")
