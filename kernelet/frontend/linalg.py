"""Products of matrices and tensors: a broadcast multiplication, then one sum.

In:  tensors.
Out: `LinearAlgebra`: matmul and its relatives, tensordot.

16-bit floats multiply and add up in float32 and are rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from kernelet.base.dtype import DType
from kernelet.base.errors import ShapeError
from kernelet.frontend.arguments import Size
from kernelet.frontend.elementwise import reversed_operator
from kernelet.frontend.labels import Label, Labels
from kernelet.frontend.primitives import broadcast_shape, product, show_dim, show_shape
from kernelet.frontend.promotion import DTypeLike, accumulator_dtype, as_dtype, sum_dtype
from kernelet.graph.ops import Op


class LinearAlgebra(Labels):
    """Products that sum over a shared axis."""

    __slots__ = ()

    # ---- matrix products ----

    def matmul(self, other: Self, reverse: bool = False, dtype: DTypeLike = None) -> Self:
        """``x @ other``: rows times columns, all leading axes broadcast; ``numpy.matmul``.

        A vector is a row on the left and a column on the right, and that axis goes away again.
        """
        given = self._operand(other)
        left, right = (given, self) if reverse else (self, given)
        _check_matmul(left, right)
        wanted = as_dtype(dtype, self._common_dtype(left, right))
        return left._multiplied(right, wanted).cast(wanted)

    def _multiplied(self, other: Self, dtype: DType) -> Self:
        """The matrix product in the type that sums of `dtype` are kept in."""
        wide = accumulator_dtype(sum_dtype(dtype))
        row, column = self.cast(wide), other.cast(wide)
        column = column if column.ndim == 1 else column.mT  # (*batch, columns, depth)
        if row.ndim > 1 and column.ndim > 1:
            row, column = row.unsqueeze(-2), column.unsqueeze(-3)
        terms = row * column  # (*batch, rows, columns, depth)
        return terms._fold(Op.ADD, (terms.ndim - 1,), False)

    def dot(self, other: Self, dtype: DTypeLike = None) -> Self:
        """The same as `matmul`."""
        return self.matmul(other, dtype=dtype)

    __matmul__, __rmatmul__ = matmul, reversed_operator(matmul)

    def mm(self, other: Self) -> Self:
        """The product of two matrices; PyTorch's name."""
        return self._of_ndims(2, other, 2)

    def bmm(self, other: Self) -> Self:
        """The products of two lists of matrices; PyTorch's name."""
        return self._of_ndims(3, other, 3)

    def mv(self, vector: Self) -> Self:
        """A matrix times a vector; PyTorch's name."""
        return self._of_ndims(2, vector, 1)

    def _of_ndims(self, left: int, other: Self, right: int) -> Self:
        """`matmul` of operands that must have so many axes."""
        self._need_ndim(left, left)
        other._need_ndim(right, right)
        return self.matmul(other)

    def addmm(self, left: Self, right: Self, *, beta: float = 1, alpha: float = 1) -> Self:
        """``beta * x + alpha * (left @ right)``."""
        scaled = left.matmul(right)
        scaled = scaled if alpha == 1 else scaled * alpha
        return scaled + (self if beta == 1 else self * beta)

    baddbmm = addmm

    def linear(self, weight: Self, bias: Self | None = None, dtype: DTypeLike = None) -> Self:
        """``x @ weight + bias``; a vector `weight` scales instead. `weight` is (in, out)."""
        if dtype is not None:
            cast_bias = None if bias is None else bias.cast(dtype)
            return self.cast(dtype).linear(weight.cast(dtype), cast_bias)
        if bias is None or weight.ndim == 1:
            result = self * weight if weight.ndim == 1 else self.matmul(weight)
            return result if bias is None else result + bias
        _check_matmul(self, weight)
        kind = self._common_dtype(self, weight, bias)
        return (self._multiplied(weight, kind) + bias).cast(kind)

    def outer(self, other: Self) -> Self:
        """Each element times each of `other`; ``numpy.outer(x, other)``."""
        return self.flatten().unsqueeze(1) * other.flatten()

    def kron(self, other: Self) -> Self:
        """Each element times all of `other`, side by side; ``numpy.kron(x, other)``."""
        ndim = max(self.ndim, other.ndim)
        sizes = [(*(1,) * (ndim - each.ndim), *each.shape) for each in (self, other)]
        pairs = list(zip(*sizes, strict=True))
        blocks = self._reshape(tuple(side for size, _ in pairs for side in (size, 1)))
        cells = other._reshape(tuple(side for _, size in pairs for side in (1, size)))
        return (blocks * cells).reshape([product(pair) for pair in pairs])

    def inner(self, other: Self) -> Self:
        """The sum over the last axes of both; ``numpy.inner(x, other)``."""
        if self.ndim == 0 or other.ndim == 0:
            return self * other
        return self.tensordot(other, ((self.ndim - 1,), (other.ndim - 1,)))

    def trace(self) -> Self:
        """The sum of the main diagonal; ``numpy.trace(x)``."""
        self._need_ndim(2)
        return self.diagonal().sum(-1)

    def tensordot(self, other: Self, dims: Size | tuple[Sequence[int], Sequence[int]] = 2) -> Self:
        """The sum over pairs of axes; ``numpy.tensordot(x, other, dims)``."""
        for each in (self, other):
            each._need_ndim(dims if isinstance(dims, int) else len(dims[0]))
        if isinstance(dims, int):
            left, right = tuple(range(self.ndim - dims, self.ndim)), tuple(range(dims))
        else:
            left = tuple(self.axis(each) for each in dims[0])
            right = tuple(other.axis(each) for each in dims[1])
        sizes = [self.shape[each] for each in left], [other.shape[each] for each in right]
        found, wanted = map(show_shape, sizes)
        other._need(found == wanted, f"axes {right} of sizes {found}, not {wanted}, to pair")
        labels: tuple[Label, ...] = tuple(range(self.ndim))
        paired: dict[int, Label] = dict(zip(right, left, strict=True))
        others = tuple([paired.get(each, self.ndim + each) for each in range(other.ndim)])
        output = tuple([each for each in (*labels, *others) if each not in left])
        return self._contract((self, other), (labels, others), output, None)


def _check_matmul(left: LinearAlgebra, right: LinearAlgebra) -> None:
    """ShapeError unless `left` @ `right` exists."""
    shapes = f"{show_shape(left.shape)} with {show_shape(right.shape)}"
    if left.ndim == 0 or right.ndim == 0:
        raise ShapeError(
            f"matmul: cannot multiply {shapes}: one of them has no axis. "
            "Use * to multiply with a single number."
        )
    inner, outer = left.shape[-1], right.shape[max(right.ndim - 2, 0)]
    if inner != outer:
        raise ShapeError(
            f"matmul: cannot multiply {shapes}: the rows of the left have {show_dim(inner)} "
            f"elements, the columns of the right {show_dim(outer)}. "
            "Make them equal, or transpose one of the two."
        )
    broadcast_shape(left.shape[:-2], right.shape[:-2], of=f" of {shapes}")
