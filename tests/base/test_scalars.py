"""The Python meaning of ops, and elements in memory."""

import math
import struct

import pytest

from kernelet.base import scalars
from kernelet.base.dtype import dtypes, round_to


@pytest.mark.parametrize("dtype", [*dtypes.all, dtypes.index], ids=lambda dtype: dtype.name)
def test_what_is_stored_is_loaded_again(dtype):
    memory = memoryview(bytearray(3 * dtype.itemsize))
    value = round_to(dtype, 1 if dtype.is_bool else 77)
    scalars.store(dtype.name)(memory, 1, value)
    assert scalars.load(dtype.name)(memory, 1) == value
    assert scalars.load(dtype.name)(memory, 0) == scalars.load(dtype.name)(memory, 2) == 0


@pytest.mark.parametrize("offset", [-1, 2, 100])
@pytest.mark.parametrize("name", ["float32", "bfloat16", "bool"])
def test_an_element_outside_the_memory_is_an_index_error(name, offset):
    memory = memoryview(bytearray(2 * dtypes.from_name(name).itemsize))
    with pytest.raises(IndexError, match="holds 2 elements"):
        scalars.load(name)(memory, offset)
    with pytest.raises(IndexError, match="holds 2 elements"):
        scalars.store(name)(memory, offset, 1)


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("value", [0, -1, 300, 1 << 40, 2.75, -1e30, math.inf, math.nan])
def test_rounding_agrees_with_round_to(dtype, value):
    found, wanted = scalars.NAMESPACE[f"round_{dtype.name}"](value), round_to(dtype, value)
    assert found == wanted or (found != found and wanted != wanted)
    assert type(found) is type(wanted)


def test_bitcast_keeps_the_bits():
    assert (
        scalars.bitcast(1.0, "float32", "int32") == struct.unpack("<i", struct.pack("<f", 1.0))[0]
    )
    assert scalars.bitcast(0x3F80, "uint16", "bfloat16") == 1.0
    assert scalars.bitcast(-1, "int64", "uint64") == (1 << 64) - 1


def test_awkward_arguments_have_a_value():
    assert scalars.exp2(2000.0) == math.inf
    assert scalars.log2(0.0) == -math.inf
    assert math.isnan(scalars.square_root(-1.0))
    assert math.isnan(scalars.sine(math.inf))
    assert scalars.reciprocal(-0.0) == -math.inf
    assert math.isnan(scalars.divide(0.0, 0.0))
    assert scalars.divide(-1.0, 0.0) == -math.inf
    assert math.isnan(scalars.maximum(1.0, math.nan))
    assert math.isnan(scalars.maximum(math.nan, 1.0))
    assert math.copysign(1, scalars.truncate(-0.5)) == -1


def test_integer_division_rounds_as_named():
    assert [scalars.floor_divide(-7, 2), scalars.trunc_divide(-7, 2)] == [-4, -3]
    assert [scalars.floor_modulo(-7, 2), scalars.trunc_modulo(-7, 2)] == [1, -1]
    assert [scalars.floor_divide(7, 0), scalars.floor_modulo(7, 0)] == [0, 0]
    assert [scalars.trunc_divide(7, 0), scalars.trunc_modulo(7, 0)] == [0, 7]


def test_the_namespace_names_every_dtype():
    for dtype in dtypes.all:
        for verb in ("load", "store", "round"):
            assert callable(scalars.NAMESPACE[f"{verb}_{dtype.name}"])
