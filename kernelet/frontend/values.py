"""What a tensor tells of itself: sizes, and its values as Python knows them.

In:  tensors.
Out: numbers and lists; asking for values computes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from kernelet.base.dtype import Scalar
from kernelet.base.errors import ArgumentError
from kernelet.frontend import host
from kernelet.frontend.host import known_shape
from kernelet.frontend.interchange import Interchange
from kernelet.frontend.primitives import product
from kernelet.graph.infer import Dim, Shape


class Values(Interchange):
    """shape questions, tolist, item and the conversions that Python calls."""

    __slots__ = ()

    # ---- sizes ----

    def size(self, dim: int | None = None) -> Shape | Dim:
        """The shape, or the size of one axis."""
        return self.shape if dim is None else self.shape[self.axis(dim)]

    def dim(self) -> int:
        """The number of axes."""
        return self.ndim

    def numel(self) -> Dim:
        """The number of elements."""
        return product(self.shape)

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def nbytes(self) -> Dim:
        """Bytes of all elements."""
        return self.numel() * self.dtype.itemsize

    def is_floating_point(self) -> bool:
        """Whether the elements are floats."""
        return self.dtype.is_float

    def __len__(self) -> int:
        self._need(self.ndim, "a tensor that has axes, or use item()")
        return known_shape(self.shape)[0]

    def __iter__(self) -> Iterator[Self]:
        self._need(self.ndim, "a tensor that has axes, or use item()")
        return iter([self[at] for at in range(len(self))])

    # ---- values ----

    def tolist(self) -> host.Nested:
        """The values as nested Python lists; a number for shape ()."""
        return host.nest(host.unpack(self.data(), self.dtype), known_shape(self.shape))

    def item(self) -> Scalar:
        """The one value as a Python number."""
        self._need(product(known_shape(self.shape)) == 1, "one element; tolist() takes many")
        return host.unpack(self.data(), self.dtype)[0]

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        value = self.item()
        if isinstance(value, float):
            raise ArgumentError(f"index: {self.dtype.name} is no index. Cast to an integer type.")
        return int(value)
