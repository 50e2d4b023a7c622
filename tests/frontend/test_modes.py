"""Settings that hold for all tensors."""

from __future__ import annotations

import pytest

from kernelet import Tensor
from kernelet.base.dtype import DType, dtypes
from kernelet.base.errors import DTypeError
from kernelet.frontend.modes import gradients_on


def test_no_grad_may_be_entered_again_before_it_is_left() -> None:
    guard = Tensor.no_grad()
    with guard, guard:
        assert not gradients_on.get()
    assert gradients_on.get()


@pytest.mark.parametrize("dtype", [dtypes.float64, dtypes.float16, dtypes.bfloat16], ids=str)
def test_floats_have_the_default_type_where_none_is_named(dtype: DType) -> None:
    made = {
        "numbers": lambda: Tensor([1.0, 2.0]),
        "zeros": lambda: Tensor.zeros(2),
        "eye": lambda: Tensor.eye(2),
        "linspace": lambda: Tensor.linspace(0, 1, 3),
        "arange": lambda: Tensor.arange(0, 1, 0.5),
        "rand": lambda: Tensor.rand(2),
        "normal": lambda: Tensor.normal(2),
        "kaiming": lambda: Tensor.kaiming_uniform(2, 2),
        "mean": lambda: Tensor([1, 2]).mean(),
        "quotient": lambda: Tensor([1, 2]) / 2,
        "exp": lambda: Tensor([1, 2]).exp(),
        "sum": lambda: Tensor([1, 2]) + 0.5,
    }
    try:
        Tensor.default_dtype = dtype
        assert {name: make().dtype for name, make in made.items()} == dict.fromkeys(made, dtype)
        assert Tensor([1.0], dtype=dtypes.float32).dtype is dtypes.float32
    finally:
        Tensor.default_dtype = dtypes.float32
    with pytest.raises(DTypeError, match="int32 has no fractions"):
        Tensor.default_dtype = dtypes.int32
