"""Files of language models in the GGUF format.

In:  a path, or the bytes of a file as a tensor.
Out: the file's own facts, and its tensors by name; DataError where it is not what it says.

A quantized tensor stays as it is in the file: the numbers are a lazy expression over its bytes.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import BinaryIO

from kernelet.base.dtype import DType, dtypes
from kernelet.base.errors import DataError
from kernelet.base.helpers import round_up
from kernelet.frontend.tensor import Tensor
from kernelet.nn import codebooks, quantization
from kernelet.nn.files import Source, name_of, open_source, size_of

Value = bool | int | float | str | list["Value"]

_PLAIN: dict[int, DType] = {
    0: dtypes.float32,
    1: dtypes.float16,
    24: dtypes.int8,
    25: dtypes.int16,
    26: dtypes.int32,
    27: dtypes.int64,
    28: dtypes.float64,
    30: dtypes.bfloat16,
}
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
BLOCKS = quantization.BLOCKS | codebooks.BLOCKS
_STRING, _ARRAY = 8, 9
_MAX_AXES = 8
_MAX_DEPTH = 16


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a file: its shape, its kind of elements and where its bytes start."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


class Reader:
    """Takes numbers and texts from a file, and notices where it ends too early."""

    def __init__(self, source: Source, file: BinaryIO) -> None:
        self.source, self.file, self.size = source, file, size_of(file)

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        at = self.file.tell()
        if not 0 <= count <= self.size - at:
            raise self.damaged(f"{count} bytes are expected at {at} and the file has {self.size}")
        return self.file.read(count)

    def number(self, code: str) -> int:
        """The next whole number, of a `struct` letter."""
        return int(struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0])

    def text(self) -> str:
        """The next string."""
        try:
            return self.take(self.number("Q")).decode()
        except UnicodeDecodeError as error:
            raise self.damaged(f"a string is not UTF-8: {error}") from None

    def value(self, kind: int, depth: int = 0) -> Value:
        """The next value of a kind of fact."""
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            inner, count = self.number("I"), self.number("Q")
            if inner in _SCALARS:
                return list(self.scalars(inner, count))
            if depth > _MAX_DEPTH:
                raise self.damaged(f"lists lie in lists, more than {_MAX_DEPTH} deep")
            return [self.value(inner, depth + 1) for _ in range(count)]
        return self.scalars(kind, 1)[0]

    def scalars(self, kind: int, count: int) -> tuple[bool | int | float, ...]:
        """The next `count` numbers of one kind."""
        if kind not in _SCALARS:
            raise self.damaged(f"a value is of the kind {kind}, which does not exist")
        code = _SCALARS[kind]
        data = self.take(count * struct.calcsize(f"<{code}"))
        return struct.unpack(f"<{count}{code}", data)

    def damaged(self, found: str) -> DataError:
        """The error for something that cannot be."""
        return DataError(f"{name_of(self.source)}: not a whole GGUF file: {found}. Fetch it again.")


def gguf_load(
    source: Source, device: str | None = None
) -> tuple[dict[str, Value], dict[str, Tensor]]:
    """The facts of a GGUF file, and its tensors by name."""
    with open_source(source) as file:
        reader = Reader(source, file)
        facts, entries = _read_header(reader)
        alignment = facts.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise reader.damaged(f"general.alignment is {alignment}")
        start = round_up(file.tell(), alignment)
        tensors = {}
        for entry in entries:
            if start + entry.offset > reader.size:
                raise reader.damaged(f"{entry.name} starts at {start + entry.offset}")
            file.seek(start + entry.offset)
            tensors[entry.name] = _read_tensor(reader, entry, device)
    return facts, tensors


def _read_header(reader: Reader) -> tuple[dict[str, Value], list[Entry]]:
    magic = reader.file.read(4)
    if magic != b"GGUF":
        raise reader.damaged(f"it starts with {magic!r}")
    version = reader.number("I")
    if version not in (2, 3):
        raise reader.damaged(f"it has version {version}; kernelet reads 2 and 3")
    tensor_count, fact_count = reader.number("Q"), reader.number("Q")
    facts: dict[str, Value] = {}
    for _ in range(fact_count):
        name = reader.text()
        facts[name] = reader.value(reader.number("I"))
    return facts, [_read_entry(reader) for _ in range(tensor_count)]


def _read_entry(reader: Reader) -> Entry:
    name = reader.text()
    axes = reader.number("I")
    if axes > _MAX_AXES:
        raise reader.damaged(f"{name} has {axes} axes")
    # The file has the innermost axis first.
    shape = tuple(reader.number("Q") for _ in range(axes))[::-1]
    return Entry(name, shape, reader.number("I"), reader.number("Q"))


def _read_tensor(reader: Reader, entry: Entry, device: str | None) -> Tensor:
    count = math.prod(entry.shape)
    plain = _PLAIN.get(entry.kind)
    if plain is not None:
        data = reader.take(count * plain.itemsize)
        return Tensor(data, device=device, dtype=plain).reshape(entry.shape)
    block = BLOCKS.get(entry.kind)
    if block is None:
        known = ", ".join(each.name for each in BLOCKS.values())
        raise DataError(
            f"{name_of(reader.source)}: GGUF tensor {entry.name} has elements of kind {entry.kind}; "
            f"kernelet reads F32, F16, BF16, {known}. Use a file with one of those."
        )
    if count % block.elements:
        raise reader.damaged(f"{entry.name} has {count} elements of {block.name}")
    blocks = count // block.elements
    data = reader.take(blocks * block.nbytes)
    raw = Tensor(data, device=device, dtype=dtypes.uint8).reshape(blocks, block.nbytes)
    return block.decode(raw).reshape(entry.shape)
