import dataclasses
import os
import subprocess
import sys

import pytest

from kernelet.base.target import Target


@pytest.mark.parametrize(
    ("vector_bytes", "itemsize", "lanes"), [(64, 4, 16), (64, 8, 8), (32, 4, 8), (0, 4, 1)]
)
def test_lanes_fill_one_register(vector_bytes: int, itemsize: int, lanes: int) -> None:
    assert Target("X", vector_bytes=vector_bytes).lanes(itemsize) == lanes


def test_a_target_is_a_value() -> None:
    assert Target("X", 64) == Target("X", 64)
    assert hash(Target("X", 64)) == hash(Target("X", 64))
    with pytest.raises(dataclasses.FrozenInstanceError):
        Target("X").threads = 2  # type: ignore[misc]


def test_the_key_of_a_target_does_not_depend_on_the_process() -> None:
    code = (
        "from kernelet.base.target import Target;"
        "print(Target('X', 64, operations=frozenset({'SUB', 'FDIV', 'MULACC', 'EXP2'})).key())"
    )
    keys = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(3)
    }
    assert len(keys) == 1
