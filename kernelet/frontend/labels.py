"""Axes by name: products and sums (einsum), and other orders and groups (rearrange).

In:  tensors, and formulas with a name for each axis.
Out: `Labels`, and the parsers of both languages.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Self

from kernelet.base.errors import ArgumentError, ShapeError
from kernelet.frontend.indexing import Indexing
from kernelet.frontend.movement import filled, tensor_list
from kernelet.frontend.primitives import product, show_dim, show_shape
from kernelet.frontend.promotion import DTypeLike, accumulator_dtype, as_dtype, sum_dtype
from kernelet.graph.infer import Dim, Shape
from kernelet.graph.ops import Op

# A label for each axis; numbers are axes under an ellipsis.
Label = str | int
Names = tuple[Label, ...]


class Labels(Indexing):
    """Methods that take a formula with a name for each axis."""

    __slots__ = ()

    # ---- other orders and groups ----

    def rearrange(self, formula: str, **sizes: int) -> Self:
        """The axes that the left side names, split, ordered and merged as on the right.

        Parentheses hold an axis made of several, ``...`` stands for any others; `sizes` are those
        that cannot be inferred; ``einops.rearrange(x, formula, **sizes)``.

        >>> from kernelet import Tensor
        >>> Tensor([[1, 2, 3, 4]]).rearrange("a (b c) -> (c a) b", c=2).tolist()
        [[1, 3], [2, 4]]
        """
        left, right = parse_groups(formula, self.ndim)
        names = [name for group in left for name in group]
        split: list[Dim] = []
        for group, size in zip(left, self.shape, strict=True):
            asked = [sizes.get(name, -1) for name in group]
            parts = filled(asked, size)
            if -1 in parts or product(parts) != size:
                raise ShapeError(
                    f"rearrange {formula!r}: the axis ({' '.join(group)}) of "
                    f"{show_shape(self.shape)} does not split into parts of sizes {asked}. Give "
                    "the sizes of all parts but one; their product is that of the axis."
                )
            split += parts
        unknown = sizes.keys() - set(names)
        if unknown:
            raise ArgumentError(
                f"rearrange {formula!r}: there is no axis {', '.join(sorted(unknown))}. Give sizes "
                "of axes that the formula names."
            )
        order = [names.index(name) for group in right for name in group]
        merged = [product([split[names.index(name)] for name in group]) for group in right]
        return self.reshape(split).permute(order).reshape(merged)

    # ---- products and sums ----

    @classmethod
    def einsum(
        cls, formula: str, *operands: Self | Sequence[Self], dtype: DTypeLike = None
    ) -> Self:
        """Products and sums written with a letter for each axis; ``numpy.einsum``.

        Letters may repeat inside an operand (the diagonal), ``...`` stands for any other axes,
        and without ``->`` the letters that occur once are kept in alphabetical order.
        """
        tensors, _ = tensor_list(operands)
        inputs, output = parse_equation(formula, [tensor.shape for tensor in tensors])
        return cls._contract(tensors, inputs, output, dtype)

    @classmethod
    def _contract(
        cls, tensors: Sequence[Self], inputs: Sequence[Names], output: Names, dtype: DTypeLike
    ) -> Self:
        """Multiply from left to right; sum over a label once no later operand has it."""
        wanted = as_dtype(dtype, cls._common_dtype(*tensors))
        wide = accumulator_dtype(sum_dtype(wanted))
        total: Self | None = None
        held: Names = ()
        for place, (labels, tensor) in enumerate(zip(inputs, tensors, strict=True), 1):
            kept, single = tensor.cast(wide)._without_repeats(labels)
            every = tuple(dict.fromkeys((*held, *kept)))
            single = single._labelled(kept, every)
            total = single if total is None else total._labelled(held, every) * single
            needed = set(output).union(*inputs[place:])
            done = tuple(axis for axis, label in enumerate(every) if label not in needed)
            total = total._fold(Op.ADD, done, False)
            held = tuple(label for label in every if label in needed)
        assert total is not None
        return total._labelled(held, output).cast(wanted)

    def _without_repeats(self, labels: Names) -> tuple[Names, Self]:
        """The diagonals of axes with equal labels, so that each label is there once."""
        for label in labels:
            first, *others = [axis for axis, each in enumerate(labels) if each == label]
            if others:
                once = [each for at, each in enumerate(labels) if at not in (first, others[0])]
                return self.diagonal(0, first, others[0])._without_repeats((*once, label))
        return labels, self

    def _labelled(self, labels: Names, every: Names) -> Self:
        """The axes in the order of `every`, size 1 where this tensor has no such label."""
        order = tuple(labels.index(label) for label in every if label in labels)
        moved = self._permute(order)
        sizes = iter(moved.shape)
        return moved._reshape(tuple(next(sizes) if label in labels else 1 for label in every))


# ---- the language of einsum: a label for each axis ----


def parse_equation(formula: str, shapes: Sequence[Shape]) -> tuple[list[Names], Names]:
    """The labels of the inputs and of the output, checked against the operands' shapes.

    >>> parse_equation("ij,jk", [(2, 3), (3, 4)])
    ([('i', 'j'), ('j', 'k')], ('i', 'k'))
    >>> parse_equation("...i->i...", [(5, 6, 7)])
    ([(-2, -1, 'i')], ('i', -2, -1))
    """
    left, arrow, right = formula.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise ArgumentError(
            f"einsum {formula!r}: the formula has {len(terms)} operands and {len(shapes)} are "
            "given. Give one tensor for each part between commas."
        )
    inputs = [_labels(formula, term, shape) for term, shape in zip(terms, shapes, strict=True)]
    counts = Counter(label for labels in inputs for label in labels)
    hidden = sorted(label for label in counts if isinstance(label, int))
    if arrow:
        before, ellipsis, after = _parts(formula, right)
        output: Names = (*before, *(hidden if ellipsis else ()), *after)
    else:
        once = [each for each, count in counts.items() if count == 1 and isinstance(each, str)]
        output = (*hidden, *sorted(once))
    for label in output:
        if label not in counts or output.count(label) > 1:
            raise ArgumentError(
                f"einsum {formula!r}: the output has {label!r} "
                f"{'twice' if label in counts else 'and no input has it'}. "
                "Use each letter of the inputs at most once."
            )
    _check_sizes(formula, inputs, shapes)
    return inputs, output


def _labels(formula: str, term: str, shape: Shape) -> Names:
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


def _check_sizes(formula: str, inputs: Sequence[Names], shapes: Sequence[Shape]) -> None:
    sizes: dict[Label, Dim] = {}
    labels = [label for labels in inputs for label in labels]
    for label, size in zip(labels, [size for shape in shapes for size in shape], strict=True):
        if size != 1 and sizes.setdefault(label, size) != size:
            listed = " with ".join(show_shape(each) for each in shapes)
            name = "an axis under '...'" if isinstance(label, int) else repr(label)
            raise ShapeError(
                f"einsum {formula!r} of {listed}: {name} has sizes {show_dim(sizes[label])} and "
                f"{show_dim(size)}. An axis has one size, or 1 to be repeated."
            )


# ---- the language of rearrange: a group of names for each axis ----

Groups = list[tuple[str, ...]]


def parse_groups(formula: str, ndim: int) -> tuple[Groups, Groups]:
    """The names that make up each axis, on the left and on the right.

    >>> parse_groups("a ... (b c) -> (... a) 1 c b", 4)
    ([('a',), ('_0',), ('_1',), ('b', 'c')], [('_0', '_1', 'a'), (), ('c',), ('b',)])
    """
    sides = formula.split("->")
    if len(sides) != 2:
        raise ArgumentError(
            f"rearrange {formula!r}: it has {len(sides) - 1} arrows. Write the axes before and "
            "after one '->'."
        )
    spare = ndim - len(_groups(formula, sides[0], ""))
    others = " ".join(f"_{at}" for at in range(spare))
    left, right = (_groups(formula, side, others) for side in sides)
    if len(left) != ndim:
        raise ShapeError(
            f"rearrange {formula!r}: the left side names {len(left)} axes and the tensor has "
            f"{ndim}. Name each axis, or write '...' for the others."
        )
    names = [Counter(name for group in side for name in group) for side in (left, right)]
    if names[0] != names[1] or max(names[0].values(), default=1) > 1:
        raise ArgumentError(
            f"rearrange {formula!r}: the sides name different axes, or one twice. Use each name once "
            "on the left and once on the right."
        )
    return left, right


def _groups(formula: str, side: str, others: str) -> Groups:
    """The names in each group of one side, with `others` in place of the ellipsis."""
    token, text = r"[A-Za-z_]\w*|1", side.replace("...", f" {others} ")
    if not re.fullmatch(rf"(\s*(\((\s*({token}))*\s*\)|{token}))*\s*", text):
        raise ArgumentError(
            f"rearrange {formula!r}: {side.strip()!r} is not made of names, 1, '...' and groups in "
            "parentheses. Write for example 'b (h w) c -> b c h w'."
        )
    items = re.findall(rf"\(([^)]*)\)|({token})", text)
    found = [re.findall(token, inner or single) for inner, single in items]
    return [tuple(name for name in group if name != "1") for group in found]
