"""Blocks of numbers that are found in codebooks, as the ggml library defines them.

In:  the bytes of a tensor, one block of 256 numbers a row.
Out: the numbers as a lazy float32 expression, one block a row.

4 or 8 numbers share an index into a codebook of small integers (the file `codebooks.bin`, one
codebook after the other, packed); signs, scales and high bits of the indices lie beside them.
"""

from __future__ import annotations

import functools
from pathlib import Path

from kernelet.base.dtype import dtypes
from kernelet.frontend.tensor import Tensor
from kernelet.nn.quantization import Block, fields, half_at, words

_LEVELS = {
    "two bits": (8, 25, 43),
    "one bit": (-1, 0, 1),
    "three bits, small": (4, 12, 20, 28, 36, 44, 52, 62),
    "three bits": (1, 3, 5, 7, 9, 11, 13, 15),
}
# Where a codebook starts in the file, how many entries it has, of how many numbers, its levels.
_CODEBOOKS = {
    "IQ2_XXS": (0, 256, 8, "two bits"),
    "IQ2_XS": (512, 512, 8, "two bits"),
    "IQ2_S": (1536, 1024, 8, "two bits"),
    "IQ1": (3584, 2048, 8, "one bit"),
    "IQ3_XXS": (7680, 256, 4, "three bits, small"),
    "IQ3_S": (8192, 512, 4, "three bits"),
}


