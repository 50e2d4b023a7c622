"""Products of matrices and tensors: a broadcast multiplication, then one sum.

In:  tensors.
Out: `LinearAlgebra`: matmul and its relatives, einsum, tensordot.

16-bit floats multiply and add up in float32 and are rounded once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Self

from kernelet.base.dtype import DType, promote
from kernelet.base.errors import ArgumentError, ShapeError
from kernelet.frontend.cumulative import Cumulative
from kernelet.frontend.elementwise import reversed_operator
from kernelet.frontend.movement import tensor_list
from kernelet.frontend.primitives import (
    DTypeLike,
    as_dtype,
    broadcast_shape,
    product,
    show_dim,
    show_shape,
)
from kernelet.frontend.reduction import accumulator_dtype, sum_dtype
from kernelet.graph.infer import Dim, Shape
from kernelet.graph.ops import Op

Label = str | int


@dataclass(frozen=True, slots=True)
class Equation:
    """The labels of each input's axes and of the output's; numbers are axes under an ellipsis."""

    inputs: tuple[tuple[Label, ...], ...]
    output: tuple[Label, ...]


class LinearAlgebra(Cumulative):
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
        wanted = as_dtype(dtype, promote(left.dtype, right.dtype))
        return left._multiplied(right, wanted).cast(wanted)

    def _multiplied(self, other: Self, dtype: DType) -> Self:
        """The matrix product in the type that sums of `dtype` are kept in."""
        wide = accumulator_dtype(sum_dtype(dtype))
        row, column = self.cast(wide), other.cast(wide)
        *above, depth = row.shape
        if column.ndim == 1:
            return (row * column)._fold(Op.ADD, (self.ndim - 1,), False)
        *batch, _, width = column.shape
        last = column.ndim - 1
        column = column._permute((*range(last - 1), last, last - 1))
        if self.ndim == 1:
            return (row * column)._fold(Op.ADD, (last,), False)
        row = row._reshape((*above, 1, depth))
        column = column._reshape((*batch, 1, width, depth))
        terms = row * column  # (*batch, rows, columns, depth)
        return terms._fold(Op.ADD, (terms.ndim - 1,), False)

    def dot(self, other: Self, dtype: DTypeLike = None) -> Self:
        """The same as `matmul`."""
        return self.matmul(other, dtype=dtype)

    __matmul__, __rmatmul__ = matmul, reversed_operator(matmul)

    def mm(self, other: Self) -> Self:
        """The product of two matrices; PyTorch's name."""
        _check_ndim("mm", self, 2)
        _check_ndim("mm", other, 2)
        return self.matmul(other)

    def bmm(self, other: Self) -> Self:
        """The products of two lists of matrices; PyTorch's name."""
        _check_ndim("bmm", self, 3)
        _check_ndim("bmm", other, 3)
        return self.matmul(other)

    def mv(self, vector: Self) -> Self:
        """A matrix times a vector; PyTorch's name."""
        _check_ndim("mv", self, 2)
        _check_ndim("mv", vector, 1)
        return self.matmul(vector)

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
        if weight.ndim == 1:
            result = self * weight
            return result if bias is None else result + bias
        if bias is None:
            return self.matmul(weight)
        _check_matmul(self, weight)
        kind = promote(promote(self.dtype, weight.dtype), bias.dtype)
        return (self._multiplied(weight, kind) + bias).cast(kind)

    def outer(self, other: Self) -> Self:
        """Each element times each of `other`; ``numpy.outer(x, other)``."""
        column = self._reshape((product(self.shape), 1))
        return column * other._reshape((1, product(other.shape)))

    def inner(self, other: Self) -> Self:
        """The sum over the last axes of both; ``numpy.inner(x, other)``."""
        if self.ndim == 0 or other.ndim == 0:
            return self * other
        return self.tensordot(other, ((self.ndim - 1,), (other.ndim - 1,)))

    def trace(self) -> Self:
        """The sum of the main diagonal; ``numpy.trace(x)``."""
        if self.ndim < 2:
            raise ShapeError(
                f"trace: the tensor has shape {show_shape(self.shape)}. Give it two axes."
            )
        return self.diagonal().sum(-1)

    def tensordot(self, other: Self, dims: int | tuple[Sequence[int], Sequence[int]] = 2) -> Self:
        """The sum over pairs of axes; ``numpy.tensordot(x, other, dims)``."""
        if isinstance(dims, int):
            left, right = tuple(range(self.ndim - dims, self.ndim)), tuple(range(dims))
        else:
            left = tuple(self.axis(each) for each in dims[0])
            right = tuple(other.axis(each) for each in dims[1])
        sizes = [self.shape[each] for each in left], [other.shape[each] for each in right]
        if sizes[0] != sizes[1]:
            raise ShapeError(
                f"tensordot: axes {left} of {show_shape(self.shape)} have sizes "
                f"{show_shape(sizes[0])}, axes {right} of {show_shape(other.shape)} have "
                f"{show_shape(sizes[1])}. Pair axes of equal size."
            )
        labels: list[Label] = list(range(self.ndim))
        paired: dict[int, Label] = dict(zip(right, left, strict=True))
        others: list[Label] = [paired.get(each, self.ndim + each) for each in range(other.ndim)]
        output = [each for each in (*labels, *others) if each not in left]
        equation = Equation((tuple(labels), tuple(others)), tuple(output))
        return self._contract(equation, (self, other), None)

    # ---- einsum ----

    @classmethod
    def einsum(
        cls, formula: str, *operands: Self | Sequence[Self], dtype: DTypeLike = None
    ) -> Self:
        """Products and sums written with a letter for each axis; ``numpy.einsum``.

        Letters may repeat inside an operand (the diagonal), ``...`` stands for any other axes,
        and without ``->`` the letters that occur once are kept in alphabetical order.
        """
        tensors = tensor_list(operands)
        shapes = [tensor.shape for tensor in tensors]
        return cls._contract(parse_equation(formula, shapes), tensors, dtype)

    @classmethod
    def _contract(cls, equation: Equation, tensors: Sequence[Self], dtype: DTypeLike) -> Self:
        """Multiply from left to right; sum over a label once no later operand has it."""
        wanted = as_dtype(dtype, reduce(promote, [tensor.dtype for tensor in tensors]))
        wide = accumulator_dtype(sum_dtype(wanted))
        total: Self | None = None
        held: tuple[Label, ...] = ()
        for place, (labels, tensor) in enumerate(zip(equation.inputs, tensors, strict=True)):
            kept, single = tensor.cast(wide)._without_repeats(labels)
            later = {label for labels in equation.inputs[place + 1 :] for label in labels}
            needed = later | set(equation.output)
            if total is None:
                total, held = single, kept
            else:
                every = (*held, *(label for label in kept if label not in held))
                total = total._labelled(held, every) * single._labelled(kept, every)
                held = every
            done = tuple(axis for axis, label in enumerate(held) if label not in needed)
            total = total._fold(Op.ADD, done, False)
            held = tuple(label for label in held if label in needed)
        assert total is not None
        order = tuple(held.index(label) for label in equation.output)
        return total._permute(order).cast(wanted)

    def _without_repeats(self, labels: tuple[Label, ...]) -> tuple[tuple[Label, ...], Self]:
        """The diagonals of axes with equal labels, so that each label is there once."""
        result, left = self, list(labels)
        for label in dict.fromkeys(labels):
            while left.count(label) > 1:
                first = left.index(label)
                second = left.index(label, first + 1)
                result = result.diagonal(0, first, second)
                left = [*(each for at, each in enumerate(left) if at not in (first, second)), label]
        return tuple(left), result

    def _labelled(self, labels: tuple[Label, ...], every: tuple[Label, ...]) -> Self:
        """The axes in the order of `every`, size 1 where this tensor has no such label."""
        order = tuple(labels.index(label) for label in every if label in labels)
        moved = self._permute(order)
        sizes = iter(moved.shape)
        return moved._reshape(tuple(next(sizes) if label in labels else 1 for label in every))


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
    broadcast_shape(left.shape[:-2], right.shape[:-2], name=f"matmul of {shapes}")


