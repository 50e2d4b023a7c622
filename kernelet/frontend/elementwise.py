"""Arithmetic, comparison, selection and bit methods: one value in, one value out.

In:  tensors and Python numbers, broadcast and promoted together.
Out: elementwise nodes.

Rules: integers wrap; ``x // 0`` and ``x % 0`` are 0 for integers; a NaN operand gives NaN (also in
`maximum` and `minimum`); a float becomes an integer by dropping its fraction, out of range it
saturates and NaN is 0.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Literal, Self, TypeVar

from kernelet.base.dtype import EXACT_BITS, DType, Scalar, dtypes, promote, round_to
from kernelet.base.errors import ArgumentError, DTypeError
from kernelet.frontend.primitives import Primitives, broadcast_shape
from kernelet.frontend.promotion import is_scalar, promote_scalar, scalar_dtype
from kernelet.graph.ops import Op

Rounding = Literal["trunc", "floor"]
TensorT = TypeVar("TensorT")
OtherT = TypeVar("OtherT")
Operator = Callable[[TensorT, OtherT], TensorT]


def _written(combine: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The operator in place, ``x += y``, that belongs to an operator of two tensors."""
    return lambda tensor, other: tensor._in_place(combine(tensor, other))


def reversed_operator(
    method: Callable[[TensorT, OtherT, bool], TensorT],
) -> Operator[TensorT, OtherT]:
    """The operator for the right operand, from the method with a `reverse` argument."""
    return lambda tensor, other: method(tensor, other, True)