@functools.cache
def codebook(name: str) -> tuple[int, bytes]:
    """How many numbers an entry has, and those of all entries, as signed bytes."""
    start, count, width, kind = _CODEBOOKS[name]
    bits = 2 if width == 8 else 4
    packed = Path(__file__).with_name("codebooks.bin").read_bytes()
    packed = packed[start : start + count * width * bits // 8]
    levels, last = _LEVELS[kind], (1 << bits) - 1
    return width, bytes(
        levels[byte >> shift & last] & 255 for byte in packed for shift in range(0, 8, bits)
    )


def _looked_up(name: str, low: Tensor, high: Tensor | None = None) -> Tensor:
    """The numbers of each index, whose bits above the eighth are in `high`, in a row a block."""
    width, data = codebook(name)
    index = low if high is None else low.cast(dtypes.int32) | (high.cast(dtypes.int32) << 8)
    table = Tensor(data, device=index.uop.device, dtype=dtypes.int8).reshape(-1, width)
    return table[index].cast(dtypes.float32).flatten(1)


def _signs(bits: Tensor) -> Tensor:
    """-1 for each bit that is set and else 1, for 8 bits a number."""
    return 1 - 2 * fields(bits, 1, 8).cast(dtypes.float32)


def _even_signs(seven: Tensor) -> Tensor:
    """8 signs from each 7 bits: how many are minus is even."""
    folded = seven ^ (seven >> 4)
    folded = folded ^ (folded >> 2)
    return _signs(seven | (((folded ^ (folded >> 1)) & 1) << 7))


def _scaled(data: Tensor, scales: Tensor, numbers: Tensor) -> Tensor:
    """The block's scale (its first two bytes) * that of the group * each number."""
    return half_at(data, 0) * _by_groups(scales, numbers)


def _by_groups(scales: Tensor, numbers: Tensor) -> Tensor:
    groups = numbers.reshape(*scales.shape, -1)
    return (scales.unsqueeze(-1) * groups).flatten(1)


def _odd(scales: Tensor) -> Tensor:
    return scales.cast(dtypes.float32) * 2 + 1


def _signs_and_scales(data: Tensor) -> tuple[Tensor, Tensor]:
    """Words of 32 bits: 4 times 7 bits of signs, and an odd scale of 4 bits."""
    packed = words(data, 4)
    return _even_signs(fields(packed, 7, 4)), _odd(packed >> 28)


def decode_iq2_xxs(data: Tensor) -> Tensor:
    """Groups of 32: 4 indices, 4 times 7 signs, a scale of 4 bits."""
    groups = data[:, 2:66].reshape(data.shape[0], 8, 8)
    signs, scales = _signs_and_scales(groups[:, :, 4:].flatten(1))
    numbers = _looked_up("IQ2_XXS", groups[:, :, :4].flatten(1))
    return _scaled(data, scales / 8, numbers * signs)


def decode_iq2_xs(data: Tensor) -> Tensor:
    """Words of 9 bits index and 7 signs; a scale of 4 bits for each 16 numbers."""
    packed = words(data[:, 2:66], 2)
    numbers = _looked_up("IQ2_XS", packed & 511) * _even_signs(packed >> 9)
    return _scaled(data, _odd(fields(data[:, 66:74], 4, 2)) / 8, numbers)


def decode_iq2_s(data: Tensor) -> Tensor:
    """Indices of 8 and 2 bits, 8 signs; a scale of 4 bits for each 16 numbers."""
    numbers = _looked_up("IQ2_S", data[:, 2:34], fields(data[:, 66:74], 2, 4))
    numbers = numbers * _signs(data[:, 34:66])
    return _scaled(data, _odd(fields(data[:, 74:82], 4, 2)) / 8, numbers)


def decode_iq3_xxs(data: Tensor) -> Tensor:
    """64 indices; for each 32 numbers 4 times 7 signs and a scale of 4 bits."""
    signs, scales = _signs_and_scales(data[:, 66:98])
    return _scaled(data, scales / 4, _looked_up("IQ3_XXS", data[:, 2:66]) * signs)


def decode_iq3_s(data: Tensor) -> Tensor:
    """64 indices of 8 and 1 bits, 8 signs; a scale of 4 bits for each 32 numbers."""
    numbers = _looked_up("IQ3_S", data[:, 2:66], fields(data[:, 66:74], 1, 8))
    numbers = numbers * _signs(data[:, 74:106])
    return _scaled(data, _odd(fields(data[:, 106:110], 4, 2)), numbers)


def _raised(numbers: Tensor, is_negative: Tensor) -> Tensor:
    """The numbers of each group plus or minus one eighth."""
    delta = (is_negative != 0).where(-0.125, 0.125)
    return (numbers.reshape(*delta.shape, -1) + delta.unsqueeze(-1)).flatten(1)


def decode_iq1_s(data: Tensor) -> Tensor:
    """32 indices of 8 and 3 bits; a scale of 3 bits and the sign of what is added for each 4."""
    high = words(data[:, 34:50], 2)
    numbers = _looked_up("IQ1", data[:, 2:34], fields(high, 3, 4))
    return _scaled(data, _odd((high >> 12) & 7), _raised(numbers, high >> 15))


def decode_iq1_m(data: Tensor) -> Tensor:
    """32 indices of 8 and 3 bits, each with the sign of what is added; a scale for each 2.

    The block's scale is in pieces: the highest 4 bits of the four words of scales.
    """
    packed = words(data[:, 48:56], 2)
    pieces = (packed >> 12) << Tensor([0, 4, 8, 12], dtype=dtypes.uint16)
    whole = pieces.sum(1, keepdim=True).cast(dtypes.uint16).bitcast(dtypes.float16)
    high = fields(data[:, 32:48], 4, 2)
    numbers = _raised(_looked_up("IQ1", data[:, 0:32], high & 7), high >> 3)
    return whole.cast(dtypes.float32) * _by_groups(_odd(fields(packed, 3, 4)), numbers)


# By the number that GGUF files give them.
BLOCKS = {
    16: Block("IQ2_XXS", 256, 66, decode_iq2_xxs),
    17: Block("IQ2_XS", 256, 74, decode_iq2_xs),
    18: Block("IQ3_XXS", 256, 98, decode_iq3_xxs),
    19: Block("IQ1_S", 256, 50, decode_iq1_s),
    21: Block("IQ3_S", 256, 110, decode_iq3_s),
    22: Block("IQ2_S", 256, 82, decode_iq2_s),
    29: Block("IQ1_M", 256, 56, decode_iq1_m),
}