def _check_ndim(call: str, tensor: LinearAlgebra, ndim: int) -> None:
    if tensor.ndim != ndim:
        raise ShapeError(
            f"{call}: an operand has shape {show_shape(tensor.shape)} and must have {ndim} axes. "
            "Use matmul, which takes any number of axes."
        )


# ---- the language of einsum: a label for each axis ----


def parse_equation(formula: str, shapes: Sequence[Shape]) -> Equation:
    """The labels in `formula`, checked against the operands' shapes.

    >>> parse_equation("ij,jk", [(2, 3), (3, 4)]).output
    ('i', 'k')
    >>> parse_equation("...i->i...", [(5, 6, 7)])
    Equation(inputs=((-2, -1, 'i'),), output=('i', -2, -1))
    """
    left, arrow, right = formula.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise ArgumentError(
            f"einsum {formula!r}: the formula has {len(terms)} operands and {len(shapes)} are "
            "given. Give one tensor for each part between commas."
        )
    inputs = tuple(_labels(formula, term, shape) for term, shape in zip(terms, shapes, strict=True))
    widest = max((sum(isinstance(each, int) for each in labels) for labels in inputs), default=0)
    hidden: tuple[Label, ...] = tuple(range(-widest, 0))
    if arrow:
        before, ellipsis, after = _parts(formula, right)
        output: tuple[Label, ...] = (*before, *(hidden if ellipsis else ()), *after)
    else:
        counts = Counter(label for labels in inputs for label in labels if isinstance(label, str))
        output = (*hidden, *sorted(label for label, count in counts.items() if count == 1))
    known = {label for labels in inputs for label in labels}
    for label in output:
        if label not in known or output.count(label) > 1:
            raise ArgumentError(
                f"einsum {formula!r}: the output has {label!r} "
                f"{'twice' if label in known else 'and no input has it'}. "
                "Use each letter of the inputs at most once."
            )
    _check_sizes(formula, inputs, shapes)
    return Equation(inputs, output)


