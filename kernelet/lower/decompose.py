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

from kernelet.base.dtype import dtypes, round_float
from kernelet.base.target import Target
from kernelet.graph.algebra import BITS, BOOLEAN, FALSE, ZERO
from kernelet.graph.fold import is_power_of_two
from kernelet.graph.ops import Op
from kernelet.graph.pattern import INTEGERS, NUMBERS, UPat, equation, rule, variables
from kernelet.graph.rewrite import RuleSet, graph_rewrite
from kernelet.graph.uop import UOp
from kernelet.lower import transcendental

LOG2_E = math.log2(math.e)
WIDE = (dtypes.float32, dtypes.float64)
UNSIGNED = tuple(dtype for dtype in INTEGERS if dtype.is_unsigned)
SIGNED = tuple(dtype for dtype in INTEGERS if not dtype.is_unsigned)

x, y, z = variables("x", "y", "z")

# ---- for every target ----

PLAIN_FORMS = RuleSet(
    "plain forms",
    equation(x + y, x | y, dtypes=BOOLEAN),
    equation(x.maximum(y), x | y, dtypes=BOOLEAN),
    equation(x * y, x & y, dtypes=BOOLEAN),
    equation(x // y, x & y, dtypes=BOOLEAN),
    equation(x.alu(Op.SUB, y), x ^ y, dtypes=BOOLEAN),
    equation(x.not_equal(y), x ^ y, dtypes=BOOLEAN),
    equation(x < y, (x ^ True) & y, dtypes=BOOLEAN),
    equation(x % y, FALSE, dtypes=BOOLEAN),
    equation(-x, x, dtypes=BOOLEAN),
    equation(x // 0, ZERO, dtypes=INTEGERS),
    equation(x // -1, -x, dtypes=SIGNED),
    equation(x % 0, ZERO, dtypes=INTEGERS),
    equation(x % -1, ZERO, dtypes=SIGNED),
    equation(x.alu(Op.MULACC, y, z), x * y + z, dtypes=BITS),
)


# ---- whole numbers ----


@rule(UPat((Op.IDIV, Op.MOD), INTEGERS, src=(UPat(name="x"), UPat.cvar("y")), name="node"))
def division_by_power_of_two_is_shift(node: UOp, x: UOp, y: UOp, ctx: Target) -> UOp | None:
    """x // 8 -> x >> 3;  x % 8 -> x & 7"""
    divisor = int(y.arg)
    if node.op.name in ctx.operations or divisor <= 1 or divisor & (divisor - 1):
        return None
    return x & (divisor - 1) if node.op is Op.MOD else x >> divisor.bit_length() - 1


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
def floor_division_is_corrected_truncation(x: UOp, y: UOp) -> UOp:
    """x // y -> x / y, less 1 where the signs differ and there is a rest; 0 where y is 0"""
    divisor = safe_divisor(x, y)
    quotient = x.alu(Op.TRUNCDIV, divisor)
    if x.bounds.min < 0 or y.bounds.min < 0:
        rest = x - quotient * divisor
        if y.bounds.min >= 0:
            quotient = quotient + sign_mask(rest)
        else:
            quotient = signs_differ(rest, divisor).where(quotient + -1, quotient)
    if divisor is y:
        return quotient
    if y.bounds.min < 0:
        quotient = y.not_equal(-1).where(quotient, -x)
    return y.not_equal(0).where(quotient, x.const_like(0))


@rule(UPat(Op.MOD, INTEGERS, src=(UPat(name="x"), UPat(name="y"))))
def floor_modulo_is_corrected_remainder(x: UOp, y: UOp) -> UOp:
    """x % y -> x rem y, plus y where the signs differ and it is not 0; 0 where y is 0"""
    rest = x.alu(Op.TRUNCMOD, safe_divisor(x, y))
    if x.bounds.min >= 0 and y.bounds.min >= 0:
        return rest
    if y.bounds.min >= 0:
        return rest + (sign_mask(rest) & y)
    return signs_differ(rest, y).where(rest + y, rest)


@rule(UPat(Op.TRUNCMOD, src=(UPat(name="x"), UPat(name="y"))))
def remainder_is_what_division_leaves(x: UOp, y: UOp) -> UOp:
    """x rem y -> x - x / y * y"""
    return x - x.alu(Op.TRUNCDIV, y) * y


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


# ---- floats ----


@rule(UPat(Op.MUL, dtypes.floats, [UPat(name="x"), UPat(Op.RECIPROCAL, src=(UPat.cvar("y"),))]))
def product_with_exact_inverse_is_product(x: UOp, y: UOp) -> UOp | None:
    """x * (1 / 8) -> x * 0.125"""
    if not y.arg or not math.isfinite(y.arg) or not is_power_of_two(y.arg):
        return None
    inverse = float(1 / y.arg)
    return x * inverse if round_float(y.dtype.scalar, inverse) == inverse else None


@rule(UPat(Op.MUL, dtypes.floats, [UPat(name="x"), UPat(Op.RECIPROCAL, src=(UPat(name="y"),))]))
def product_with_reciprocal_is_quotient(x: UOp, y: UOp) -> UOp:
    """x * (1 / y) -> x / y, rounded once"""
    return x.alu(Op.FDIV, y)


@rule(UPat(Op.ADD, dtypes.floats, name="node"))
def sum_with_product_is_fused(node: UOp, ctx: Target) -> UOp | None:
    """x * y + z -> mulacc(x, y, z);  z - x * y -> mulacc(-x, y, z)"""
    left, right = node.src
    if is_product(left, ctx) == is_product(right, ctx):
        return None
    product, rest = (left, right) if is_product(left, ctx) else (right, left)
    if product.op is not Op.NEG:
        return UOp(Op.MULACC, node.dtype, (*product.src, rest))
    x, y = product.src[0].src
    return UOp(Op.MULACC, node.dtype, (x.const_like(-x.arg) if x.op is Op.CONST else -x, y, rest))


def is_product(node: UOp, ctx: Target) -> bool:
    """Whether a node is a product, or a negated one, and no quotient."""
    product = node.src[0] if node.op is Op.NEG else node
    is_quotient = any(factor.op is Op.RECIPROCAL for factor in product.src)
    return product.op is Op.MUL and not ("FDIV" in ctx.operations and is_quotient)


@rule(UPat(Op.MULACC, dtypes.floats, (UPat(name="x"), UPat(name="y"), UPat(name="z"))))
def fused_sum_is_taken_apart(x: UOp, y: UOp, z: UOp) -> UOp:
    """mulacc(x, y, z) -> x * y + z"""
    return x * y + z


@rule(UPat(Op.MAX, dtypes.floats, [UPat(name="x"), UPat.cvar("y")]))
def maximum_with_number_is_selection(x: UOp, y: UOp) -> UOp | None:
    """max(x, 0) -> 0 if x < 0 else x, which is one instruction and keeps a NaN"""
    return (x < y).where(y, x) if y.arg == y.arg else None


@rule(UPat(Op.MAX, WIDE, [UPat(name="x"), UPat(Op.NEG, src=(UPat(name="x"),))]))
def maximum_of_both_signs_has_no_sign(x: UOp) -> UOp:
    """max(x, -x) -> x without its sign bit"""
    scalar = dtypes.uint32 if x.dtype.scalar is dtypes.float32 else dtypes.uint64
    bits = x.bitcast(scalar.vec(x.dtype.lanes))
    return (bits & ((1 << (scalar.itemsize * 8 - 1)) - 1)).bitcast(x.dtype)


# ---- exponential, logarithm, sine ----


@rule(UPat(Op.EXP2, WIDE, (UPat(Op.MUL, src=[UPat(name="x"), UPat.cvar("scale")]),)))
def scaled_power_of_two_is_exponential(x: UOp, scale: UOp) -> UOp | None:
    """exp2(x * log2(e)) -> a polynomial in x, which the product's rounding does not touch"""
    if not is_nearest(abs(scale.arg), x, LOG2_E):
        return None
    return transcendental.exp(x if scale.arg > 0 else -x)


@rule(UPat(Op.SIN, WIDE, (UPat((Op.ADD, Op.SUB, Op.MULACC), name="shifted"),)))
def shifted_sine_is_cosine(shifted: UOp) -> UOp | None:
    """sin(x + pi / 2), sin(pi / 2 - x) -> cosine of x, which the sum's rounding does not touch"""
    *parts, shift = shifted.src
    x = parts[0] * parts[1] if shifted.op is Op.MULACC else parts[0]
    if shifted.op is Op.SUB or (shifted.op is Op.ADD and x.op is Op.CONST):
        x, shift = shift, x
    if shift.op is not Op.CONST or not is_nearest(shift.arg, x, math.pi / 2):
        return None
    return transcendental.cos(x)


def is_nearest(value: float, node: UOp, exact: float) -> bool:
    """Whether `value` is `exact` as far as the dtype of `node` can tell."""
    dtype = node.dtype.scalar
    return round_float(dtype, value) == round_float(dtype, exact)


@rule(UPat((Op.EXP2, Op.LOG2, Op.SIN), src=(UPat(name="x"),), name="node"))
def function_is_polynomial(node: UOp, x: UOp, ctx: Target) -> UOp | None:
    """exp2(x), log2(x), sin(x) -> arithmetic and bits;  exp2(half x) -> half(exp2(float(x)))"""
    if node.op.name in ctx.operations:
        return None
    if x.dtype.scalar not in WIDE:
        return x.cast(dtypes.float32.vec(x.dtype.lanes)).alu(node.op).cast(x.dtype)
    return _FUNCTIONS[node.op](x)


_FUNCTIONS = {
    Op.EXP2: transcendental.exp2,
    Op.LOG2: transcendental.log2,
    Op.SIN: transcendental.sin,
}

# ---- which rules for which target ----

FOR_ALL = PLAIN_FORMS + RuleSet(
    "decompose",
    division_by_power_of_two_is_shift,
    bounded_dividend_is_moved_above_zero,
    product_with_exact_inverse_is_product,
    maximum_with_number_is_selection,
    maximum_of_both_signs_has_no_sign,
)
DIFFERENCES = RuleSet(
    "differences",
    equation(x + -y, x.alu(Op.SUB, y), dtypes=NUMBERS),
    equation(-x, ZERO.alu(Op.SUB, x), dtypes=UNSIGNED),
)
WITH_OPERATION = {
    "FDIV": RuleSet("quotients", product_with_reciprocal_is_quotient),
    "MULACC": RuleSet("fused sums", sum_with_product_is_fused),
    "SUB": DIFFERENCES,
}
WITHOUT_OPERATION = {
    "IDIV": RuleSet("no floor division", floor_division_is_corrected_truncation),
    "MOD": RuleSet("no modulo", floor_modulo_is_corrected_remainder),
    "TRUNCMOD": RuleSet("no remainder", remainder_is_what_division_leaves),
    "MULACC": RuleSet("no fused sums", fused_sum_is_taken_apart),
    "EXP2": RuleSet("no exp2", scaled_power_of_two_is_exponential),
    "SIN": RuleSet("no sine", shifted_sine_is_cosine),
}
FUNCTIONS = RuleSet("functions", function_is_polynomial)


def decompose(root: UOp, target: Target) -> UOp:
    """The graph with only operations that the target has."""
    known = target.operations
    groups = [group for name, group in WITH_OPERATION.items() if name in known]
    groups += [group for name, group in WITHOUT_OPERATION.items() if name not in known]
    return graph_rewrite(root, sum([*groups, FUNCTIONS], FOR_ALL), target, name="decompose")
