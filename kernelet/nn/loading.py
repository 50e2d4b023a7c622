"""Batches of a data set, in order or shuffled.

In:  tensors with one row for each example.
Out: tuples of tensors of some rows, which a thread gathers while the batch before is in use.
"""

from __future__ import annotations

import contextlib
import queue
import random
import threading
from collections.abc import Iterator
from typing import TypeVar, final

from kernelet.base import trace
from kernelet.base.errors import ShapeError
from kernelet.frontend.arguments import Count, Size
from kernelet.frontend.host import known_shape
from kernelet.frontend.tensor import Tensor

Batch = tuple[Tensor, ...]
Item = TypeVar("Item")


@final
class DataLoader:
    """Goes over `tensors` in batches of rows; each `for` is an epoch.

    The order depends on `seed` and the number of the epoch alone. `state` tells where the loader is,
    also in the middle of an epoch; a loader that is given it goes on with the batch after.

    >>> loader = DataLoader(Tensor([1, 2, 3]), Tensor([4, 5, 6]), batch_size=2)
    >>> [[each.tolist() for each in batch] for batch in loader]
    [[[1, 2], [4, 5]], [[3], [6]]]
    """

    def __init__(
        self,
        *tensors: Tensor,
        batch_size: Count = 1,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        prefetch: Size = 2,
        progress: str = "",
    ) -> None:
        shapes = [known_shape(each.shape) for each in tensors]
        counts = {shape[0] if shape else 0 for shape in shapes}
        if len(counts) != 1 or 0 in counts:
            raise ShapeError(
                f"DataLoader: the tensors have shapes {shapes}. Give tensors of the same number of "
                "rows, at least one."
            )
        self.batch_size, self.shuffle, self.seed = batch_size, shuffle, seed
        self.drop_last, self.prefetch, self.progress = drop_last, prefetch, progress
        self.count = counts.pop()
        # The epoch that is going on or comes next, and how many of its batches were given out.
        self.state = (0, 0)
        self._parts = [
            (each.data().cast("B"), each, shape[1:])
            for each, shape in zip(tensors, shapes, strict=True)
        ]

    def __len__(self) -> int:
        return -(-(self.count - (self.batch_size - 1) * self.drop_last) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        epoch, done = self.state
        pieces = map(self._rows, self._order(epoch)[done:])
        with trace.Progress(self.progress, len(self), "batches") as progress:
            ahead = _ahead(pieces, self.prefetch) if self.prefetch else pieces
            for number, piece in enumerate(ahead, done + 1):
                self.state = (epoch, number) if number < len(self) else (epoch + 1, 0)
                yield self._batch(piece)
                if self.progress:
                    progress.advance()

    def _order(self, epoch: int) -> list[list[int]]:
        """The numbers of the rows of each batch."""
        rows = list(range(self.count))
        if self.shuffle:
            random.Random(f"{self.seed}/{epoch}").shuffle(rows)
        starts = range(0, len(self) * self.batch_size, self.batch_size)
        return [rows[start : start + self.batch_size] for start in starts]

    def _rows(self, rows: list[int]) -> list[bytes]:
        """The bytes of these rows of each tensor."""
        found = []
        for data, _, _ in self._parts:
            size = len(data) // self.count
            found.append(b"".join(data[row * size : (row + 1) * size] for row in rows))
        return found

    def _batch(self, pieces: list[bytes]) -> Batch:
        return tuple(
            Tensor(piece, device=tensor.device, dtype=tensor.dtype).reshape(-1, *shape)
            for piece, (_, tensor, shape) in zip(pieces, self._parts, strict=True)
        )


def _ahead(items: Iterator[Item], most: int) -> Iterator[Item]:
    """The items, `most` of them made ahead by another thread; it ends with the loop that reads them."""
    made: queue.Queue[tuple[Item] | BaseException | None] = queue.Queue(most)
    is_over = threading.Event()

    def put(item: tuple[Item] | BaseException | None) -> None:
        while not is_over.is_set():
            with contextlib.suppress(queue.Full):
                made.put(item, timeout=0.1)
                return

    def make() -> None:
        try:
            for item in items:
                if is_over.is_set():
                    return
                put((item,))
            put(None)
        except BaseException as error:  # the reader raises it
            put(error)

    worker = threading.Thread(target=make, name="kernelet batches", daemon=True)
    worker.start()
    try:
        while (item := made.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item[0]
    finally:
        is_over.set()
        worker.join()
