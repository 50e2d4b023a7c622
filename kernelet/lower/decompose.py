"""Write each operation with those that the Target has.

In:  the statements of a kernel over scalar or vector expressions.
Out: the same values; divisions cannot trap, and of the optional operations only those are left
     that `Target.operations` names.

Products that are added become MULACC on every target that has it, however often the product is
used: whether a value is rounded once or twice depends on its own formula alone. A sum of two
products stays as it is, for it has no reason to favour one of them: x * y - x * y is 0.
"""

from __future__ import annotations

import math

from kernelet.base.dtype import FORMATS, DType, Scalar, dtypes, round_float
from kernelet.base.target import Target
from kernelet.graph.fold import is_power_of_two
from kernelet.graph.ops import Op
from kernelet.graph.pattern import INTEGERS, UPat, rule
from kernelet.graph.rewrite import RuleSet, graph_rewrite
from kernelet.graph.uop import UOp
from kernelet.lower import transcendental

LOG2_E = math.log2(math.e)
UNSIGNED = tuple(dtype for dtype in INTEGERS if dtype.is_unsigned)


# ---- truth values ----


@rule(UPat((Op.ADD, Op.MAX, Op.MUL, Op.SUB, Op.CMPNE, Op.IDIV), dtypes.bool, name="node"))
def arithmetic_on_truth_values_is_logic(node: UOp) -> UOp | None:
    """x + y, max(x, y) -> x | y;  x * y, x // y -> x & y;  x - y, x != y -> x ^ y"""
    x, y = node.src
    if not x.dtype.is_bool:
        return None
    return x.alu(_LOGIC[node.op], y)


_LOGIC = {
    Op.ADD: Op.OR,
    Op.MAX: Op.OR,
    Op.MUL: Op.AND,
    Op.IDIV: Op.AND,
    Op.SUB: Op.XOR,
    Op.CMPNE: Op.XOR,
}


@rule(UPat(Op.CMPLT, src=(UPat(dtype=dtypes.bool, name="x"), UPat(name="y"))))
def less_of_truth_values_is_logic(x: UOp, y: UOp) -> UOp:
    """x < y -> (x ^ true) & y"""
    return (x ^ True) & y


@rule(UPat(Op.MOD, dtypes.bool, name="node"))
def modulo_of_truth_values_is_false(node: UOp) -> UOp:
    """x % y -> false"""
    return node.const_like(False)


@rule(UPat(Op.NEG, dtypes.bool, src=(UPat(name="x"),)))
def negative_truth_value_is_itself(x: UOp) -> UOp:
    """-x -> x"""
    return x


# ---- whole numbers ----


@rule(UPat(Op.TRUNC, INTEGERS, src=(UPat(name="x"),)))
def truncated_integer_is_itself(x: UOp) -> UOp:
    """trunc(x) -> x"""
    return x


@rule(UPat(Op.NEG, UNSIGNED, src=(UPat(name="x"),)))
def negative_unsigned_is_difference(x: UOp, ctx: Target) -> UOp | None:
    """-x -> 0 - x"""
    return x.const_like(0).alu(Op.SUB, x) if "SUB" in ctx.operations else None


@rule(UPat(Op.IDIV, INTEGERS, src=(UPat(name="x"), UPat.cvar("y"))))
def division_by_power_of_two_is_shift(x: UOp, y: UOp, ctx: Target) -> UOp | None:
    """x // 8 -> x >> 3;  x // 1 -> x;  x // 0 -> 0;  x // -1 -> -x"""
    if "IDIV" in ctx.operations:
        return None
    if y.arg == 0:
        return x.const_like(0)
    if y.arg == -1:
        return x.alu(Op.NEG)
    shift = power_of_two(y.arg)
    if shift is None:
        return None
    return x >> shift if shift else x


@rule(UPat(Op.MOD, INTEGERS, src=(UPat(name="x"), UPat.cvar("y"))))
def modulo_of_power_of_two_is_mask(x: UOp, y: UOp, ctx: Target) -> UOp | None:
    """x % 8 -> x & 7;  x % 1, x % 0, x % -1 -> 0"""
    if "MOD" in ctx.operations:
        return None
    if y.arg in (-1, 0, 1):
        return x.const_like(0)
    shift = power_of_two(y.arg)
    return None if shift is None else x & (int(y.arg) - 1)


