"""Mathematical functions: exponentials, powers, roots, trigonometry, and their inverses.

In:  tensors; integers become floats of the default type first.
Out: expressions in exp2, log2, sin, sqrt and arithmetic.

Where a textbook formula loses digits near zero, a short series takes its place there.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Self

from kernelet.base.dtype import DType, Scalar, dtypes
from kernelet.base.errors import ArgumentError
from kernelet.frontend.elementwise import Elementwise, reversed_operator
from kernelet.frontend.gradient import cosine
from kernelet.frontend.primitives import Primitives, is_scalar
from kernelet.graph.ops import Op

_LOG_2 = math.log(2.0)
_UNROLLED_POWER = 64


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


class Functions(Elementwise):
    """exp, log, pow, sin, tanh, erf and their relatives."""

    __slots__ = ()

    # ---- exponentials and logarithms ----

    def exp2(self) -> Self:
        """``2 ** x``."""
        return self._floating()._alu(Op.EXP2)

    def exp(self) -> Self:
        """``np.exp(x)``."""
        return (self._floating() * (1.0 / _LOG_2)).exp2()

    def log2(self) -> Self:
        """``np.log2(x)``: -inf at 0, NaN below."""
        return self._floating()._alu(Op.LOG2)

    def log(self) -> Self:
        """``np.log(x)``."""
        return self.log2() * _LOG_2

    def log10(self) -> Self:
        """``np.log10(x)``."""
        return self.log2() * math.log10(2.0)

    def expm1(self) -> Self:
        """``exp(x) - 1`` without loss near 0; ``np.expm1(x)``."""
        value = self._floating()
        count = 14 if value.dtype is dtypes.float64 else 8
        series = value * value._polynomial([1 / math.factorial(n + 1) for n in range(count)])
        return (value.abs() < 0.35).where(series, value.exp() - 1)._known_as("expm1", value)

    def log1p(self) -> Self:
        """``log(1 + x)`` without loss near 0; ``np.log1p(x)``."""
        value = self._floating()
        count = 17 if value.dtype is dtypes.float64 else 9
        # log(1 + x) = 2 atanh(z) with z = x / (2 + x), which is small over all of -0.5..1.
        ratio = value / (value + 2)
        series = ratio * ratio.square()._polynomial([2 / (2 * n + 1) for n in range(count)])
        near = (value > -0.5) & (value.le(1))
        return near.where(series, (value + 1).log())._known_as("log1p", value)

    def logaddexp(self, other: Self) -> Self:
        """``log(exp(x) + exp(other))`` without overflow; ``np.logaddexp(x, other)``."""
        left, right = self._floating()._matched(other, "logaddexp")
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
        return self.sqrt().reciprocal()

    def pow(self, exponent: Self | Scalar, reverse: bool = False) -> Self:
        """``x ** exponent``: ``0 ** 0`` is 1; a negative base needs a whole exponent, else NaN."""
        exponent = exponent if is_scalar(exponent) else self._operand(exponent)
        if isinstance(exponent, Primitives):
            left, right = (exponent, self) if reverse else (self, exponent)
            base, power = left._matched(right, "pow")
            if base.dtype.is_float:
                return base._float_power(power)
            return base._counting()._integer_power(power._counting())
        if reverse:
            return self._power_of(exponent)
        return self._number_power(exponent)

    def _number_power(self, exponent: Scalar) -> Self:
        if not self.dtype.is_float and isinstance(exponent, int):
            if exponent < 0:
                raise ArgumentError(
                    f"pow: {self.dtype.name} to the power {exponent} is not a whole number. "
                    "Cast the tensor to a float type first."
                )
            return self._counting()._whole_power(exponent)
        value = self._floating()
        if float(exponent).is_integer():
            whole = int(exponent)
            if abs(whole) <= _UNROLLED_POWER:
                result = value._whole_power(abs(whole))
                return result if whole >= 0 else result.reciprocal()
        elif exponent == 0.5:
            return value.sqrt()
        elif exponent == -0.5:
            return value.rsqrt()
        return value._float_power(value._constant(exponent))

    def _whole_power(self, exponent: int) -> Self:
        """Square and multiply."""
        result: Self | None = None
        square = self
        while exponent:
            if exponent & 1:
                result = square if result is None else result * square
            exponent >>= 1
            if exponent:
                square = square * square
        if result is None and self.dtype.is_float:
            # 1 everywhere, and yet made from x: its gradient is known to be 0.
            return self._constant(1)._known_as("identity", self * 0)
        return self._constant(1) if result is None else result

    def _power_of(self, base: Scalar) -> Self:
        """``base ** x``."""
        if isinstance(base, float) or self.dtype.is_float:
            power = self._floating()
            if base == 1:
                return power._whole_power(0)
            if base > 0 and math.isfinite(base):
                return (power * math.log2(base)).exp2()
            return power._constant(base)._float_power(power)
        power = self._counting()
        return power._constant(base)._integer_power(power)

    def _float_power(self, power: Self) -> Self:
        logs = self.abs().log2()
        # A product of 0 and what is not finite is NaN, where the power is 1.
        of_one = logs.eq(0) & power.isfinite().logical_not()
        to_zero = power.eq(0) & logs.isfinite().logical_not()
        size = (of_one | to_zero).where(1.0, (power * logs).exp2())
        whole = power.eq(power.trunc())
        odd = whole & (power * 0.5).ne((power * 0.5).trunc())
        negative = whole.where(odd.where(-size, size), self.isinf().where(size, math.nan))
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
        value = self._floating()
        wide = value.cast(dtypes.float32) if value.dtype.itemsize < 4 else value
        return self._wrap(cosine(wide.uop)).cast(value.dtype)._known_as("cos", value)

    def tan(self) -> Self:
        """``np.tan(x)``."""
        value = self._floating()
        wide = value.cast(dtypes.float32) if value.dtype.itemsize < 4 else value
        return (wide.sin() / wide.cos()).cast(value.dtype)

    def atan(self) -> Self:
        """``np.arctan(x)``."""
        value = self._floating()
        size = value.abs()
        # Two reductions leave |z| <= tan(pi / 8): atan(x) = pi/2 - atan(1/x) above 1, and
        # atan(x) = pi/4 + atan((x - 1) / (x + 1)) above tan(pi / 8).
        inverted = size > 1
        small = inverted.where(size.reciprocal(), size)
        turned = small > math.tan(math.pi / 8)
        z = turned.where((small - 1) / (small + 1), small)
        count = 20 if value.dtype is dtypes.float64 else 9
        series = z * z.square()._polynomial([(-1) ** n / (2 * n + 1) for n in range(count)])
        angle = turned.where(series + math.pi / 4, series)
        angle = inverted.where(math.pi / 2 - angle, angle)
        return (value < 0).where(-angle, angle)._known_as("atan", value)

    def atan2(self, other: Self) -> Self:
        """The angle of the point (other, x); ``np.arctan2(x, other)``."""
        y, x = self._floating()._matched(other, "atan2")
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
        value = self._floating()
        angle = (value / ((1 - value) * (1 + value)).sqrt()).atan()
        return angle._known_as("asin", value)

    def acos(self) -> Self:
        """``np.arccos(x)``."""
        value = self._floating()
        angle = ((1 - value) / (1 + value)).sqrt().atan() * 2
        return angle._known_as("acos", value)

    # ---- hyperbolic functions ----

    def sinh(self) -> Self:
        """``np.sinh(x)``."""
        value = self._floating()
        grown = value.expm1()
        near = (grown + grown / (grown + 1)) * 0.5
        far = (value.exp() - (-value).exp()) * 0.5
        return (value.abs() < 1).where(near, far)._known_as("sinh", value)

    def cosh(self) -> Self:
        """``np.cosh(x)``."""
        grown = self.exp()
        return (grown + grown.reciprocal()) * 0.5

    def tanh(self) -> Self:
        """``np.tanh(x)``."""
        value = self._floating()
        near = 0.03 if value.dtype is dtypes.float64 else 0.3
        series = (1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835)
        small = value * value.square()._polynomial(series)
        large = 1 - 2 / ((value * 2).exp() + 1)
        return (value.abs() < near).where(small, large)._known_as("tanh", value)

    def asinh(self) -> Self:
        """``np.arcsinh(x)``."""
        value = self._floating()
        size = value.abs()
        grown = size + size.square() / (1 + (size.square() + 1).sqrt())
        # Far out the square would overflow, and the 1 beside it is lost anyway.
        angle = (size > _far_out(value.dtype)).where(size.log() + _LOG_2, grown.log1p())
        return (value < 0).where(-angle, angle)._known_as("asinh", value)

    def acosh(self) -> Self:
        """``np.arccosh(x)``."""
        value = self._floating()
        root = (value - 1).sqrt() * (value + 1).sqrt()
        far = _far_out(value.dtype)
        angle = (value > far).where(value.log() + _LOG_2, (value + root).log())
        return angle._known_as("acosh", value)

    def atanh(self) -> Self:
        """``np.arctanh(x)``."""
        value = self._floating()
        size = value.abs()
        # The argument grows with x, where that of a negative x would come near -1.
        angle = (size * 2 / (1 - size)).log1p() * 0.5
        return (value < 0).where(-angle, angle)._known_as("atanh", value)

    # ---- probability ----

    def erf(self) -> Self:
        """The error function; ``scipy.special.erf(x)``."""
        value = self._floating()
        size, far = value.abs(), 1 - value.abs()._tail()
        far = (value < 0).where(-far, far)
        return (size < 0.9).where(value._near_erf(), far)._known_as("erf", value)

    def erfc(self) -> Self:
        """``1 - erf(x)`` without loss where that is small; ``scipy.special.erfc(x)``."""
        value = self._floating()
        size, far = value.abs(), value.abs()._tail()
        far = (value < 0).where(2 - far, far)
        result = (size < 0.9).where(1 - value._near_erf(), far)
        return result._known_as("identity", 1 - value.erf())

    def _near_erf(self) -> Self:
        """The series of the error function, for numbers below 0.9."""
        count, scale = (18 if self.dtype is dtypes.float64 else 12), 2 / math.sqrt(math.pi)
        terms = [scale * (-1) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(count)]
        return self * self.square()._polynomial(terms)

    def _tail(self) -> Self:
        """``erfc(x)`` for x >= 0, a sum of Chebyshev polynomials by Clenshaw's rule."""
        # As a product it is divided once; times a reciprocal would be a quotient in every term.
        t = (self + 2).reciprocal() * 2
        turned = t * 4 - 2
        first, *rest = _tail_coefficients(30 if self.dtype is dtypes.float64 else 12)
        total = before = self._constant(0)
        for coefficient in reversed(rest):
            total, before = turned * total - before + coefficient, total
        return (-self.square()).exp() * t * (turned * 0.5 * total - before + first)

    # ---- names that PyTorch users know too ----

    arctan, arctan2, arcsin, arccos = atan, atan2, asin, acos
    arcsinh, arccosh, arctanh = asinh, acosh, atanh


def _far_out(dtype: DType) -> float:
    """From where on 1 is nothing beside a square, which does not overflow yet."""
    return 100.0 if dtype is dtypes.float16 else 1e8
