"""Names of types, spelling of numbers, and conversions in LLVM IR.

In:  dtypes, Python values.
Out: LLVM IR text.

Narrow floats are integers, their bits. Conversions give the same result on every processor: see
`kernelet.render.c_casts`.
"""

from __future__ import annotations

import math
import struct
from typing import Protocol

from kernelet.base.dtype import FORMATS, DType, Scalar, dtypes, float_to_bits, round_float, round_to
from kernelet.render.renderer import bits_dtype

_FLOAT_NAMES = {dtypes.float32: "float", dtypes.float64: "double"}
_FLOAT_SUFFIXES = {dtypes.float32: "f32", dtypes.float64: "f64"}


class Assembler(Protocol):
    """What conversions need of a renderer."""

    def assign(self, text: str) -> str:
        """Append an instruction and name its result."""

    def declare(self, result: str, name: str, parameters: str) -> str:
        """Declare a function and give its name."""


def type_name(dtype: DType, in_memory: bool = False) -> str:
    """The LLVM type of a value; bools are bytes in memory."""
    held = bits_dtype(dtype.scalar)
    if held.is_bool:
        name = "i8" if in_memory else "i1"
    else:
        name = _FLOAT_NAMES.get(held) or f"i{held.itemsize * 8}"
    return name if dtype.lanes == 1 else f"<{dtype.lanes} x {name}>"


def suffix(dtype: DType) -> str:
    """The type as part of the name of an intrinsic: `v16f32`."""
    held = bits_dtype(dtype.scalar)
    name = _FLOAT_SUFFIXES.get(held) or type_name(held)
    return name if dtype.lanes == 1 else f"v{dtype.lanes}{name}"


def literal(dtype: DType, value: Scalar) -> str:
    """A constant, the same in every lane."""
    scalar = dtype.scalar
    text = _float_literal(scalar, float(value)) if scalar.is_float else _whole(scalar, value)
    if dtype.lanes == 1:
        return text
    if text in ("0", "false", "0x0000000000000000"):
        return "zeroinitializer"
    return f"<{', '.join([f'{type_name(scalar)} {text}'] * dtype.lanes)}>"


def _whole(dtype: DType, value: Scalar) -> str:
    number = round_to(dtype, value)
    return ("true" if number else "false") if dtype.is_bool else str(number)


def _float_literal(dtype: DType, value: float) -> str:
    if dtype.name in FORMATS:
        return str(float_to_bits(dtype, value))
    rounded = round_float(dtype, value)
    if dtype is dtypes.float16:
        return str(struct.unpack("<H", struct.pack("<e", rounded))[0])
    if math.isnan(rounded):
        return "0x7FF8000000000000"
    # A float is written as the double that has its value.
    return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"


# ---- conversions ----


def cast_value(assembler: Assembler, value: str, source: DType, target: DType) -> str:
    """Convert `value` from `source` to `target`."""
    if source is target:
        return value
    if source.scalar is dtypes.float16:
        wide = dtypes.float32.vec(source.lanes)
        return cast_value(assembler, _widen(assembler, value, source), wide, target)
    if target.is_bool:
        test = "fcmp une" if source.is_float else "icmp ne"
        return assembler.assign(f"{test} {type_name(source)} {value}, {literal(source, 0)}")
    if target.scalar is dtypes.float16:
        wide = dtypes.float32.vec(source.lanes)
        if source.scalar is dtypes.float64:
            value = _round_to_odd(assembler, value, source)
        else:
            value = cast_value(assembler, value, source, wide)
        return _narrow(assembler, value, target)
    return _convert(assembler, value, source, target)


def _convert(assembler: Assembler, value: str, source: DType, target: DType) -> str:
    held, wanted = type_name(source), type_name(target)
    if source.is_float and not target.is_float:
        return _saturate(assembler, value, source, target)
    if held == wanted:
        return value
    is_plain = source.is_bool or source.is_unsigned
    if target.is_float:
        word = "uitofp" if is_plain else "sitofp"
        if source.is_float:
            word = "fpext" if target.itemsize > source.itemsize else "fptrunc"
    elif source.itemsize > target.itemsize:
        word = "trunc"
    else:
        word = "zext" if is_plain else "sext"
    return assembler.assign(f"{word} {held} {value} to {wanted}")


def _saturate(assembler: Assembler, value: str, source: DType, target: DType) -> str:
    # llvm.fptosi.sat does the same, lane by lane on x86.
    held, wanted, flags = type_name(source), type_name(target), _vector("i1", source.lanes)
    low, high = literal(source, float(target.min)), literal(source, float(int(target.max) + 1))
    above = assembler.assign(f"fcmp oge {held} {value}, {high}")
    below = assembler.assign(f"fcmp ole {held} {value}, {low}")
    outside = assembler.assign(f"fcmp uno {held} {value}, {literal(source, 0)}")
    for test in (above, below):
        outside = assembler.assign(f"or {flags} {outside}, {test}")
    zero = literal(source, 0)
    safe = assembler.assign(f"select {flags} {outside}, {held} {zero}, {held} {value}")
    word = "fptoui" if target.is_unsigned else "fptosi"
    result = assembler.assign(f"{word} {held} {safe} to {wanted}")
    for test, limit in ((above, target.max), (below, target.min)):
        choice = f"{wanted} {literal(target, limit)}, {wanted} {result}"
        result = assembler.assign(f"select {flags} {test}, {choice}")
    return result


def _widen(assembler: Assembler, value: str, source: DType) -> str:
    lanes = source.lanes
    bits, wide = type_name(source), type_name(dtypes.float32.vec(lanes))
    half = _vector("half", lanes)
    value = assembler.assign(f"bitcast {bits} {value} to {half}")
    return assembler.assign(f"fpext {half} {value} to {wide}")


def _narrow(assembler: Assembler, value: str, target: DType) -> str:
    lanes = target.lanes
    wide, bits = type_name(dtypes.float32.vec(lanes)), type_name(target)
    half = _vector("half", lanes)
    value = assembler.assign(f"fptrunc {wide} {value} to {half}")
    return assembler.assign(f"bitcast {half} {value} to {bits}")


def _round_to_odd(assembler: Assembler, value: str, source: DType) -> str:
    # A last bit that is set where bits were cut off is never a tie, so the next rounding is right.
    word = dtypes.uint64.vec(source.lanes)
    wide, kind = type_name(source), type_name(word)
    bits = assembler.assign(f"bitcast {wide} {value} to {kind}")
    low = assembler.assign(f"and {kind} {bits}, {literal(word, (1 << 29) - 1)}")
    high = assembler.assign(f"xor {kind} {bits}, {low}")
    exact = assembler.assign(f"icmp eq {kind} {low}, {literal(word, 0)}")
    odd = assembler.assign(f"or {kind} {high}, {literal(word, 1 << 29)}")
    flags = _vector("i1", source.lanes)
    bits = assembler.assign(f"select {flags} {exact}, {kind} {high}, {kind} {odd}")
    value = assembler.assign(f"bitcast {kind} {bits} to {wide}")
    near = type_name(dtypes.float32.vec(source.lanes))
    return assembler.assign(f"fptrunc {wide} {value} to {near}")


def _vector(name: str, lanes: int) -> str:
    return name if lanes == 1 else f"<{lanes} x {name}>"
