import contextlib
import random
import struct

import numpy as np
import pytest

from kernelet import Tensor
from kernelet.base.errors import DataError
from kernelet.nn.gguf import gguf_load


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def fact(name, kind, packed):
    return text(name) + struct.pack("<I", kind) + packed


def entry(name, shape, kind, offset):
    axes = b"".join(struct.pack("<Q", size) for size in reversed(shape))
    head = text(name) + struct.pack("<I", len(shape)) + axes
    return head + struct.pack("<IQ", kind, offset)


def model(facts, entries, data, version=3, alignment=32):
    head = b"GGUF" + struct.pack("<IQQ", version, len(entries), len(facts))
    head += b"".join(facts) + b"".join(entries)
    return head + bytes(-len(head) % alignment) + data


@pytest.fixture
def load(tmp_path):
    def written(content):
        path = tmp_path / "m.gguf"
        path.write_bytes(content)
        return gguf_load(path)

    return written


def test_facts_of_every_kind_are_read(load):
    facts, tensors = load(
        model(
            [
                fact("small", 0, struct.pack("<B", 200)),
                fact("signed", 5, struct.pack("<i", -3)),
                fact("half", 6, struct.pack("<f", 0.5)),
                fact("yes", 7, b"\1"),
                fact("name", 8, text("tiny")),
                fact("sizes", 9, struct.pack("<IQ3q", 11, 3, 1, 2, -3)),
                fact("words", 9, struct.pack("<IQ", 8, 2) + text("a") + text("b")),
            ],
            [],
            b"",
        )
    )
    assert facts == {
        "small": 200,
        "signed": -3,
        "half": 0.5,
        "yes": True,
        "name": "tiny",
        "sizes": [1, 2, -3],
        "words": ["a", "b"],
    }
    assert tensors == {}


def test_plain_and_quantized_tensors_are_read(load):
    plain = np.arange(6, dtype=np.float32).reshape(2, 3)
    block = np.float16([0.5]).tobytes() + np.arange(-16, 16, dtype=np.int8).tobytes()
    entries = [entry("plain", (2, 3), 0, 0), entry("quantized", (1, 32), 8, 32)]
    _, tensors = load(model([], entries, plain.tobytes() + bytes(8) + block))
    np.testing.assert_array_equal(tensors["plain"].numpy(), plain)
    want = (np.arange(-16, 16) * 0.5).reshape(1, 32)
    np.testing.assert_array_equal(tensors["quantized"].numpy(), want)


def test_the_alignment_of_the_file_is_used(load):
    facts = [fact("general.alignment", 4, struct.pack("<I", 64))]
    _, tensors = load(model(facts, [entry("x", (1,), 0, 0)], struct.pack("<f", 7), alignment=64))
    assert tensors["x"].tolist() == [7.0]


def test_half_precision_and_integers_keep_their_type(load):
    data = np.float16([1.5, 2.0]).tobytes() + bytes(28) + np.int32([3]).tobytes()
    entries = [entry("half", (2,), 1, 0), entry("whole", (1,), 26, 32)]
    _, tensors = load(model([], entries, data))
    assert {name: (value.dtype.name, value.tolist()) for name, value in tensors.items()} == {
        "half": ("float16", [1.5, 2.0]),
        "whole": ("int32", [3]),
    }


def test_loaded_tensors_compute(load):
    _, tensors = load(model([], [entry("x", (2,), 0, 0)], struct.pack("<2f", 1, 2)))
    assert (tensors["x"] @ Tensor([3.0, 4.0])).item() == 11.0


GOOD = model([fact("name", 8, text("tiny"))], [entry("x", (2,), 0, 0)], bytes(8))


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "starts with b''"),
        (b"hello, this is not a model file", "starts with b'hell'"),
        (GOOD[:-4], "8 bytes are expected"),
        (GOOD[:30], "bytes are expected"),
        (model([], [], b"", version=1), "version 1"),
        (model([fact("bad", 77, b"")], [], b""), "kind 77"),
        (model([fact("long", 8, struct.pack("<Q", 1 << 60))], [], b""), "bytes are expected"),
        (model([fact("bad", 8, struct.pack("<Q", 1) + b"\xff")], [], b""), "UTF-8"),
        (model([fact("general.alignment", 4, bytes(4))], [], b""), "alignment is 0"),
        (model([], [entry("x", (1,) * 9, 0, 0)], bytes(4)), "9 axes"),
        (model([], [entry("x", (1,), 0, 1 << 62)], bytes(4)), "x starts at"),
        (model([], [entry("x", (1,), 0, (1 << 64) - 1)], bytes(4)), "x starts at"),
        (model([], [entry("x", (33,), 8, 0)], bytes(80)), "33 elements of Q8_0"),
        (model([], [entry("x", (32,), 99, 0)], bytes(80)), "kind 99.*Q8_0"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(load, content, found):
    with pytest.raises(DataError, match=rf"m\.gguf: .*GGUF.*{found}"):
        load(content)


def test_any_changed_byte_gives_values_or_a_data_error(load):
    entries = [entry("x", (2, 3), 0, 0), entry("q", (1, 32), 8, 32)]
    facts = [fact("name", 8, text("tiny")), fact("sizes", 9, struct.pack("<IQ3q", 11, 3, 1, 2, 3))]
    whole = model(facts, entries, bytes(32 + 34))
    draw = random.Random(1)
    for _ in range(300):
        data = bytearray(whole)
        data[draw.randrange(len(data))] = draw.randrange(256)
        with contextlib.suppress(DataError):
            load(bytes(data))


def test_lists_in_lists_end_somewhere(tmp_path):
    path = tmp_path / "deep.gguf"
    value = struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 3000
    name = struct.pack("<Q", 1) + b"a"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + name + value)
    with pytest.raises(DataError, match="GGUF.*lists lie in lists"):
        gguf_load(path)
