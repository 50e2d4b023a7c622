"""Short names cast, and out-of-range values become what they should."""

import math

import numpy as np
import pytest

from kernelet import Context, GlobalCounters
from kernelet.base.dtype import dtypes
from kernelet.base.errors import ArgumentError, DTypeError, ShapeError
from kernelet.frontend.tensor import Tensor

NAMES = {
    "float": dtypes.float32,
    "half": dtypes.float16,
    "bfloat16": dtypes.bfloat16,
    "double": dtypes.float64,
    "int": dtypes.int32,
    "long": dtypes.int64,
    "short": dtypes.int16,
    "bool": dtypes.bool,
}


@pytest.mark.parametrize("name", NAMES)
def test_short_names_cast(name: str) -> None:
    x = getattr(Tensor([0, 3], dtype="int8"), name)()
    assert x.dtype is NAMES[name]
    assert x.tolist() == [0, name == "bool" or 3]


def test_floats_drop_their_fraction_and_saturate() -> None:
    x = Tensor([-1.9, 1.9, 1e20, -1e20, math.nan])
    assert x.int().tolist() == [-1, 1, 2**31 - 1, -(2**31), 0]
    assert Tensor([0.0, 0.5, math.nan]).bool().tolist() == [False, True, True]


def test_halves_overflow_to_infinity() -> None:
    assert Tensor([65519.0, 65520.0]).half().tolist() == [65504.0, math.inf]


@pytest.mark.parametrize("width", [1, 2, 4])
def test_integers_come_back_from_the_bytes(width: int) -> None:
    low, high = -(1 << (width - 1)), 1 << (width - 1)
    values = np.random.default_rng(0).integers(low, high, (3, 5, 16))
    packed = Tensor(values).pack_bits(width)
    assert packed.shape == (3, 5, 16 * width // 8)
    assert packed.dtype.name == "uint8"
    np.testing.assert_array_equal(packed.unpack_bits(width).numpy(), values)
    plain = packed.unpack_bits(width, signed=False).numpy()
    np.testing.assert_array_equal(plain, values & ((1 << width) - 1))


def test_bits_are_packed_as_numpy_packs_them() -> None:
    bits = np.random.default_rng(1).integers(0, 2, (4, 24)).astype(np.uint8)
    wanted = np.packbits(bits, axis=-1, bitorder="little")
    np.testing.assert_array_equal(Tensor(bits).pack_bits(1).numpy(), wanted)


def test_packed_weights_are_read_inside_the_product() -> None:
    generator = np.random.default_rng(2)
    weight = generator.integers(-8, 8, (6, 8))
    x = generator.standard_normal((3, 8)).astype(np.float32)
    packed = Tensor(weight).pack_bits().realize()
    values = Tensor(x).realize()
    before = GlobalCounters.kernel_count
    found = values @ (packed.unpack_bits().cast("float32") * 0.5).T
    found.realize()
    assert GlobalCounters.kernel_count == before + 1
    np.testing.assert_allclose(found.numpy(), x @ (weight.T * 0.5), rtol=1e-5)


def test_packed_weights_take_an_eighth_of_the_memory() -> None:
    with Context(DEV="NULL"):
        before = GlobalCounters.mem_used
        packed = Tensor.empty(64, 64, dtype="int32").pack_bits().realize()
        assert GlobalCounters.mem_used - before == packed.numel() == 64 * 32


def test_what_does_not_fit_into_bytes_is_refused() -> None:
    with pytest.raises(ShapeError, match="a last axis that is a multiple of 2"):
        Tensor([1, 2, 3]).pack_bits()
    with pytest.raises(DTypeError, match="a tensor of float32"):
        Tensor([1.0, 2.0]).pack_bits()
    with pytest.raises(ArgumentError, match="width=3"):
        Tensor([1, 2]).pack_bits(3)
    with pytest.raises(DTypeError, match="Give the bytes"):
        Tensor([1, 2]).unpack_bits()


def test_bitcast_keeps_the_bits() -> None:
    assert Tensor([1.0]).bitcast(dtypes.uint32).tolist() == [0x3F800000]


@pytest.mark.parametrize("source", ["uint8", "int16", "float32", "float64", "uint64"])
@pytest.mark.parametrize("wanted", ["int8", "float16", "int32", "int64", "float64"])
def test_bitcast_to_another_width_changes_the_last_axis(source: str, wanted: str) -> None:
    x = np.arange(1, 49, dtype=np.float64).reshape(2, 3, 8).astype(source)
    found = Tensor(x).bitcast(wanted).numpy()
    want = x.view(wanted)
    assert (found.shape, found.dtype, found.tobytes()) == (want.shape, want.dtype, want.tobytes())


def test_bitcast_needs_whole_elements() -> None:
    with pytest.raises(DTypeError, match="divides 12 bytes of a last axis"):
        Tensor([1, 2, 3]).bitcast(dtypes.float64)
    with pytest.raises(DTypeError, match="last axis"):
        Tensor(1.0).bitcast(dtypes.uint8)
