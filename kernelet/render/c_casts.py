"""Conversions between element types in C, with the same result on every processor.

In:  C text of a value, its dtype, the dtype it shall have.
Out: C text; functions it calls are put in the prelude.

A float becomes an integer by truncation; what is out of range becomes the nearest integer there
is, NaN becomes 0. A float16 is held as its bits and rounded to nearest even; floats that are
narrower or wider by range are integer arithmetic by now.
"""

from __future__ import annotations

import re

from kernelet.base.dtype import DType, dtypes
from kernelet.render.c_helpers import Prelude, mask_dtype
from kernelet.render.c_types import SIGNED, UNSIGNED, literal, short_name
from kernelet.render.renderer import bits_dtype


def cast(prelude: Prelude, text: str, source: DType, target: DType) -> str:
    """`text` as a value of `target`; neither is bool."""
    lanes = source.lanes
    if source.scalar is dtypes.float16:
        wide = dtypes.float32.vec(lanes)
        return cast(prelude, f"{_widen(prelude, source)}({text})", wide, target)
    if source is target:
        return text
    if target.scalar is dtypes.float16:
        if not source.is_float:
            wide = dtypes.float32.vec(lanes)
            text, source = cast(prelude, text, source, wide), wide
        return f"{_narrow(prelude, source, target)}({text})"
    if source.is_float and not target.is_float:
        return f"{_saturate(prelude, source, target)}({text})"
    if lanes == 1:
        return f"({prelude.type(target)}){_operand(text)}"
    if source.itemsize < 4 and target.is_float:
        # gcc converts bytes to floats one by one, but not by way of 32 bits.
        wide = dtypes.int32.vec(lanes)
        text, source = _convert(prelude, text, wide), wide
    return _convert(prelude, text, target)


def bitcast(prelude: Prelude, text: str, source: DType, target: DType) -> str:
    """The same bits as another dtype of the same size; neither is bool."""
    held, wanted = bits_dtype(source), bits_dtype(target)
    if held is wanted:
        return text
    if source.lanes > 1 or not (held.is_float or wanted.is_float):
        return f"({prelude.type(wanted)}){_operand(text)}"
    kind = prelude.type(wanted)
    name = f"bits_{short_name(held)}_to_{short_name(wanted)}"
    body = f"{kind} result;\n__builtin_memcpy(&result, &x, sizeof result);\nreturn result;"
    return prelude.function(kind, name, f"{prelude.type(held)} x", body) + f"({text})"


def _operand(text: str) -> str:
    return text if re.fullmatch(r"\w+(\[[^]]*\])?", text) else f"({text})"


def _convert(prelude: Prelude, text: str, target: DType) -> str:
    return f"__builtin_convertvector({text}, {prelude.type(target)})"


# ---- float to integer ----


def _saturate(prelude: Prelude, source: DType, target: DType) -> str:
    name = f"{short_name(source)}_to_{short_name(target)}"
    kind, result = prelude.type(source), prelude.type(target)
    if source.lanes == 1:
        least, greatest = literal(target, target.min), literal(target, target.max)
        low, high = _limits(source, target)
        body = f"return x >= {high} ? {greatest} : x > {low} ? ({result})x : x == x ? {least} : 0;"
    elif target.itemsize == source.itemsize:
        body = _saturate_lanes(prelude, source, target)
    elif target.itemsize > source.itemsize:
        # gcc 12 fails on these conversions of whole vectors.
        one = _saturate(prelude, source.scalar, target.scalar)
        lanes = ", ".join(f"{one}(x[{lane}])" for lane in range(source.lanes))
        body = f"return ({result}){{{lanes}}};"
    else:
        body = _clamp_lanes(prelude, source, target)
    return prelude.function(result, name, f"{kind} x", body)


def _limits(source: DType, target: DType) -> tuple[str, str]:
    low, high = float(target.min), float(int(target.max) + 1)
    return literal(source, low), literal(source, high)


def _saturate_lanes(prelude: Prelude, source: DType, target: DType) -> str:
    kind, result = prelude.type(source), prelude.type(target)
    mask = prelude.type(mask_dtype(source))
    low, high = (f"{prelude.splat(source)}({limit})" for limit in _limits(source, target))
    least, greatest = (
        f"{prelude.splat(target)}({literal(target, limit)})" for limit in (target.min, target.max)
    )
    return f"""
        const {mask} above = ({mask})(x >= {high}), below = ({mask})(x <= {low});
        const {mask} inside = ({mask})(x == x) & ~(above | below);
        const {result} whole = {_convert(prelude, f"({kind})(({mask})x & inside)", target)};
        return whole | (({result})above & {greatest}) | (({result})below & {least});"""


