"""Mathematical functions agree with numpy and math over their whole range."""

import math

import numpy as np
import pytest

from kernelet.base.config import Context
from kernelet.base.dtype import dtypes
from kernelet.base.errors import ArgumentError
from kernelet.frontend.tensor import Tensor

inf, nan = math.inf, math.nan
POINTS = [
    -30,
    -3.3,
    -1,
    -0.7,
    -1e-3,
    -1e-8,
    0,
    1e-8,
    1e-3,
    0.2,
    0.5,
    1,
    2.5,
    30,
    100,
    inf,
    -inf,
    nan,
]
NAMES = ["exp", "exp2", "log", "log2", "log10", "log1p", "expm1", "sqrt", "sin", "cos", "tan"]
NAMES += ["arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh"]
NAMES += ["reciprocal"]


def close(got: Tensor, want: object, rtol: float) -> None:
    np.testing.assert_allclose(got.numpy(), np.asarray(want), rtol=rtol, atol=rtol * 0.05)


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 1e-5), (np.float64, 1e-9)])
@pytest.mark.parametrize("name", NAMES)
def test_functions_are_those_of_numpy(name: str, dtype: type, rtol: float) -> None:
    x = np.array(POINTS, dtype)
    with np.errstate(all="ignore"):
        close(getattr(Tensor(x), name)(), getattr(np, name)(x), rtol)


ROUNDED = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "fp8e4m3": 2.0**-4, "fp8e5m2": 2.0**-3}
ABOVE_ONE = {"arccosh": 1.5, "log10": 1e-2, "rsqrt": 1e-2}


@pytest.mark.parametrize("dtype", ROUNDED)
@pytest.mark.parametrize("name", [*NAMES[:-1], "erf", "erfc", "lgamma", "digamma", "rsqrt"])
def test_functions_of_narrow_floats_are_rounded_once(name: str, dtype: str) -> None:
    """The step of a formula that a narrow float would round, or where it would overflow."""
    most = 0.95 if name in ("arcsin", "arccos", "arctanh") else 6.0
    with Context(DEV="PYTHON"):
        points = Tensor(np.linspace(ABOVE_ONE.get(name, -0.95), most, 37)).cast(dtype)
        result = getattr(points, name)()
        found = result.cast("float64").numpy()
        want = getattr(points.cast("float64"), name)().numpy()
    assert result.dtype is points.dtype
    # Half a unit of the type; below its normal numbers that is half of the least one.
    with np.errstate(invalid="ignore"):
        near = np.abs(found - want) <= np.abs(want) * 1.01 * ROUNDED[dtype]
    near |= (np.abs(want) < 0.02) | (found == want)
    assert (near | (np.isnan(want) & np.isnan(found))).all()


def test_great_narrow_floats_do_not_overflow_on_the_way() -> None:
    assert Tensor([448.0, -448.0], dtype="fp8e4m3").cosh().tolist() == [448.0, 448.0]
    assert Tensor([57344.0], dtype="fp8e5m2").asinh().tolist() == [12.0]
    assert Tensor([0.0], dtype="fp8e4m3").log10().tolist() == [-448.0]
    assert Tensor([65504.0], dtype="float16").asinh().item() == pytest.approx(11.78, rel=1e-3)


def test_all_names_of_a_function_are_one_function() -> None:
    assert Tensor.arccos is Tensor.acos
    assert Tensor([1.5], dtype="float16").arctan2(Tensor([2.0])).dtype is dtypes.float32


def test_erf_is_that_of_math() -> None:
    x = np.linspace(-6, 6, 101)
    close(Tensor(x).erf(), [math.erf(value) for value in x], 1e-15)
    assert Tensor([inf, -inf]).erf().tolist() == [1.0, -1.0]


def test_erfc_keeps_its_digits_where_it_is_small() -> None:
    x = np.linspace(-6, 26, 101)
    want = np.array([math.erfc(value) for value in x])
    assert np.abs(Tensor(x).erfc().numpy() / want - 1).max() < 1e-13
    assert Tensor([inf, -inf]).erfc().tolist() == [0.0, 2.0]


def test_functions_of_integers_are_float32() -> None:
    assert Tensor([1, 4]).sqrt().dtype is dtypes.float32
    assert Tensor([1, 4]).rsqrt().tolist() == [1.0, 0.5]


def test_logaddexp_survives_infinities() -> None:
    x, y = np.array([-inf, 2.0, inf, inf, 1.0]), np.array([-inf, -inf, 1.0, inf, 1000.0])
    close(Tensor(x).logaddexp(Tensor(y)), np.logaddexp(x, y), 1e-9)


def test_atan2_knows_the_quadrants() -> None:
    y, x = np.array([1.0, 1, -1, -1, 0, 1, -1]), np.array([1.0, -1, -1, 1, 2, 0, 0])
    close(Tensor(y).atan2(Tensor(x)), np.arctan2(y, x), 1e-9)


