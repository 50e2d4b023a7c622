"""Blocks of quantized numbers, as the ggml library defines them.

In:  the bytes of a tensor, one block a row.
Out: the numbers as a lazy float32 expression, one block a row.

In all of them a number is a small integer times its block's scale; K blocks have a scale of their
own for each group of 16 or 32 numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernelet.base.dtype import dtypes
from kernelet.frontend.tensor import Tensor

_CLOSE_TO_ZERO = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_FOUR_BIT_FLOATS = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


@dataclass(frozen=True, slots=True)
class Block:
    """A block format: how many numbers are in how many bytes, and what they are."""

    name: str
    elements: int
    nbytes: int
    decode: Callable[[Tensor], Tensor]


def bit_fields(data: Tensor, width: int) -> Tensor:
    """The fields of `width` bits of each byte, the lowest first: (..., n) -> (..., 8/width, n)."""
    count = 8 // width
    shifts = (Tensor.arange(count, dtype=dtypes.uint8) * width).reshape(count, 1)
    return (data.unsqueeze(-2) >> shifts) & ((1 << width) - 1)


def fields(packed: Tensor, width: int, count: int) -> Tensor:
    """`count` fields of `width` bits of each number, its lowest first: (m, n) -> (m, n * count)"""
    shifts = Tensor.arange(count, dtype=packed.dtype) * width
    return ((packed.unsqueeze(-1) >> shifts) & ((1 << width) - 1)).flatten(1)


def words(data: Tensor, nbytes: int) -> Tensor:
    """Each `nbytes` bytes as one number, the lowest first: (m, n) -> (m, n / nbytes)"""
    kind = {2: dtypes.uint16, 4: dtypes.uint32}[nbytes]
    parts = data.reshape(data.shape[0], -1, nbytes).cast(kind)
    return (parts << (Tensor.arange(nbytes, dtype=kind) * 8)).sum(-1).cast(kind)


def half_at(data: Tensor, offset: int) -> Tensor:
    """The float16 at a byte of each block, as a column."""
    low = data[:, offset : offset + 1].cast(dtypes.uint16)
    high = data[:, offset + 1 : offset + 2].cast(dtypes.uint16)
    return (low | (high << 8)).bitcast(dtypes.float16).cast(dtypes.float32)


def nibbles(data: Tensor) -> Tensor:
    """The 32 low, then high, halves of 16 bytes of each block."""
    return bit_fields(data, 4).reshape(data.shape[0], 32)


def fifth_bits(data: Tensor) -> Tensor:
    """The bits of 4 bytes of each block in order, as 16 or 0."""
    bits = bit_fields(data, 1).permute(0, 2, 1).reshape(data.shape[0], 32)
    return bits << 4


def decode_q4_0(data: Tensor) -> Tensor:
    """scale * (q - 8)"""
    return half_at(data, 0) * (nibbles(data[:, 2:18]).cast(dtypes.float32) - 8)


def decode_q4_1(data: Tensor) -> Tensor:
    """scale * q + minimum"""
    return half_at(data, 0) * nibbles(data[:, 4:20]).cast(dtypes.float32) + half_at(data, 2)


def decode_q5_0(data: Tensor) -> Tensor:
    """scale * (q - 16)"""
    quants = nibbles(data[:, 6:22]) | fifth_bits(data[:, 2:6])
    return half_at(data, 0) * (quants.cast(dtypes.float32) - 16)


def decode_q5_1(data: Tensor) -> Tensor:
    """scale * q + minimum"""
    quants = nibbles(data[:, 8:24]) | fifth_bits(data[:, 4:8])
    return half_at(data, 0) * quants.cast(dtypes.float32) + half_at(data, 2)


def decode_q8_0(data: Tensor) -> Tensor:
    """scale * q"""
    return half_at(data, 0) * data[:, 2:34].bitcast(dtypes.int8).cast(dtypes.float32)


def group_scales(data: Tensor) -> tuple[Tensor, Tensor]:
    """The 6-bit scales and minima of 8 groups, from 12 bytes: (blocks, 8, 1) each."""
    blocks = data.shape[0]
    first, second, third = data[:, 0:4], data[:, 4:8], data[:, 8:12]
    scales = (first & 63).cat((third & 15) | ((first >> 6) << 4), dim=1)
    minima = (second & 63).cat((third >> 4) | ((second >> 6) << 4), dim=1)
    return (
        scales.cast(dtypes.float32).reshape(blocks, 8, 1),
        minima.cast(dtypes.float32).reshape(blocks, 8, 1),
    )


def _scaled_groups(data: Tensor, quants: Tensor) -> Tensor:
    """scale * group scale * q - minimum scale * group minimum"""
    blocks = data.shape[0]
    scales, minima = group_scales(data[:, 4:16])
    large = half_at(data, 0).reshape(blocks, 1, 1) * scales
    small = half_at(data, 2).reshape(blocks, 1, 1) * minima
    return (large * quants.cast(dtypes.float32) - small).reshape(blocks, 256)


def decode_q4_k(data: Tensor) -> Tensor:
    """8 groups of 32 numbers of 4 bits, each group with a scale and a minimum."""
    blocks = data.shape[0]
    quants = bit_fields(data[:, 16:144].reshape(blocks, 4, 32), 4)
    return _scaled_groups(data, quants.reshape(blocks, 8, 32))


def decode_q5_k(data: Tensor) -> Tensor:
    """As `decode_q4_k` with a fifth bit for each number."""
    blocks = data.shape[0]
    quants = bit_fields(data[:, 48:176].reshape(blocks, 4, 32), 4).reshape(blocks, 8, 32)
    return _scaled_groups(data, quants | (bit_fields(data[:, 16:48], 1) << 4))


def decode_q6_k(data: Tensor) -> Tensor:
    """16 groups of 16 numbers of 6 bits, each group with a signed scale."""
    blocks = data.shape[0]
    low = bit_fields(data[:, 0:128].reshape(blocks, 2, 64), 4).reshape(blocks, 2, 4, 32)
    high = bit_fields(data[:, 128:192].reshape(blocks, 2, 32), 2)
    quants = (low | (high << 4)).cast(dtypes.float32) - 32
    scales = data[:, 192:208].bitcast(dtypes.int8).cast(dtypes.float32).reshape(blocks, 16, 1)
    values = scales * quants.reshape(blocks, 16, 16)
    return half_at(data, 208) * values.reshape(blocks, 256)


def decode_q2_k(data: Tensor) -> Tensor:
    """16 groups of 16 numbers of 2 bits, each group with a scale and a minimum."""
    blocks = data.shape[0]
    quants = bit_fields(data[:, 16:80].reshape(blocks, 2, 32), 2).reshape(blocks, 16, 16)
    groups = data[:, 0:16].reshape(blocks, 16, 1)
    large = half_at(data, 80).reshape(blocks, 1, 1) * (groups & 15).cast(dtypes.float32)
    small = half_at(data, 82).reshape(blocks, 1, 1) * (groups >> 4).cast(dtypes.float32)
    return (large * quants.cast(dtypes.float32) - small).reshape(blocks, 256)


def decode_q3_k(data: Tensor) -> Tensor:
    """16 groups of 16 numbers of 3 bits, each group with a scale of 6 bits."""
    blocks = data.shape[0]
    low = bit_fields(data[:, 32:96].reshape(blocks, 2, 32), 2)
    high = bit_fields(data[:, 0:32], 1).reshape(blocks, 2, 4, 32)
    quants = ((low | (high << 2)).cast(dtypes.float32) - 4).reshape(blocks, 16, 16)
    groups = bit_fields(data[:, 96:104], 4).reshape(blocks, 16)
    groups = groups | (bit_fields(data[:, 104:108], 2).reshape(blocks, 16) << 4)
    scales = half_at(data, 108) * (groups.cast(dtypes.float32) - 32)
    return (scales.reshape(blocks, 16, 1) * quants).reshape(blocks, 256)


def decode_iq4_nl(data: Tensor) -> Tensor:
    """scale * one of 16 numbers that lie closer together near 0"""
    return half_at(data, 0) * Tensor(_CLOSE_TO_ZERO)[nibbles(data[:, 2:18])]


def decode_iq4_xs(data: Tensor) -> Tensor:
    """8 groups of 32 numbers as in `decode_iq4_nl`, each group with a scale of 6 bits."""
    blocks = data.shape[0]
    low = bit_fields(data[:, 4:8], 4).permute(0, 2, 1).reshape(blocks, 8)
    high = bit_fields(data[:, 2:4], 2).permute(0, 2, 1).reshape(blocks, 8)
    scales = half_at(data, 0) * ((low | (high << 4)).cast(dtypes.float32) - 32)
    picked = bit_fields(data[:, 8:136].reshape(blocks, 8, 16), 4).reshape(blocks, 8, 32)
    return (scales.reshape(blocks, 8, 1) * Tensor(_CLOSE_TO_ZERO)[picked]).reshape(blocks, 256)


def decode_mxfp4(data: Tensor) -> Tensor:
    """2**(exponent - 128) * twice a float of 4 bits"""
    exponent = data[:, 0:1].cast(dtypes.uint32)
    # Below 2**-126 the bits of a float32 are those of its fraction.
    bits = (exponent < 2).where((exponent + 1) << 21, (exponent.maximum(1) - 1) << 23)
    return bits.bitcast(dtypes.float32) * Tensor(_FOUR_BIT_FLOATS)[nibbles(data[:, 1:17])]


def decode_nvfp4(data: Tensor) -> Tensor:
    """4 groups of 16 floats of 4 bits, each group with a scale of 8 bits (e4m3 without sign)."""
    blocks = data.shape[0]
    small = data[:, 0:4].cast(dtypes.int32) & 127
    exponent, fraction = small >> 3, (small & 7).cast(dtypes.float32)
    normal = (exponent > 0).where(fraction + 8, fraction)
    # A power of 2, from its bits; half of the scale, as the table holds twice the numbers.
    power = ((exponent.maximum(1) - 11 + 127) << 23).bitcast(dtypes.float32)
    scales = (data[:, 0:4] == 127).where(0, normal * power)
    picked = bit_fields(data[:, 4:36].reshape(blocks, 4, 8), 4).reshape(blocks, 4, 16)
    return (scales.unsqueeze(-1) * Tensor(_FOUR_BIT_FLOATS)[picked]).reshape(blocks, 64)


def decode_tq1_0(data: Tensor) -> Tensor:
    """scale * (digit - 1): each byte holds 5 digits of base 3, its last 4 bytes hold 4."""
    digits = []
    for start, end, count in ((0, 32, 5), (32, 48, 5), (48, 52, 4)):
        powers = Tensor([3**at for at in range(count)], dtype=dtypes.uint8).unsqueeze(-1)
        # A byte is the fraction of 256 that the digits are of 3**5.
        rest = data[:, start:end].unsqueeze(1) * powers
        digits.append(((rest.cast(dtypes.uint16) * 3) >> 8).flatten(1))
    return half_at(data, 52) * (Tensor.cat(*digits, dim=1).cast(dtypes.float32) - 1)


def decode_tq2_0(data: Tensor) -> Tensor:
    """scale * (q - 1), of 2 bits"""
    quants = bit_fields(data[:, 0:64].reshape(data.shape[0], 2, 32), 2).flatten(1)
    return half_at(data, 64) * (quants.cast(dtypes.float32) - 1)


# By the number that GGUF files give them.
BLOCKS = {
    2: Block("Q4_0", 32, 18, decode_q4_0),
    3: Block("Q4_1", 32, 20, decode_q4_1),
    6: Block("Q5_0", 32, 22, decode_q5_0),
    7: Block("Q5_1", 32, 24, decode_q5_1),
    8: Block("Q8_0", 32, 34, decode_q8_0),
    10: Block("Q2_K", 256, 84, decode_q2_k),
    11: Block("Q3_K", 256, 110, decode_q3_k),
    12: Block("Q4_K", 256, 144, decode_q4_k),
    13: Block("Q5_K", 256, 176, decode_q5_k),
    14: Block("Q6_K", 256, 210, decode_q6_k),
    20: Block("IQ4_NL", 32, 18, decode_iq4_nl),
    23: Block("IQ4_XS", 256, 136, decode_iq4_xs),
    34: Block("TQ1_0", 256, 54, decode_tq1_0),
    35: Block("TQ2_0", 256, 66, decode_tq2_0),
    39: Block("MXFP4", 32, 17, decode_mxfp4),
    40: Block("NVFP4", 64, 36, decode_nvfp4),
}
