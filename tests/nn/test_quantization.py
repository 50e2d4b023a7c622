import numpy as np
import pytest

from kernelet import Tensor, dtypes
from kernelet.nn.quantization import BLOCKS, bit_fields, half_at

COUNT = 3


def blocks_of(block):
    rng = np.random.default_rng(block.nbytes)
    data = rng.integers(0, 256, (COUNT, block.nbytes)).astype(np.uint8)
    # Random bytes may be infinite as float16: the scales get sensible values.
    places = {"Q6_K": [208], "Q4_0": [0], "Q5_0": [0], "Q8_0": [0]}.get(block.name, [0, 2])
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


DEFINITIONS = {"Q8_0": eight_bits, "Q4_K": large, "Q5_K": large, "Q6_K": six_bits}


@pytest.mark.parametrize("block", BLOCKS.values(), ids=lambda block: block.name)
def test_blocks_decode_to_the_numbers_of_their_definition(block):
    data = blocks_of(block)
    definition = DEFINITIONS.get(block.name, small)
    want = [definition(row, block.name) for row in data]
    found = block.decode(Tensor(data))
    assert found.shape == (COUNT, block.elements)
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-4, atol=1e-4)


def test_bit_fields_come_lowest_first():
    found = bit_fields(Tensor([[0b11100100]], dtype=dtypes.uint8), 2)
    assert found.tolist() == [[[0], [1], [2], [3]]]


def test_a_scale_is_read_at_its_byte():
    data = np.float16([1.5, -0.25]).view(np.uint8).reshape(1, 4)
    assert half_at(Tensor(data), 2).tolist() == [[-0.25]]