BASES = [-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, inf, -inf, nan]


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 7, -1, -2, 0.5, -0.5, 1.5, -1.5, 100, inf, -inf])
def test_powers_of_numbers_are_those_of_numpy(exponent: float) -> None:
    x = np.array([base for base in BASES if not (abs(exponent) == 0.5 and base == -inf)])
    with np.errstate(all="ignore"):
        close(Tensor(x) ** exponent, x ** float(exponent), 1e-9)


def test_powers_of_tensors_are_those_of_numpy() -> None:
    x = np.repeat(np.array(BASES), 8).reshape(-1, 8)
    y = np.array([0.0, 1.0, 2.0, 3.0, -1.0, -2.0, 1.5, -1.5])
    with np.errstate(all="ignore"):
        close(Tensor(x) ** Tensor(y), x**y, 1e-9)
        close(2.0 ** Tensor(y), 2.0**y, 1e-9)
        close((-2.0) ** Tensor(y), (-2.0) ** y, 1e-9)
        close(0.0 ** Tensor(y), 0.0**y, 1e-9)


def test_powers_of_integers_are_exact_and_wrap() -> None:
    x = np.array([-3, -1, 0, 1, 2, 7], np.int64)
    assert (Tensor(x) ** 13).tolist() == (x**13).tolist()
    assert (Tensor(x) ** Tensor([0, 1, 2, 3, 5, 11])).tolist() == [1, -1, 0, 1, 32, 7**11]
    assert (3 ** Tensor([0, 1, 20])).dtype is dtypes.int32
    assert (Tensor([2, 1, -1, 0]) ** Tensor([-1, -2, -3, 2])).tolist() == [0, 1, -1, 0]
    with pytest.raises(ArgumentError, match="pow"):
        Tensor(x) ** -1


def test_powers_of_integers_to_fractions_are_floats() -> None:
    close(Tensor([4, 9]) ** 0.5, np.float32([2, 3]), 1e-6)
    assert (Tensor([2, 3]) ** 2.0).dtype is dtypes.float32


def test_angles_of_points_on_the_axes_and_far_out() -> None:
    corners = np.array([0.0, -0.0, 1.0, -2.0, inf, -inf, nan], np.float32)
    y, x = (each.ravel() for each in np.meshgrid(corners, corners))
    np.testing.assert_allclose(Tensor(y).atan2(Tensor(x)).numpy(), np.arctan2(y, x), rtol=1e-6)


def test_slopes_of_angles_are_those_of_the_turn_also_on_the_axes() -> None:
    y, x = Tensor([1.0, -2.0, 0.0, 3.0]), Tensor([0.0, 0.0, 2.0, -3.0])
    up, right = y.atan2(x).sum().gradient(y, x)
    np.testing.assert_allclose(up.tolist(), [0, 0, 0.5, -1 / 6], atol=1e-7)
    np.testing.assert_allclose(right.tolist(), [-1, 0.5, 0, -1 / 6], atol=1e-7)


def test_corners_of_powers() -> None:
    corners = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 3.0, inf, -inf, nan], np.float32)
    base, power = (each.ravel() for each in np.meshgrid(corners, corners))
    with np.errstate(all="ignore"):
        want = base**power
    np.testing.assert_allclose((Tensor(base) ** Tensor(power)).numpy(), want)
    assert (1 ** Tensor([inf, nan])).tolist() == [1, 1]


def test_logaddexp_is_smooth_where_both_are_equal() -> None:
    x, y = Tensor([0.0, 2.0]), Tensor([0.0, 2.0])
    (slope,) = x.logaddexp(y).sum().gradient(x)
    (bend,) = slope.sum().gradient(x)
    assert (slope.tolist(), bend.tolist()) == ([0.5, 0.5], [0.25, 0.25])
    ends = Tensor([-inf, inf, inf, 1.0])
    assert ends.logaddexp(Tensor([-inf, inf, -inf, -inf])).tolist() == [-inf, inf, inf, 1.0]


def test_inverse_hyperbolic_functions_of_large_halves() -> None:
    x = np.array([300.0, 60000.0, 2.0], np.float16)
    wide = x.astype(np.float32)
    np.testing.assert_allclose(Tensor(x).asinh().numpy(), np.arcsinh(wide), rtol=2e-3)
    np.testing.assert_allclose(Tensor(x).acosh().numpy(), np.arccosh(wide), rtol=2e-3)


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 3e-7), (np.float64, 6e-16)])
def test_cosines_keep_their_digits_at_their_zeros_and_far_out(dtype: type, rtol: float) -> None:
    x = np.linspace(-1.58, 1.58, 101).astype(dtype)
    far = np.array([-1e5, -300.5, 77.25, 1e4, 2.0**20], dtype)
    for given in (x, far):
        want = np.cos(given.astype(np.longdouble)).astype(np.float64)
        np.testing.assert_allclose(Tensor(given).cos().numpy(), want, rtol=rtol)
        angle = Tensor(given)
        (slope,) = angle.sin().sum().gradient(angle)
        np.testing.assert_allclose(slope.numpy(), want, rtol=rtol)


