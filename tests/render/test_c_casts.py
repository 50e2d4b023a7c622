"""Conversions in C; that they are right is checked for all languages in test_renderer.py."""

from __future__ import annotations

from kernelet.base.dtype import dtypes
from kernelet.render.c_casts import bitcast, cast
from kernelet.render.c_helpers import Prelude


def test_integers_are_converted_without_a_helper() -> None:
    prelude = Prelude()
    assert cast(prelude, "x", dtypes.int64, dtypes.int8) == "(signed char)x"
    assert prelude.text() == ""


def test_a_float_becomes_an_integer_through_a_helper_that_saturates() -> None:
    prelude = Prelude()
    assert cast(prelude, "x", dtypes.float32, dtypes.int32) == "float32_to_int32(x)"
    assert "x >= 0x1p+31f ? 2147483647" in prelude.text()


def test_vectors_are_converted_at_once() -> None:
    text = cast(Prelude(), "x", dtypes.int32.vec(8), dtypes.float32.vec(8))
    assert text == "__builtin_convertvector(x, float32x8)"


def test_bits_of_equal_registers_need_no_text() -> None:
    assert bitcast(Prelude(), "x", dtypes.float16, dtypes.uint16) == "x"
    assert bitcast(Prelude(), "x", dtypes.float32.vec(4), dtypes.int32.vec(4)) == "(int32x4)x"