class Elementwise(Primitives):
    """Arithmetic operators and everything that works on each element alone."""

    __slots__ = ()

    # ---- arithmetic ----

    def _ordered(self, other: Self | Scalar, reverse: bool) -> tuple[Self, Self]:
        """This and `other` with one shape and one type, `other` first if `reverse`."""
        left, right = self._matched(other)
        return (right, left) if reverse else (left, right)

    def add(self, other: Self | Scalar, reverse: bool = False) -> Self:
        """``x + other``; of bools it is "or", as in numpy."""
        left, right = self._ordered(other, reverse)
        return left._alu(Op.OR if left.dtype.is_bool else Op.ADD, right)

    def sub(self, other: Self | Scalar, reverse: bool = False) -> Self:
        """``x - other``."""
        left, right = self._ordered(other, reverse)
        left._need(not left.dtype.is_bool, "numbers, or use ^ for exclusive or", DTypeError)
        return left._alu(Op.ADD, right._alu(Op.NEG))

    def mul(self, other: Self | Scalar, reverse: bool = False) -> Self:
        """``x * other``; of bools it is "and"."""
        left, right = self._ordered(other, reverse)
        return left._alu(Op.AND if left.dtype.is_bool else Op.MUL, right)

    def div(
        self, other: Self | Scalar, reverse: bool = False, rounding_mode: Rounding | None = None
    ) -> Self:
        """``x / other`` in floats, or rounded: "floor" down, "trunc" to zero."""
        if rounding_mode == "floor":
            return self.floordiv(other, reverse)
        if rounding_mode is None:
            return self._quotient(other, reverse)
        left, right = self._ordered(other, reverse)
        if left.dtype.is_float:
            return left._quotient(right).trunc()
        left, right = left._counting(), right._counting()
        quotient, rest = left._alu(Op.IDIV, right), left._alu(Op.MOD, right)
        return (rest.ne(0) & quotient._below(0)).where(quotient + 1, quotient)

    def _quotient(self, other: Self | Scalar, reverse: bool = False) -> Self:
        """Division of floats; the divisor is inverted before it is repeated."""
        given = self._operand(other)
        left, right = (given, self) if reverse else (self, given)
        broadcast_shape(left.shape, right.shape)
        dtype = self._common_dtype(left, right)
        dtype = dtype if dtype.is_float else dtypes.default_float
        return left.cast(dtype).mul(right.cast(dtype)._alu(Op.RECIPROCAL))

    def floordiv(self, other: Self | Scalar, reverse: bool = False) -> Self:
        """``x // other``: the quotient rounded down."""
        left, right = self._ordered(other, reverse)
        if left.dtype.is_float:
            return left._division(right)[0]
        return left._counting()._alu(Op.IDIV, right._counting())

    def mod(self, other: Self | Scalar, reverse: bool = False) -> Self:
        """``x % other``: the rest has the sign of the divisor, as in Python."""
        left, right = self._ordered(other, reverse)
        if left.dtype.is_float:
            return left._division(right)[1]
        return left._counting()._alu(Op.MOD, right._counting())

    def _division(self, divisor: Self) -> tuple[Self, Self]:
        """The quotient of floats, rounded down, and the rest."""
        kind, self, divisor = self.dtype, self._widened(), divisor._widened()
        quotient = self._alu(Op.MUL, divisor._alu(Op.RECIPROCAL)).floor()
        rest = (divisor.isinf() & ~self.isinf()).where(self, self - quotient * divisor)
        # The quotient is rounded: the rest can fall to the wrong side of zero, or be a whole divisor.
        less = rest.ne(0) & rest._below(0)._alu(Op.CMPNE, divisor._below(0))
        more = rest.abs().ge(divisor.abs())
        quotient = less.where(quotient - 1, more.where(quotient + 1, quotient))
        rest = less.where(rest + divisor, more.where(rest - divisor, rest))
        return self.abs().eq(math.inf).where(math.nan, quotient).cast(kind), rest.cast(kind)

    def fmod(self, other: Self | Scalar) -> Self:
        """The rest with the sign of the dividend; ``np.fmod(x, other)``."""
        left, right = self._matched(other)
        if not left.dtype.is_float:
            return left - left.div(right, rounding_mode="trunc") * right
        # The slope at 0 is 1, where that of `abs` is 0.
        rest = (left < 0).where(-left, left)._division(right.abs())[1]
        return (left < 0).where(-rest, rest)

    def neg(self) -> Self:
        """``-x``."""
        self._need(not self.dtype.is_bool, "numbers, or use ~ for logical not", DTypeError)
        return self._alu(Op.NEG)

    def reciprocal(self) -> Self:
        """``1 / x``."""
        return self._floating()._alu(Op.RECIPROCAL)

    def square(self) -> Self:
        """``x * x``."""
        return self * self

    def lerp(self, end: Self, weight: Self | Scalar) -> Self:
        """``x + (end - x) * weight``, from the nearer end: for weight 1 it is `end` itself."""
        gap, share = end - self, end._operand(weight)
        return (share.abs() < 0.5).where(self + gap * share, end - gap * (1 - share))

    def addcmul(self, first: Self, second: Self, value: Scalar = 1) -> Self:
        """``x + value * first * second``."""
        return self + first * second * value

    def addcdiv(self, first: Self, second: Self, value: Scalar = 1) -> Self:
        """``x + value * first / second``."""
        return self + first / second * value

    def _counting(self) -> Self:
        """Bools as integers, for division."""
        return self.cast(dtypes.default_int) if self.dtype.is_bool else self

    def _below(self, limit: Scalar) -> Self:
        return self._alu(Op.CMPLT, self._constant(limit))

    # ---- greater and lesser ----

    def maximum(self, other: Self | Scalar) -> Self:
        """The greater of the two, NaN if either is; ``np.maximum(x, other)``."""
        left, right = self._matched(other)
        return left._alu(Op.OR if left.dtype.is_bool else Op.MAX, right)

    def minimum(self, other: Self | Scalar) -> Self:
        """The lesser of the two, NaN if either is; ``np.minimum(x, other)``."""
        left, right = self._matched(other)
        return left._mirrored().maximum(right._mirrored())._mirrored()

    def _mirrored(self) -> Self:
        """Values in the opposite order: -x for floats, ~x for integers, which cannot overflow."""
        return self._alu(Op.NEG) if self.dtype.is_float else self.bitwise_not()

    def clamp(self, min: Self | Scalar | None = None, max: Self | Scalar | None = None) -> Self:
        """Limited to min..max; where they cross, max wins; ``np.clip(x, min, max)``."""
        self._need(min is not None or max is not None, "min or max", ArgumentError)
        result = self if min is None else (self < min).where(min, self)
        return result if max is None else (result > max).where(max, result)

    def abs(self) -> Self:
        """The distance from zero; ``np.abs(x)``."""
        if self.dtype.is_bool or self.dtype.is_unsigned:
            return self._wrap(self.uop)
        size = self._alu(Op.MAX, self._alu(Op.NEG))
        # The greater of 0.0 and -0.0 may be either.
        return size + 0.0 if self.dtype.is_float else size

    def sign(self) -> Self:
        """-1, 0 or 1; NaN stays NaN; ``np.sign(x)``."""
        if self.dtype.is_bool or self.dtype.is_unsigned:
            return self.ne(0).cast(self.dtype)
        return (self > 0).where(1, (self < 0).where(-1, self.trunc()))

    def copysign(self, other: Self | Scalar) -> Self:
        """The size of x with the sign of `other`, whose zero may be negative."""
        left, right = self._floating()._matched(other)
        size = left.abs()
        return right._has_minus().where(-size, size)

    def _has_minus(self) -> Self:
        """Whether a sign is negative, that of a zero included."""
        return (self < 0) | (self.eq(0) & (self.reciprocal() < 0))

    # ---- rounding ----

    def trunc(self) -> Self:
        """Without the fraction; ``np.trunc(x)``."""
        return self._alu(Op.TRUNC) if self.dtype.is_float else self._wrap(self.uop)

    def floor(self) -> Self:
        """Rounded down; ``np.floor(x)``."""
        if not self.dtype.is_float:
            return self._wrap(self.uop)
        whole = self.trunc()
        return (self < whole).where(whole - 1, whole)

    def ceil(self) -> Self:
        """Rounded up; ``np.ceil(x)``."""
        return -(-self).floor() if self.dtype.is_float else self._wrap(self.uop)

    def round(self, decimals: int = 0) -> Self:
        """Rounded to the nearest, ties to even; ``np.round(x, decimals)``."""
        if not self.dtype.is_float:
            return self._wrap(self.uop)
        scale = round_to(self.dtype, 10.0 ** min(abs(decimals), 308))
        self._need(not math.isinf(scale), f"fewer decimals than {decimals}", ArgumentError)
        if decimals:
            return ((self._widened() * 10.0**decimals).round() / 10.0**decimals).cast(self.dtype)
        low = self.floor()
        fraction = self - low
        half = low * 0.5
        up = (fraction > 0.5) | (fraction.eq(0.5) & half.ne(half.floor()))
        return up.where(low + 1, low)

    def frac(self) -> Self:
        """The fraction, with the sign of x."""
        return self - self.trunc()

    # ---- comparison ----

    def _compare(self, op: Op, other: Self | Scalar, swap: bool = False) -> Self:
        number = self._operand(other, _comparable(self.dtype, other))
        left, right = self._ordered(number, swap)
        return left._alu(op, right)

    def lt(self, other: Self | Scalar) -> Self:
        """``x < other``."""
        return self._compare(Op.CMPLT, other)

    def gt(self, other: Self | Scalar) -> Self:
        """``x > other``."""
        return self._compare(Op.CMPLT, other, swap=True)

    def ne(self, other: Self | Scalar) -> Self:
        """``x != other``."""
        return self._compare(Op.CMPNE, other)

    def eq(self, other: Self | Scalar) -> Self:
        """``x == other``, element by element."""
        return self.ne(other).logical_not()

    def le(self, other: Self | Scalar) -> Self:
        """``x <= other``."""
        # With NaN neither side is true, so "not greater" will not do for floats.
        if self.dtype.is_float or isinstance(other, float | Primitives):
            return self.lt(other) | self.eq(other)
        return self.gt(other).logical_not()

    def ge(self, other: Self | Scalar) -> Self:
        """``x >= other``."""
        if self.dtype.is_float or isinstance(other, float | Primitives):
            return self.gt(other) | self.eq(other)
        return self.lt(other).logical_not()

    def isnan(self) -> Self:
        """Whether a value is NaN."""
        return self._alu(Op.CMPNE, self)

    def isinf(self, detect_positive: bool = True, detect_negative: bool = True) -> Self:
        """Whether a value is infinite."""
        never = self._full(False, self.shape, dtypes.bool)
        if not self.dtype.is_float:
            return never
        high = self.eq(math.inf) if detect_positive else never
        return high | self.eq(-math.inf) if detect_negative else high

    def isfinite(self) -> Self:
        """Whether a value is a number that is not infinite."""
        return (self.isnan() | self.isinf()).logical_not()

    def nan_to_num(
        self, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
    ) -> Self:
        """Numbers in place of NaN and infinities: 0 and the greatest; ``np.nan_to_num(x)``."""
        if not self.dtype.is_float:
            return self._wrap(self.uop)
        digits = EXACT_BITS[self.dtype.name]
        bias = (1 << (self.dtype.itemsize * 8 - digits - 1)) - 1
        greatest = (2 - 2.0 ** (1 - digits)) * 2.0**bias
        high = greatest if posinf is None else posinf
        low = -greatest if neginf is None else neginf
        bounded = self.eq(math.inf).where(high, self.eq(-math.inf).where(low, self))
        return self.isnan().where(nan, bounded)

    def isclose(
        self, other: Self, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> Self:
        """``np.isclose(x, other, rtol, atol, equal_nan)``."""
        near = (self._floating() - other).abs().le(other._floating().abs() * rtol + atol)
        close = (self.isfinite() & other.isfinite() & near) | self.eq(other)
        return close | (self.isnan() & other.isnan()) if equal_nan else close

    # ---- logic and bits ----

    def _truth(self) -> Self:
        return self if self.dtype.is_bool else self._alu(Op.CMPNE, self._constant(0))

    def logical_not(self) -> Self:
        """Whether a value is zero."""
        truth = self._truth()
        return truth._alu(Op.CMPNE, truth._constant(True))

    def logical_and(self, other: Self) -> Self:
        """Whether both values are not zero."""
        return self._truth() & other._truth()

    def logical_or(self, other: Self) -> Self:
        """Whether one of the values is not zero."""
        return self._truth() | other._truth()

    def logical_xor(self, other: Self) -> Self:
        """Whether exactly one of the values is not zero."""
        return self._truth() ^ other._truth()

    def _bits(self, op: Op, other: Self | Scalar) -> Self:
        left, right = self._matched(other)
        left._need(not left.dtype.is_float, "integers or bools, which have bits", DTypeError)
        return left._alu(op, right)

    def bitwise_and(self, other: Self | Scalar) -> Self:
        """``x & other``."""
        return self._bits(Op.AND, other)

    def bitwise_or(self, other: Self | Scalar) -> Self:
        """``x | other``."""
        return self._bits(Op.OR, other)

    def bitwise_xor(self, other: Self | Scalar) -> Self:
        """``x ^ other``."""
        return self._bits(Op.XOR, other)

    def bitwise_not(self) -> Self:
        """``~x``."""
        if self.dtype.is_bool:
            return self.logical_not()
        return self.bitwise_xor(self.dtype.max if self.dtype.is_unsigned else -1)

    def lshift(self, amount: Self | Scalar) -> Self:
        """``x << amount``; 0 when all bits leave."""
        return self._shift(Op.SHL, amount)

    def rshift(self, amount: Self | Scalar) -> Self:
        """``x >> amount``; signed integers keep their sign."""
        return self._shift(Op.SHR, amount)

    def _shift(self, op: Op, amount: Self | Scalar) -> Self:
        value = self._counting()
        value._need(not value.dtype.is_float, "integers, which have bits", DTypeError)
        bits = value.dtype.itemsize * 8
        if isinstance(amount, int) and 0 <= amount < bits:
            return value._alu(op, value._constant(amount))
        value, count = value._matched(amount)
        # A shift by the width or more is undefined on most processors.
        fits = count._below(bits)
        shifted = value._alu(op, fits.where(count, bits - 1))
        if op is Op.SHR and not value.dtype.is_unsigned:
            return shifted
        return fits.where(shifted, 0)

    # ---- selection ----

    def where(self, first: Self | Scalar, second: Self | Scalar) -> Self:
        """``condition.where(x, y)``; also ``x.where(condition, y)``; ``np.where(c, x, y)``."""
        condition, if_true, if_false = self, first, second
        if not self.dtype.is_bool and isinstance(first, Primitives) and first.dtype.is_bool:
            condition, if_true = first, self
        condition = condition._as_mask()
        yes, no = condition._branches(if_true, if_false)
        shape = broadcast_shape(condition.shape, yes.shape, no.shape)
        return condition._broadcast_to(shape)._alu(
            Op.WHERE, yes._broadcast_to(shape), no._broadcast_to(shape)
        )

    def _branches(self, if_true: Self | Scalar, if_false: Self | Scalar) -> tuple[Self, Self]:
        tensors = [each for each in (if_true, if_false) if isinstance(each, Primitives)]
        if not tensors:
            dtype = promote(_kind_of(if_true), _kind_of(if_false))
            return self._operand(if_true, dtype), self._operand(if_false, dtype)
        yes, no = tensors[0]._operand(if_true), tensors[0]._operand(if_false)
        dtype = self._common_dtype(yes, no)
        return yes.cast(dtype), no.cast(dtype)

    def _as_mask(self) -> Self:
        """This tensor as bools; DTypeError for floats, which are no answers."""
        self._need(not self.dtype.is_float, "bools, as a comparison makes them", DTypeError)
        return self._truth()

    def masked_fill(self, mask: Self, value: Self | Scalar) -> Self:
        """`value` where `mask` holds; ``np.where(mask, value, x)``."""
        filler = self._operand(value, self.dtype).cast(self.dtype)
        return mask._as_mask().where(filler, self)

    # ---- operators ----

    __add__, __sub__, __mul__, __truediv__ = add, sub, mul, div
    __floordiv__, __mod__, __lshift__, __rshift__ = floordiv, mod, lshift, rshift
    __radd__, __rsub__ = reversed_operator(add), reversed_operator(sub)
    __rmul__, __rtruediv__ = reversed_operator(mul), reversed_operator(div)
    __rfloordiv__, __rmod__ = reversed_operator(floordiv), reversed_operator(mod)
    __and__ = __rand__ = bitwise_and
    __or__ = __ror__ = bitwise_or
    __xor__ = __rxor__ = bitwise_xor

    __iadd__, __isub__, __imul__ = map(_written, (operator.add, operator.sub, operator.mul))
    __itruediv__, __ifloordiv__ = _written(operator.truediv), _written(operator.floordiv)
    __imod__, __ipow__, __imatmul__ = map(_written, (operator.mod, operator.pow, operator.matmul))
    __iand__, __ior__, __ixor__ = map(_written, (operator.and_, operator.or_, operator.xor))
    __ilshift__, __irshift__ = _written(operator.lshift), _written(operator.rshift)

    def __pos__(self) -> Self:
        return self

    __neg__, __abs__, __invert__ = neg, abs, bitwise_not
    __lt__, __gt__, __le__, __ge__ = lt, gt, le, ge

    def __eq__(self, other: object) -> Self:  # type: ignore[override]
        return NotImplemented if _is_no_number(other) else self.eq(other)  # type: ignore[arg-type]

    def __ne__(self, other: object) -> Self:  # type: ignore[override]
        return NotImplemented if _is_no_number(other) else self.ne(other)  # type: ignore[arg-type]

    __hash__ = object.__hash__

    # ---- names that PyTorch and tinygrad users know too ----

    subtract, multiply, remainder = sub, mul, mod
    divide = true_divide = div
    negative, absolute, clip, fix = neg, abs, clamp, trunc
    greater, less, not_equal = gt, lt, ne
    greater_equal, less_equal = ge, le


def _kind_of(value: object) -> DType:
    return scalar_dtype(value) if is_scalar(value) else dtypes.default_float


def _comparable(dtype: DType, other: object) -> DType | None:
    """The type for a number that a tensor of `dtype` is compared with: it must hold the number."""
    if not isinstance(other, int) or isinstance(other, bool) or dtype.is_float:
        return None
    chosen = promote_scalar(dtype, other)
    if round_to(chosen, other) == other:
        return chosen
    return dtypes.int64 if chosen is not dtypes.uint64 else dtypes.float64


def _is_no_number(value: object) -> bool:
    """Whether == has its usual meaning: the same object or not."""
    return value is None or isinstance(value, str)