def test_cosh_takes_unsigned_integers_and_acosh_is_nan_below_one() -> None:
    assert Tensor([0, 1], dtype="uint8").cosh().tolist() == pytest.approx([1.0, math.cosh(1)])
    assert math.isnan(Tensor([-3e38]).acosh().item())


def test_atanh_is_as_exact_below_zero_as_above() -> None:
    x = np.array([-0.999999, -0.9881416, -0.5, -1e-6, 0.999999, 1.0, -1.0], np.float32)
    with np.errstate(divide="ignore"):
        want = np.arctanh(x.astype(np.float64))
    np.testing.assert_allclose(Tensor(x).atanh().numpy(), want, rtol=3e-7)


def test_powers_have_slopes_at_base_one_and_power_zero() -> None:
    base, power = Tensor([1.0, 2.0, -1.0, 3.0]), Tensor([2.5, 0.0, 3.0, 0.0])
    by_base, by_power = (base**power).sum().gradient(base, power)
    np.testing.assert_allclose(by_base.numpy(), [2.5, 0, 3, 0], rtol=1e-6)
    wanted = [0, math.log(2), math.log(3)]
    np.testing.assert_allclose(by_power.numpy()[[0, 1, 3]], wanted, rtol=1e-6)


@pytest.mark.parametrize("exponent", [-1, -2, -3, -8, -0.5, 0.5, 1.5, 2.5])
def test_slopes_of_powers_at_zero_and_below(exponent: float) -> None:
    base = np.array([0.0, -0.0, -1.5, 2.0], np.float32)
    x = Tensor(base)
    slopes = (x**exponent).sum().gradient(x)[0].numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        wanted = np.float32(exponent) * base ** np.float32(exponent - 1)
    if exponent == 0.5:
        wanted[1] = math.inf  # the root of -0 is -0, and the slope there that of 0
    np.testing.assert_allclose(abs(slopes), abs(wanted), rtol=1e-6)


GAMMA = [0.1, 0.3, 0.9, 1.1, 1.4, 1.9999, 2.5, 3.7, 6.2, 8.4999, 8.6, 14.0, 300.0, 1e6, -0.3, -7.25]


def test_lgamma_is_that_of_math() -> None:
    wanted = [*map(math.lgamma, GAMMA)]
    np.testing.assert_allclose(Tensor(np.array(GAMMA)).lgamma().numpy(), wanted, 2e-15, 1e-15)
    ends = Tensor([1.0, 2.0, 0.0, -1.0, -2.0, inf, -inf, nan]).lgamma()
    np.testing.assert_array_equal(ends.numpy(), [0, 0, inf, inf, inf, inf, inf, nan])


def test_lgamma_keeps_its_digits_beside_its_zeros() -> None:
    # gamma = 0.577...: log(gamma(1 + z)) = -gamma z + pi**2 z**2 / 12 - ...
    small = np.array([1e-9, -3e-8, 2e-10])
    euler = 0.5772156649015329
    one = Tensor(1 + small).lgamma().numpy()
    exact = (1 + small) - 1
    np.testing.assert_allclose(one, -euler * exact + math.pi**2 / 12 * exact**2, rtol=2e-15)
    exact = (2 + small) - 2
    two = Tensor(2 + small).lgamma().numpy()
    slope = 1 - euler
    np.testing.assert_allclose(two, slope * exact + (math.pi**2 / 6 - 1) / 2 * exact**2, rtol=2e-15)


def test_digamma_takes_the_steps_of_the_gamma_function() -> None:
    x = np.array(GAMMA)
    found = Tensor(x).digamma().numpy()
    np.testing.assert_allclose(Tensor(x + 1).digamma().numpy(), found + 1 / x, rtol=2e-14)
    halves = Tensor(np.array([0.5, 1.0, 2.0])).digamma().numpy()
    euler = 0.5772156649015329
    np.testing.assert_allclose(halves, [-euler - 2 * math.log(2), -euler, 1 - euler], rtol=1e-15)
    ends = Tensor([0.0, -0.0, -1.0, inf, -inf, nan]).digamma().numpy()
    np.testing.assert_array_equal(ends, [-inf, inf, nan, inf, nan, nan])


def test_slopes_of_lgamma_are_digamma_and_its_slope_is_a_sum_of_squares() -> None:
    x = Tensor(np.array([0.7, 1.0, 3.25, 9.0, -1.5]))
    (slope,) = x.lgamma().sum().gradient(x)
    np.testing.assert_allclose(slope.numpy(), x.digamma().numpy(), rtol=1e-15)
    (bend,) = x.digamma().sum().gradient(x)
    # The sum of 1 / (x + n)**2, whose rest is an integral.
    steps = np.arange(100_000.0)[:, None] + x.numpy()
    want = (1 / steps**2).sum(0) + 1 / (steps[-1] + 0.5)
    np.testing.assert_allclose(bend.numpy(), want, rtol=1e-12)
