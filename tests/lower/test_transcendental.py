"""exp2, exp, log2, sin and cos are accurate wherever they are asked, and cheap."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable

import pytest

from kernelet.base.dtype import DType, dtypes
from kernelet.base.target import Target
from kernelet.graph.ops import ELEMENTWISE, Op
from kernelet.graph.uop import UOp, VariableArg
from kernelet.lower import transcendental
from kernelet.lower.decompose import decompose
from tests.reference.evaluate import evaluate

F32, F64 = dtypes.float32, dtypes.float64
PLAIN = Target("plain")
FUSED = Target("fused", operations=frozenset({"MULACC", "FDIV"}))
Build = Callable[[UOp], UOp]
Check = Callable[[float], float]


def argument(dtype: DType) -> UOp:
    return UOp(Op.VARIABLE, dtype, (), VariableArg("x", 0, 0))


def compute(build: Build, values: list[float], dtype: DType, target: Target) -> list[float]:
    """The function at many values, each one lane of a vector."""
    x = argument(dtype.vec(len(values)))
    return [float(value) for value in evaluate(decompose(build(x), target), {x: values})]


def exact(function: Check, value: float) -> float:
    try:
        return function(value)
    except OverflowError:
        return math.inf


def log2(value: float) -> float:
    return math.log2(value) if value > 0 else -math.inf if value == 0 else math.nan


def ulps(found: float, wanted: float, dtype: DType) -> float:
    """How many units in the last place of `wanted` the two are apart."""
    digits, least = (24, -125) if dtype is F32 else (53, -1021)
    if math.isnan(wanted):
        return 0.0 if math.isnan(found) else math.inf
    if math.isinf(wanted) or math.isinf(found):
        # Just below overflow both are right.
        largest = math.ldexp(2.0 - 2.0 ** (1 - digits), 127 if dtype is F32 else 1023)
        return 0.0 if found == wanted or found > 0 and wanted >= largest else math.inf
    unit = math.ldexp(1.0, max(math.frexp(wanted)[1], least) - digits)
    return abs(found - wanted) / unit


def floats(dtype: DType, count: int, seed: int) -> list[float]:
    """Random bit patterns: every magnitude is as likely as any other."""
    bits = random.Random(seed)
    size, code = ("<I", "<f") if dtype is F32 else ("<Q", "<d")
    found = []
    while len(found) < count:
        raw = struct.pack(size, bits.getrandbits(32 if dtype is F32 else 64))
        value = struct.unpack(code, raw)[0]
        found.append(value if value == value else math.nan)
    return found


def evenly(dtype: DType, low: float, high: float, count: int) -> list[float]:
    values = [low + (high - low) * i / (count - 1) for i in range(count)]
    if dtype is F64:
        return values
    return [struct.unpack("<f", struct.pack("<f", value))[0] for value in values]


EXPONENTIALS = [
    ("exp2", transcendental.exp2, lambda x: 2.0**x, (-152.0, 129.0), (-1080.0, 1025.0)),
    ("exp", transcendental.exp, math.exp, (-105.0, 89.0), (-747.0, 710.0)),
]


@pytest.mark.parametrize("target", [PLAIN, FUSED], ids=["plain", "fused"])
@pytest.mark.parametrize(("build", "function", "single"), [case[1:4] for case in EXPONENTIALS])
def test_exponentials_in_float32_are_within_two_ulp(
    build: Build, function: Check, single: tuple[float, float], target: Target
) -> None:
    values = [*evenly(F32, *single, 3000), *evenly(F32, -2, 2, 1000), *floats(F32, 1000, 1)]
    for value, found in zip(values, compute(build, values, F32, target), strict=True):
        assert ulps(found, exact(function, value), F32) <= 2.2, value


@pytest.mark.parametrize("target", [PLAIN, FUSED], ids=["plain", "fused"])
@pytest.mark.parametrize(
    ("build", "function", "double"), [(case[1], case[2], case[4]) for case in EXPONENTIALS]
)
def test_exponentials_in_float64_are_within_three_ulp(
    build: Build, function: Check, double: tuple[float, float], target: Target
) -> None:
    values = [*evenly(F64, *double, 2000), *evenly(F64, -2, 2, 500), *floats(F64, 500, 2)]
    for value, found in zip(values, compute(build, values, F64, target), strict=True):
        assert ulps(found, exact(function, value), F64) <= 3, value


@pytest.mark.parametrize(("dtype", "least", "top"), [(F32, -149, 128), (F64, -1074, 1024)])
@pytest.mark.parametrize("target", [PLAIN, FUSED], ids=["plain", "fused"])
def test_exp2_of_an_integer_is_that_power_of_two(
    dtype: DType, least: int, top: int, target: Target
) -> None:
    exponents = list(range(least, top))
    found = compute(transcendental.exp2, [float(e) for e in exponents], dtype, target)
    assert found == [math.ldexp(1.0, exponent) for exponent in exponents]


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("build", [transcendental.exp2, transcendental.exp])
def test_exponentials_keep_nan_and_end_in_zero_and_infinity(build: Build, dtype: DType) -> None:
    values = [-math.inf, -1e30, 0.0, -0.0, 1e30, math.inf]
    assert compute(build, values, dtype, FUSED) == [0.0, 0.0, 1.0, 1.0, math.inf, math.inf]
    assert math.isnan(compute(build, [math.nan], dtype, FUSED)[0])


@pytest.mark.parametrize("target", [PLAIN, FUSED], ids=["plain", "fused"])
@pytest.mark.parametrize(("dtype", "limit"), [(F32, 2.0), (F64, 4.0)])
def test_log2_is_accurate_from_the_subnormals_to_the_largest(
    dtype: DType, limit: float, target: Target
) -> None:
    tiny = [2.0**-140, 2.0**-149 * 3] if dtype is F32 else [2.0**-1070, 5e-324]
    near_one = evenly(dtype, 0.4, 2.5, 2500)
    values = [*floats(dtype, 1500, 3), *near_one, *tiny]
    for value, found in zip(
        values, compute(transcendental.log2, values, dtype, target), strict=True
    ):
        assert ulps(found, exact(log2, value), dtype) <= limit, value


@pytest.mark.parametrize("dtype", [F32, F64])
def test_log2_of_a_power_of_two_is_its_exponent(dtype: DType) -> None:
    exponents = list(range(-149, 128))
    values = [math.ldexp(1.0, exponent) for exponent in exponents]
    assert compute(transcendental.log2, values, dtype, PLAIN) == exponents


@pytest.mark.parametrize("dtype", [F32, F64])
def test_log2_is_minus_infinity_at_zero_and_nan_below(dtype: DType) -> None:
    found = compute(transcendental.log2, [0.0, -0.0, math.inf], dtype, FUSED)
    assert found == [-math.inf, -math.inf, math.inf]
    below = compute(transcendental.log2, [-1.0, -1e-40, -math.inf, math.nan], dtype, FUSED)
    assert all(map(math.isnan, below))


CIRCULAR = [(transcendental.sin, math.sin), (transcendental.cos, math.cos)]


@pytest.mark.parametrize("target", [PLAIN, FUSED], ids=["plain", "fused"])
@pytest.mark.parametrize(("build", "function"), CIRCULAR, ids=["sin", "cos"])
@pytest.mark.parametrize(("dtype", "limit"), [(F32, 2.0), (F64, 4.0)])
def test_sine_is_within_ulps_for_small_arguments(
    build: Build, function: Check, dtype: DType, limit: float, target: Target
) -> None:
    values = [*evenly(dtype, -100, 100, 2500), *evenly(dtype, -4, 4, 500), 1e-30, -1e-40, 0.0]
    for value, found in zip(values, compute(build, values, dtype, target), strict=True):
        assert ulps(found, function(value), dtype) <= limit, value


@pytest.mark.parametrize(("build", "function"), CIRCULAR, ids=["sin", "cos"])
@pytest.mark.parametrize(("dtype", "limit"), [(F32, 1.3e-7), (F64, 3e-16)])
def test_sine_is_right_for_every_finite_argument(
    build: Build, function: Check, dtype: DType, limit: float
) -> None:
    edges = [float(1 << 13), math.nextafter(1 << 13, 0), float(1 << 20)]
    values = [*edges, 1e5, 3.4e38, 1e22, *floats(dtype, 1500, 4), *evenly(dtype, 5e3, 2e6, 1000)]
    values = [struct.unpack("<f", struct.pack("<f", v))[0] if dtype is F32 else v for v in values]
    for value, found in zip(values, compute(build, values, dtype, FUSED), strict=True):
        if math.isfinite(value):
            assert abs(found - function(value)) <= limit, value
            assert abs(found) <= 1
        else:
            assert math.isnan(found)


def test_sine_keeps_the_sign_of_zero() -> None:
    found = compute(transcendental.sin, [-0.0, 0.0], F32, FUSED)
    assert [math.copysign(1, value) for value in found] == [-1, 1]


def test_the_bits_of_one_over_a_turn_are_right() -> None:
    # Machin: pi = 16 atan(1/5) - 4 atan(1/239), in integers with room for rounding.
    one = 1 << (transcendental.TURN_BITS + 64)

    def arctangent(inverse: int) -> int:
        power, total, step = one // inverse, 0, 0
        while power:
            total += power // (2 * step + 1) * (-1) ** step
            power //= inverse * inverse
            step += 1
        return total

    pi = 16 * arctangent(5) - 4 * arctangent(239)
    turns = (one << transcendental.TURN_BITS) // (2 * pi)
    assert turns == transcendental.TURN


@pytest.mark.parametrize(
    ("build", "most"),
    [
        (transcendental.exp2, 19),
        (transcendental.exp, 20),
        (transcendental.log2, 29),
        (transcendental.sin, 58),
        (transcendental.cos, 57),
    ],
    ids=["exp2", "exp", "log2", "sin", "cos"],
)
def test_functions_are_few_plain_operations(build: Build, most: int) -> None:
    nodes = [node for node in build(argument(F32)).toposort() if node.src]
    assert len(nodes) <= most
    assert {node.op for node in nodes} <= ELEMENTWISE - {Op.EXP2, Op.LOG2, Op.SIN}