def _labels(formula: str, term: str, shape: Shape) -> tuple[Label, ...]:
    """A label for each axis; those under the ellipsis count from the last, -1, back."""
    before, ellipsis, after = _parts(formula, term)
    spare = len(shape) - len(before) - len(after)
    if spare < 0 or (spare > 0 and not ellipsis):
        raise ShapeError(
            f"einsum {formula!r}: {term!r} names {len(shape) - spare} axes and the operand has shape "
            f"{show_shape(shape)}. Give a letter for each axis, or '...' for the others."
        )
    return (*before, *range(-spare, 0), *after)


def _parts(formula: str, term: str) -> tuple[str, str, str]:
    """The letters before the ellipsis, the ellipsis, and those after it."""
    before, ellipsis, after = term.partition("...")
    if not (before + after).isalpha() and before + after:
        raise ArgumentError(
            f"einsum {formula!r}: {term!r} is not made of letters and at most one '...'. "
            "Use a letter for each axis."
        )
    return before, ellipsis, after


def _check_sizes(
    formula: str, inputs: Sequence[tuple[Label, ...]], shapes: Sequence[Shape]
) -> None:
    sizes: dict[Label, Dim] = {}
    for labels, shape in zip(inputs, shapes, strict=True):
        for label, size in zip(labels, shape, strict=True):
            known = sizes.get(label, 1)
            if known != 1 and size not in (1, known):
                listed = " with ".join(show_shape(each) for each in shapes)
                name = "an axis under '...'" if isinstance(label, int) else repr(label)
                raise ShapeError(
                    f"einsum {formula!r} of {listed}: {name} has sizes {show_dim(known)} and "
                    f"{show_dim(size)}. An axis has one size, or 1 to be repeated."
                )
            sizes[label] = size if known == 1 else known
