"""Arithmetic, comparison, selection and bits agree with numpy."""

import math
import operator

import numpy as np
import pytest

from kernelet.base.config import Context
from kernelet.base.dtype import dtypes
from kernelet.base.errors import ArgumentError, DTypeError
from kernelet.frontend.tensor import Tensor

inf, nan = math.inf, math.nan
FLOATS = np.array([[-3.5, -2.0, -0.5, 0.0], [0.25, 1.0, 2.5, 7.0]], np.float32)
INTS = np.array([-7, -3, -1, 0, 1, 2, 5, 8], np.int32)


def same(got: Tensor, want: object) -> None:
    expected = np.asarray(want)
    found = got.numpy()
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


BINARY = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv]
BINARY += [operator.mod, operator.lt, operator.le, operator.gt, operator.ge, operator.eq]
BINARY += [operator.ne]


@pytest.mark.parametrize("operation", BINARY, ids=lambda operation: operation.__name__)
def test_operators_on_floats_are_those_of_numpy(operation: object) -> None:
    y = np.array([[2.0], [-1.5]], np.float32)
    same(operation(Tensor(FLOATS), Tensor(y)), operation(FLOATS, y))
    same(operation(Tensor(FLOATS), 2.5), operation(FLOATS, np.float32(2.5)))
    same(operation(2.5, Tensor(y)), operation(np.float32(2.5), y))


@pytest.mark.parametrize("operation", BINARY, ids=lambda operation: operation.__name__)
def test_operators_on_integers_are_those_of_numpy(operation: object) -> None:
    y = np.array([2, -2, 3, -3, 5, -5, 7, 1], np.int32)
    want = operation(INTS, y)
    same(
        operation(Tensor(INTS), Tensor(y)), want.astype(np.float32) if want.dtype == float else want
    )
    want = operation(7, y)
    same(operation(7, Tensor(y)), want.astype(np.float32) if want.dtype == float else want)


