"""Indexing: picking elements by numbers, slices, masks and tensors of indices, and their inverse.

In:  tensors and indices.
Out: movement nodes for numbers and slices; for tensors of indices a comparison of the indices with
     all positions, whose sum (gather) or maximum (scatter) becomes one read or write an entry.

Rules: a negative index counts from the end. A number outside its axis is an error. An entry of a
tensor of indices that is outside reads 0 and writes nothing. Where several entries write to one
place, the last one stays. As in PyTorch, numbers choose before tensors of indices do, so that they
do not keep those from lying side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from kernelet.base.dtype import Scalar, dtypes
from kernelet.base.errors import DTypeError, IndexingError
from kernelet.frontend.cumulative import Cumulative
from kernelet.frontend.gradient import inverse_view
from kernelet.frontend.primitives import Primitives, broadcast_shape, product, show_dim, show_shape
from kernelet.frontend.promotion import accumulator_dtype
from kernelet.graph.infer import Dim, Shape, max_dim
from kernelet.graph.movement import add_dims, subtract_dims
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


class Indexing(Cumulative):
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
        wider, items = self._full_index(index)
        part = wider._sliced([wider._span(item, axis) for axis, item in enumerate(items)])
        kept = [axis for axis, item in enumerate(items) if isinstance(item, slice | Primitives)]
        tensors = [(at, items[axis]) for at, axis in enumerate(kept)]
        picks = [(at, self._operand(item)) for at, item in tensors if isinstance(item, Primitives)]
        return part._reshape(tuple(part.shape[axis] for axis in kept)), picks

    def _full_index(self, index: object) -> tuple[Self, list[object]]:
        """This tensor with all its new axes, and an item for each axis."""
        given = index if isinstance(index, tuple) else (index,)
        items = [self._normal_item(item) for item in given]
        used = sum(_width(item) for item in items)
        self._need(used <= self.ndim, f"at most {self.ndim} indices, not {used}", IndexingError)
        dots = [at for at, item in enumerate(items) if item is Ellipsis]
        if len(dots) > 1:
            raise IndexingError("index: there are two ellipses (...). Use one.")
        at = dots[0] if dots else len(items)
        items[at : at + 1] = [slice(None)] * (self.ndim - used)
        full: list[object] = []
        shape: list[Dim] = []
        axis = 0
        for item in items:
            width = _width(item)
            # None and a mask without axes index a new axis.
            shape += self.shape[axis : axis + width] or (1,)
            if isinstance(item, Primitives) and item.dtype.is_bool:
                self._check_mask(item, axis)
                full.extend(self._operand(item)._true_numbers()._unraveled(item.shape or (1,)))
            else:
                full.append(slice(None) if item is None else item)
            axis += width
        return self._reshape(tuple(shape)), full

    def _normal_item(self, item: object) -> object:
        is_plain = item is None or item is Ellipsis or isinstance(item, slice | UOp | int)
        if is_plain and not isinstance(item, bool):
            return item
        if isinstance(item, bool | list | tuple | range) or hasattr(item, "__array__"):
            tensor = (
                item if isinstance(item, Primitives) else self._from_data(item, self.uop.device)
            )
            if 0 in tensor.shape and not hasattr(item, "__array__"):
                tensor = tensor.cast(dtypes.default_int)
            return tensor
        raise IndexingError(
            f"index: {item!r} ({type(item).__name__}) cannot index. Use numbers, slices, ..., "
            "None, tensors of integers or bool masks."
        )

    def _check_mask(self, mask: Primitives, axis: int = 0) -> None:
        """A mask has an element for each of those that it chooses from."""
        sizes = self.shape[axis : axis + mask.ndim]
        wanted = f"a mask of the shape {show_shape(sizes)} that the axes have"
        mask._need(mask.shape == sizes, wanted, IndexingError)

    def _span(self, item: object, axis: int) -> _Span:
        """What an item of an index leaves of an axis."""
        size = self.shape[axis]
        if isinstance(item, slice):
            return self._slice_span(item, axis)
        if isinstance(item, Primitives):
            return _Span(0, size)
        least = size if isinstance(size, int) else int(size.bounds.min)
        if isinstance(item, int) and not -least <= item < least:
            raise IndexingError(
                f"index {item} is outside axis {axis} of {show_shape(self.shape)}. "
                f"Use {-least} to {least - 1}."
            )
        begin = _end(item, size, 0)
        end = add_dims(begin, 1)
        self._check_bound(begin, size, end)
        return _Span(begin, end)

    def _slice_span(self, item: slice, axis: int) -> _Span:
        size = self.shape[axis]
        step = _plain(item.step) or 0 if item.step is not None else 1
        if step == 0:
            raise IndexingError("slice: the step is 0. Use a positive or negative step.")
        parts = (item.start, item.stop)
        if isinstance(size, int) and not any(isinstance(part, UOp) for part in parts):
            chosen = range(size)[_plain(item.start) : _plain(item.stop) : step]
            if not chosen:
                return _Span(0, 0)
            low, high = sorted((chosen[0], chosen[-1]))
            return _Span(low, high + 1, step)
        wanted = f"step 1 on axis {axis}, whose size or ends are bound variables"
        self._need(step == 1, wanted, IndexingError)
        begin, end = _end(item.start, size, 0), _end(item.stop, size, size)
        self._check_bound(end, size, end)
        return _Span(begin, end)

    def _check_bound(self, asked: Dim, size: Dim, end: Dim) -> None:
        reach = f"{show_dim(asked)} can reach {max_dim(end)} of {show_dim(size)} elements"
        wanted = f"the Variable a smaller maximum: {reach}"
        self._need(max_dim(end) <= max_dim(size), wanted, IndexingError)

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
        self._need(self.dtype.is_integer, "places as integers, or bools x > y", IndexingError)
        # Narrow integers do not hold every size.
        narrow = self.dtype.itemsize < dtypes.default_int.itemsize
        counted = self.cast(dtypes.default_int) if narrow else self
        low = -max_dim(size) if not self.dtype.is_unsigned else 0
        inside = (counted >= low) & (counted < max_dim(size))
        length = size if isinstance(size, int) else self._operand(size)
        shifted = (counted < 0).where(counted + length, counted)
        return inside.where(shifted, -1).cast(dtypes.default_int)

    def _flat_picks(self, picks: list[tuple[int, Self]]) -> tuple[Self, Self, int]:
        """The picked axes in front and merged, the index into them, and where its axes belong."""
        axes = [axis for axis, _ in picks]
        rest = [axis for axis in range(self.ndim) if axis not in axes]
        shape = broadcast_shape(*[index.shape for _, index in picks])
        places = [index._in_range(self.shape[at])._broadcast_to(shape) for at, index in picks]
        flat, outside = places[0], places[0] < 0
        for axis, place in zip(axes[1:], places[1:], strict=True):
            flat = flat * place._operand(self.shape[axis]) + place
            outside = outside | (place < 0)
        if len(picks) > 1:
            flat = outside.where(-1, flat)
        moved = self._permute((*axes, *rest))
        merged = product([self.shape[axis] for axis in axes])
        is_together = axes == list(range(axes[0], axes[0] + len(axes)))
        table = moved._reshape((merged, *moved.shape[len(axes) :]))
        return table, flat, axes[0] if is_together else 0

    def _pick(self, picks: list[tuple[int, Self]]) -> Self:
        table, index, first = self._flat_picks(picks)
        lead = index.ndim
        column = index._reshape((*index.shape, *(1,) * table.ndim))
        found = table._select(column, lead)._reshape((*index.shape, *table.shape[1:]))
        return found.movedim(range(lead), range(first, first + lead))

    def _select(self, column: Self, axis: int) -> Self:
        """The sum along `axis` of the elements whose position equals `column`."""
        size = self.shape[0] if column.ndim > self.ndim else self.shape[axis]
        place = self._arange(size)._reshape((size, *(1,) * (column.ndim - 1 - axis)))
        other = column.ne(place)
        shape = broadcast_shape(other.shape, self.shape)
        chosen = other._broadcast_to(shape).where(self._constant(0), self)
        return chosen._reduce(Op.MAX if self.dtype.is_bool else Op.ADD, (axis,))

    # ---- the inverse: values written to places ----

    def _with_picks(self, picks: list[tuple[int, Self]], value: Self, add: bool = False) -> Self:
        """This tensor after ``x[picks] = value``, or after adding all of `value` there."""
        table, index, first = self._flat_picks(picks)
        _, *sizes = table.shape
        values = value._fitted((*sizes[:first], *index.shape, *sizes[first:]))
        values = values.movedim(range(first, first + index.ndim), range(index.ndim))
        row = index.flatten()
        values = values._reshape((*row.shape, *sizes))
        written = table._with_sums(row, values) if add else table._overwritten(row, values)
        return self._wrap(inverse_view(table.uop, self.uop, written.uop))

    def _overwritten(self, index: Self, values: Self) -> Self:
        """Rows of this tensor replaced by rows of `values`; the last writer of a row stays."""
        size, ones = self.shape[0], (1,) * (self.ndim - 1)
        writers = index._last_writers(size)
        found = values._select(writers._reshape((size, 1, *ones)), 1)._reshape(self.shape)
        return (writers < 0)._reshape((size, *ones)).where(self, found)

    def _with_sums(self, index: Self, values: Self) -> Self:
        """Rows of `values` added to rows of this tensor."""
        missed = index._missed(self.shape[0])
        added = missed._reshape((*missed.shape, *(1,) * (self.ndim - 1))).where(0, values)
        return self + added._fold(Op.ADD, (1,), False)

    def _missed(self, size: Dim) -> Self:
        """(*batch, size, count): which of `size` places each entry of a row does not name."""
        *batch, count = self.shape
        return self._reshape((*batch, 1, count)).ne(self._arange(size)._reshape((size, 1)))

    def _last_writers(self, size: Dim) -> Self:
        """For each of `size` places the last entry of each row that names it; else below 0."""
        number = self._missed(size).where(dtypes.default_int.min, self._arange(self.shape[-1]))
        # A kernel of its own writes each entry where it belongs, instead of searching for it.
        return number._fold(Op.MAX, (self.ndim,), False).contiguous()

    def index_put(
        self, indices: Sequence[Self | None], values: Self | Scalar, accumulate: bool = False
    ) -> Self:
        """``out = x.copy(); out[indices] = values``; all are added up if `accumulate`."""
        given = self._operand(values, self.dtype).cast(self.dtype)
        part, picks = self._part(tuple(slice(None) if i is None else i for i in indices))
        self._need(picks, "at least one tensor of indices", IndexingError)
        return part._with_picks(picks, given, accumulate)._reshape(self.shape)

    def _replaced(self, part: Self, value: Self) -> Self:
        """This tensor with `value` at the places that the view `part` of it shows."""
        inside = UOp.const(True, dtypes.bool)
        inside = inside.broadcast_to(part.shape) if part.shape else inside
        mask, grown = (inverse_view(part.uop, self.uop, each) for each in (inside, value.uop))
        return self._wrap(mask).where(self._wrap(grown), self)

    # ---- along one axis ----

    def _beside(self, index: Self, axis: int | None) -> Self:
        """This tensor cut to the sizes of `index` on all axes but `axis`."""
        index._need(index.ndim == self.ndim > 0, f"an index of {self.ndim} axes, at least one")
        sizes = list(index.shape)
        if axis is not None:
            sizes[axis] = self.shape[axis]
        fits = all(max_dim(a) <= max_dim(b) for a, b in zip(sizes, self.shape, strict=True))
        index._need(fits, f"one no longer than {show_shape(self.shape)} but along axis {axis}")
        return self._shrink(tuple((0, size) for size in sizes))

    def gather(self, dim: int, index: Self) -> Self:
        """``out[i][j] = x[index[i][j]][j]`` for dim 0; ``np.take_along_axis``."""
        axis = self.axis(dim)
        if self.ndim == index.ndim == 0:
            return self._reshape((1,)).gather(0, index._reshape((1,)))._reshape(())
        table = self._beside(index, axis).transpose(axis, -1)
        places = index._in_range(self.shape[axis]).transpose(axis, -1)
        return table._chosen(places).transpose(axis, -1)

    def _chosen(self, places: Self) -> Self:
        """The elements of each row at its own places; 0 for places below 0."""
        found = self.unsqueeze(-2)._select(places.unsqueeze(-1), self.ndim)
        return found._reshape(places.shape)

    def take_along_dim(self, indices: Self, dim: int | None = None) -> Self:
        """`gather` with the other axes broadcast; ``np.take_along_axis``."""
        if dim is None:
            return self.flatten().gather(0, indices.flatten())
        axis = self.axis(dim)
        ones = [(*each.shape[:axis], 1, *each.shape[axis + 1 :]) for each in (self, indices)]
        shape = broadcast_shape(*ones)
        table, index = (
            each._broadcast_to((*shape[:axis], each.shape[axis], *shape[axis + 1 :]))
            for each in (self, indices)
        )
        return table.gather(axis, index)

    def index_select(self, dim: int, index: Self) -> Self:
        """The elements at `index` along an axis; ``np.take(x, index, dim)``."""
        return self._pick([(self.axis(dim), index)])

    def take(self, index: Self) -> Self:
        """The elements at `index` of the flattened tensor; ``np.take(x, index)``."""
        return self.flatten()._pick([(0, index)])

    def one_hot(self, num_classes: int = -1) -> Self:
        """1 at the index along a new last axis, else 0; ``np.eye(num_classes)[x]``."""
        self._need(not self.dtype.is_float, "numbers of classes: cast them to int32", DTypeError)
        if num_classes < 0:
            peak = self.flatten()._reduce(Op.MAX, (0,))
            num_classes = int(peak.item()) + 1
        return self.unsqueeze(-1).eq(self._arange(num_classes)).cast(dtypes.default_int)

    def scatter(
        self, dim: int, index: Self, src: Self | Scalar, reduce: ScatterMode | None = None
    ) -> Self:
        """``out = x.copy(); out[index[i][j]][j] = src[i][j]`` for dim 0."""
        source = self._operand(src, self.dtype)
        source = source if source.ndim else source._broadcast_to(index.shape)
        if reduce is not None:
            return self.scatter_reduce(dim, index, source, "sum" if reduce == "add" else "prod")
        axis, places, values = self._sent(dim, index, source)
        writers = places._last_writers(self.shape[axis])
        return self._put_back(axis, writers.ge(0), values._chosen(writers))

    def scatter_add(self, dim: int, index: Self, src: Self) -> Self:
        """``np.add.at``: `src` added at the places that `index` names."""
        return self.scatter_reduce(dim, index, src, "sum")

    def scatter_reduce(
        self, dim: int, index: Self, src: Self, reduce: ReduceMode, *, include_self: bool = True
    ) -> Self:
        """All of `src` that `index` sends to a place, combined there, with x itself or without."""
        axis, places, values = self._sent(dim, index, src)
        own = self._beside(index, axis).transpose(axis, -1)
        wide = accumulator_dtype(self._counting().dtype)
        own, values = own.cast(wide), values.cast(wide)
        if reduce == "amin":
            own, values = own._mirrored(), values._mirrored()
        missed = places._missed(self.shape[axis])
        last = (missed.ndim - 1,)
        op = {"prod": Op.MUL, "amax": Op.MAX, "amin": Op.MAX}.get(reduce, Op.ADD)
        neutral = {Op.ADD: 0, Op.MUL: 1, Op.MAX: values.dtype.min}[op]
        total = missed.where(neutral, values.unsqueeze(-2))._fold(op, last, False)
        if include_self:
            total = total._alu(op, own)
        counts = missed.where(0, 1)._fold(Op.ADD, last, False) + int(include_self)
        if reduce == "mean":
            total = total.div(counts, rounding_mode=None if self.dtype.is_float else "floor")
        if reduce == "amin":
            total = total._mirrored()
        written = total._constant(True, dtypes.bool) if include_self else counts > 0
        return self._put_back(axis, written, total.cast(self.dtype))

    def _sent(self, dim: int, index: Self, src: Self) -> tuple[int, Self, Self]:
        """The axis, and as the last axis of each: where elements of `src` go, and they."""
        axis = self.axis(dim)
        self._beside(index, axis)
        places = index._in_range(self.shape[axis]).transpose(axis, -1)
        return axis, places, src._beside(index, None).cast(self.dtype).transpose(axis, -1)

    def _put_back(self, axis: int, written: Self, values: Self) -> Self:
        """`values` where `written`, else this tensor, whose `axis` is the last one of both."""
        values, written = values.transpose(axis, -1), written.transpose(axis, -1)
        sides = zip(self.shape, values.shape, strict=True)
        pads = tuple((0, subtract_dims(have, want)) for have, want in sides)
        return written._pad(pads).where(values._pad(pads), self)

    # ---- masks: a shape that depends on values is known once the mask is computed ----

    def _true_numbers(self, size: int | None = None) -> Self:
        """Where in the flattened tensor elements are not 0; below 0 beyond the last of them."""
        mask = self._truth().flatten()
        count = int(mask.sum().item()) if size is None else size
        return mask.where(mask.cumsum() - 1, -1)._last_writers(count)

    def _unraveled(self, shape: Shape) -> list[Self]:
        """The indices, along each axis of a box, of elements by number; ``np.unravel_index``."""
        steps = [product(shape[axis + 1 :]) for axis in range(len(shape))]
        return [
            self // self._operand(step) % self._operand(size)
            for step, size in zip(steps, shape, strict=True)
        ]

    def nonzero(self, size: int | None = None, fill_value: Scalar = 0) -> Self:
        """The indices of the elements that are not 0, a row each; ``np.argwhere(x)``.

        With a `size` there are that many rows, of `fill_value` behind the last index; without it
        the tensor is computed.
        """
        number = self._true_numbers(size)
        if not self.ndim:
            return self._full(fill_value, (number.shape[0], 0), dtypes.default_int)
        first, *others = number._unraveled(self.shape)
        rows = first.stack(*others, dim=1)
        return rows if size is None else (number < 0).unsqueeze(1).where(fill_value, rows)

    def masked_select(self, mask: Self, size: int | None = None, fill_value: Scalar = 0) -> Self:
        """The elements where `mask` holds, as a vector; ``x[mask]``.

        With a `size` there are that many, of `fill_value` behind the last one; without it the mask
        is computed.
        """
        shape: Shape = broadcast_shape(self.shape, mask.shape)
        number = mask._as_mask()._broadcast_to(shape)._true_numbers(size)
        found = self._broadcast_to(shape).flatten()._pick([(0, number)])
        return found if size is None else (number < 0).where(fill_value, found)


def _plain(value: object) -> int | None:
    if value is None or isinstance(value, int):
        return value
    if hasattr(value, "__index__"):
        return int(value.__index__())
    raise IndexingError(
        f"slice: {value!r} ({type(value).__name__}) is no end of a slice. Use whole numbers."
    )


def _end(value: object, size: Dim, usual: Dim) -> Dim:
    """Where a part of an axis begins or ends; `usual` for None."""
    number = value if isinstance(value, UOp) else _plain(value)
    if number is None:
        return usual
    return add_dims(size, number) if isinstance(number, int) and number < 0 else number


def _width(item: object) -> int:
    """How many axes an item of an index takes."""
    if item is None or item is Ellipsis:
        return 0
    return item.ndim if isinstance(item, Primitives) and item.dtype.is_bool else 1
