"""Write small floats that no processor knows as their bits.

In:  statements with bfloat16 and the floats of 8 bits in LOAD, STORE, CAST and BITCAST alone.
Out: the same, where each CAST from or to such a type is integer arithmetic on its bits.

What the bits mean is in `kernelet.base.dtype.FORMATS`.
"""

from __future__ import annotations

import struct

from kernelet.base.dtype import FORMATS, DType, dtypes
from kernelet.base.target import Target
from kernelet.graph.ops import Op
from kernelet.graph.pattern import UPat, rule
from kernelet.graph.rewrite import RuleSet, graph_rewrite
from kernelet.graph.uop import UOp

_BITS = {1: dtypes.uint8, 2: dtypes.uint16}
_BIAS, _INFINITY, _NAN = 127, 0x7F800000, 0x7FC00000  # of float32


@rule(UPat(Op.CAST, src=(UPat(name="x"),), name="cast"))
def cast_of_coded_float_is_bits(cast: UOp, x: UOp) -> UOp | None:
    """float(bfloat16 x) -> the bits of x, moved to where float32 has them"""
    if x.dtype.name in FORMATS:
        return decoded(x).cast(cast.dtype)
    if cast.dtype.name in FORMATS:
        return encoded(x.cast(dtypes.float32.vec(x.dtype.lanes)), cast.dtype)
    return None


CODED_FLOATS = RuleSet("write small floats as their bits", cast_of_coded_float_is_bits)


def write_small_floats(root: UOp, target: Target) -> UOp:
    """The graph with no CAST from or to small floats, where the target can only store them."""
    coded = target.storage_only & FORMATS.keys()
    if not any(node.dtype.name in coded for node in root.toposort()):
        return root
    return graph_rewrite(root, CODED_FLOATS)


def decoded(x: UOp) -> UOp:
    """The float32 that a small float stands for."""
    form, lanes = FORMATS[x.dtype.name], x.dtype.lanes
    word, wide = dtypes.uint32.vec(lanes), dtypes.float32.vec(lanes)
    bits = x.bitcast(_BITS[x.dtype.itemsize].vec(lanes)).cast(word)
    width, moved = form.exponent + form.mantissa, 23 - form.mantissa
    if form.bias == _BIAS:
        return (bits << moved).bitcast(wide)
    code = bits & ((1 << width) - 1)
    # The exponent is moved to its place and made right by one exact product.
    size = ((code << moved).bitcast(wide) * 2.0 ** (_BIAS - form.bias)).bitcast(word)
    size = (code > form.overflow).where(_NAN, size)
    if form.has_infinity:
        size = code.not_equal(form.overflow).where(size, _INFINITY)
    return (size | ((bits >> width) << 31)).bitcast(wide)


def encoded(x: UOp, dtype: DType) -> UOp:
    """A float32 as the nearest value of a small float, ties to even."""
    form = FORMATS[dtype.name]
    bits = x.bitcast(dtypes.uint32.vec(x.dtype.lanes))
    size, moved = bits & 0x7FFFFFFF, 23 - form.mantissa
    nearest = ((form.bias - _BIAS) << 23) + (1 << (moved - 1)) - 1
    code = (size + ((size >> moved) & 1) + nearest) >> moved
    if form.bias != _BIAS:
        # In a sum with this the last bit is the one that a subnormal keeps.
        aligned = 2.0 ** (24 - form.bias - form.mantissa)
        subnormal = (size.bitcast(x.dtype) + aligned).bitcast(bits.dtype) - _word(aligned)
        code = (size < _word(2.0 ** (1 - form.bias))).where(subnormal, code)
        code = (size < _word(form.limit)).where(code, form.overflow)
    code = (size > _INFINITY).where(form.nan, code)
    code = code | ((bits >> 31) << (form.exponent + form.mantissa))
    return code.cast(_BITS[dtype.itemsize].vec(x.dtype.lanes)).bitcast(dtype)


def _word(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])
