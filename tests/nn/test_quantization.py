import numpy as np
import pytest

from kernelet import Tensor, dtypes
from kernelet.nn.quantization import BLOCKS, bit_fields, half_at

COUNT = 3


def blocks_of(block):
    rng = np.random.default_rng(block.nbytes)
    data = rng.integers(0, 256, (COUNT, block.nbytes)).astype(np.uint8)
    # Random bytes may be infinite as float16: the scales get sensible values.
    one = dict.fromkeys(["Q4_0", "Q5_0", "Q8_0", "IQ4_NL", "IQ4_XS"], [0])
    others = {"Q6_K": [208], "Q2_K": [80, 82], "Q3_K": [108], "MXFP4": [], "NVFP4": []}
    others |= {"TQ1_0": [52], "TQ2_0": [64]}
    places = {**one, **others}.get(block.name, [0, 2])
    if block.name == "MXFP4":
        data[:, 0] = [0, 1, 130]
    if block.name == "NVFP4":
        data[:, :3] = [[0, 7, 127], [8, 64, 255], [119, 120, 126]]
    for place in places:
        scale = rng.uniform(-1, 1, COUNT).astype(np.float16)
        data[:, place : place + 2] = scale.view(np.uint8).reshape(COUNT, 2)
    return data


def half(row, place):
    return float(row[place : place + 2].view(np.float16)[0])


