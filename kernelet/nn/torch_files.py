"""Checkpoints that `torch.save` wrote, as zip archives or in the form before version 1.6.

In:  a path, or the bytes of a file as a tensor.
Out: what was saved, with kernelet's tensors; DataError where the file is not what it says.

Both hold a pickle, which is a program: it may name no function but those of `_KNOWN`, whose
stand-ins build tensors and containers, so that no file can run code.
"""

from __future__ import annotations

import io
import math
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar

from kernelet.base.dtype import DType, dtypes
from kernelet.base.errors import DataError
from kernelet.frontend.tensor import Tensor
from kernelet.nn.files import Source, name_of, open_source, size_of

_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_STORAGES: dict[str, DType] = {
    "DoubleStorage": dtypes.float64,
    "FloatStorage": dtypes.float32,
    "HalfStorage": dtypes.float16,
    "BFloat16Storage": dtypes.bfloat16,
    "LongStorage": dtypes.int64,
    "IntStorage": dtypes.int32,
    "ShortStorage": dtypes.int16,
    "CharStorage": dtypes.int8,
    "ByteStorage": dtypes.uint8,
    "BoolStorage": dtypes.bool,
    "UntypedStorage": dtypes.uint8,
}
_DTYPES = {
    **{each.name: each for each in _STORAGES.values()},
    **{each.name: each for each in (dtypes.uint16, dtypes.uint32, dtypes.uint64)},
    "float8_e4m3fn": dtypes.fp8e4m3,
    "float8_e5m2": dtypes.fp8e5m2,
}


@dataclass(frozen=True, slots=True)
class Storage:
    """The elements of one or several tensors."""

    dtype: DType
    data: bytes
    device: str | None

    def tensor(self, dtype: DType, offset: int, shape: object, strides: object) -> Tensor:
        """The elements at these places; ValueError where some are not here."""
        shape, strides = _sizes(shape), _sizes(strides)
        if len(shape) != len(strides) or offset < 0:
            raise ValueError(f"a tensor has shape {shape}, strides {strides} and offset {offset}")
        count = math.prod(shape)
        last = offset + sum((dim - 1) * step for dim, step in zip(shape, strides, strict=True))
        data = memoryview(self.data)[offset * dtype.itemsize : (last + 1) * dtype.itemsize]
        if count and len(data) != (last + 1 - offset) * dtype.itemsize:
            raise ValueError(f"a tensor of shape {shape} reaches past its {len(self.data)} bytes")
        found = Tensor(bytes(data) if count else b"", device=self.device, dtype=dtype)
        if count in (0, last + 1 - offset) and strides == _contiguous(shape):
            return found.reshape(shape)
        index = Tensor([0], device=self.device)
        for dim, step in zip(shape, strides, strict=True):
            index = index.unsqueeze(-1) + Tensor.arange(dim, device=self.device) * step
        return found[index.reshape(shape)]


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _sizes(given: object) -> tuple[int, ...]:
    if isinstance(given, tuple) and all(isinstance(each, int) and each >= 0 for each in given):
        return given
    raise ValueError(f"sizes are {given!r}")


def torch_load(source: Source, device: str | None = None) -> object:
    """What `torch.save` wrote to a file: most often a dict of tensors by name."""
    with open_source(source) as file:
        try:
            is_archive = file.read(4) == b"PK\3\4"
            file.seek(0)
            return _from_archive(file, device) if is_archive else _from_pickles(file, device)
        # A damaged pickle may fail in any way.
        except Exception as error:
            raise DataError(
                f"{name_of(source)}: not a torch checkpoint that can be read: "
                f"{str(error) or type(error).__name__}. Save tensors, numbers, texts, lists and dicts "
                "of them (model.state_dict()), or fetch the file again."
            ) from error


def _from_archive(file: BinaryIO, device: str | None) -> object:
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        main = next(name for name in names if name.rpartition("/")[2] == "data.pkl")
        folder = main.removesuffix("data.pkl")
        order = f"{folder}byteorder"
        if order in names and archive.read(order) != b"little":
            raise ValueError("its bytes are in big-endian order")

        def storage(kind: DType, key: str, count: int) -> Storage:
            member = archive.getinfo(f"{folder}data/{key}")
            if member.file_size != count * kind.itemsize:
                raise ValueError(f"storage {key} has {member.file_size} bytes for {count} elements")
            return Storage(kind, archive.read(member), device)

        return _Unpickler(io.BytesIO(archive.read(main)), storage).load()


