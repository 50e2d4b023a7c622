"""Movement: elements in another shape or order, repeated, added, dropped, joined and split.

In:  tensors.
Out: movement nodes; nothing is copied.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Literal, Self, TypeVar

from kernelet.base.dtype import Scalar, dtypes
from kernelet.base.errors import ArgumentError, ShapeError
from kernelet.base.helpers import ceiling_divide
from kernelet.frontend.arguments import Count, Size, listed
from kernelet.frontend.elementwise import Elementwise
from kernelet.frontend.primitives import Axes, known, product, show_dim, show_shape
from kernelet.graph.division import divide_index, index_of
from kernelet.graph.infer import Dim, Shape, as_dim
from kernelet.graph.movement import add_dims, multiply_dims, normal_shape, subtract_dims
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp

PadMode = Literal["constant", "reflect", "replicate", "circular"]
Pads = tuple[tuple[Dim, Dim], ...]
Dims = Dim | Sequence[Dim]
T = TypeVar("T", bound="Movement")


def flat_shape(arguments: Sequence[Dims]) -> Shape:
    """A shape given as several sizes or as one sequence of them.

    >>> flat_shape((2, 3)), flat_shape(((2, 3),))
    ((2, 3), (2, 3))
    """
    return tuple(map(_plain_size, listed(arguments[0]) if len(arguments) == 1 else arguments))


def _plain_size(dim: Dims) -> Dim:
    """A numpy number is a size too."""
    if isinstance(dim, int | UOp):
        return dim
    if not hasattr(dim, "__index__"):
        raise ArgumentError(
            f"sizes and axes: {dim!r} is of type {type(dim).__name__}. Give whole numbers."
        )
    return operator.index(dim)


class Movement(Elementwise):
    """The same elements in other shapes and orders, more of them, fewer, joined and split."""

    __slots__ = ()

    # ---- the shape ----

    def reshape(self, *shape: Dims) -> Self:
        """The same elements in another shape, of which one size may be -1; ``x.reshape(shape)``."""
        total = product(self.shape)
        wanted = filled(flat_shape(shape), total)
        is_bad = any(isinstance(dim, int) and dim < 0 for dim in wanted)
        wanted = wanted if is_bad else normal_shape(wanted)
        if is_bad or product(wanted) != total:
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
        parts = filled(sizes, self.shape[axis])
        return self.reshape((*self.shape[:axis], *parts, *self.shape[axis + 1 :]))

    def unsqueeze(self, dim: int) -> Self:
        """With a new axis of size 1; ``np.expand_dims(x, dim)``."""
        axis = self.axis(dim, extra=True)
        return self._reshape((*self.shape[:axis], 1, *self.shape[axis:]))

    def squeeze(self, dim: Axes = None) -> Self:
        """Without the axes of size 1, all of them or those named; ``np.squeeze``."""
        named = set(self.axes(dim))
        kept = [size for axis, size in enumerate(self.shape) if axis not in named or size != 1]
        return self._reshape(tuple(kept))

    view_as, ravel = reshape_as, flatten

    # ---- the order of the axes ----

    def permute(self, *order: Dims) -> Self:
        """The axes in another order; ``np.transpose(x, order)``."""
        given = flat_shape(order)
        axes = tuple(self.axis(axis) for axis in given)
        self._need(sorted(axes) == [*range(self.ndim)], f"every axis once, not {given}")
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
        pairs = _paired("movedim: source, destination", source, destination)
        goal = {self.axis(place): self.axis(axis) for axis, place in pairs}
        rest = iter([axis for axis in range(self.ndim) if axis not in goal.values()])
        return self.permute([goal[at] if at in goal else next(rest) for at in range(self.ndim)])

    # ---- repeating ----

    def expand(self, *shape: Dims) -> Self:
        """Axes of size 1 repeated; -1 keeps a size; ``np.broadcast_to(x, shape)``."""
        wanted = flat_shape(shape)
        missing = len(wanted) - self.ndim
        old: Shape = (*(1,) * missing, *self.shape)
        pairs = zip(old, wanted, strict=False)
        target = normal_shape(tuple(have if want == -1 else want for have, want in pairs))
        fits = all(have in (1, want) for have, want in zip(old, target, strict=False))
        if missing < 0 or not fits:
            raise ShapeError(
                f"expand: cannot turn {show_shape(self.shape)} into {show_shape(wanted)}. "
                "Only axes of size 1 grow, and new axes come in front."
            )
        return self._broadcast_to(target)

    def expand_as(self, other: Self) -> Self:
        """Expanded to the shape of `other`."""
        return self.expand(other.shape)

    def repeat(self, *repeats: Dims) -> Self:
        """The whole tensor again and again along each axis; ``np.tile(x, repeats)``."""
        counts = flat_shape(repeats)
        missing = max(len(counts) - self.ndim, 0)
        shape: Shape = (*(1,) * missing, *self.shape)
        counts = (*(1,) * (len(shape) - len(counts)), *counts)
        pairs = list(zip(counts, shape, strict=True))
        split = self._reshape(tuple(part for _, size in pairs for part in (1, size)))
        grown = split._expand(tuple(part for pair in pairs for part in pair))
        return grown.reshape([product(pair) for pair in pairs])

    def repeat_interleave(self, repeats: Size, dim: int | None = None) -> Self:
        """Each element `repeats` times; ``np.repeat(x, repeats, dim)``."""
        if dim is None:
            return self.flatten().repeat_interleave(repeats, 0)
        axis = self.axis(dim)
        after = self.shape[axis + 1 :]
        grown = self.unsqueeze(axis + 1)._expand((*self.shape[: axis + 1], repeats, *after))
        return grown.flatten(axis, axis + 1)

    # ---- more and fewer elements ----

    def shrink(self, bounds: Sequence[tuple[Dim, Dim] | None]) -> Self:
        """The elements from begin up to end of each axis; None keeps an axis whole."""
        chosen = self._for_each(bounds, [(0, size) for size in self.shape])
        for (begin, end), size in zip(chosen, self.shape, strict=True):
            ends = [0, begin, end, size]
            fits = any(isinstance(each, UOp) for each in ends) or ends == sorted(ends)
            self._need(fits, f"begin..end inside of 0..{size}, not {begin}..{end}")
        return self._shrink(tuple([(begin, end) for begin, end in chosen]))

    def shrink_to(self, *shape: Dim | None | Sequence[Dim | None]) -> Self:
        """The first elements of each axis, as many as `shape` says; None keeps an axis whole."""
        return self.shrink([(0, size) for size in self._sizes(shape)])

    def pad_to(self, *shape: Dim | None | Sequence[Dim | None], value: Scalar = 0) -> Self:
        """With `value` behind the last elements of each axis, up to `shape`; None keeps an axis."""
        sizes = zip(self._sizes(shape), self.shape, strict=True)
        return self.pad([(0, subtract_dims(size, have)) for size, have in sizes], value=value)

    def _sizes(self, given: Sequence[Dim | None | Sequence[Dim | None]]) -> list[Dim]:
        """A size for each axis, its own for None."""
        return self._for_each(listed(given[0]) if len(given) == 1 else given, self.shape)

    def pad(
        self,
        padding: Sequence[Dim] | Sequence[tuple[Dim, Dim] | None],
        mode: PadMode = "constant",
        value: Scalar = 0,
    ) -> Self:
        """With elements added around: a pair for each axis, or PyTorch's flat form, last axis first.

        Negative amounts crop. ``np.pad(x, pairs, mode)``.
        """
        pads = self._pads(padding)
        cuts = [(_crop(before), _crop(after)) for before, after in pads]
        added = tuple(
            (add_dims(before, first), add_dims(after, last))
            for (before, after), (first, last) in zip(pads, cuts, strict=True)
        )
        if mode in ("reflect", "replicate"):
            return self._extended(added, mode)._cropped(cuts)
        cropped = self._cropped(cuts)
        if mode == "circular":
            return cropped._extended(added, mode)
        padded = cropped._pad(added)
        if value == 0 or padded is cropped:
            return padded
        inside = self._full(True, cropped.shape, dtypes.bool)._pad(added)
        return inside.where(padded, self._operand(value, self.dtype))

    def _pads(self, padding: Sequence[Dim] | Sequence[tuple[Dim, Dim] | None]) -> Pads:
        given = list(padding)
        if all(isinstance(amount, int | UOp) for amount in given):
            fits = len(given) % 2 == 0 and len(given) <= 2 * self.ndim
            self._need(fits, f"two amounts for each axis, the last axis first, not {tuple(given)}")
            pairs = [(given[at], given[at + 1]) for at in range(0, len(given), 2)]
            given = [*[None] * (self.ndim - len(pairs)), *pairs[::-1]]  # type: ignore[list-item]
        chosen = self._for_each(given, [(0, 0)] * self.ndim)
        return tuple([(before, after) for before, after in chosen])

    def _for_each(self, given: Sequence[Any], usual: Sequence[Any]) -> list[Any]:
        """An item for each axis, the usual one in place of None."""
        self._need(len(given) == self.ndim, f"an item for each axis, not {tuple(given)}")
        pairs = zip(given, usual, strict=True)
        return [other if item is None else item for item, other in pairs]

    def _cropped(self, cuts: Sequence[tuple[int, int]]) -> Self:
        """Without the first and the last elements of each axis."""
        sides = list(zip(cuts, self.shape, strict=True))
        fits = all(sum(cut) <= size for cut, size in sides if isinstance(size, int))
        self._need(fits, f"as many elements as both ends of each axis lose: {tuple(cuts)}")
        return self._shrink(tuple((first, add_dims(size, -last)) for (first, last), size in sides))

    def _extended(self, pads: Pads, mode: PadMode) -> Self:
        """With elements around that are taken from inside."""
        result = self
        for axis, (before, after) in enumerate(pads):
            if before == 0 and after == 0:
                continue
            size = self._known_size(axis)
            limit = {"reflect": size - 1, "circular": size}.get(mode, math.inf if size else 0)
            fits = before <= limit and after <= limit
            self._need(fits, f"{mode} at most {limit} elements of axis {axis}: {before}, {after}")
            result = result._extend(axis, int(before), int(after), mode)  # type: ignore[arg-type]
        return result

    def _extend(self, axis: int, before: int, after: int, mode: PadMode) -> Self:
        size = self._known_size(axis)
        if mode == "replicate":
            first = self._slice(axis, 0, 1).repeat_interleave(before, axis)
            last = self._slice(axis, size - 1, size).repeat_interleave(after, axis)
        else:  # what follows is the tensor again, or backwards without the element at the end
            other, gap = (self._flip((axis,)), 1) if mode == "reflect" else (self, 0)
            first = other._slice(axis, size - gap - before, size - gap)
            last = other._slice(axis, gap, gap + after)
        return first.cat(self, last, dim=axis)

    def _slice(self, axis: int, begin: Dim, end: Dim) -> Self:
        bounds: list[tuple[Dim, Dim]] = [(0, size) for size in self.shape]
        bounds[axis] = (begin, end)
        return self._shrink(tuple(bounds))

    def flip(self, *axis: int | Sequence[int]) -> Self:
        """Backwards along the axes named; ``np.flip(x, axis)``."""
        given = flat_shape(axis)
        return self._flip(self.axes(given) if given else ())  # type: ignore[arg-type]

    # ---- joining and splitting ----

    def cat(self, *others: Self | Sequence[Self] | int, dim: int = 0) -> Self:
        """Joined along an axis; ``np.concatenate([x, *others], dim)``."""
        parts, dim = tensor_list([self, *others], dim)
        first = parts[0]
        axis = first.axis(dim)
        dtype = first._common_dtype(*parts)
        ends: list[Dim] = [0]
        for part in parts:
            sides = (*first.shape[:axis], *part.shape[axis : axis + 1], *first.shape[axis + 1 :])
            fits = part.ndim == first.ndim and part.shape == sides
            part._need(fits, f"the sizes of {show_shape(first.shape)} but along axis {axis}")
            ends.append(add_dims(ends[-1], part.shape[axis]))
        placed = [
            part.cast(dtype)._beside_zeros(axis, begin, subtract_dims(ends[-1], end))
            for part, begin, end in zip(parts, ends, ends[1:], strict=False)
            if part.shape[axis] != 0
        ]
        return _combine(placed or [first.cast(dtype)], Op.OR if dtype.is_bool else Op.ADD)

    def stack(self, *others: Self | Sequence[Self] | int, dim: int = 0) -> Self:
        """Joined along a new axis; ``np.stack([x, *others], dim)``."""
        parts, dim = tensor_list([self, *others], dim)
        axis = parts[0].axis(dim, extra=True)
        return parts[0].unsqueeze(axis).cat(*[part.unsqueeze(axis) for part in parts[1:]], dim=axis)

    def split(self, sizes: Count | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Pieces of `sizes` elements along an axis, the last one shorter if need be."""
        axis = self.axis(dim)
        size = self._known_size(axis)
        if isinstance(sizes, int):
            sizes = [min(sizes, size - begin) for begin in range(0, max(size, 1), sizes)]
        fits = sum(sizes) == size and min(sizes, default=0) >= 0
        self._need(fits, f"sizes whose sum is the {size} of axis {axis}, not {tuple(sizes)}")
        pieces = zip(accumulate(sizes), sizes, strict=True)
        return tuple(self._slice(axis, end - piece, end) for end, piece in pieces)

    def chunk(self, chunks: Count, dim: int = 0) -> list[Self]:
        """At most `chunks` pieces of equal size, the last one shorter if need be."""
        size = self._known_size(self.axis(dim))
        return list(self.split(ceiling_divide(size, chunks) if size else [0] * chunks, dim))

    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """The pieces along an axis, without that axis."""
        axis = self.axis(dim)
        return tuple(each.squeeze(axis) for each in self.split([1] * self._known_size(axis), axis))

    def _known_size(self, axis: int) -> int:
        self._need(self.ndim, "a tensor of at least one axis")
        return known(self.shape[axis])

    def roll(self, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Self:
        """Moved along the axes, what leaves at one end comes in at the other; ``np.roll``."""
        if dims is None:
            return self.flatten().roll(shifts, 0).reshape(self.shape)
        result = self
        for shift, dim in _paired("roll: shifts, dims", shifts, dims):
            axis = self.axis(dim)
            size = self._known_size(axis)
            cut = -shift % size if size else 0
            if cut:
                head, tail = result._slice(axis, 0, cut), result._slice(axis, cut, size)
                result = tail.cat(head, dim=axis)
        return result

    # ---- parts of matrices, windows ----

    def _triangle(self, diagonal: Dim) -> Self:
        self._need_ndim(2)
        rows, columns = self._positions(self.ndim - 2), self._positions(self.ndim - 1)
        return columns - rows - rows._operand(diagonal)

    def tril(self, diagonal: Dim = 0) -> Self:
        """The lower triangle, 0 above it; ``np.tril(x, diagonal)``."""
        return self._triangle(diagonal).le(0).where(self, self._constant(0))

    def triu(self, diagonal: Dim = 0) -> Self:
        """The upper triangle, 0 below it; ``np.triu(x, diagonal)``."""
        return (self._triangle(diagonal) < 0).where(self._constant(0), self)

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """The elements (i, i + offset), as the last axis; ``np.diagonal``."""
        first, second = self.axis(dim1), self.axis(dim2)
        rest = [axis for axis in range(self.ndim) if axis not in (first, second)]
        x = self.permute([*rest, first, second])
        rows, columns = (x._known_size(side % x.ndim) for side in (-2, -1))
        down, right = min(max(-offset, 0), rows), min(max(offset, 0), columns)
        length = min(rows - down, columns - right)
        lead = x.shape[:-2]
        x = x._slice(x.ndim - 2, down, down + length)._slice(x.ndim - 1, right, right + length)
        return x._reshape((*lead, length * length))._every(len(lead), length + 1)

    def diag(self) -> Self:
        """A matrix with this vector on its diagonal; ``np.diag(x)``."""
        self._need_ndim(1, 2)
        if self.ndim == 2:
            return self.diagonal()
        size = self._known_size(0)
        square = self._reshape((size, 1))._expand((size, size))
        return square._positions(0).eq(square._positions(1)).where(square, square._constant(0))

    def _every(self, axis: int, step: int) -> Self:
        """Every `step`-th element along an axis."""
        size = self._known_size(axis)
        count = ceiling_divide(size, step)
        before, after = self.shape[:axis], self.shape[axis + 1 :]
        rows = self._beside_zeros(axis, 0, count * step - size)
        rows = rows._reshape((*before, count, step, *after))
        # One view of this tensor, with its padding: a write goes through all of it.
        return self._wrap_view(rows._slice(axis + 1, 0, 1)._reshape((*before, count, *after)).uop)

    def _beside_zeros(self, axis: int, before: Dim, after: Dim) -> Self:
        """With zeros before and after one axis."""
        pads: list[tuple[Dim, Dim]] = [(0, 0)] * self.ndim
        pads[axis] = (before, after)
        return self._pad(tuple(pads))

    def meshgrid(
        self, *others: Self | Sequence[Self], indexing: Literal["ij", "xy"] = "ij"
    ) -> tuple[Self, ...]:
        """Every vector expanded over the grid of all of them; ``np.meshgrid(x, *others)``."""
        parts, _ = tensor_list([self, *others])
        for part in parts:
            part._need_ndim(0, 1)
        shape = tuple(part.shape[0] if part.ndim else 1 for part in parts)
        grids = tuple(
            part.reshape([-1 if at == axis else 1 for at in range(len(parts))])._expand(shape)
            for axis, part in enumerate(parts)
        )
        return (
            tuple(each.transpose() for each in grids) if indexing == "xy" and grids[1:] else grids
        )

    # ---- names that PyTorch and numpy users know too ----

    concat = concatenate = cat
    view, tile = reshape, repeat
    swapaxes = swapdims = transpose
    moveaxis = movedim
    broadcast_to = expand


def tensor_list(given: Sequence[T | Sequence[T] | int], dim: int = 0) -> tuple[list[T], int]:
    """Tensors given one by one or in a list, and the axis where it is the last of them."""
    *most, last = given
    given, dim = (most, last) if isinstance(last, int) else (given, dim)
    return [part for item in given for part in listed(item)], dim


def _combine(parts: list[T], op: Op) -> T:
    """All of them joined by `op`, as a balanced tree so that the graph stays shallow."""
    while len(parts) > 1:
        pairs = [parts[at : at + 2] for at in range(0, len(parts), 2)]
        parts = [pair[0]._alu(op, pair[1]) if len(pair) == 2 else pair[0] for pair in pairs]
    return parts[0]


def _paired(
    name: str, first: int | Sequence[int], second: int | Sequence[int]
) -> list[tuple[int, int]]:
    """Two numbers, or two lists of equal length, as pairs."""
    left, right = ([each] if isinstance(each, int) else list(each) for each in (first, second))
    if len(left) != len(right):
        raise ArgumentError(f"{name}={first}, {second}: give two numbers, or equally long lists.")
    return list(zip(left, right, strict=True))


def _crop(amount: Dim) -> int:
    """How many elements a negative amount of padding takes away."""
    return max(-amount, 0) if isinstance(amount, int) else 0


def filled(sizes: Sequence[Dim], total: Dim) -> Shape:
    """The sizes with the one that makes their product `total` in place of -1, where there is one.

    >>> filled((2, -1), 6), filled((4, -1), 6)
    ((2, 3), (4, -1))
    """
    rest = product([size for size in sizes if size != -1])
    if list(sizes).count(-1) != 1 or rest == 0:
        return tuple(sizes)
    found = as_dim(divide_index(index_of(total), rest))
    fits = multiply_dims(found, rest) == total
    return tuple(found if fits and size == -1 else size for size in sizes)
