from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from kernelet import Tensor
from kernelet.nn import codebooks
from kernelet.nn.codebooks import BLOCKS, codebook

COUNT = 3


def blocks_of(block):
    data = np.random.default_rng(block.nbytes).integers(0, 256, (COUNT, block.nbytes))
    data = data.astype(np.uint8)
    # Random bytes may be infinite as float16.
    if block.name == "IQ1_M":
        data[:, 55] &= 0xBF
    else:
        data[:, 1] &= 0xBF
    return data


def half(low, high):
    return float(np.array([low, high], np.uint8).view(np.float16)[0])


def word(row, start, size):
    return int.from_bytes(row[start : start + size].tobytes(), "little")


def nibble(row, start, at):
    return int(row[start + at // 2]) >> (4 * (at % 2)) & 15


def entry(name, index):
    width, data = codebook(name)
    return np.frombuffer(data, np.int8)[index * width : (index + 1) * width].astype(float)


def signed(numbers, bits):
    return [-each if bits >> at & 1 else each for at, each in enumerate(numbers)]


def even(seven):
    return seven | (seven.bit_count() % 2) << 7


def two_bits_small(row):
    values = []
    for group in range(8):
        start = 2 + 8 * group
        packed = word(row, start + 4, 4)
        for at in range(4):
            pattern = entry("IQ2_XXS", int(row[start + at])) * (0.5 + (packed >> 28)) / 4
            values += signed(pattern, even(packed >> (7 * at) & 127))
    return values


def two_bits_middle(row):
    values = []
    for at in range(32):
        packed = word(row, 2 + 2 * at, 2)
        pattern = entry("IQ2_XS", packed & 511) * (0.5 + nibble(row, 66, at // 2)) / 4
        values += signed(pattern, even(packed >> 9))
    return values


def two_bits(row):
    values = []
    for at in range(32):
        high = int(row[66 + at // 4]) >> (2 * (at % 4)) & 3
        pattern = entry("IQ2_S", int(row[2 + at]) | high << 8)
        values += signed(pattern * (0.5 + nibble(row, 74, at // 2)) / 4, int(row[34 + at]))
    return values


def three_bits_small(row):
    values = []
    for at in range(64):
        packed = word(row, 66 + at // 8 * 4, 4)
        signs = even(packed >> (7 * (at // 2 % 4)) & 127) >> (4 * (at % 2))
        values += signed(entry("IQ3_XXS", int(row[2 + at])) * (0.5 + (packed >> 28)) / 2, signs)
    return values


def three_bits(row):
    values = []
    for at in range(64):
        high = int(row[66 + at // 8]) >> (at % 8) & 1
        pattern = entry("IQ3_S", int(row[2 + at]) | high << 8)
        scale = 1 + 2 * nibble(row, 106, at // 8)
        values += signed(pattern * scale, int(row[74 + at // 2]) >> (4 * (at % 2)))
    return values


def one_bit(row):
    values = []
    for at in range(32):
        packed = word(row, 34 + at // 4 * 2, 2)
        pattern = entry("IQ1", int(row[2 + at]) | (packed >> (3 * (at % 4)) & 7) << 8)
        raised = pattern + (-0.125 if packed >> 15 else 0.125)
        values += list(raised * (2 * (packed >> 12 & 7) + 1))
    return values


def one_bit_more(row):
    values = []
    for at in range(32):
        high = nibble(row, 32, at)
        pattern = entry("IQ1", int(row[at]) | (high & 7) << 8)
        raised = pattern + (-0.125 if high & 8 else 0.125)
        scale = word(row, 48 + at // 8 * 2, 2) >> (3 * (at // 2 % 4)) & 7
        values += list(raised * (2 * scale + 1))
    return values


DEFINITIONS = {
    "IQ2_XXS": two_bits_small,
    "IQ2_XS": two_bits_middle,
    "IQ2_S": two_bits,
    "IQ3_XXS": three_bits_small,
    "IQ3_S": three_bits,
    "IQ1_S": one_bit,
    "IQ1_M": one_bit_more,
}


def scale_of(row, name):
    if name != "IQ1_M":
        return half(row[0], row[1])
    pieces = [row[49 + 2 * at] >> 4 for at in range(4)]
    return half(pieces[0] | pieces[1] << 4, pieces[2] | pieces[3] << 4)


@pytest.mark.parametrize("block", BLOCKS.values(), ids=lambda block: block.name)
def test_blocks_decode_to_the_numbers_of_their_definition(block):
    data = blocks_of(block)
    want = [np.multiply(scale_of(row, block.name), DEFINITIONS[block.name](row)) for row in data]
    np.testing.assert_allclose(block.decode(Tensor(data)).numpy(), want, rtol=1e-5)


def test_the_codebooks_are_those_of_the_format():
    packed = Path(codebooks.__file__).with_name("codebooks.bin").read_bytes()
    assert sha256(packed).hexdigest() == (
        "09b7593242bd052668b975959cdcfd43942fee2c1d75b7b9d4e2535c3c53d33e"
    )


@pytest.mark.parametrize(
    ("name", "width", "count", "first", "last"),
    [
        ("IQ2_XXS", 8, 256, [8] * 8, [43, 8, 43, 43, 25, 8, 8, 25]),
        ("IQ1", 8, 2048, [-1] * 8, [1] * 8),
        ("IQ3_S", 4, 512, [1] * 4, None),
    ],
)
def test_codebooks_are_cut_out_of_the_file_at_their_place(name, width, count, first, last):
    found, data = codebook(name)
    assert (found, len(data)) == (width, width * count)
    assert entry(name, 0).tolist() == first
    assert last is None or sorted(set(entry(name, count - 1))) == sorted(set(last))
    assert len({data[at : at + width] for at in range(0, len(data), width)}) == count


@pytest.mark.parametrize("name", DEFINITIONS)
def test_blocks_decode_as_the_gguf_package_says(name):
    gguf = pytest.importorskip("gguf")
    block = next(each for each in BLOCKS.values() if each.name == name)
    data = blocks_of(block)
    want = gguf.dequantize(data, gguf.GGMLQuantizationType[name])
    np.testing.assert_array_equal(block.decode(Tensor(data)).numpy(), want)
