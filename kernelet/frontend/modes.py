"""What holds for all tensors at a time: training, the default type of floats, whether gradients pass.

In:  what a user sets.
Out: `no_grad`, and the class of the class `Tensor`, which has the other settings as names.
"""

from __future__ import annotations

import contextlib
from abc import ABCMeta
from contextvars import ContextVar, Token

from kernelet.base import config
from kernelet.base.dtype import DType, dtypes
from kernelet.base.errors import DTypeError
from kernelet.frontend.promotion import DTypeLike, as_dtype

gradients_on: ContextVar[bool] = ContextVar("gradients_on", default=True)


class no_grad(contextlib.ContextDecorator):
    """Results made inside are cut off from gradients."""

    def __init__(self) -> None:
        # One object may be entered again before it is left, as a decorated recursion does.
        self._tokens: list[Token[bool]] = []

    def __enter__(self) -> None:
        self._tokens.append(gradients_on.set(False))

    def __exit__(self, *_error: object) -> None:
        gradients_on.reset(self._tokens.pop())


class TensorType(ABCMeta):
    """Gives `Tensor.training` and `Tensor.default_dtype` as settable names."""

    @property
    def training(cls) -> bool:
        """Whether dropout and batch statistics are on."""
        return bool(config.current().training)

    @training.setter
    def training(cls, value: bool) -> None:
        config.update(training=int(value))

    @property
    def default_dtype(cls) -> DType:
        """The type of floats for which none is named; `dtypes.default_float`."""
        return dtypes.default_float

    @default_dtype.setter
    def default_dtype(cls, value: DTypeLike) -> None:
        found = as_dtype(value)
        if not found.is_float:
            raise DTypeError(
                f"default_dtype: {found.name} has no fractions. Use one of "
                f"{', '.join(each.name for each in dtypes.floats)}."
            )
        dtypes.default_float = found
