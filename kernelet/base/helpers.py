"""Small functions that every layer may use. The list is closed: a new one needs two users."""

from __future__ import annotations

from collections.abc import Sequence


def argsort(order: Sequence[int]) -> tuple[int, ...]:
    """The positions that sort `order`; for a permutation, its inverse.

    >>> argsort((2, 0, 1))
    (1, 2, 0)
    """
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def ceiling_divide(amount: int, size: int) -> int:
    """How many pieces of `size` cover `amount`.

    >>> ceiling_divide(10, 4)
    3
    """
    return -(-amount // size)


def round_up(amount: int, size: int) -> int:
    """The least multiple of `size` that is not below `amount`.

    >>> round_up(10, 4)
    12
    """
    return ceiling_divide(amount, size) * size
