"""Shapes of tensors: the same elements in another shape, another order, or repeated.

In:  tensors.
Out: RESHAPE, PERMUTE and EXPAND nodes; nothing is copied.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Self

from kernelet.base.errors import ShapeError
from kernelet.frontend.elementwise import Elementwise
from kernelet.frontend.primitives import product, show_dim, show_shape
from kernelet.graph.division import divide_index, index_of
from kernelet.graph.infer import Dim, Shape
from kernelet.graph.movement import as_dim, multiply_dims, normal_shape
from kernelet.graph.uop import UOp


def flat_shape(arguments: Sequence[Dim | Sequence[Dim]]) -> Shape:
    """A shape given as several sizes or as one sequence of them.

    >>> flat_shape((2, 3)), flat_shape(((2, 3),))
    ((2, 3), (2, 3))
    """
    if len(arguments) == 1 and isinstance(arguments[0], list | tuple):
        arguments = arguments[0]
    return tuple(_plain_size(dim) for dim in arguments)


def _plain_size(dim: Dim | Sequence[Dim]) -> Dim:
    """A numpy number is a size too."""
    if isinstance(dim, int | UOp) or not hasattr(dim, "__index__"):
        return dim  # type: ignore[return-value]
    return operator.index(dim)


class Shaping(Elementwise):
    """reshape, permute, expand, and what follows from them."""

    __slots__ = ()

    # ---- the shape ----

    def reshape(self, *shape: Dim | Sequence[Dim]) -> Self:
        """The same elements in another shape, of which one size may be -1; ``x.reshape(shape)``."""
        wanted = flat_shape(shape)
        unknown = [axis for axis, dim in enumerate(wanted) if isinstance(dim, int) and dim == -1]
        total = product(self.shape)
        if len(unknown) == 1:
            rest = product([dim for axis, dim in enumerate(wanted) if axis != unknown[0]])
            found = _quotient(total, rest)
            if found is not None:
                wanted = (*wanted[: unknown[0]], found, *wanted[unknown[0] + 1 :])
                return self._reshape(normal_shape(wanted))
        bad = unknown or any(isinstance(dim, int) and dim < 0 for dim in wanted)
        wanted = wanted if bad else normal_shape(wanted)
        if bad or product(wanted) != total:
            raise ShapeError(
                f"reshape: cannot turn {show_shape(self.shape)} into {show_shape(wanted)}: there "
                f"are {show_dim(total)} elements. Give sizes whose product is that, at most one "
                "of them -1."
            )
        return self._reshape(wanted)

    def reshape_as(self, other: Self) -> Self:
        """In the shape of `other`."""
        return self.reshape(other.shape)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """The axes `start_dim` to `end_dim` as one."""
        start, end = self.axis(start_dim), self.axis(end_dim)
        shape = self.shape
        return self.reshape((*shape[:start], product(shape[start : end + 1]), *shape[end + 1 :]))

    def unflatten(self, dim: int, sizes: Sequence[Dim]) -> Self:
        """The axis `dim` as several."""
        axis = self.axis(dim)
        known = [size for size in sizes if size != -1]
        filled = [
            size if size != -1 else _quotient(self.shape[axis], product(known)) or 0
            for size in sizes
        ]
        return self.reshape((*self.shape[:axis], *filled, *self.shape[axis + 1 :]))

    def unsqueeze(self, dim: int) -> Self:
        """With a new axis of size 1; ``np.expand_dims(x, dim)``."""
        axis = self.axis(dim, extra=1)
        return self._reshape((*self.shape[:axis], 1, *self.shape[axis:]))

    def squeeze(self, dim: int | Sequence[int] | None = None) -> Self:
        """Without the axes of size 1, all of them or those named; ``np.squeeze``."""
        named = set(self.axes(dim))
        kept = [size for axis, size in enumerate(self.shape) if axis not in named or size != 1]
        return self._reshape(tuple(kept))

    view_as, ravel = reshape_as, flatten

    # ---- the order of the axes ----

    def permute(self, *order: int | Sequence[int]) -> Self:
        """The axes in another order; ``np.transpose(x, order)``."""
        given = flat_shape(order)
        axes = tuple(self.axis(axis) for axis in given)
        if sorted(axes) != list(range(self.ndim)):
            raise ShapeError(
                f"permute: {given} is not an order of the axes of {show_shape(self.shape)}. "
                "Name every axis once."
            )
        return self._permute(axes)

    def transpose(self, dim0: int = 1, dim1: int = 0) -> Self:
        """With two axes exchanged; ``np.swapaxes(x, dim0, dim1)``."""
        first, second = self.axis(dim0), self.axis(dim1)
        order = list(range(self.ndim))
        if order:
            order[first], order[second] = second, first
        return self._permute(tuple(order))

    @property
    def T(self) -> Self:
        """With all axes in reverse order."""
        return self._permute(tuple(reversed(range(self.ndim))))

    @property
    def mT(self) -> Self:
        """With the last two axes exchanged."""
        return self.transpose(-2, -1)

    def movedim(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Self:
        """``np.moveaxis(x, source, destination)``."""
        sources = [source] if isinstance(source, int) else list(source)
        places = [destination] if isinstance(destination, int) else list(destination)
        goal = {
            self.axis(place): self.axis(axis) for axis, place in zip(sources, places, strict=True)
        }
        rest = iter([axis for axis in range(self.ndim) if axis not in goal.values()])
        return self.permute([goal[at] if at in goal else next(rest) for at in range(self.ndim)])

    # ---- repeating ----

    def expand(self, *shape: Dim | Sequence[Dim]) -> Self:
        """Axes of size 1 repeated; -1 keeps a size; ``np.broadcast_to(x, shape)``."""
        wanted = flat_shape(shape)
        missing = len(wanted) - self.ndim
        old: Shape = (*(1,) * missing, *self.shape)
        target = tuple(
            have if isinstance(want, int) and want == -1 else want
            for have, want in zip(old, wanted, strict=False)
        )
        fits = all(have in (1, want) for have, want in zip(old, normal_shape(target), strict=False))
        if missing < 0 or not fits:
            raise ShapeError(
                f"expand: cannot turn {show_shape(self.shape)} into {show_shape(wanted)}. "
                "Only axes of size 1 grow, and new axes come in front."
            )
        return self._broadcast_to(normal_shape(target))

    def expand_as(self, other: Self) -> Self:
        """Expanded to the shape of `other`."""
        return self.expand(other.shape)

    def repeat(self, *repeats: int | Sequence[int]) -> Self:
        """The whole tensor again and again along each axis; ``np.tile(x, repeats)``."""
        counts = flat_shape(repeats)
        missing = max(len(counts) - self.ndim, 0)
        shape: Shape = (*(1,) * missing, *self.shape)
        counts = (*(1,) * (len(shape) - len(counts)), *counts)
        pairs = list(zip(counts, shape, strict=True))
        split = self._reshape(tuple(part for _, size in pairs for part in (1, size)))
        grown = split._expand(tuple(part for pair in pairs for part in pair))
        return grown.reshape([product(pair) for pair in pairs])

    def repeat_interleave(self, repeats: int, dim: int | None = None) -> Self:
        """Each element `repeats` times; ``np.repeat(x, repeats, dim)``."""
        if dim is None:
            return self.flatten().repeat_interleave(repeats, 0)
        axis = self.axis(dim)
        before, size, after = self.shape[:axis], self.shape[axis], self.shape[axis + 1 :]
        split = self._reshape((*before, size, 1, *after))
        grown = split._expand((*before, size, repeats, *after))
        return grown.reshape((*before, product((size, repeats)), *after))

    # ---- names that PyTorch and numpy users know too ----

    view = reshape
    swapaxes = swapdims = transpose
    moveaxis = movedim
    broadcast_to = expand


def _quotient(total: Dim, rest: Dim) -> Dim | None:
    """total / rest where that is a whole number."""
    if isinstance(rest, int) and rest == 0:
        return None
    found = as_dim(divide_index(index_of(total), rest))
    return found if multiply_dims(found, rest) == total else None
