"""Elements that are read in steps, repeatedly or backwards are the right ones, whatever the lanes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernelet import Context, Device, Tensor

DEVICES = [name for name in ("CPU", "LLVM") if name in Device.get_available_devices()]
SIZES = (7, 20, 33)
DTYPES = ("float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool")


def _rows(size: int, dtype: str) -> np.ndarray[Any, Any]:
    return np.random.default_rng(size).integers(-9, 9, (3, size)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("device", DEVICES)
def test_steps_and_repeated_elements_are_read_right(device: str, dtype: str) -> None:
    with Context(DEV=device):
        for size in SIZES:
            rows = _rows(size, dtype)
            x = Tensor(rows).realize()
            for step in (2, 5, -1):
                assert ((x[:, ::step] != 1).numpy() == (rows[:, ::step] != 1)).all()
                assert (x[:, ::step].max(1).numpy() == rows[:, ::step].max(1)).all()
            for times in (2, 3):
                repeated = (x.repeat_interleave(times, 1) != 1).numpy()
                assert (repeated == (np.repeat(rows, times, 1) != 1)).all()


@pytest.mark.parametrize("window", [2, 3, 4])
@pytest.mark.parametrize("device", DEVICES)
def test_windows_and_their_slopes_are_read_right(device: str, window: int) -> None:
    with Context(DEV=device):
        for size in SIZES:
            whole = size // window * window
            rows = np.random.default_rng(size).permutation(3 * whole).reshape(1, 3, whole)
            x = Tensor(rows.astype(np.float32), requires_grad=True)
            found = x.max_pool2d((1, window))
            windows = rows.reshape(1, 3, -1, window)
            assert (found.numpy() == windows.max(-1)).all()
            (slope,) = (found * 2).sum().gradient(x)
            wanted = 2 * (windows == windows.max(-1, keepdims=True)).reshape(rows.shape)
            assert (slope.numpy() == wanted).all()
