"""Mathematical functions: exponentials, powers, roots, trigonometry, and their inverses.

In:  tensors; integers become floats of the default type first.
Out: expressions in exp2, log2, sin, sqrt and arithmetic.

Where a textbook formula loses digits near zero, a short series takes its place there.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Self, TypeVar

from kernelet.base.dtype import Scalar, dtypes
from kernelet.base.errors import ArgumentError
from kernelet.frontend.elementwise import Elementwise, reversed_operator
from kernelet.frontend.gradient import cosine, gradients
from kernelet.frontend.promotion import is_scalar
from kernelet.graph.ops import Op

_LOG_2 = math.log(2.0)
_UNROLLED_POWER = 64
# From where on 1 is nothing beside a square, which does not overflow yet.
_FAR_OUT = 1e8

_EULER = 0.5772156649015329
# Of log(gamma(x)) in odd powers of 1 / x: those of Bernoulli's numbers.
_STIRLING = (
    *(1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156),
    *(-3617 / 122400, 43867 / 244188, -174611 / 125400),
)

# Formulas of floats whose steps narrow floats are too coarse for.
_ROUNDED_ONCE: tuple[str, ...] = (
    *("expm1", "log1p", "logaddexp", "_float_power"),
    *("cos", "tan", "atan", "atan2", "asin", "acos"),
    *("sinh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "digamma"),
)

TopicT = TypeVar("TopicT", bound="Functions")


@functools.cache
def _in_float32(formula: Callable[..., Functions]) -> Callable[..., Functions]:
    def computed(self: Functions, *others: object, **named: object) -> Functions:
        operands = [each for each in (*others, *named.values()) if isinstance(each, Functions)]
        kind = self._common_dtype(self._floating(), *operands)
        return formula(self._widened(), *others, **named).cast(kind)

    # As in a method that checks its arguments, messages show the name of the formula.
    computed.__code__ = computed.__code__.replace(co_name=formula.__name__)
    return functools.update_wrapper(computed, formula)


def _rounded_once(topic: type[TopicT]) -> type[TopicT]:
    """The class with each formula of `_ROUNDED_ONCE`, under all its names, in at least 32 bits."""
    for name, formula in [*vars(topic).items()]:
        if getattr(formula, "__name__", None) in _ROUNDED_ONCE:
            setattr(topic, name, _in_float32(formula))
    return topic


def _scaled_tail(x: float) -> float:
    """``exp(x * x) * erfc(x)`` for x >= 0; by its continued fraction where erfc is small."""
    if x < 4:
        return math.exp(x * x) * math.erfc(x)
    below = x
    for step in range(60, 0, -1):
        below = x + step / 2 / below
    return 1 / (math.sqrt(math.pi) * below)


@functools.cache
def _tail_coefficients(count: int) -> tuple[float, ...]:
    """`_scaled_tail` / t in Chebyshev polynomials of 2 t - 1, where t = 2 / (2 + x)."""
    angles = [math.pi * (place + 0.5) / count for place in range(count)]
    shares = [(math.cos(angle) + 1) / 2 for angle in angles]
    values = [_scaled_tail(2 / share - 2) / share for share in shares]
    sums = [
        sum(value * math.cos(order * angle) for value, angle in zip(values, angles, strict=True))
        for order in range(count)
    ]
    return (sums[0] / count, *(total * 2 / count for total in sums[1:]))


@functools.cache
def _gamma_coefficients(count: int) -> tuple[float, ...]:
    """Of ``log(gamma(2 + z)) / z`` in powers of z: (1 - zeta(n)) / n in turn with its opposite."""
    many = 1000

    def rest(power: int) -> float:
        # zeta(power) - 1: some terms, and the integral of all others with its corrections.
        terms = [number**-power for number in range(2, many)]
        return math.fsum(
            (*terms, many ** (1 - power) / (power - 1), many**-power / 2)
        ) + power / 12 * float(many) ** (-power - 1)

    later = [(-1) ** power * rest(power) / power for power in range(2, count + 1)]
    return (1 - _EULER, *later)


@_rounded_once
class Functions(Elementwise):
    """exp, log, pow, sin, tanh, erf and their relatives."""

    __slots__ = ()

    # ---- exponentials and logarithms ----

    def exp2(self) -> Self:
        """``2 ** x``."""
        return self._floating()._alu(Op.EXP2)

    def exp(self) -> Self:
        """``np.exp(x)``."""
        return (self._widened() * (1.0 / _LOG_2)).exp2().cast(self._floating().dtype)

    def log2(self) -> Self:
        """``np.log2(x)``: -inf at 0, NaN below."""
        return self._floating()._alu(Op.LOG2)

    def log(self) -> Self:
        """``np.log(x)``."""
        return (self._widened().log2() * _LOG_2).cast(self._floating().dtype)

    def log10(self) -> Self:
        """``np.log10(x)``."""
        return (self._widened().log2() * math.log10(2.0)).cast(self._floating().dtype)

    def expm1(self) -> Self:
        """``exp(x) - 1`` without loss near 0; ``np.expm1(x)``."""
        count = 14 if self.dtype is dtypes.float64 else 8
        series = self * self._polynomial([1 / math.factorial(n + 1) for n in range(count)])
        return (self.abs() < 0.35).where(series, self.exp() - 1)._known_as("expm1", self)

    def log1p(self) -> Self:
        """``log(1 + x)`` without loss near 0; ``np.log1p(x)``."""
        count = 17 if self.dtype is dtypes.float64 else 9
        # log(1 + x) = 2 atanh(z) with z = x / (2 + x), which is small over all of -0.5..1.
        ratio = self / (self + 2)
        series = ratio * ratio.square()._polynomial([2 / (2 * n + 1) for n in range(count)])
        near = (self > -0.5) & (self.le(1))
        return near.where(series, (self + 1).log())._known_as("log1p", self)

    def logaddexp(self, other: Self) -> Self:
        """``log(exp(x) + exp(other))`` without overflow; ``np.logaddexp(x, other)``."""
        left, right = self._matched(other)
        # Where both are the same infinity their difference would be NaN.
        same = left.eq(right) & left.abs().eq(math.inf)
        gap = same.where(0.0, left - right)
        tail = (-gap.abs()).exp().log1p()
        value = left.maximum(right) + tail
        # Smooth, though the greater of two is not: right + softplus(gap).
        smooth = right + (gap.maximum(0) + tail)._known_as("softplus", gap)
        return value._known_as("identity", smooth)

    def _polynomial(self, coefficients: Sequence[float]) -> Self:
        """``c[0] + c[1] * x + c[2] * x**2 + ...``."""
        total = self._constant(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            total = total * self + coefficient
        return total

    # ---- roots and powers ----

    def sqrt(self) -> Self:
        """``np.sqrt(x)``: NaN below 0."""
        return self._floating()._alu(Op.SQRT)

    def rsqrt(self) -> Self:
        """``1 / np.sqrt(x)``."""
        return self._widened().sqrt().reciprocal().cast(self._floating().dtype)

    def pow(self, exponent: Self | Scalar, reverse: bool = False) -> Self:
        """``x ** exponent``: ``0 ** 0`` is 1; a negative base needs a whole exponent, else NaN."""
        if is_scalar(exponent) and not reverse:
            return self._number_power(exponent)
        if is_scalar(exponent) and (isinstance(exponent, float) or self.dtype.is_float):
            return self._floating()._power_of(exponent)
        base, power = self._ordered(exponent, reverse)
        if base.dtype.is_float:
            return base._float_power(power)
        return base._counting()._integer_power(power._counting())

    def _number_power(self, exponent: Scalar) -> Self:
        if not self.dtype.is_float and isinstance(exponent, int):
            if exponent < 0:
                raise ArgumentError(
                    f"pow: {self.dtype.name} to the power {exponent} is not a whole number. "
                    "Cast the tensor to a float type first."
                )
            return self._counting()._whole_power(exponent)
        value = self._floating()
        if abs(exponent) == 0.5:
            return value.sqrt() if exponent > 0 else value.rsqrt()
        if abs(exponent) <= _UNROLLED_POWER and float(exponent).is_integer():
            result = value._whole_power(int(abs(exponent)))
            if exponent >= 0:
                return result
            # At 0 the slope of the quotient would be infinity times 0.
            steps = value.reciprocal()._whole_power(int(-exponent))
            return result.reciprocal()._known_as("identity", steps)
        return value._float_power(value._constant(exponent))

    def _whole_power(self, exponent: int) -> Self:
        """The square of half the power, times x where that is odd."""
        if exponent == 0:
            one = self._constant(1)
            # 1 everywhere, and yet made from x: its gradient is known to be 0.
            return one._known_as("identity", self * 0) if self.dtype.is_float else one
        if exponent == 1:
            return self
        square = self._whole_power(exponent // 2).square()
        return square * self if exponent & 1 else square

    def _power_of(self, base: Scalar) -> Self:
        """``base ** x``."""
        if base == 1:
            return self._whole_power(0)
        if base > 0 and math.isfinite(base):
            return (self * math.log2(base)).exp2()
        return self._constant(base)._float_power(self)

    def _float_power(self, power: Self) -> Self:
        logs = self.abs().log2()
        # A product of 0 and what is not finite is NaN, where the power is 1.
        of_one = logs.eq(0) & power.isfinite().logical_not()
        to_zero = power.eq(0) & logs.isfinite().logical_not()
        size = (of_one | to_zero).where(1.0, (power * logs).exp2())
        whole = power.eq(power.trunc())
        odd = whole & (power * 0.5).ne((power * 0.5).trunc())
        negative = whole.where(odd.where(-size, size), self.isinf().where(size, self.sqrt()))
        at_zero = power.eq(1).where(self, (power < 1).where(self.sqrt(), 0.0))
        at_zero = (power < 0).where(odd.where(self.reciprocal(), math.inf), at_zero)
        at_zero = power.ne(power).where(math.nan, at_zero)
        result = (self < 0).where(negative, self.eq(0).where(at_zero, size))
        return to_zero.where(1.0, result)

    def _integer_power(self, power: Self) -> Self:
        """Exact and wrapping; a negative power rounds to zero."""
        result, square = self._constant(1), self
        for bit in range(6):
            chosen = power.bitwise_and(1 << bit).ne(0)
            result = chosen.where(result * square, result)
            square = square * square
        if power.dtype.is_unsigned:
            return result
        odd = power.bitwise_and(1).ne(0)
        unit = self.eq(1).where(1, self.eq(-1).where(odd.where(-1, 1).cast(self.dtype), 0))
        return (power < 0).where(unit.cast(self.dtype), result)

    __pow__, __rpow__ = pow, reversed_operator(pow)

    # ---- trigonometry ----

    def sin(self) -> Self:
        """``np.sin(x)``."""
        return self._floating()._alu(Op.SIN)

    def cos(self) -> Self:
        """``np.cos(x)``."""
        return self._wrap(cosine(self.uop))._known_as("cos", self)

    def tan(self) -> Self:
        """``np.tan(x)``."""
        return self.sin() / self.cos()

    def atan(self) -> Self:
        """``np.arctan(x)``."""
        size = self.abs()
        # Two reductions leave |z| <= tan(pi / 8): atan(x) = pi/2 - atan(1/x) above 1, and
        # atan(x) = pi/4 + atan((x - 1) / (x + 1)) above tan(pi / 8).
        inverted = size > 1
        small = inverted.where(size.reciprocal(), size)
        turned = small > math.tan(math.pi / 8)
        z = turned.where((small - 1) / (small + 1), small)
        count = 20 if self.dtype is dtypes.float64 else 9
        series = z * z.square()._polynomial([(-1) ** n / (2 * n + 1) for n in range(count)])
        angle = turned.where(series + math.pi / 4, series)
        angle = inverted.where(math.pi / 2 - angle, angle)
        return (self < 0).where(-angle, angle)._known_as("atan", self)

    def atan2(self, other: Self) -> Self:
        """The angle of the point (other, x); ``np.arctan2(x, other)``."""
        y, x = self._matched(other)
        steep = x.abs() < y.abs()
        top, bottom = steep.where(x, y), steep.where(y, x)
        ratio = bottom.eq(0).where(top, top / bottom)
        # Of two infinities the ratio is 1; two zeros have their signs alone.
        endless = top.abs().eq(math.inf) & bottom.abs().eq(math.inf)
        equal = (top < 0).ne(bottom < 0).where(-1.0, 1.0)
        angle = endless.where(equal.cast(y.dtype), ratio).atan()
        below, behind = y._has_minus(), x._has_minus()
        turned = below.where(angle - math.pi, angle + math.pi)
        upright = y._constant(math.pi / 2)
        straight = below.where(-upright, upright) - angle
        return steep.where(straight, behind.where(turned, angle))

    def asin(self) -> Self:
        """``np.arcsin(x)``."""
        angle = (self / ((1 - self) * (1 + self)).sqrt()).atan()
        return angle._known_as("asin", self)

    def acos(self) -> Self:
        """``np.arccos(x)``."""
        angle = ((1 - self) / (1 + self)).sqrt().atan() * 2
        return angle._known_as("acos", self)

    # ---- hyperbolic functions ----

    def sinh(self) -> Self:
        """``np.sinh(x)``."""
        grown = self.expm1()
        near = (grown + grown / (grown + 1)) * 0.5
        far = (self.exp() - (-self).exp()) * 0.5
        return (self.abs() < 1).where(near, far)._known_as("sinh", self)

    def cosh(self) -> Self:
        """``np.cosh(x)``."""
        grown = self._widened().exp()
        return ((grown + grown.reciprocal()) * 0.5).cast(self._floating().dtype)

    def tanh(self) -> Self:
        """``np.tanh(x)``."""
        near = 0.03 if self.dtype is dtypes.float64 else 0.3
        series = (1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835)
        small = self * self.square()._polynomial(series)
        large = 1 - 2 / ((self * 2).exp() + 1)
        return (self.abs() < near).where(small, large)._known_as("tanh", self)

    def asinh(self) -> Self:
        """``np.arcsinh(x)``."""
        size = self.abs()
        grown = size + size.square() / (1 + (size.square() + 1).sqrt())
        # Far out the square would overflow, and the 1 beside it is lost anyway.
        angle = (size > _FAR_OUT).where(size.log() + _LOG_2, grown.log1p())
        return (self < 0).where(-angle, angle)._known_as("asinh", self)

    def acosh(self) -> Self:
        """``np.arccosh(x)``."""
        root = (self - 1).sqrt() * (self + 1).sqrt()
        angle = (self > _FAR_OUT).where(self.log() + _LOG_2, (self + root).log())
        return angle._known_as("acosh", self)

    def atanh(self) -> Self:
        """``np.arctanh(x)``."""
        size = self.abs()
        # The argument grows with x, where that of a negative x would come near -1.
        angle = (size * 2 / (1 - size)).log1p() * 0.5
        return (self < 0).where(-angle, angle)._known_as("atanh", self)

    # ---- probability ----

    def erf(self) -> Self:
        """The error function; ``scipy.special.erf(x)``."""
        result = (self.abs() < 0.9).where(self._near_erf(), 1 - self._far_erfc())
        return result._known_as("erf", self)

    def erfc(self) -> Self:
        """``1 - erf(x)`` without loss where that is small; ``scipy.special.erfc(x)``."""
        result = (self.abs() < 0.9).where(1 - self._near_erf(), self._far_erfc())
        return result._known_as("identity", 1 - self.erf())

    def _near_erf(self) -> Self:
        """The series of the error function, for numbers below 0.9."""
        count, scale = (18 if self.dtype is dtypes.float64 else 12), 2 / math.sqrt(math.pi)
        terms = [scale * (-1) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(count)]
        return self * self.square()._polynomial(terms)

    def _far_erfc(self) -> Self:
        """``erfc(x)`` by a sum of Chebyshev polynomials of the size of x, by Clenshaw's rule."""
        # As a product it is divided once; times a reciprocal would be a quotient in every term.
        t = (self.abs() + 2).reciprocal() * 2
        turned = t * 4 - 2
        first, *rest = _tail_coefficients(30 if self.dtype is dtypes.float64 else 12)
        total = before = self._constant(0)
        for coefficient in reversed(rest):
            total, before = turned * total - before + coefficient, total
        found = (-self.square()).exp() * t * (turned * 0.5 * total - before + first)
        return (self < 0).where(2 - found, found)

    # ---- the gamma function ----

    def lgamma(self) -> Self:
        """The logarithm of the size of the gamma function; ``scipy.special.gammaln(x)``."""
        size = (self < 0).where(-self, self)
        # A series about 2, where steps of 1 lead: gamma(x + 1) = x gamma(x).
        inner, outer = (size > 8.5).where(8.5, size), (size > 8.5).where(size, 8.5)
        steps = (inner - 2).round()
        gap = inner - (steps + 2)
        terms = _gamma_coefficients(28 if self.dtype is dtypes.float64 else 14)
        near = gap * gap._polynomial(terms)
        for step in range(-1, 7):
            term = (inner - step).log()
            near = near + (steps < step).where(*((-term, 0) if step < 1 else (0, term)))
        inverse = outer.reciprocal()
        far = (outer - 0.5) * (outer.log() - 1) + inverse * inverse.square()._polynomial(_STIRLING)
        found = (size > 8.5).where(far + (math.log(2 * math.pi) - 1) / 2, near)
        # gamma(x) gamma(-x) = -pi / (x sin(pi x))
        sine = ((size - size.round()) * math.pi).sin().abs()
        reflected = math.log(math.pi) - (size * sine).log() - found
        return (self < 0).where(self._is_pole().where(math.inf, reflected), found)

    def digamma(self) -> Self:
        """The slope of `lgamma`: the derivative of the gamma function divided by it."""
        slopes = gradients(self.lgamma().uop, self._constant(1).uop, [self.uop])
        found = self.eq(math.inf).where(self, self._wrap(slopes[self.uop]))
        return self._is_pole().where(math.nan, found)

    def _is_pole(self) -> Self:
        """Whether a number is whole and negative, as numbers far below 0 are."""
        return (self < 0) & self.eq(self.trunc())

    # ---- names that PyTorch users know too ----

    arctan, arctan2, arcsin, arccos = atan, atan2, asin, acos
    arcsinh, arccosh, arctanh = asinh, acosh, atanh