def test_division_of_integers_by_zero_gives_zero() -> None:
    x, zero = Tensor([7, -7, 0]), Tensor([0, 0, 0])
    assert (x // zero).tolist() == [0, 0, 0]
    assert (x % zero).tolist() == [0, 0, 0]
    assert (Tensor([1.0, -1.0, 0.0]) / 0).numpy().tolist()[:2] == [inf, -inf]


def test_quotients_of_floats_are_rounded_down_as_in_numpy() -> None:
    x = np.array([1.0, -1.0, inf, 2.5, -2.5, nan, 0.0, 7.0], np.float32)
    y = np.array([0.3, 0.3, -1.5, -inf, -inf, 1.0, -inf, 0.0], np.float32)
    with np.errstate(all="ignore"):
        same(Tensor(x) // Tensor(y), x // y)
        same(Tensor(x) % Tensor(y), x % y)


def test_division_rounds_as_asked() -> None:
    x, y = Tensor([7, -7, 7, -7]), Tensor([2, 2, -2, -2])
    assert x.div(y, rounding_mode="trunc").tolist() == [3, -3, -3, 3]
    assert x.div(y, rounding_mode="floor").tolist() == [3, -4, -4, 3]
    assert x.float().div(y, rounding_mode="trunc").tolist() == [3.0, -3.0, -3.0, 3.0]
    assert x.fmod(y).tolist() == [1, -1, 1, -1]
    assert x.float().fmod(y).tolist() == [1.0, -1.0, 1.0, -1.0]
    with pytest.raises(ArgumentError, match="ceil"):
        x.div(y, rounding_mode="ceil")  # type: ignore[arg-type]


def test_integers_wrap() -> None:
    assert (Tensor([127], dtype="int8") + 1).tolist() == [-128]
    assert (Tensor([3], dtype="uint8") - Tensor([5], dtype="uint8")).tolist() == [254]
    assert (-Tensor([1], dtype="uint8")).tolist() == [255]
    assert (Tensor([2**62]) * 4).tolist() == [0]
    assert (Tensor([-(2**31)]) // -1).tolist() == [-(2**31)]


def test_bools_add_as_or_and_multiply_as_and() -> None:
    x, y = Tensor([True, True, False]), Tensor([True, False, False])
    assert (x + y).tolist() == [True, True, False]
    assert (x * y).tolist() == [True, False, False]
    assert (1 - x).tolist() == [0, 0, 1]
    with pytest.raises(DTypeError, match="bool"):
        x - y
    with pytest.raises(DTypeError, match="bool"):
        x.neg()


def test_extremes_keep_nan_and_work_for_every_type() -> None:
    x, y = np.array([nan, 1, -1, inf]), np.array([1, nan, 0, -inf])
    np.testing.assert_array_equal(Tensor(x).maximum(Tensor(y)).numpy(), np.maximum(x, y))
    np.testing.assert_array_equal(Tensor(x).minimum(Tensor(y)).numpy(), np.minimum(x, y))
    for dtype in ("uint8", "int8", "uint32", "int64"):
        a, b = np.array([0, 1, 100, 127], dtype), np.array([3, 0, 99, 127], dtype)
        assert Tensor(a).minimum(Tensor(b)).tolist() == np.minimum(a, b).tolist()
        assert Tensor(a).maximum(Tensor(b)).tolist() == np.maximum(a, b).tolist()
    assert Tensor([-(2**31), 5]).minimum(0).tolist() == [-(2**31), 0]
    assert Tensor([True, False]).minimum(Tensor([True, True])).tolist() == [True, False]


def test_clamp_limits_both_ends() -> None:
    same(Tensor(FLOATS).clamp(-1, 2), np.clip(FLOATS, -1, 2))
    same(Tensor(FLOATS).clip(min=0.5), np.clip(FLOATS, 0.5, None))
    same(Tensor(INTS).clamp(max=2), np.clip(INTS, None, 2))
    assert math.isnan(Tensor([nan]).clamp(0, 1).item())
    with pytest.raises(ArgumentError, match="clamp"):
        Tensor(INTS).clamp()


@pytest.mark.parametrize("name", ["abs", "sign", "floor", "ceil", "trunc", "round", "square"])
def test_roundings_and_signs_are_those_of_numpy(name: str) -> None:
    x = np.array([-2.5, -1.5, -0.7, -0.5, 0.0, 0.5, 1.5, 2.5, 3.2, 1e10, inf, -inf], np.float32)
    same(getattr(Tensor(x), name)(), getattr(np, name)(x))
    same(getattr(Tensor(INTS), name)(), getattr(np, name)(INTS))


def test_round_keeps_decimals() -> None:
    same(Tensor([1.234, -5.678]).round(2), np.array([1.23, -5.68], np.float32))
    assert Tensor([2.25]).frac().tolist() == [0.25]


def test_copysign_sees_negative_zero() -> None:
    same(Tensor([1.0, 2.0, 3.0]).copysign(Tensor([-0.0, 0.0, -5.0])), np.float32([-1, 2, -3]))


def test_comparisons_with_nan_are_false() -> None:
    x = Tensor([nan, 1.0])
    assert [(x <= 1).tolist(), (x >= 1).tolist()] == [[False, True], [False, True]]
    assert [(x == x).tolist(), (x != x).tolist()] == [[False, True], [True, False]]


def test_comparisons_with_numbers_outside_the_type_are_right() -> None:
    x = Tensor([0, 200], dtype="uint8")
    assert [(x < 300).tolist(), (x > -1).tolist()] == [[True, True], [True, True]]
    assert (Tensor([5]) < 2**40).tolist() == [True]
    assert (Tensor([1, 2]) > 1.5).tolist() == [False, True]


def test_kinds_of_numbers_are_told_apart() -> None:
    x = Tensor([1.0, nan, inf, -inf])
    assert x.isnan().tolist() == [False, True, False, False]
    assert x.isinf().tolist() == [False, False, True, True]
    assert x.isinf(detect_negative=False).tolist() == [False, False, True, False]
    assert x.isfinite().tolist() == [True, False, False, False]
    assert Tensor([1]).isinf().tolist() == [False]


def test_isclose_is_that_of_numpy() -> None:
    x, y = np.array([1.0, 1.0, inf, nan, 0.0]), np.array([1.000001, 1.1, inf, nan, 1e-9])
    for equal_nan in (False, True):
        got = Tensor(x).isclose(Tensor(y), equal_nan=equal_nan)
        assert got.tolist() == np.isclose(x, y, equal_nan=equal_nan).tolist()


def test_logic_looks_at_truth() -> None:
    x, y = Tensor([0, 2, 0, 3]), Tensor([0.0, 0.0, 1.0, 5.0])
    assert x.logical_and(y).tolist() == [False, False, False, True]
    assert x.logical_or(y).tolist() == [False, True, True, True]
    assert x.logical_xor(y).tolist() == [False, True, True, False]
    assert x.logical_not().tolist() == [True, False, True, False]


def test_bits_are_those_of_numpy() -> None:
    y = np.array([3, 5, -1, 7, 0, 6, 2, 1], np.int32)
    same(Tensor(INTS) & Tensor(y), INTS & y)
    same(Tensor(INTS) | 5, INTS | 5)
    same(5 ^ Tensor(INTS), 5 ^ INTS)
    same(~Tensor(INTS), ~INTS)
    assert (~Tensor([0, 255], dtype="uint8")).tolist() == [255, 0]
    assert (~Tensor([True, False])).tolist() == [False, True]
    with pytest.raises(DTypeError, match="bits"):
        Tensor([1.0]) & 1


def test_shifts_of_all_bits_are_defined() -> None:
    x = Tensor([1, -8, 2**30])
    assert (x << 2).tolist() == [4, -32, 0]
    assert (x >> 2).tolist() == [0, -2, 2**28]
    assert (x << 32).tolist() == [0, 0, 0]
    assert (x >> 40).tolist() == [0, -1, 0]
    assert (Tensor([255], dtype="uint8") >> Tensor([9], dtype="uint8")).tolist() == [0]


def test_where_selects_in_both_spellings() -> None:
    condition = Tensor([True, False, True])
    x, y = Tensor([1.0, 2.0, 3.0]), Tensor([10, 20, 30])
    assert condition.where(x, y).tolist() == [1.0, 20.0, 3.0]
    assert Tensor.where(condition, x, 0).tolist() == [1.0, 0.0, 3.0]
    assert x.where(condition, y).tolist() == [1.0, 20.0, 3.0]
    assert condition.where(1, 0).dtype is dtypes.int32
    assert condition.where(1.5, 0).tolist() == [1.5, 0.0, 1.5]
    assert condition.where(Tensor([1], dtype="int8"), 2).dtype is dtypes.int8
    assert Tensor([[True], [False]]).where(x, 0.0).shape == (2, 3)


def test_masked_fill_keeps_the_type() -> None:
    filled = Tensor([1.0, 2.0], dtype="half").masked_fill(Tensor([True, False]), -inf)
    assert (filled.tolist(), filled.dtype) == ([-inf, 2.0], dtypes.float16)
    assert Tensor([1, 2]).masked_fill(Tensor([True, False]), 7.9).tolist() == [7, 2]


def test_lerp_and_the_fused_products_follow_their_formulas() -> None:
    x, y = Tensor([1.0, 2.0]), Tensor([3.0, 6.0])
    assert x.lerp(y, 0.25).tolist() == [1.5, 3.0]
    assert x.addcmul(x, y, value=2).tolist() == [7.0, 26.0]
    assert x.addcdiv(y, x).tolist() == [4.0, 5.0]


def test_the_rest_of_a_division_by_infinity() -> None:
    x, y = np.array([5.0, -5.0, 0.0, inf, 5.0]), np.array([inf, inf, -inf, inf, -inf])
    with np.errstate(invalid="ignore"):
        rest, same_sign = np.mod(x, y), np.fmod(x, y)
    np.testing.assert_array_equal((Tensor(x) % Tensor(y)).numpy(), rest)
    np.testing.assert_array_equal(Tensor(x).fmod(Tensor(y)).numpy(), same_sign)


def test_the_distance_from_zero_of_zero_is_positive() -> None:
    x = Tensor([0.0, -0.0, -2.0]).realize()
    assert (1 / x.abs()).tolist() == [inf, inf, 0.5]


def test_limits_have_the_names_of_numpy_and_others() -> None:
    x = Tensor([-2.0, 0.5, 2.0])
    assert x.clip(min=-1, max=1).tolist() == x.clip(min_=-1, max_=1).tolist() == [-1.0, 0.5, 1.0]


def test_numbers_take_the_place_of_nan_and_infinities() -> None:
    x = np.array([nan, inf, -inf, 1.5], np.float32)
    same(Tensor(x).nan_to_num(), np.nan_to_num(x))
    assert Tensor(x).nan_to_num(7.0, 8.0, -9.0).tolist() == [7.0, 8.0, -9.0, 1.5]
    assert Tensor(x, dtype="float16").nan_to_num().tolist() == [0.0, 65504.0, -65504.0, 1.5]
    assert Tensor([1, 2]).nan_to_num().tolist() == [1, 2]


@pytest.mark.parametrize("dtype", ["fp8e4m3", "fp8e5m2", "float16", "bfloat16"])
def test_rests_of_narrow_floats_are_exact(dtype: str) -> None:
    """The quotient has more digits than the type; the rest has not."""
    x, y = (
        Tensor([3.5, -3.5, 0.3125, 208.0]).cast(dtype),
        Tensor([0.875, -1.25, 0.125, 3.0]).cast(dtype),
    )
    first, second = x.numpy().astype(float), y.numpy().astype(float)
    assert (x % y).cast("float64").tolist() == np.mod(first, second).tolist()
    assert x.fmod(y).cast("float64").tolist() == np.fmod(first, second).tolist()
    quotients = Tensor(np.floor(first / second)).cast(dtype)
    assert (x // y).tolist() == quotients.tolist()


def test_narrow_floats_are_rounded_to_decimals_without_overflow() -> None:
    assert Tensor([57344.0, 0.25], dtype="fp8e5m2").round(1).tolist() == [57344.0, 0.1875]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("number", [7, 49, -61, None])
def test_multiples_of_a_divisor_leave_no_rest(dtype: type, number: float | None) -> None:
    """A quotient that is rounded below a whole number is that number all the same."""
    many = [3, 7, 41, 47, 49, 55, 61, 97, 107, 0.5, -41, -49, -7, 0.375]
    by = np.array(many if number is None else [number], dtype)[:, None]
    x = by * np.arange(-300, 300, dtype=dtype)
    x = np.concatenate([x, x + 1, np.nextafter(x, dtype(0))], axis=1)
    # Compiled code multiplies by what the divisor's reciprocal is rounded to.
    with Context(DEV="LLVM"):
        y = Tensor(by) if number is None else number
        quotient, rest, other = Tensor(x) // y, Tensor(x) % y, Tensor(x).fmod(y)
        Tensor.realize(quotient, rest, other)
    assert quotient.tolist() == np.floor_divide(x, by).tolist()
    np.testing.assert_allclose(rest.numpy(), np.mod(x, by), atol=1e-4)
    np.testing.assert_allclose(other.numpy(), np.fmod(x, by), atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("number", [3, 10, 41, 47, -61, 97, 0.1])
def test_quotients_by_a_number_are_rounded_once_in_lanes_too(dtype: type, number: float) -> None:
    x = np.concatenate([np.arange(-200, 200), np.arange(-67, 67) * number]).astype(dtype)
    with Context(DEV="LLVM"):
        quotient, whole = Tensor(x) / number, Tensor(x).div(number, rounding_mode="trunc")
        Tensor.realize(quotient, whole)
    assert quotient.tolist() == (x / dtype(number)).tolist()
    assert whole.tolist() == np.trunc(x / dtype(number)).tolist()


IN_PLACE = ["iadd", "isub", "imul", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor"]


@pytest.mark.parametrize("name", [*IN_PLACE, "ilshift", "irshift"])
def test_integers_are_changed_in_place(name: str) -> None:
    x = np.array([[1, 2, 3], [4, 5, 6]], np.int32)
    tensor = alias = Tensor(x).realize()
    apply = getattr(operator, name)
    tensor, x = apply(tensor, 2), apply(x, 2)
    row = tensor[1]
    row, x[1] = apply(row, Tensor([1, 2, 3])), apply(x[1], np.array([1, 2, 3], np.int32))
    assert alias is tensor
    np.testing.assert_array_equal(tensor.numpy(), x)
    np.testing.assert_array_equal(row.numpy(), x[1])


def test_floats_are_divided_and_multiplied_in_place() -> None:
    x = alias = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    x /= 2
    x @= Tensor([[0.0, 1.0], [1.0, 0.0]])
    assert alias is x
    assert x.tolist() == [[1.0, 0.5], [2.0, 1.5]]


def test_a_float_result_does_not_go_into_integers() -> None:
    x = Tensor([1, 2], dtype=dtypes.int32).realize()
    with pytest.raises(DTypeError, match="int32.*holds float32"):
        x += 0.5
    with pytest.raises(DTypeError):
        x /= 2
    assert x.tolist() == [1, 2]


@pytest.mark.parametrize("shape", [(-1, 1), (1, -1)])
def test_a_quotient_by_a_spread_tensor_is_rounded_once(shape: tuple[int, int]) -> None:
    rows, columns = np.arange(1, 130, dtype=np.float32), np.arange(1, 65, dtype=np.float32)
    divisors = rows.reshape(shape)
    values = divisors * (columns if shape[1] == 1 else columns[:, None])
    with Context(DEV="LLVM"):
        given, spread = Tensor(values), Tensor(rows).reshape(shape)
        quotient, whole = given / spread, given.div(spread, rounding_mode="trunc")
        Tensor.realize(quotient, whole)
    np.testing.assert_array_equal(quotient.numpy(), values / divisors)
    np.testing.assert_array_equal(whole.numpy(), values / divisors)


def test_no_quotient_of_a_softmax_is_above_its_maximum() -> None:
    values = np.random.default_rng(3).standard_normal((64, 128)).astype(np.float32)
    with Context(DEV="LLVM"):
        found = Tensor(values).softmax(-1)
        assert (found <= found.max(0)).all().item()