def small(row, name):
    """The numbers of a block of 32, one at a time, as the format's definition says."""
    start = {"Q4_0": 2, "Q4_1": 4, "Q5_0": 6, "Q5_1": 8}[name]
    fifth = int.from_bytes(row[start - 4 : start].tobytes(), "little")
    values = []
    for at in range(32):
        quant = int(row[start + at % 16]) >> (4 * (at // 16)) & 15
        if name.startswith("Q5"):
            quant |= (fifth >> at & 1) << 4
        low = {"Q4_0": -8 * half(row, 0), "Q5_0": -16 * half(row, 0)}.get(name)
        values.append(half(row, 0) * quant + (half(row, 2) if low is None else low))
    return values


def large(row, name):
    """The numbers of a block of 256 with 4 or 5 bits each."""
    packed = [int(byte) for byte in row[4:16]]
    start = 16 if name == "Q4_K" else 48
    values = []
    for at in range(256):
        group, place = at // 32, at % 32
        if group < 4:
            scale, minimum = packed[group] & 63, packed[group + 4] & 63
        else:
            scale = packed[group + 4] & 15 | packed[group - 4] >> 6 << 4
            minimum = packed[group + 4] >> 4 | packed[group] >> 6 << 4
        quant = int(row[start + group // 2 * 32 + place]) >> (4 * (group % 2)) & 15
        if name == "Q5_K":
            quant |= (int(row[16 + place]) >> group & 1) << 4
        values.append(half(row, 0) * scale * quant - half(row, 2) * minimum)
    return values


def six_bits(row, _name):
    values = []
    for at in range(256):
        part, place = at // 128, at % 128
        low = int(row[part * 64 + place % 64]) >> (4 * (place // 64)) & 15
        high = int(row[128 + part * 32 + place % 32]) >> (2 * (place // 32)) & 3
        scale = int(row[192 + at // 16].astype(np.int8))
        values.append(half(row, 208) * scale * ((low | high << 4) - 32))
    return values


def eight_bits(row, _name):
    return [half(row, 0) * float(byte) for byte in row[2:].view(np.int8)]


def two_bits(row, _name):
    values = []
    for at in range(256):
        group, part, place = at // 16, at // 128, at % 32
        quant = int(row[16 + part * 32 + place]) >> (2 * (at % 128 // 32)) & 3
        scale, minimum = int(row[group]) & 15, int(row[group]) >> 4
        values.append(half(row, 80) * scale * quant - half(row, 82) * minimum)
    return values


def three_bits(row, _name):
    packed = [int(byte) for byte in row[96:108]]
    values = []
    for at in range(256):
        group, part, place = at // 16, at // 128, at % 32
        low = int(row[32 + part * 32 + place]) >> (2 * (at % 128 // 32)) & 3
        high = int(row[place]) >> (at // 32) & 1
        scale = packed[group] & 15 if group < 8 else packed[group - 8] >> 4
        scale |= (packed[8 + group % 4] >> (2 * (group // 4)) & 3) << 4
        values.append(half(row, 108) * (scale - 32) * ((low | high << 2) - 4))
    return values


TABLE = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]


def picked(row, name):
    values = []
    high = int(row[2]) | int(row[3]) << 8
    for at in range(32 if name == "IQ4_NL" else 256):
        group, place = at // 32, at % 32
        start = 2 if name == "IQ4_NL" else 8 + 16 * group
        number = TABLE[int(row[start + place % 16]) >> (4 * (place // 16)) & 15]
        scale = int(row[4 + group // 2]) >> (4 * (group % 2)) & 15 | (high >> 2 * group & 3) << 4
        values.append(half(row, 0) * number * (1 if name == "IQ4_NL" else scale - 32))
    return values


def small_floats(row, _name):
    sizes = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    quants = [int(row[1 + at % 16]) >> (4 * (at // 16)) & 15 for at in range(32)]
    return [2.0 ** (int(row[0]) - 127) * sizes[q & 7] * (-1 if q > 7 else 1) for q in quants]


def smaller_floats(row, _name):
    sizes = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    values = []
    for at in range(64):
        packed = int(row[at // 16]) & 127
        exponent, fraction = packed >> 3, packed & 7
        scale = (8 + fraction) * 2.0 ** (exponent - 10) if exponent else fraction * 2.0**-9
        scale = 0 if row[at // 16] == 127 else scale
        quant = int(row[4 + at // 16 * 8 + at % 8]) >> (4 * (at // 8 % 2)) & 15
        values.append(scale * sizes[quant & 7] * (-1 if quant > 7 else 1))
    return values


def digits(row, _name):
    places = [(at % 32, at // 32) for at in range(160)]
    places += [(32 + at % 16, at // 16) for at in range(80)]
    places += [(48 + at % 4, at // 4) for at in range(16)]
    return [half(row, 52) * ((int(row[p]) * 3**k % 256 * 3 >> 8) - 1) for p, k in places]


def two_bits_plain(row, _name):
    places = [(at // 128 * 32 + at % 32, at // 32 % 4) for at in range(256)]
    return [half(row, 64) * ((int(row[p]) >> (2 * k) & 3) - 1) for p, k in places]


DEFINITIONS = {
    "NVFP4": smaller_floats,
    "TQ1_0": digits,
    "TQ2_0": two_bits_plain,
    "Q8_0": eight_bits,
    "Q2_K": two_bits,
    "Q3_K": three_bits,
    "Q4_K": large,
    "Q5_K": large,
    "Q6_K": six_bits,
    "IQ4_NL": picked,
    "IQ4_XS": picked,
    "MXFP4": small_floats,
}


@pytest.mark.parametrize("block", BLOCKS.values(), ids=lambda block: block.name)
def test_blocks_decode_to_the_numbers_of_their_definition(block):
    data = blocks_of(block)
    definition = DEFINITIONS.get(block.name, small)
    want = [definition(row, block.name) for row in data]
    found = block.decode(Tensor(data))
    assert found.shape == (COUNT, block.elements)
    np.testing.assert_allclose(
        found.numpy(), want, rtol=1e-4, atol=0 if block.name == "MXFP4" else 1e-4
    )


@pytest.mark.parametrize("block", BLOCKS.values(), ids=lambda block: block.name)
def test_blocks_decode_as_the_gguf_package_says(block):
    gguf = pytest.importorskip("gguf")
    data = blocks_of(block)
    want = gguf.dequantize(data, gguf.GGMLQuantizationType[block.name])
    np.testing.assert_array_equal(block.decode(Tensor(data)).numpy(), want)


def test_bit_fields_come_lowest_first():
    found = bit_fields(Tensor([[0b11100100]], dtype=dtypes.uint8), 2)
    assert found.tolist() == [[[0], [1], [2], [3]]]


def test_a_scale_is_read_at_its_byte():
    data = np.float16([1.5, -0.25]).view(np.uint8).reshape(1, 4)
    assert half_at(Tensor(data), 2).tolist() == [[-0.25]]
