"""Files of named tensors in the safetensors format.

In:  a path, or the bytes of a file as a tensor.
Out: tensors by name; DataError where the file is not what it says.

A file is 8 bytes with the length of a JSON header, the header (type, shape and place of each
tensor), and the elements.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

from kernelet.base.dtype import DType, dtypes
from kernelet.base.errors import ArgumentError, DataError, DTypeError
from kernelet.frontend.host import known_shape
from kernelet.frontend.tensor import Tensor
from kernelet.nn.files import Path, Source, name_of, open_source, replacing, size_of

_TYPES: dict[str, DType] = {
    "BOOL": dtypes.bool,
    "I8": dtypes.int8,
    "U8": dtypes.uint8,
    "I16": dtypes.int16,
    "U16": dtypes.uint16,
    "I32": dtypes.int32,
    "U32": dtypes.uint32,
    "I64": dtypes.int64,
    "U64": dtypes.uint64,
    "F8_E4M3": dtypes.fp8e4m3,
    "F8_E5M2": dtypes.fp8e5m2,
    "F16": dtypes.float16,
    "BF16": dtypes.bfloat16,
    "F32": dtypes.float32,
    "F64": dtypes.float64,
}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
_HEADER_LIMIT = 100 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a file: its type, its shape and where its bytes are after the header."""

    dtype: DType
    shape: tuple[int, ...]
    begin: int
    end: int


def safe_save(
    tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Write the tensors to a safetensors file."""
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    begin = 0
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise ArgumentError(
                f"safetensors: {name} is of type {type(tensor).__name__}, not Tensor. "
                "Wrap it in Tensor(...), or put texts into metadata."
            )
        if name == "__metadata__" or not isinstance(name, str):
            raise ArgumentError(
                f"safetensors: {name!r} cannot be the name of a tensor. Give another text."
            )
        if tensor.dtype not in _NAMES:
            raise DTypeError(f"safetensors: {name} is {tensor.dtype.name}, which cannot be saved.")
        shape = known_shape(tensor.shape)
        end = begin + math.prod(shape) * tensor.dtype.itemsize
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": shape, "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if tensors:
        Tensor.realize(*tensors.values())
    with replacing(path) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.data())


def safe_load(source: Source, device: str | None = None) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name."""
    found = {}
    with open_source(source) as file:
        start, entries, _ = _read_header(source, file)
        for name, entry in entries.items():
            file.seek(start + entry.begin)
            data = file.read(entry.end - entry.begin)
            found[name] = Tensor(data, device=device, dtype=entry.dtype).reshape(entry.shape)
    return found


def safe_load_metadata(source: Source) -> tuple[int, dict[str, Entry], dict[str, str]]:
    """Where the elements start, the entry of each tensor, and the file's own notes."""
    with open_source(source) as file:
        return _read_header(source, file)


def _read_header(source: Source, file: BinaryIO) -> tuple[int, dict[str, Entry], dict[str, str]]:
    size = size_of(file)
    prefix = file.read(8)
    length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else -1
    if not 2 <= length <= min(size - 8, _HEADER_LIMIT):
        raise _damaged(source, f"it has {size} bytes and says that its header has {length}")
    text = file.read(length)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(source, f"its header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise _damaged(source, "its header is not a JSON object")
    notes = header.pop("__metadata__", {})
    if not isinstance(notes, dict):
        raise _damaged(source, "__metadata__ is not a JSON object")
    entries = {name: _entry(source, name, fields) for name, fields in header.items()}
    _check_places(source, entries, size - 8 - length)
    return 8 + length, entries, notes


def _entry(source: Source, name: str, fields: object) -> Entry:
    match fields:
        case {"dtype": str(kind), "shape": list(shape), "data_offsets": [int(begin), int(end)]}:
            pass
        case _:
            raise _damaged(source, f"{name} has no dtype, shape and data_offsets")
    if not all(isinstance(dim, int) and not isinstance(dim, bool) and dim >= 0 for dim in shape):
        raise _damaged(source, f"{name} has shape {shape}")
    if kind not in _TYPES:
        known = ", ".join(_TYPES)
        raise _damaged(source, f"{name} has the type {kind}; kernelet reads {known}")
    dtype = _TYPES[kind]
    if end - begin != math.prod(shape) * dtype.itemsize:
        raise _damaged(source, f"{name} is {kind} of shape {shape} in {end - begin} bytes")
    return Entry(dtype, tuple(shape), begin, end)


def _check_places(source: Source, entries: Mapping[str, Entry], size: int) -> None:
    """Tensors lie one after the other, without a gap, to the end of the file."""
    at = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != at:
            raise _damaged(source, f"{name} starts at {entry.begin}, the one before ends at {at}")
        at = entry.end
    if at != size:
        raise _damaged(source, f"its tensors take {at} bytes and {size} are there")


def _damaged(source: Source, found: str) -> DataError:
    return DataError(f"{name_of(source)}: not a whole safetensors file: {found}. Fetch it again.")
