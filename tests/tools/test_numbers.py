"""What docs/numbers.md says of NaN, infinities, ties and nothing is so, case by case."""

import math
import re
from collections.abc import Iterator

import numpy as np
import pytest

from kernelet import Tensor
from kernelet.base.config import Context
from kernelet.base.errors import UserError
from tools.sources import ROOT

NAMES = {"nan": math.nan, "inf": math.inf, "Tensor": Tensor}
CASE = re.compile(r"`([^`]*?) → ([^`]*?)`")


def cases() -> Iterator[tuple[bool, str, str, str]]:
    """Whether it is a gradient, the expression, the operands, the result."""
    is_gradient = False
    for line in (ROOT / "docs" / "numbers.md").read_text().splitlines():
        is_gradient |= line.startswith("**Gradients**")
        if not line.startswith("| `"):
            continue
        first, *cells = line.strip("|").split(" | ")
        for given, result in CASE.findall(" | ".join(cells)):
            yield is_gradient, first.split("`")[1], given, result


CASES = list(cases())


@pytest.mark.parametrize("device", ["PYTHON", "LLVM"])
def test_every_case_is_so(device: str) -> None:
    wrong, lazy = [], []
    with Context(DEV=device):
        for is_gradient, expression, given, result in CASES:
            operands = eval(f"({given},)", NAMES)
            x, *others = [Tensor(each, dtype=kind(each)) for each in operands]
            names = {**NAMES, "x": x, "y": others[0] if others else None}
            try:
                found = eval(expression, names)
                lazy.append((found.sum().gradient(x)[0] if is_gradient else found, result, given))
            except UserError as error:
                assert type(error).__name__ == result, (expression, given, error)
        Tensor.realize(*(found for found, _, _ in lazy))
        for found, result, given in lazy:
            want = np.asarray(eval(result, NAMES), dtype=float)
            got = found.numpy().astype(float)
            close = got.shape == want.shape and np.allclose(got, want, equal_nan=True, rtol=1e-5)
            if not close:
                wrong.append((given, got.tolist(), result))
    assert wrong == []


def kind(value: list) -> str | None:
    """Lists of bools keep their type, others are floats."""
    flat = np.asarray(value)
    return "float32" if flat.dtype.kind != "b" else None


def test_there_are_many_cases() -> None:
    assert len(CASES) > 140