def _from_pickles(file: BinaryIO, device: str | None) -> object:
    """Magic number, version, facts of the machine, the object, names of storages, their bytes."""

    def refused(*_: object) -> None:
        raise ValueError("it has a storage before its object")

    if [_Unpickler(file, refused).load() for _ in range(3)][:2] != [_MAGIC, _PROTOCOL]:
        raise ValueError("it does not start as one")
    kinds: dict[str, DType] = {}

    def noted(kind: DType, key: str, _: int) -> None:
        kinds[key] = kind

    start = file.tell()
    _Unpickler(file, noted).load()
    found = {}
    for key in _Unpickler(file, refused).load():
        size = struct.unpack("<q", file.read(8))[0] * kinds[key].itemsize
        if not 0 <= size <= size_of(file) - file.tell():
            raise ValueError(f"storage {key} has {size} bytes, more than are there")
        found[key] = Storage(kinds[key], file.read(size), device)
    # Only now are the bytes known that its tensors are made of.
    file.seek(start)
    return _Unpickler(file, lambda _, key, __: found[key]).load()


# ---- the pickle ----


def _tensor(
    storage: Storage | None, offset: int, shape: object, strides: object, *_: object
) -> Tensor | None:
    return storage.tensor(storage.dtype, offset, shape, strides) if storage else None


def _typed_tensor(
    storage: Storage | None,
    offset: int,
    shape: object,
    strides: object,
    _grad: object,
    _hooks: object,
    dtype: DType,
    *_: object,
) -> Tensor | None:
    return storage.tensor(dtype, offset, shape, strides) if storage else None


def _first(value: object, *_: object) -> object:
    return value


def _device(kind: str, index: int | None = None) -> str:
    return kind if index is None else f"{kind}:{index}"


def _encoded(text: str, _encoding: str) -> bytes:
    return text.encode("latin1")


_KNOWN: dict[str, object] = {
    "collections OrderedDict": OrderedDict,
    "builtins set": set,
    "__builtin__ set": set,
    "_codecs encode": _encoded,
    "torch Size": tuple,
    "torch device": _device,
    "torch._utils _rebuild_tensor": _tensor,
    "torch._utils _rebuild_tensor_v2": _tensor,
    "torch._utils _rebuild_tensor_v3": _typed_tensor,
    "torch._utils _rebuild_parameter": _first,
    "torch.storage UntypedStorage": dtypes.uint8,
    **{f"torch {name}": dtype for name, dtype in {**_STORAGES, **_DTYPES}.items()},
}


# The one written in Python: a damaged file makes the other one take all of the memory.
class _Unpickler(pickle._Unpickler):
    """Runs a pickle with the names of `_KNOWN` and no others."""

    stack: list[object]

    def __init__(self, file: BinaryIO, storage: Callable[[DType, str, int], object]) -> None:
        super().__init__(file, encoding="utf-8")
        self.storage = storage

    def find_class(self, module: str, name: str) -> object:
        """The stand-in for a name."""
        known = _KNOWN.get(f"{module} {name}")
        if known is None:
            raise ValueError(f"it names {module}.{name}, which is not run")
        return known

    def persistent_load(self, pid: object) -> object:
        """A storage."""
        match pid:
            case ("storage", DType() as kind, str(key), _, int(count), *rest) if not any(rest):
                return self.storage(kind, key, count)
        raise ValueError(f"it has no storage like {pid!r}")

    def _ignore_state(self) -> None:
        """Attributes of a dict are the versions of its modules, and no tensors."""
        self.stack.pop()
        if type(self.stack[-1]) is not OrderedDict:
            raise ValueError(f"it changes an object of type {type(self.stack[-1]).__name__}")

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        **pickle._Unpickler.dispatch,
        pickle.BUILD[0]: _ignore_state,
    }
