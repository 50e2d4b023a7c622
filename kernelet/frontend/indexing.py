"""Indexing: picking elements by numbers, slices, masks and tensors of indices, and their inverse.

In:  tensors and indices.
Out: movement nodes for numbers and slices; for tensors of indices a comparison of the indices with
     all positions, whose sum (gather) or maximum (scatter) fuses into one kernel.

Rules: a negative index counts from the end. A number outside its axis is an error. An entry of a
tensor of indices that is outside reads 0 and writes nothing. Where several entries write to one
place, the last one stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from kernelet.base.dtype import Scalar, dtypes
from kernelet.base.errors import DTypeError, IndexingError, ShapeError
from kernelet.base.helpers import argsort
from kernelet.frontend.gradient import inverse_movement
from kernelet.frontend.movement import Movement
from kernelet.frontend.primitives import (
    Primitives,
    broadcast_shape,
    check_choice,
    is_scalar,
    product,
    show_dim,
    show_shape,
)
from kernelet.graph.infer import Dim, Shape, max_dim
from kernelet.graph.movement import add_dims
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp

ScatterMode = Literal["add", "multiply"]
ReduceMode = Literal["sum", "prod", "mean", "amax", "amin"]


@dataclass(frozen=True, slots=True)
class _Span:
    """The elements begin..end of an axis, every `step`-th one, backwards for a negative step."""

    begin: Dim
    end: Dim
    step: int = 1


class Indexing(Movement):
    """``x[...]``, gather, scatter and their relatives."""

    __slots__ = ()

    # ---- x[index] ----

    def __getitem__(self, index: object) -> Self:
        part, picks = self._part(index)
        if picks:
            return part._pick(picks)
        # x[:] is another tensor than x: a later write to x does not change it.
        return self._wrap_view(self.uop) if part is self else part

    def _part(self, index: object) -> tuple[Self, list[tuple[int, Self]]]:
        """The view that numbers and slices choose, and the axes of it that tensors index."""
        items = self._full_index(index)
        indexed = [item for item in items if item is not None]
        part = self._sliced([self._span(item, axis) for axis, item in enumerate(indexed)])
        sizes = iter(part.shape)
        shape: list[Dim] = []
        picks: list[tuple[int, Self]] = []
        for item in items:
            size = 1 if item is None else next(sizes)
            if isinstance(item, Primitives):
                picks.append((len(shape), self._operand(item)))
            if item is None or isinstance(item, slice | Primitives):
                shape.append(size)
        return part._reshape(tuple(shape)), picks

    def _full_index(self, index: object) -> list[object]:
        """One item for each axis, and None for each new axis."""
        items = [
            self._normal_item(item) for item in (index if isinstance(index, tuple) else (index,))
        ]
        used = sum(_width(item) for item in items)
        if used > self.ndim:
            raise IndexingError(
                f"index: {used} axes are indexed, but the tensor has shape "
                f"{show_shape(self.shape)}. Give at most {self.ndim}."
            )
        dots = [at for at, item in enumerate(items) if item is Ellipsis]
        if len(dots) > 1:
            raise IndexingError("index: there are two ellipses (...). Use one.")
        at = dots[0] if dots else len(items)
        items[at : at + 1] = [slice(None)] * (self.ndim - used)
        full: list[object] = []
        axis = 0
        for item in items:
            if isinstance(item, Primitives) and item.dtype.is_bool:
                self._check_mask(item, axis)
                full.extend(item._true_places())  # type: ignore[attr-defined]
            else:
                full.append(item)
            axis += _width(item)
        return full

    def _normal_item(self, item: object) -> object:
        if item is None or item is Ellipsis or isinstance(item, slice | UOp):
            return item
        if isinstance(item, int) and not isinstance(item, bool):
            return item
        if isinstance(item, list | tuple | range) or hasattr(item, "__array__"):
            tensor = item if isinstance(item, Primitives) else self._from_data(item)
            if isinstance(item, list) and not item:
                tensor = tensor.cast(dtypes.default_int)
            if tensor.dtype.is_float:
                raise IndexingError(
                    f"index: a tensor of {tensor.dtype.name} cannot index. Cast it to an integer "
                    "type, or compare it to get a mask."
                )
            return tensor
        raise IndexingError(
            f"index: {item!r} ({type(item).__name__}) cannot index. Use numbers, slices, ..., "
            "None, tensors of integers or bool masks."
        )

    def _check_mask(self, mask: Primitives, axis: int = 0) -> None:
        """A mask has an element for each of those that it chooses from."""
        sizes = self.shape[axis : axis + mask.ndim]
        if mask.shape != sizes:
            raise IndexingError(
                f"index: a mask of shape {show_shape(mask.shape)} for axes of shape "
                f"{show_shape(sizes)}. Give a mask with the sizes of the axes."
            )

    def _span(self, item: object, axis: int) -> _Span:
        """What an item of an index leaves of an axis."""
        size = self.shape[axis]
        if isinstance(item, slice):
            return self._slice_span(item, axis)
        if isinstance(item, Primitives):
            return _Span(0, size)
        if isinstance(item, UOp):
            self._check_bound(item, size, add_dims(item, 1))
            return _Span(item, add_dims(item, 1))
        assert isinstance(item, int)
        least = size if isinstance(size, int) else int(size.bounds.min)
        if not -least <= item < least:
            raise IndexingError(
                f"index {item} is outside axis {axis} of {show_shape(self.shape)}. "
                f"Use {-least} to {least - 1}."
            )
        begin = item if item >= 0 else add_dims(size, item)
        return _Span(begin, add_dims(begin, 1))

    def _slice_span(self, item: slice, axis: int) -> _Span:
        size = self.shape[axis]
        step = 1 if item.step is None else int(item.step)
        if step == 0:
            raise IndexingError("slice: the step is 0. Use a positive or negative step.")
        parts = (item.start, item.stop)
        if isinstance(size, int) and not any(isinstance(part, UOp) for part in parts):
            chosen = range(size)[_plain(item.start) : _plain(item.stop) : step]
            if not chosen:
                return _Span(0, 0)
            low, high = sorted((chosen[0], chosen[-1]))
            return _Span(low, high + 1, step)
        if step != 1:
            raise IndexingError(
                f"slice: step {step} on axis {axis}, whose size or ends are bound variables. "
                "Use step 1 there."
            )
        begin = 0 if item.start is None else self._end(item.start, size)
        end = size if item.stop is None else self._end(item.stop, size)
        self._check_bound(end, size, end)
        return _Span(begin, end)

    def _end(self, value: object, size: Dim) -> Dim:
        if isinstance(value, UOp):
            return value
        number = _plain(value)
        assert number is not None
        return number if number >= 0 else add_dims(size, number)

    def _check_bound(self, asked: Dim, size: Dim, end: Dim) -> None:
        if max_dim(end) > max_dim(size):
            raise IndexingError(
                f"index {show_dim(asked)}: it can reach {max_dim(end)}, but the axis of "
                f"{show_shape(self.shape)} has {show_dim(size)} elements. Give the Variable a "
                "smaller maximum."
            )

    def _sliced(self, spans: Sequence[_Span]) -> Self:
        part = self._shrink(tuple((span.begin, span.end) for span in spans))
        part = part._flip(tuple(axis for axis, span in enumerate(spans) if span.step < 0))
        for axis, span in enumerate(spans):
            if abs(span.step) > 1:
                part = part._every(axis, abs(span.step))
        return part

    # ---- tensors of indices ----

    def _in_range(self, size: Dim) -> Self:
        """Indices counted from the front as int32; -1 for those that are outside."""
        # Narrow integers do not hold every size.
        narrow = self.dtype.itemsize < dtypes.default_int.itemsize
        counted = self.cast(dtypes.default_int) if narrow else self
        low = -max_dim(size) if not self.dtype.is_unsigned else 0
        inside = (counted >= low) & (counted < max_dim(size))
        length = size if isinstance(size, int) else self._operand(size)
        shifted = (counted < 0).where(counted + length, counted)
        return inside.where(shifted, -1).cast(dtypes.default_int)

    def _flat_picks(self, picks: list[tuple[int, Self]]) -> tuple[Self, Self, bool]:
        """The picked axes in front and merged, the index into them, and whether all is in place."""
        axes = [axis for axis, _ in picks]
        rest = [axis for axis in range(self.ndim) if axis not in axes]
        shape = broadcast_shape(*[index.shape for _, index in picks], name="index")
        places = [index._in_range(self.shape[at])._broadcast_to(shape) for at, index in picks]
        flat, outside = places[0], places[0] < 0
        for axis, place in zip(axes[1:], places[1:], strict=True):
            flat = flat * place._operand(self.shape[axis]) + place
            outside = outside | (place < 0)
        if len(picks) > 1:
            flat = outside.where(-1, flat)
        moved = self._permute((*axes, *rest))
        merged = product([self.shape[axis] for axis in axes])
        together = axes == list(range(axes[0], axes[0] + len(axes)))
        return moved._reshape((merged, *moved.shape[len(axes) :])), flat, together

    def _pick(self, picks: list[tuple[int, Self]]) -> Self:
        table, index, together = self._flat_picks(picks)
        lead = index.ndim
        rest = table.shape[1:]
        shape = (*index.shape, *rest)
        if 0 in shape:
            found = self._full(0, shape, self.dtype)
        else:
            column = index._reshape((*index.shape, *(1,) * table.ndim))
            found = table._select(column, lead)._reshape(shape)
        if not together or picks[0][0] == 0:
            return found
        # Adjacent index tensors leave their result where the first of them was.
        first = picks[0][0]
        return found.movedim(range(lead), range(first, first + lead))

    def _select(self, column: Self, axis: int) -> Self:
        """The sum along `axis` of the elements whose position equals `column`."""
        size = self.shape[0] if column.ndim > self.ndim else self.shape[axis]
        place = self._arange(size)._reshape((size, *(1,) * (column.ndim - 1 - axis)))
        other = column.ne(place)
        shape = broadcast_shape(other.shape, self.shape, name="index")
        chosen = other._broadcast_to(shape).where(self._constant(0), self)
        return chosen._reduce(Op.MAX if self.dtype.is_bool else Op.ADD, (axis,))

    # ---- the inverse: values written to places ----

    def _with_picks(self, picks: list[tuple[int, Self]], value: Self) -> Self:
        """This tensor after ``x[picks] = value``."""
        table, index, together = self._flat_picks(picks)
        axes = [axis for axis, _ in picks]
        rest = [axis for axis in range(self.ndim) if axis not in axes]
        first = axes[0] if together else 0
        sizes = [self.shape[axis] for axis in rest]
        shape = (*sizes[:first], *index.shape, *sizes[first:])
        if broadcast_shape(value.shape, shape, name="setitem") != shape:
            raise ShapeError(
                f"setitem: a value of shape {show_shape(value.shape)} does not fit "
                f"{show_shape(shape)}. Give a shape that broadcasts to it."
            )
        if 0 in shape:
            return self
        values = value._broadcast_to(shape)
        values = values.movedim(range(first, first + index.ndim), range(index.ndim))
        count = product(index.shape)
        values = values._reshape((count, *table.shape[1:]))
        written = table._overwritten(index._reshape((count,)), values)
        moved_shape = tuple(self.shape[axis] for axis in (*axes, *rest))
        return written._reshape(moved_shape)._permute(argsort((*axes, *rest)))

    def _overwritten(self, index: Self, values: Self) -> Self:
        """Rows of this tensor replaced by rows of `values`; the last writer of a row stays."""
        size, count = self.shape[0], index.shape[0]
        places = self._arange(size)._reshape((size, 1))
        number = self._arange(count) + 1
        writers = index.ne(places).where(0, number)._reduce(Op.MAX, (1,))  # (size, 1)
        ones = (1,) * (self.ndim - 1)
        column = (writers - 1)._reshape((size, 1, *ones))
        found = values._select(column, 1)._reshape(self.shape)
        return (writers > 0)._reshape((size, *ones)).where(found, self)

    def _replaced(self, part: Self, value: Self) -> Self:
        """This tensor with `value` at the places that the view `part` of it shows."""
        inside = UOp.const(True, dtypes.bool)
        inside = inside.broadcast_to(part.shape) if part.shape else inside
        grown, node = value.uop, part.uop
        while node is not self.uop:
            inside, grown = inverse_movement(node, inside), inverse_movement(node, grown)
            node = node.src[0]
        return self._wrap(inside).where(self._wrap(grown), self)

    # ---- along one axis ----

    def _beside(self, axis: int, index: Self, name: str) -> Self:
        """This tensor cut to the sizes of `index` on all axes but `axis`."""
        if index.ndim != self.ndim:
            raise ShapeError(
                f"{name}: the index has shape {show_shape(index.shape)} and the tensor "
                f"{show_shape(self.shape)}. Both need the same number of axes."
            )
        bounds: list[tuple[Dim, Dim]] = []
        for at, (have, want) in enumerate(zip(self.shape, index.shape, strict=True)):
            if at != axis and max_dim(want) > max_dim(have):
                raise ShapeError(
                    f"{name}: the index has {show_dim(want)} elements along axis {at} and the "
                    f"tensor {show_dim(have)}. Only axis {axis} may be longer."
                )
            bounds.append((0, have if at == axis else want))
        return self._shrink(tuple(bounds))

    def gather(self, dim: int, index: Self) -> Self:
        """``out[i][j] = x[index[i][j]][j]`` for dim 0; ``np.take_along_axis``."""
        axis = self.axis(dim)
        table = self._beside(axis, index, "gather").transpose(axis, -1)
        column = index._in_range(self.shape[axis]).transpose(axis, -1).unsqueeze(-1)
        found = table.unsqueeze(-2)._select(column, table.ndim)
        return found._reshape(found.shape[:-1]).transpose(axis, -1)

    def take_along_dim(self, indices: Self, dim: int | None = None) -> Self:
        """`gather` with the other axes broadcast; ``np.take_along_axis``."""
        if dim is None:
            return self.flatten().gather(0, indices.flatten())
        axis = self.axis(dim)
        sizes = [have if at != axis else 1 for at, have in enumerate(self.shape)]
        wanted = [want if at != axis else 1 for at, want in enumerate(indices.shape)]
        shape = list(broadcast_shape(tuple(sizes), tuple(wanted), name="take_along_dim"))
        shape[axis] = indices.shape[axis]
        table = [size if at != axis else self.shape[axis] for at, size in enumerate(shape)]
        return self._broadcast_to(tuple(table)).gather(axis, indices._broadcast_to(tuple(shape)))

    def index_select(self, dim: int, index: Self) -> Self:
        """The elements at `index` along an axis; ``np.take(x, index, dim)``."""
        return self._pick([(self.axis(dim), index)])

    def take(self, index: Self) -> Self:
        """The elements at `index` of the flattened tensor; ``np.take(x, index)``."""
        return self.flatten()._pick([(0, index)])

    def one_hot(self, num_classes: int = -1) -> Self:
        """1 at the index along a new last axis, else 0; ``np.eye(num_classes)[x]``."""
        if self.dtype.is_float:
            raise DTypeError(f"one_hot: {self.dtype.name} is no index. Cast to an integer type.")
        if num_classes < 0:
            peak = self.flatten()._reduce(Op.MAX, (0,))
            num_classes = int(peak.item()) + 1  # type: ignore[attr-defined]
        return self.unsqueeze(-1).eq(self._arange(num_classes)).cast(dtypes.default_int)

    def scatter(
        self, dim: int, index: Self, src: Self | Scalar, reduce: ScatterMode | None = None
    ) -> Self:
        """``out = x.copy(); out[index[i][j]][j] = src[i][j]`` for dim 0."""
        check_choice("scatter: reduce", reduce, (None, "add", "multiply"))
        source = index._full(src, index.shape, self.dtype) if is_scalar(src) else src
        if reduce is not None:
            mode: ReduceMode = "sum" if reduce == "add" else "prod"
            return self.scatter_reduce(dim, index, source, mode)  # type: ignore[arg-type]
        hits, values, axis = self._scattered(dim, index, source)  # type: ignore[arg-type]
        last = hits.ndim - 1
        number = self._arange(hits.shape[last]) + 1
        writers = hits.where(number, 0)._reduce(Op.MAX, (last,))
        found = writers.eq(number).where(values, values._constant(0))
        found = found._reduce(Op.MAX if values.dtype.is_bool else Op.ADD, (last,))
        return self._put_back(writers > 0, found, axis)

    def scatter_add(self, dim: int, index: Self, src: Self) -> Self:
        """``np.add.at``: `src` added at the places that `index` names."""
        return self.scatter_reduce(dim, index, src, "sum")

    def _scattered(self, dim: int, index: Self, src: Self) -> tuple[Self, Self, int]:
        """For each place (last but one axis) and each source (last axis): hits, and values."""
        axis = self.axis(dim)
        self._beside(axis, index, "scatter")
        source = src._beside(axis, index, "scatter").cast(self.dtype)
        bounds = tuple((0, size) for size in index.shape)
        source = source._shrink(bounds).transpose(axis, -1).unsqueeze(-2)
        places = index._in_range(self.shape[axis]).transpose(axis, -1).unsqueeze(-2)
        size = self.shape[axis]
        hits = places.eq(self._arange(size)._reshape((size, 1)))
        return hits, source._broadcast_to(hits.shape), axis

    def _put_back(self, written: Self, values: Self, axis: int) -> Self:
        """`values` where `written`, in this tensor's shape."""
        shape = written.shape[:-1]
        mask = written._reshape(shape).transpose(axis, -1)
        found = values._reshape(shape).transpose(axis, -1)
        pads = tuple(
            (0, add_dims(have, -want) if isinstance(want, int) else 0)
            for have, want in zip(self.shape, mask.shape, strict=True)
        )
        return mask._pad(pads).where(found._pad(pads), self)

    def scatter_reduce(
        self, dim: int, index: Self, src: Self, reduce: ReduceMode, *, include_self: bool = True
    ) -> Self:
        """All of `src` that `index` sends to a place, combined there, with x itself or without."""
        check_choice("scatter_reduce: reduce", reduce, ("sum", "prod", "mean", "amax", "amin"))
        hits, values, axis = self._scattered(dim, index, src)
        last = hits.ndim - 1
        own = self._beside(axis, index, "scatter").transpose(axis, -1).unsqueeze(-1)
        counts = hits.cast(dtypes.default_int)._reduce(Op.ADD, (last,))
        if reduce == "amin":
            values, own = values._mirrored(), own._mirrored()
        op = {"prod": Op.MUL, "amax": Op.MAX, "amin": Op.MAX}.get(reduce, Op.ADD)
        neutral = {Op.ADD: 0, Op.MUL: 1, Op.MAX: values.dtype.min}[op]
        total = hits.where(values, values._constant(neutral))._reduce(op, (last,))
        if include_self:
            total = total._alu(op, own)
        if reduce == "mean":
            number = counts + 1 if include_self else counts
            total = total.div(number, rounding_mode=None if self.dtype.is_float else "floor")
        if reduce == "amin":
            total = total._mirrored()
        return self._put_back(counts > 0, total.cast(self.dtype), axis)

    # ---- masks: the shape depends on the values, so the mask is realized ----

    def _true_places(self) -> tuple[Self, ...]:
        """For each axis the indices of the elements that are not 0; this computes the mask."""
        flat = self._truth().flatten().tolist()  # type: ignore[attr-defined]
        places = [at for at, chosen in enumerate(flat) if chosen]
        sizes = [max_dim(size) for size in self.shape]
        steps = [math.prod(sizes[axis + 1 :]) for axis in range(self.ndim)]
        return tuple(
            self._from_data([place // step % size for place in places], dtypes.default_int)
            for size, step in zip(sizes, steps, strict=True)
        )

    def nonzero(self) -> Self:
        """The indices of the elements that are not 0, a row each; computes the tensor."""
        first, *others = self._true_places()
        return first.stack(*others, dim=1)

    def masked_select(self, mask: Self) -> Self:
        """The elements where `mask` holds, as a vector; computes the mask."""
        shape: Shape = broadcast_shape(self.shape, mask.shape, name="masked_select")
        return self._broadcast_to(shape)[mask._broadcast_to(shape)]


def _plain(value: object) -> int | None:
    if value is None or isinstance(value, int):
        return value
    if hasattr(value, "__index__"):
        return int(value.__index__())
    raise IndexingError(
        f"slice: {value!r} ({type(value).__name__}) is no end of a slice. Use whole numbers."
    )


def _width(item: object) -> int:
    """How many axes an item of an index takes."""
    if item is None or item is Ellipsis:
        return 0
    return item.ndim if isinstance(item, Primitives) and item.dtype.is_bool else 1