@rule(UPat((Op.IDIV, Op.MOD), INTEGERS, src=(UPat(name="x"), UPat.cvar("y")), name="node"))
def bounded_dividend_is_moved_above_zero(node: UOp, x: UOp, y: UOp, ctx: Target) -> UOp | None:
    """x // 3 -> (x + 6) / 3 - 2 and x % 3 -> (x + 6) rem 3, where x >= -5"""
    low, high = x.bounds
    if node.op.name in ctx.operations or y.arg <= 0 or low >= 0:
        return None
    turns = int(-(low // y.arg))
    if high + turns * y.arg > x.dtype.max or low == x.dtype.min:
        return None
    moved = x + turns * int(y.arg)
    if node.op is Op.MOD:
        return moved.alu(Op.TRUNCMOD, y)
    return moved.alu(Op.TRUNCDIV, y) + -turns


@rule(UPat(Op.IDIV, INTEGERS, src=(UPat(name="x"), UPat(name="y"))))
def floor_division_is_corrected_truncation(x: UOp, y: UOp, ctx: Target) -> UOp | None:
    """x // y -> x / y, less 1 where the signs differ and there is a rest; 0 where y is 0"""
    if "IDIV" in ctx.operations:
        return None
    divisor = safe_divisor(x, y)
    quotient = x.alu(Op.TRUNCDIV, divisor)
    if x.bounds.min < 0 or y.bounds.min < 0:
        rest = x - quotient * divisor
        if y.bounds.min >= 0:
            quotient = quotient + sign_mask(rest)
        else:
            less = quotient + -1
            quotient = signs_differ(rest, divisor).where(less, quotient)
    if divisor is y:
        return quotient
    if y.bounds.min < 0:
        quotient = y.not_equal(-1).where(quotient, x.alu(Op.NEG))
    return y.not_equal(0).where(quotient, x.const_like(0))


@rule(UPat(Op.MOD, INTEGERS, src=(UPat(name="x"), UPat(name="y"))))
def floor_modulo_is_corrected_remainder(x: UOp, y: UOp, ctx: Target) -> UOp | None:
    """x % y -> x rem y, plus y where the signs differ and it is not 0; 0 where y is 0"""
    if "MOD" in ctx.operations:
        return None
    divisor = safe_divisor(x, y)
    rest = x.alu(Op.TRUNCMOD, divisor)
    if x.bounds.min >= 0 and y.bounds.min >= 0:
        return rest
    if y.bounds.min >= 0:
        return rest + (sign_mask(rest) & y)
    return signs_differ(rest, y).where(rest + y, rest)


@rule(UPat(Op.TRUNCMOD, src=(UPat(name="x"), UPat(name="y"))))
def remainder_is_what_division_leaves(x: UOp, y: UOp, ctx: Target) -> UOp | None:
    """x rem y -> x - x / y * y"""
    return None if "TRUNCMOD" in ctx.operations else x - x.alu(Op.TRUNCDIV, y) * y


def safe_divisor(x: UOp, y: UOp) -> UOp:
    """`y`, or 1 where a processor could trap: at 0, and at -1 for the least number."""
    low, high = y.bounds
    allowed = None
    if low <= 0 <= high:
        allowed = y.not_equal(0)
    if low <= -1 <= high and (allowed is not None or x.bounds.min == x.dtype.min):
        other = y.not_equal(-1)
        allowed = other if allowed is None else allowed & other
    return y if allowed is None else allowed.where(y, y.const_like(1))


def sign_mask(x: UOp) -> UOp:
    """-1 where `x` is negative, else 0."""
    return x >> x.dtype.itemsize * 8 - 1


def signs_differ(rest: UOp, divisor: UOp) -> UOp:
    """Whether there is a rest and its sign is not that of the divisor."""
    zero = rest.const_like(0)
    return ((rest ^ divisor) < zero) & rest.not_equal(zero)


def power_of_two(value: Scalar) -> int | None:
    """The exponent of a positive power of two; None for other numbers."""
    number = int(value)
    return number.bit_length() - 1 if number > 0 and number & (number - 1) == 0 else None


# ---- floats ----


@rule(UPat(Op.MUL, dtypes.floats, [UPat(name="x"), UPat(Op.RECIPROCAL, src=(UPat(name="y"),))]))
def product_with_reciprocal_is_quotient(x: UOp, y: UOp, ctx: Target) -> UOp | None:
    """x * (1 / y) -> x / y, rounded once;  x * (1 / 8) -> x * 0.125"""
    if y.op is Op.CONST and y.arg and math.isfinite(y.arg) and is_power_of_two(y.arg):
        inverse = float(1 / y.arg)
        if round_float(y.dtype.scalar, inverse) == inverse:
            return x * inverse
    return x.alu(Op.FDIV, y) if "FDIV" in ctx.operations else None


@rule(UPat(Op.ADD, dtypes.floats, name="node"))
def sum_with_product_is_fused(node: UOp, ctx: Target) -> UOp | None:
    """x * y + z -> mulacc(x, y, z);  z - x * y -> mulacc(-x, y, z)"""
    if "MULACC" not in ctx.operations:
        return None
    left, right = node.src
    if (factor_of(left, ctx) is None) == (factor_of(right, ctx) is None):
        return None
    product, rest = (left, right) if factor_of(left, ctx) is not None else (right, left)
    if product.op is Op.NEG:
        x, y = product.src[0].src
        x = x.const_like(-x.arg) if x.op is Op.CONST else x.alu(Op.NEG)
    else:
        x, y = product.src
    return UOp(Op.MULACC, node.dtype, (x, y, rest))


def factor_of(node: UOp, ctx: Target) -> UOp | None:
    """The first factor of a product, or of a negated one, that is no quotient; else None."""
    product = node.src[0] if node.op is Op.NEG else node
    if product.op is not Op.MUL:
        return None
    if "FDIV" in ctx.operations and any(factor.op is Op.RECIPROCAL for factor in product.src):
        return None
    return product.src[0]


@rule(UPat(Op.MULACC, name="node"))
def fused_sum_is_taken_apart(node: UOp, ctx: Target) -> UOp | None:
    """mulacc(x, y, z) -> x * y + z"""
    if "MULACC" in ctx.operations and node.dtype.is_float:
        return None
    x, y, z = node.src
    return x * y + z


@rule(UPat(Op.ADD, src=[UPat(name="x"), UPat(Op.NEG, src=(UPat(name="y"),))]))
def sum_with_negative_is_difference(x: UOp, y: UOp, ctx: Target) -> UOp | None:
    """x + -y -> x - y"""
    return x.alu(Op.SUB, y) if "SUB" in ctx.operations else None


@rule(UPat(Op.MAX, dtypes.floats, [UPat(name="x"), UPat.cvar("y")]))
def maximum_with_number_is_selection(x: UOp, y: UOp) -> UOp | None:
    """max(x, 0) -> 0 if x < 0 else x, which is one instruction and keeps a NaN"""
    return (x < y).where(y, x) if y.arg == y.arg else None


@rule(UPat(Op.MAX, (dtypes.float32, dtypes.float64), [UPat(name="x"), UPat(Op.NEG, name="y")]))
def maximum_of_both_signs_has_no_sign(x: UOp, y: UOp) -> UOp | None:
    """max(x, -x) -> x without its sign bit"""
    if y.src[0] is not x:
        return None
    scalar = dtypes.uint32 if x.dtype.scalar is dtypes.float32 else dtypes.uint64
    bits = x.bitcast(scalar.vec(x.dtype.lanes))
    return (bits & ((1 << (scalar.itemsize * 8 - 1)) - 1)).bitcast(x.dtype)


# ---- exponential, logarithm, sine ----


@rule(UPat(Op.EXP2, src=(UPat(Op.MUL, src=[UPat(name="x"), UPat.cvar("scale")]),)))
def scaled_power_of_two_is_exponential(x: UOp, scale: UOp, ctx: Target) -> UOp | None:
    """exp2(x * log2(e)) -> a polynomial in x, which the product's rounding does not touch"""
    if not computes_here(Op.EXP2, x.dtype, ctx) or not is_nearest(abs(scale.arg), x, LOG2_E):
        return None
    return transcendental.exp(x if scale.arg > 0 else x.alu(Op.NEG), ctx)


@rule(UPat(Op.SIN, src=(UPat((Op.ADD, Op.SUB, Op.MULACC), name="shifted"),)))
def shifted_sine_is_cosine(shifted: UOp, ctx: Target) -> UOp | None:
    """sin(x + pi / 2), sin(pi / 2 - x) -> cosine of x, which the sum's rounding does not touch"""
    if not computes_here(Op.SIN, shifted.dtype, ctx):
        return None
    *parts, shift = shifted.src
    x = parts[0] * parts[1] if shifted.op is Op.MULACC else parts[0]
    if shifted.op is Op.SUB or (shifted.op is Op.ADD and x.op is Op.CONST):
        x, shift = shift, x
    if shift.op is not Op.CONST or not is_nearest(shift.arg, x, math.pi / 2):
        return None
    return transcendental.cos(x, ctx)


@rule(UPat((Op.EXP2, Op.LOG2, Op.SIN), (dtypes.float32, dtypes.float64), name="node"))
def function_is_polynomial(node: UOp, ctx: Target) -> UOp | None:
    """exp2(x), log2(x), sin(x) -> arithmetic and bits"""
    if not computes_here(node.op, node.dtype, ctx):
        return None
    return _FUNCTIONS[node.op](node.src[0], ctx)


_FUNCTIONS = {
    Op.EXP2: transcendental.exp2,
    Op.LOG2: transcendental.log2,
    Op.SIN: transcendental.sin,
}


_NARROW = (dtypes.float16, *(dtypes.from_name(name) for name in FORMATS))


@rule(UPat((Op.EXP2, Op.LOG2, Op.SIN), _NARROW, name="node"))
def function_of_narrow_float_is_computed_wide(node: UOp, ctx: Target) -> UOp | None:
    """exp2(x) -> half(exp2(float(x)))"""
    if node.op.name in ctx.operations:
        return None
    wide = dtypes.float32.vec(node.dtype.lanes)
    return node.src[0].cast(wide).alu(node.op).cast(node.dtype)


def computes_here(op: Op, dtype: DType, ctx: Target) -> bool:
    """Whether `op` must be written with plain operations for this target."""
    return op.name not in ctx.operations and dtype.scalar in (dtypes.float32, dtypes.float64)


def is_nearest(value: float, node: UOp, exact: float) -> bool:
    """Whether `value` is `exact` as far as the dtype of `node` can tell."""
    dtype = node.dtype.scalar
    return round_float(dtype, value) == round_float(dtype, exact)


DECOMPOSITIONS = RuleSet(
    "decompose",
    arithmetic_on_truth_values_is_logic,
    less_of_truth_values_is_logic,
    modulo_of_truth_values_is_false,
    negative_truth_value_is_itself,
    truncated_integer_is_itself,
    negative_unsigned_is_difference,
    division_by_power_of_two_is_shift,
    modulo_of_power_of_two_is_mask,
    bounded_dividend_is_moved_above_zero,
    floor_division_is_corrected_truncation,
    floor_modulo_is_corrected_remainder,
    remainder_is_what_division_leaves,
    product_with_reciprocal_is_quotient,
    sum_with_product_is_fused,
    fused_sum_is_taken_apart,
    sum_with_negative_is_difference,
    maximum_with_number_is_selection,
    maximum_of_both_signs_has_no_sign,
    scaled_power_of_two_is_exponential,
    shifted_sine_is_cosine,
    function_is_polynomial,
    function_of_narrow_float_is_computed_wide,
)


def decompose(root: UOp, target: Target) -> UOp:
    """The graph with only operations that the target has."""
    return graph_rewrite(root, DECOMPOSITIONS, target)
