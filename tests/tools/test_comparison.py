"""Every method agrees with its formula; the same few samples each time."""

import inspect
import math

import numpy as np
import pytest

from kernelet import Tensor
from kernelet.base.config import Context
from kernelet.base.dtype import dtypes, float_from_bits, round_float
from tools import comparison
from tools.comparisons.draws import Operand, rounded
from tools.comparisons.references import from_numpy
from tools.comparisons.row import Row
from tools.comparisons.tables import ROWS, TOPICS

SAMPLES = 3


@pytest.mark.parametrize("topic", TOPICS)
def test_methods_agree_with_their_formulas(topic: str) -> None:
    with Context(DEV="PYTHON"):
        found = comparison.compare(TOPICS[topic], SAMPLES, 0)
    assert [difference for each in found for difference in each.differences] == []


def test_no_method_is_without_a_comparison() -> None:
    assert comparison.missing() == []


def test_a_method_has_one_row() -> None:
    names = [row.method for row in ROWS]
    assert len(names) == len(set(names))


def test_methods_without_a_row_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "ROWS", [row for row in ROWS if row.method != "relu"])
    assert "relu" in comparison.missing()


def test_a_wrong_value_and_a_wrong_gradient_are_told() -> None:
    def draw(source):
        return (source.plain((2, 3)),)

    wrong_value = Row("exp", draw, np.expm1, None, ("float64",))
    wrong_slope = Row("relu", draw, lambda x: x, None, ("float64",), call=lambda x: x.detach() + 0)
    right = Row("exp", draw, np.exp, None, ("float64",))
    with Context(DEV="PYTHON"):
        found = comparison.compare([wrong_value, wrong_slope, right], 1, 0)
    assert [len(each.differences) for each in found] == [1, 1, 0]
    assert "exp(float64 (2, 3)" in found[0].differences[0]


def test_a_table_keeps_the_lines_of_other_methods() -> None:
    before = comparison.table("", ["| `exp` | torch | 3 |", "| `abs` | torch | 3 |"])
    after = comparison.table(before, ["| `exp` | torch | 100 |"])
    assert after.splitlines()[2:] == ["| `abs` | torch | 3 |", "| `exp` | torch | 100 |"]


def test_a_name_stands_for_all_names_of_a_method() -> None:
    assert comparison.names_of("subtract") == ["subtract", "sub", "__sub__"]
    assert inspect.unwrap(Tensor.subtract) is inspect.unwrap(Tensor.sub)


def test_bfloat16_rounds_to_nearest_even() -> None:
    values = np.array([1.00390625, 1.01171875, -2.0, np.inf])
    assert rounded(values, "bfloat16").tolist() == [1.0, 1.015625, -2.0, np.inf]


@pytest.mark.parametrize("dtype", ["fp8e4m3", "fp8e5m2"])
def test_floats_of_eight_bits_round_as_their_definition_says(dtype: str) -> None:
    kind = dtypes.from_name(dtype)
    every = np.array([float_from_bits(kind, bits) for bits in range(256)])
    assert np.array_equal(rounded(every, dtype), every, equal_nan=True)
    between = np.concatenate([np.linspace(-500, 500, 1001), np.geomspace(1e-7, 1e6, 400)])
    assert rounded(between, dtype).tolist() == [round_float(kind, each) for each in between]


def test_a_kink_has_no_slope_to_compare() -> None:
    def draw(source):
        return (Operand(np.float32([0.0, 1.0]), "fp8e4m3"),)

    (sample,) = comparison.samples_of(Row("abs", draw, np.abs, None, ("fp8e4m3",)), 1, 0)
    slopes = from_numpy(np.abs, sample.call, True, True).gradients[0]
    assert math.isnan(slopes[0])
    assert not math.isnan(slopes[1])
