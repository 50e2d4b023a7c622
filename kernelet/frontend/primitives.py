"""The few operations that every tensor method is built from.

In:  graph nodes.
Out: `Primitives`, the base of every topic class: one method for each kind of graph node, plus
     broadcasting and type promotion.

A topic class (`Elementwise`, `Movement`, `Reduction`, ...) is abstract, has no fields and empty
`__slots__`, and returns `Self`, so that `Tensor`, the one final class, can inherit them all.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import reduce
from typing import Self

from kernelet.base.dtype import DType, Scalar, dtypes, promote, round_to
from kernelet.base.errors import ArgumentError, IndexingError, ShapeError, UserError
from kernelet.frontend import promotion
from kernelet.frontend.arguments import Checked, listed
from kernelet.frontend.promotion import DTypeLike
from kernelet.graph.infer import Dim, Shape
from kernelet.graph.movement import product_of
from kernelet.graph.ops import Op
from kernelet.graph.uop import ReduceArg, UOp

DeviceLike = str | Sequence[str] | None
Axes = int | Sequence[int] | None


def product(dims: Sequence[Dim]) -> Dim:
    """The number of elements in a box with these sides."""
    return product_of(tuple(dims))


def show_shape(shape: Sequence[Dim]) -> str:
    """A shape as it is written in messages.

    >>> show_shape((2, 3))
    '(2, 3)'
    """
    names = [str(dim) if isinstance(dim, int) else show_dim(dim) for dim in shape]
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"


def show_dim(dim: Dim) -> str:
    """A size as it is written in messages: a bound variable shows its name and value."""
    if isinstance(dim, int):
        return str(dim)
    if dim.op is Op.BIND:
        return f"{dim.src[0].arg.name}={dim.src[1].arg}"
    return f"at most {dim.bounds.max}"


def known(dim: Dim) -> int:
    """The size as a number; ShapeError when it is a bound variable.

    >>> known(3)
    3
    """
    if isinstance(dim, int):
        return dim
    raise ShapeError(
        f"an axis of size {show_dim(dim)}, which is a bound variable. Use an axis whose size is a "
        "number."
    )


def broadcast_shape(*shapes: Shape, of: str = "") -> Shape:
    """The shape that all of `shapes` expand to; ShapeError when there is none: parts `of` what.

    >>> broadcast_shape((3, 1), (4,))
    (3, 4)
    """
    ndim = max(len(shape) for shape in shapes)
    result: list[Dim] = []
    for axis in range(ndim):
        found: Dim = 1
        for shape in shapes:
            place = axis - (ndim - len(shape))
            if place < 0 or shape[place] == 1:
                continue
            if found == 1:
                found = shape[place]
            elif found != shape[place]:
                listed = " with ".join(show_shape(each) for each in shapes)
                sizes = f"{show_dim(found)} and {show_dim(shape[place])}"
                raise ShapeError(
                    f"cannot broadcast {listed}{of}: axis {axis} is {sizes}. "
                    "Sizes must be equal or 1; reshape or expand one of them."
                )
        result.append(found)
    return tuple(result)


class Primitives(Checked, ABC):
    """One method for each kind of graph node; `uop` is the node that the tensor stands for."""

    __slots__ = ()
    uop: UOp

    # ---- what Tensor supplies ----

    @classmethod
    @abstractmethod
    def _wrap(cls, uop: UOp) -> Self:
        """The tensor for a computed node."""

    @classmethod
    @abstractmethod
    def _create(cls, uop: UOp, device: DeviceLike, requires_grad: bool | None) -> Self:
        """The tensor for a node that a creation function made: a leaf of its own."""

    @classmethod
    @abstractmethod
    def _from_data(cls, data: object, device: DeviceLike = None, dtype: DTypeLike = None) -> Self:
        """The tensor for lists, numpy arrays and numpy numbers."""

    @abstractmethod
    def item(self) -> Scalar:
        """The one value as a Python number."""

    @abstractmethod
    def _in_place(self, result: Self) -> Self:
        """Write `result` into this tensor; returns it."""

    @abstractmethod
    def _wrap_view(self, uop: UOp) -> Self:
        """The tensor for a movement of this one, which remembers what it is a view of."""

    # ---- facts ----

    @property
    def shape(self) -> Shape:
        """The sizes of the axes; a size that is not known yet is a bound variable."""
        return self.uop.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.uop.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.uop.shape)

    def axis(self, place: object, extra: object = False) -> int:
        """The axis `place` counted from the front; IndexingError when there is no such axis.

        With `extra` one more is about to be added.
        """
        count = self.ndim + bool(extra)
        # A scalar has one imaginary axis, as in PyTorch.
        limit = max(count, 1)
        is_one = getattr(place, "shape", ()) == ()
        axis = operator.index(place) if hasattr(place, "__index__") and is_one else place
        if not isinstance(axis, int) or not -limit <= axis < limit:
            raise IndexingError(
                f"axis {axis!r}: the tensor has shape {show_shape(self.shape)}. "
                f"Use an axis from {-limit} to {limit - 1}."
            )
        return axis + limit if axis < 0 else axis

    def axes(self, places: Axes) -> tuple[int, ...]:
        """Several axes counted from the front, in rising order; None is all of them."""
        if places is None:
            return tuple(range(self.ndim))
        found = tuple(sorted(self.axis(each) for each in listed(places)))
        if len(set(found)) != len(found):
            raise IndexingError(f"axes {places}: an axis is named twice. Name each axis once.")
        return () if self.ndim == 0 else found

    def _need(self, fits: object, wanted: str, error: type[UserError] = ShapeError) -> None:
        """An error of that kind unless `fits`: what this tensor is, and what is wanted."""
        if not fits:
            shape = show_shape(self.shape)
            raise error(f"shape {shape}: a tensor of {self.dtype.name}. Give {wanted}.")

    def _need_ndim(self, least: int, most: int | None = None) -> None:
        limit = "or more" if most is None else f"to {most}"
        self._need(least <= self.ndim <= (most or self.ndim), f"a tensor of {least} {limit} axes")

    @staticmethod
    def _common_dtype(*tensors: Primitives | None) -> DType:
        """The type that these are promoted to together."""
        return reduce(promote, [tensor.dtype for tensor in tensors if tensor is not None])

    # ---- elementwise nodes ----

    def _alu(self, op: Op, *others: Self) -> Self:
        """An elementwise node; the operands have equal shapes and types already."""
        return self._wrap(self.uop.alu(op, *(other.uop for other in others)))

    def _known_as(self, name: str, argument: Self) -> Self:
        """This value, known to be the function `name` of `argument`, whose derivative is simple."""
        return self._wrap(UOp(Op.FUNCTION, self.dtype, (self.uop, argument.uop), name))

    def _constant(self, value: Scalar, dtype: DType | None = None) -> Self:
        """`value` as this tensor's type (or `dtype`), repeated over this tensor's shape."""
        return self._full(value, self.shape, dtype or self.dtype)

    @classmethod
    def _full(cls, value: Scalar, shape: Shape, dtype: DType) -> Self:
        """`value` repeated over `shape`."""
        node = UOp.const(round_to(dtype, value), dtype)
        return cls._wrap(node.broadcast_to(shape) if shape else node)

    def cast(self, dtype: DTypeLike) -> Self:
        """The values converted to `dtype`; ``x.astype(dtype)`` in numpy."""
        wanted = promotion.as_dtype(dtype)
        return self if wanted is self.dtype else self._wrap(self.uop.cast(wanted))

    # ---- movement nodes: the arguments are checked already ----

    def _move(self, op: Op, arg: object) -> Self:
        return self._wrap_view(UOp(op, self.dtype, (self.uop,), arg))

    def _reshape(self, shape: Shape) -> Self:
        return self if shape == self.shape else self._move(Op.RESHAPE, shape)

    def _permute(self, order: tuple[int, ...]) -> Self:
        return self if order == tuple(range(self.ndim)) else self._move(Op.PERMUTE, order)

    def _expand(self, shape: Shape) -> Self:
        return self if shape == self.shape else self._move(Op.EXPAND, shape)

    def _pad(self, pads: tuple[tuple[Dim, Dim], ...]) -> Self:
        """Zeros before and after each axis."""
        if all(pad == (0, 0) for pad in pads):
            return self
        return self._move(Op.PAD, pads)

    def _shrink(self, bounds: tuple[tuple[Dim, Dim], ...]) -> Self:
        """The elements from begin up to end of each axis."""
        whole = tuple((0, dim) for dim in self.shape)
        return self if bounds == whole else self._move(Op.SHRINK, bounds)

    def _flip(self, axes: tuple[int, ...]) -> Self:
        return self._move(Op.FLIP, axes) if axes else self

    def _broadcast_to(self, shape: Shape) -> Self:
        """Expanded to `shape`, with new axes in front; the shapes fit already."""
        missing = len(shape) - self.ndim
        return self._reshape((*(1,) * missing, *self.shape))._expand(shape)

    def _fitted(self, shape: Shape) -> Self:
        """Broadcast to `shape`, where axes of size 1 in front may go; ShapeError if it has more."""
        more = max(self.ndim - len(shape), 0)
        can_go = self.shape[:more] == (1,) * more
        given = self._reshape(self.shape[more:]) if can_go else self
        if given.ndim > len(shape) or broadcast_shape(given.shape, shape) != shape:
            raise ShapeError(
                f"a value of shape {show_shape(self.shape)} does not fit "
                f"{show_shape(shape)}. Give a shape that broadcasts to it."
            )
        return given._broadcast_to(shape)

    # ---- the other nodes ----

    def _reduce(self, op: Op, axes: Sequence[int]) -> Self:
        """ADD, MUL or MAX over `axes`, which keep size 1, in this tensor's own type."""
        if not axes:  # another tensor: what is written to it later does not change this one
            return self._wrap(self.uop)
        arg = ReduceArg(op, tuple(sorted(axes)))
        return self._wrap(UOp(Op.REDUCE, self.dtype, (self.uop,), arg))

    @classmethod
    def _arange(cls, size: Dim, dtype: DType = dtypes.default_int) -> Self:
        """0, 1, 2, ... along one axis."""
        return cls._wrap(UOp(Op.ARANGE, dtypes.default_int, (), (size,))).cast(dtype)

    def _positions(self, axis: int) -> Self:
        """The index along `axis`, which broadcasts against this tensor."""
        size = self.shape[axis]
        return self._arange(size)._reshape((size, *(1,) * (self.ndim - 1 - axis)))

    def contiguous(self) -> Self:
        """The same values in memory of their own, in row-major order."""
        if self.uop.op in (Op.BUFFER, Op.CONTIGUOUS):
            return self
        return self._wrap(UOp(Op.CONTIGUOUS, self.dtype, (self.uop,)))

    def detach(self) -> Self:
        """The same values; no gradient passes."""
        return self._wrap_view(UOp(Op.DETACH, self.dtype, (self.uop,)))

    # ---- broadcasting and promotion ----

    def _operand(self, value: object, dtype: DType | None = None) -> Self:
        """A tensor as it is, a number as a constant of shape () that fits this tensor's type."""
        if isinstance(value, Primitives):
            return value  # type: ignore[return-value]
        if isinstance(value, UOp):
            return self._wrap(value.cast(dtype or dtypes.default_int))
        if hasattr(value, "__array__"):
            # A numpy number is no more than a Python number: it does not promote.
            if getattr(value, "shape", None) != () or not hasattr(value, "item"):
                return self._from_data(value, self.uop.device)
            value = value.item()
        if not promotion.is_scalar(value):
            raise ArgumentError(
                f"an operand of type {type(value).__name__}: only tensors, numbers and numpy "
                "arrays combine with tensors. Wrap it in Tensor(...)."
            )
        return self._full(value, (), dtype or promotion.promote_scalar(self.dtype, value))

    def _matched(self, other: Self | Scalar) -> tuple[Self, Self]:
        """This and `other` with one shape and one type."""
        right = self._operand(other)
        dtype = promote(self.dtype, right.dtype)
        shape = broadcast_shape(self.shape, right.shape)
        return (self.cast(dtype)._broadcast_to(shape), right.cast(dtype)._broadcast_to(shape))

    def _floating(self) -> Self:
        """This tensor if it has floats, else its values as floats of the default type."""
        return self if self.dtype.is_float else self.cast(dtypes.default_float)

    def _widened(self) -> Self:
        """Floats, of at least 32 bits."""
        return self._floating().cast(promotion.accumulator_dtype(self._floating().dtype))
