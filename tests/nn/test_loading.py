import gc
import threading

import numpy as np
import pytest

from kernelet import Tensor, dtypes
from kernelet.base import trace
from kernelet.base.errors import ArgumentError, ShapeError
from kernelet.nn import DataLoader

ROWS = np.arange(21, dtype=np.float32).reshape(7, 3)


def loader(**options):
    return DataLoader(Tensor(ROWS), Tensor(np.arange(7, dtype=np.uint8)), **options)


def labels(batches):
    return [batch[1].tolist() for batch in batches]


@pytest.mark.parametrize("prefetch", [0, 1, 3, 50])
def test_batches_come_in_order_with_all_their_rows(prefetch):
    found = list(loader(batch_size=3, prefetch=prefetch))
    assert labels(found) == [[0, 1, 2], [3, 4, 5], [6]]
    np.testing.assert_array_equal(found[1][0].numpy(), ROWS[3:6])
    assert [each.dtype for each in found[0]] == [dtypes.float32, dtypes.uint8]


def test_the_last_batch_may_be_left_out():
    for size, drop, want in (
        (3, True, 2),
        (3, False, 3),
        (7, True, 1),
        (8, True, 0),
        (8, False, 1),
    ):
        made = loader(batch_size=size, drop_last=drop)
        assert len(made) == len(list(made)) == want


def test_shuffling_is_another_order_each_epoch_and_the_same_for_a_seed():
    first, second, other = (loader(batch_size=7, shuffle=True, seed=at) for at in (1, 1, 2))
    epochs = [labels(first)[0] for _ in range(3)]
    assert [labels(second)[0] for _ in range(3)] == epochs
    assert labels(other)[0] != epochs[0]
    assert len({tuple(each) for each in epochs}) == 3
    assert all(sorted(each) == list(range(7)) for each in epochs)


def test_rows_stay_together():
    for rows, numbers in loader(batch_size=2, shuffle=True):
        np.testing.assert_array_equal(rows.numpy(), ROWS[numbers.numpy()])


def test_a_loader_goes_on_in_the_middle_of_an_epoch():
    first = loader(batch_size=2, shuffle=True)
    whole = labels(first) + labels(first)
    again = loader(batch_size=2, shuffle=True)
    seen = labels(again)
    for batch in again:
        seen.append(batch[1].tolist())
        break
    assert again.state == (1, 1)
    resumed = loader(batch_size=2, shuffle=True)
    resumed.state = again.state
    assert seen + labels(resumed) == whole
    assert resumed.state == (2, 0)


def test_the_thread_ends_with_the_loop():
    before = threading.active_count()
    for _ in loader(batch_size=1):
        assert threading.active_count() <= before + 1
        break
    gc.collect()
    assert threading.active_count() == before
    with pytest.raises(ZeroDivisionError):
        for _ in loader(batch_size=1):
            raise ZeroDivisionError
    gc.collect()
    assert threading.active_count() == before


def test_an_error_of_the_thread_reaches_the_loop(monkeypatch):
    made = loader(batch_size=2)
    monkeypatch.setattr(DataLoader, "_rows", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        list(made)


def test_progress_is_told(monkeypatch):
    monkeypatch.setattr(trace.Progress, "quiet_seconds", 0.0)
    seen = []
    with trace.reading(seen.append, "progress"):
        list(loader(batch_size=2, progress="epoch 1"))
        list(loader(batch_size=2))
    assert seen[0].text.startswith("epoch 1: 1/4 batches")
    assert all(each.name == "epoch 1" for each in seen)


def test_what_does_not_fit_is_named():
    with pytest.raises(ShapeError, match=r"\(3,\), \(2, 2\)"):
        DataLoader(Tensor([1, 2, 3]), Tensor([[1, 2], [3, 4]]))
    with pytest.raises(ShapeError, match="same number of rows"):
        DataLoader()
    with pytest.raises(ArgumentError, match="batch_size=0.*at least 1"):
        loader(batch_size=0)
