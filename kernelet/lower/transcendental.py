"""Write exp2, log2 and sin with additions, multiplications and bits, for targets without them.

In:  an argument of dtype float32 or float64 (or a vector of them).
Out: an expression with no branch and no table, so that it vectorizes; its MULACC are taken apart
     for targets without.

Every polynomial is a minimax fit (Remez exchange in 160 bits on Chebyshev points, weighted for
relative error, coefficients rounded one after the other and the rest fitted again). Greatest
errors measured in C, in units in the last place, with fused multiply-add / without:

=========  ======================  ======================  ==================================
function   float32                 float64                 where
=========  ======================  ======================  ==================================
exp2       1.4 / 1.7               1.3 / 1.7               everywhere, subnormals too
exp        2.0 / 2.2               1.6 / 1.9               everywhere, subnormals too
log2       1.7 / 1.6               2.9 / 2.8               everywhere, subnormals too
sin, cos   1.6 / 1.6               1.6 / 1.6               up to 100
sin, cos   1.2e-7 absolute         2.2e-16 absolute        every finite number
=========  ======================  ======================  ==================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelet.base.dtype import DType, dtypes
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split()))


@dataclass(frozen=True, slots=True)
class _Format:
    """The bits of a float, and the numbers that its functions need, of polynomials the constant first.

    `mantissa` bits are below the exponent, which is stored plus `bias`. `two_ln2` and `half_pi` are
    2 ln 2 and pi / 2 as sums whose first parts have so few bits that products with them are exact.

    exp2, exp: 2**x and e**x on [-1, 1] and [-ln 2, ln 2]. The values of exp2 at -1 and 1 come out
    exact even in floating point, so that exp2 of an integer is a power of two.
    log2: log2(1 + f) / f on [sqrt(1/2) - 1, sqrt(2) - 1] in float32; in float64
    2 * atanh(s) / (s * ln 2) in powers of s * s, |s| <= 3 - sqrt(8).
    sine, cosine: sin(r) = r + r**3 * sine(r * r) and cos(r) = 1 - r * r / 2 + r**4 * cosine(r * r) on
    [-pi/4, pi/4]. Up to 2**near the parts of pi / 2 are precise enough.
    """

    unsigned: DType
    signed: DType
    mantissa: int
    bias: int
    two_ln2: tuple[float, ...]
    half_pi: tuple[float, ...]
    near: int
    exp2: tuple[float, ...]
    exp: tuple[float, ...]
    log2: tuple[float, ...]
    sine: tuple[float, ...]
    cosine: tuple[float, ...]

    @property
    def rounder(self) -> float:
        """Adding this leaves the nearest integer in the low bits: 1.5 * 2**mantissa."""
        return 1.5 * 2.0**self.mantissa

    @property
    def top(self) -> int:
        """The bit of the sign."""
        return self.unsigned.itemsize * 8 - 1


# Relative errors: exp2 2**-24.7 and 2**-54.3, exp 2**-24.5 and 2**-55.2, log2 2**-26.0 and 2**-56.0,
# sine 2**-27.8 and 2**-57.7, cosine 2**-32.7 and 2**-63.7.
_FORMATS = {
    dtypes.float32: _Format(
        unsigned=dtypes.uint32,
        signed=dtypes.int32,
        mantissa=23,
        bias=127,
        two_ln2=(1.38629150390625, 2.857213530660374e-06),
        half_pi=(1.5703125, 0.0004837512969970703, 7.549790126404332e-08),
        near=13,
        exp2=_numbers(
            "1.0 0.6931474208831787 0.24022667109966278 0.05550221726298332 0.0096168527379632 "
            "0.0013369403313845396 0.00015647470718249679 1.3418753951555118e-05"
        ),
        exp=_numbers(
            "1.0 1.0000003576278687 0.5000003576278687 0.1666611135005951 0.04166185110807419 "
            "0.008357002399861813 0.0014090543845668435 0.00017061804828699678"
        ),
        log2=_numbers(
            "1.4426950216293335 -0.7213472723960876 0.48090463876724243 -0.3607059419155121 "
            "0.2882278859615326 -0.23914343118667603 0.21041204035282135 -0.2005351334810257 "
            "0.15466846525669098 -0.04989758878946304"
        ),
        sine=(-0.16666653752326965, 0.008332106284797192, -0.00019507882825564593),
        cosine=(0.04166664555668831, -0.0013887297827750444, 2.443008816044312e-05),
    ),
    dtypes.float64: _Format(
        unsigned=dtypes.uint64,
        signed=dtypes.int64,
        mantissa=52,
        bias=1023,
        two_ln2=(1.3862943611202354, -3.447888905122967e-13),
        half_pi=(1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21),
        near=20,
        exp2=_numbers(
            "1.0 0.693147180559945 0.24022650695910047 0.055504108664830985 0.009618129107634852 "
            "0.0013333558145675807 0.00015403530388321044 1.525273406052745e-05 "
            "1.3215488508728807e-06 1.0178043833655641e-07 7.0546283161310046e-09 "
            "4.448824749105314e-10 2.5902265156264064e-11 1.275119438787289e-12"
        ),
        exp=_numbers(
            "1.0 0.9999999999999996 0.49999999999999956 0.16666666666669258 0.04166666666669272 "
            "0.008333333332904654 0.0013888888884531817 0.00019841270143159916 "
            "2.4801590418471135e-05 2.7557216670116167e-06 2.7556237171679225e-07 "
            "2.506859476165515e-08 2.1056732200735683e-09 1.509205479196634e-10"
        ),
        log2=_numbers(
            "2.8853900817779268 0.9617966939260755 0.5770780163070052 0.41219859367038186 "
            "0.32059773460903945 0.26237668253805835 0.21980811408424827 0.22490838597431614"
        ),
        sine=_numbers(
            "-0.16666666666666627 0.008333333333321067 -0.00019841269828696332 "
            "2.7557313297884756e-06 -2.5050695365524336e-08 1.5893106878745271e-10"
        ),
        cosine=_numbers(
            "0.04166666666666658 -0.001388888888887097 2.4801587287528062e-05 "
            "-2.755731379163046e-07 2.087564750348415e-09 -1.1355744916340456e-11"
        ),
    ),
}

# The first 1120 bits of 1 / (2 * pi), cut off.
TURN_BITS = 1120
TURN = int(
    "28be60db9391054a7f09d5f47d4d377036d8a5664f10e4107f9458eaf7aef1586dc91b8e909374b801924bba"
    "827464873f877ac72c4a69cfba208d7d4baed1213a671c09ad17df904e64758e60d4ce7d272117e2ef7e4a0e"
    "c7fe25fff7816603fbcbc462d6829b47db4d9fb3c9f2c26dd3d18fd9a797fa8b5d49eeb1faf97c5ecf41ce7d"
    "e294a4ba9afed7ec",
    16,
)


def exp2(x: UOp) -> UOp:
    """2**x; an integer gives a power of two exactly, subnormal results are rounded once."""
    return _exponential(x, 1.0, (2.0,), _FORMATS[x.dtype.scalar].exp2)


def exp(x: UOp) -> UOp:
    """e**x, as cheap as exp2 and without the error that rounding x * log2(e) brings."""
    form = _FORMATS[x.dtype.scalar]
    return _exponential(x, math.log(2.0), form.two_ln2, form.exp)


def log2(x: UOp) -> UOp:
    """The logarithm to base 2: -inf at 0, NaN below."""
    form = _FORMATS[x.dtype.scalar]
    # Subnormal arguments are scaled to normal ones.
    shift = float(form.mantissa + 2)
    subnormal = x < 2.0 ** (1 - form.bias)
    scaled = subnormal.where(x * 2.0**shift, x)
    offset = subnormal.where(-shift, x.const_like(0.0))
    # The argument is 2**exponent * fraction, sqrt(1/2) <= fraction < sqrt(2).
    root = _bits_of_root_half(form)
    bits = scaled.bitcast(form.signed.vec(x.dtype.lanes)) + -root
    exponent = (bits >> form.mantissa).cast(x.dtype) + offset
    fraction_bits = (bits & ((1 << form.mantissa) - 1)) + root
    variable = squared = fraction_bits.bitcast(x.dtype) + -1.0
    if x.dtype.scalar is dtypes.float64:
        variable = variable * (variable + 2.0).alu(Op.RECIPROCAL)
        squared = variable * variable
    result = _multiply_add(variable, _polynomial(squared, form.log2), exponent)
    result = (x < math.inf).where(result, x)
    result = (x < 0.0).where(math.nan, result)
    return x.not_equal(0.0).where(result, -math.inf)


def sin(x: UOp) -> UOp:
    """The sine of x in radians, for any finite x; NaN for others."""
    form = _FORMATS[x.dtype.scalar]
    bits = x.bitcast(form.unsigned.vec(x.dtype.lanes))
    return _circular(x, 0, bits & (1 << form.top))


def cos(x: UOp) -> UOp:
    """The cosine of x in radians, without the error that rounding x + pi / 2 brings."""
    return _circular(x, 1, None)


def _exponential(
    x: UOp, octave: float, two_octaves: tuple[float, ...], polynomial: tuple[float, ...]
) -> UOp:
    """base**x = polynomial(rest) * 2**(2 * half), half = round(x / octave / 2).

    The result doubles where x grows by `octave`; the rest is x - half * 2 * octave.
    """
    form = _FORMATS[x.dtype.scalar]
    # Beyond these the result is 0 or infinite.
    least = math.floor(-(form.bias + form.mantissa + 1) * octave)
    greatest = math.floor((form.bias + 2) * octave)
    clamped = (x < least).where(least, x)
    clamped = (clamped > greatest).where(greatest, clamped)
    # The low bits of `rounded` are half + bias: shifted, they are the float 2**half.
    rounder = form.rounder + form.bias
    rounded = _multiply_add(clamped, 0.5 / octave, rounder)
    rest = _without(clamped, rounded + -rounder, two_octaves)
    bits = rounded.bitcast(form.unsigned.vec(x.dtype.lanes))
    power = (bits << form.mantissa).bitcast(x.dtype)
    # Two multiplications reach from inf to the subnormal numbers; only the last one rounds.
    return _polynomial(rest, polynomial) * power * power


def _bits_of_root_half(form: _Format) -> int:
    """The bits of the float nearest to sqrt(1/2), as an integer."""
    fraction = round(math.sqrt(0.5) * 2.0 ** (form.mantissa + 1))
    return ((form.bias - 1) << form.mantissa) + fraction - (1 << form.mantissa)


def _circular(x: UOp, quarter: int, sign: UOp | None) -> UOp:
    """sin(|x| + quarter * pi / 2), its sign changed where the bit `sign` is set."""
    form = _FORMATS[x.dtype.scalar]
    dtype, unsigned = x.dtype, form.unsigned.vec(x.dtype.lanes)
    bits = x.bitcast(unsigned) & ((1 << form.top) - 1)
    size = bits.bitcast(dtype)
    # |x| = quarters * pi / 2 + angle: subtract parts of pi / 2, each product exact but the last.
    rounded = _multiply_add(size, 2 / math.pi, form.rounder)
    angle = _without(size, rounded + -form.rounder, form.half_pi)
    far_quarters, far_angle = _reduce_far(bits, form, dtype)
    near = size < 2.0**form.near
    quarters = near.where(rounded.bitcast(unsigned), far_quarters)
    angle = near.where(angle, far_angle)
    angle = (size < math.inf).where(angle, math.nan)
    quarters = quarters + quarter if quarter else quarters
    # Odd quarters take the cosine of the angle, the second half of the turn changes the sign.
    odd = (quarters & 1).not_equal(0)
    square = angle * angle
    sine = _multiply_add(angle * square, _polynomial(square, form.sine), angle)
    start = _multiply_add(square, -0.5, 1.0)
    cosine = _multiply_add(square * square, _polynomial(square, form.cosine), start)
    flip = (quarters & 2) << (form.top - 1)
    flip = flip if sign is None else flip ^ sign
    return (odd.where(cosine, sine).bitcast(unsigned) ^ flip).bitcast(dtype)


def _reduce_far(bits: UOp, form: _Format, dtype: DType) -> tuple[UOp, UOp]:
    """Quarter turns and the angle left over for a float of at least 2**near, given its bits.

    x = mantissa * 2**e. Multiples of whole turns do not count, so of 1 / (2 * pi) only the bits
    that follow the e-th matter: mantissa * those, in wrapping 64-bit integers, is the fraction
    of a turn (Payne and Hanek).
    """
    wide = dtypes.uint64.vec(dtype.lanes)
    hidden = 1 << form.mantissa
    mantissa = ((bits & (hidden - 1)) | hidden).cast(wide)
    exponent = (bits >> form.mantissa) + -(form.bias + form.near)
    # Where the exponent is smaller the result is not used; the shifts stay in range all the same.
    start = exponent.cast(wide)
    double = form.mantissa > 32
    words = 18 if double else 3
    total = TURN >> (TURN_BITS + form.mantissa - form.near - 64 * words)
    table = [
        UOp.const((total >> (64 * (words - 1 - word))) & (2**64 - 1), wide) for word in range(words)
    ]
    window = _window(table, start, 2 if double else 1)
    turns = mantissa * window[0]
    if double:
        turns = turns + _multiply_high(mantissa, window[1])
    quarters = (turns + (1 << 61)) >> 62
    angle = (turns << 2).bitcast(dtypes.int64.vec(dtype.lanes)).cast(dtype)
    return quarters.cast(bits.dtype), angle * (math.pi / 2**65)


def _window(words: list[UOp], start: UOp, count: int) -> list[UOp]:
    """`count` words of 64 bits from bit `start` of a row of words, the first being the highest."""
    levels = range((len(words) - count - 1).bit_length() - 1, -1, -1)
    for level in levels:
        needed = count + (1 << level)
        bit = (start & (64 << level)).not_equal(0)
        step = 1 << level
        words = [
            bit.where(words[i + step], words[i]) if i + step < len(words) else words[i]
            for i in range(min(needed, len(words)))
        ]
    shift = start & 63
    return [(words[i] << shift) | ((words[i + 1] >> 1) >> (shift ^ 63)) for i in range(count)]


def _multiply_high(x: UOp, y: UOp) -> UOp:
    """The upper 64 bits of a product of 64-bit numbers, at most 2 too small."""
    low = 0xFFFFFFFF
    x_high, y_high = x >> 32, y >> 32
    crossed = ((x_high * (y & low)) >> 32) + (((x & low) * y_high) >> 32)
    return x_high * y_high + crossed


def _multiply_add(x: UOp, y: UOp | float, z: UOp | float) -> UOp:
    """x * y + z, rounded once where the target can."""
    others = [part if isinstance(part, UOp) else x.const_like(part) for part in (y, z)]
    return x.alu(Op.MULACC, *others)


def _without(x: UOp, count: UOp, parts: tuple[float, ...]) -> UOp:
    """x less `count` times the sum of the parts."""
    for part in parts:
        x = _multiply_add(count, -part, x)
    return x


def _polynomial(x: UOp, coefficients: tuple[float, ...]) -> UOp:
    """The sum of coefficients[i] * x**i."""
    total = x.const_like(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = _multiply_add(total, x, coefficient)
    return total