def _clamp_lanes(prelude: Prelude, source: DType, target: DType) -> str:
    whole = SIGNED[source.itemsize].vec(source.lanes)
    kind, splat, select = prelude.type(whole), prelude.splat(whole), prelude.select(whole)
    lines = [f"{kind} whole = {_saturate(prelude, source, whole)}(x);"]
    for sign, limit in (("<", target.min), (">", target.max)):
        bound = f"{splat}({literal(whole, limit)})"
        lines.append(f"whole = {select}(({kind})(whole {sign} {bound}), {bound}, whole);")
    return "\n".join([*lines, f"return {_convert(prelude, 'whole', target)};"])


# ---- float16 ----


def _widen(prelude: Prelude, source: DType) -> str:
    lanes = source.lanes
    wide, bits = dtypes.float32.vec(lanes), dtypes.uint32.vec(lanes)
    unsigned = prelude.type(bits)
    value = cast(prelude, "x", dtypes.uint16.vec(lanes), bits)
    # The exponent is moved to its place and made right by one exact product.
    scaled = f"{bitcast(prelude, 'shifted', bits, wide)} * 0x1p112f"
    infinite = _flag(prelude, bits, "shifted >= 0x0f800000u")
    body = f"""
        const {unsigned} wide = {value}, shifted = (wide & 0x7fffu) << 13;
        const {unsigned} scaled = {bitcast(prelude, scaled, wide, bits)};
        const {unsigned} exponent = {infinite} & 0x7f800000u;
        const {unsigned} result = scaled | exponent | (wide & 0x8000u) << 16;
        return {bitcast(prelude, "result", bits, wide)};"""
    name = f"{source.name}_to_{short_name(wide)}"
    return prelude.function(prelude.type(wide), name, f"{prelude.type(source)} x", body)


def _narrow(prelude: Prelude, source: DType, target: DType) -> str:
    lanes, kind, result = source.lanes, prelude.type(source), prelude.type(target)
    name = f"{short_name(source)}_to_{target.name}" + (f"x{lanes}" if lanes > 1 else "")
    if source.scalar is dtypes.float64:
        narrow = cast(prelude, _round_to_odd(prelude, source), dtypes.float32.vec(lanes), target)
        return prelude.function(result, name, f"{kind} x", f"return {narrow};")
    bits = dtypes.uint32.vec(lanes)
    unsigned = prelude.type(bits)
    body = f"""
        const {unsigned} bits = {bitcast(prelude, "x", source, bits)};
        {_to_half(prelude, bits)}
        return {cast(prelude, "result", bits, dtypes.uint16.vec(lanes))};"""
    return prelude.function(result, name, f"{kind} x", body)


def _to_half(prelude: Prelude, bits: DType) -> str:
    kind, wide = prelude.type(bits), dtypes.float32.vec(bits.lanes)
    # Adding one half lines the bits of a subnormal up with the last bit that is kept.
    aligned = f"{bitcast(prelude, 'magnitude', bits, wide)} + 0.5f"
    return f"""
        const {kind} magnitude = bits & 0x7fffffffu;
        const {kind} small = {_flag(prelude, bits, "magnitude < 0x38800000u")};
        const {kind} large = {_flag(prelude, bits, "magnitude >= 0x477ff000u")};
        const {kind} nan = {_flag(prelude, bits, "magnitude > 0x7f800000u")};
        const {kind} subnormal = {bitcast(prelude, aligned, wide, bits)} - 0x3f000000u;
        const {kind} normal = (magnitude + 0xc8000fffu + (magnitude >> 13 & 1u)) >> 13;
        const {kind} finite = (small & subnormal) | (~small & normal);
        const {kind} unsigned_result = (large & 0x7c00u) | (~large & finite) | (nan & 0x200u);
        const {kind} result = unsigned_result | (bits >> 16 & 0x8000u);"""


def _round_to_odd(prelude: Prelude, source: DType) -> str:
    # A last bit that is set where bits were cut off is never a tie, so the next rounding is right.
    bits, near = dtypes.uint64.vec(source.lanes), dtypes.float32.vec(source.lanes)
    kind, result = prelude.type(bits), prelude.type(near)
    back = bitcast(prelude, "odd", bits, source)
    body = f"""
        const {kind} bits = {bitcast(prelude, "x", source, bits)}, low = bits & 0x1fffffffull;
        const {kind} odd = (bits ^ low) | ({_flag(prelude, bits, "low != 0ull")} & 0x20000000ull);
        return {cast(prelude, back, source, near)};"""
    name = f"{short_name(source)}_to_odd_{short_name(near)}"
    return prelude.function(result, name, f"{prelude.type(source)} x", body) + "(x)"


def _flag(prelude: Prelude, bits: DType, condition: str) -> str:
    kind = prelude.type(UNSIGNED[bits.itemsize].vec(bits.lanes))
    return f"({kind})({condition})" if bits.lanes > 1 else f"-({kind})({condition})"
