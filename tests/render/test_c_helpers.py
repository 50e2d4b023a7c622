"""The prelude of a C kernel."""

from __future__ import annotations

from kernelet.base.dtype import dtypes
from kernelet.render.c_helpers import Prelude, mask_dtype


def test_a_vector_type_is_aligned_like_its_element() -> None:
    prelude = Prelude()
    assert prelude.type(dtypes.float32.vec(16)) == "float32x16"
    assert "vector_size(64), aligned(4), may_alias" in prelude.text()


def test_each_helper_is_written_once_and_after_what_it_calls() -> None:
    prelude = Prelude()
    vector = dtypes.float32.vec(4)
    assert prelude.maximum(vector) == prelude.maximum(vector)
    text = prelude.text()
    assert text.count("INLINE float32x4 max_float32x4(") == 1
    assert text.index("select_float32x4(") < text.index("max_float32x4(")


def test_a_prelude_is_empty_until_something_is_asked_for() -> None:
    prelude = Prelude()
    assert prelude.type(dtypes.float32) == "float"
    assert prelude.text() == ""


def test_lines_of_the_prelude_fit_a_page() -> None:
    prelude = Prelude()
    prelude.float_function("fma", dtypes.float32.vec(32))
    assert max(map(len, prelude.text().splitlines())) <= 100


def test_a_mask_is_as_wide_as_the_lanes_it_selects() -> None:
    assert mask_dtype(dtypes.float64.vec(8)) is dtypes.int64.vec(8)
    assert mask_dtype(dtypes.uint8.vec(8)) is dtypes.int8.vec(8)
