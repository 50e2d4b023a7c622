"""Rows of what a tensor tells of itself, how it becomes Python's and numpy's, and how it changes."""

from __future__ import annotations

import hashlib
import operator
from typing import Any

import numpy as np

from kernelet import Tensor
from tools.comparisons.draws import (
    EVERY,
    FLOATS,
    INTEGERS,
    NARROW,
    WHOLE,
    Array,
    Draw,
    Operand,
    array_type,
)
from tools.comparisons.elementwise import one
from tools.comparisons.row import Reference, Row, Value


def _plain(draw: Draw) -> tuple[Operand]:
    return (draw.plain(),)


def _single(draw: Draw) -> tuple[Operand]:
    return (draw.plain(draw.pick((), (1,), (1, 1))),)


def _wholes(draw: Draw) -> tuple[Operand]:
    return (draw.plain((), 0, 9),)


def _sized(draw: Draw) -> tuple[Operand]:
    return (draw.plain(draw.shape(least=1)),)


def _two(draw: Draw) -> tuple[Any, ...]:
    shape = draw.shape()
    return draw.plain(shape), draw.tensor(draw.broadcast(shape))


def _bits(draw: Draw) -> tuple[Any, ...]:
    return draw.tensor(), _SAME_WIDTH[draw.dtype]


_WIDTHS = {"bfloat16": 2, **dict.fromkeys(NARROW, 1)}
_SAME_WIDTH = {
    "int8": "uint8",
    "uint8": "int8",
    "int16": "uint16",
    "uint16": "int16",
    "float16": "uint16",
    "int32": "uint32",
    "uint32": "int32",
    "float32": "int32",
    "int64": "uint64",
    "uint64": "int64",
    "float64": "int64",
}


def _typed(draw: Draw) -> tuple[Any, ...]:
    return draw.plain(), draw.dtype


def _one_axis(draw: Draw) -> tuple[Any, ...]:
    value = draw.plain(draw.shape(least=1))
    return value, draw.axis(value)


def _texts(draw: Draw) -> tuple[Any, ...]:
    bytes_ = draw.random.integers(0, 256, draw.pick((0,), (2, 5), (80,))).astype(np.uint8)
    return Operand(bytes_, "uint8"), draw.pick("sha3_256", "sha3_512")


def _hashed(x: Array, name: str) -> Array:
    rows = x.reshape(-1, x.shape[-1]) if x.size else np.zeros((1, 0), np.uint8)
    found = [list(hashlib.new(name, row.tobytes()).digest()) for row in rows]
    return np.array(found).reshape((*x.shape[:-1], -1))


def _hash(x: Array) -> Array:
    padded = (x.tobytes() + x.nbytes.to_bytes(8, "little")).ljust(160, b"\0")
    return np.array(list(hashlib.shake_128(padded).digest(16)))


def _packable(draw: Draw) -> tuple[Any, ...]:
    return draw.plain(draw.pick((8,), (3, 16), (0, 8))), draw.pick(1, 2, 4)


def _packed(x: Array, width: int) -> Array:
    """The bits of each number, one to an element, packed again by numpy."""
    bits = x.astype(np.int64)[..., None] >> np.arange(width) & 1
    rows = bits.reshape((*x.shape[:-1], x.shape[-1] * width)).astype(np.uint8)
    return np.packbits(rows, axis=-1, bitorder="little")


def _unpacked(x: Array, width: int) -> Array:
    bits = np.unpackbits(x, axis=-1, bitorder="little").astype(np.int64)
    places = 1 << np.arange(width)
    places[-1] *= -1
    return np.asarray((bits.reshape((*x.shape[:-1], -1, width)) * places).sum(-1))


def _slope(x: Tensor) -> Tensor:
    return (x * x).sum().gradient(x)[0]


def _width(dtype: str) -> int:
    return _WIDTHS.get(dtype) or np.dtype(dtype).itemsize


def _cast(draw: Draw) -> tuple[Any, ...]:
    # Within the limits of every type.
    return draw.plain(None, 0, 4), draw.pick(*EVERY)


def _as_type(x: Array, dtype: str) -> Array:
    return x.astype(np.float64 if dtype in FLOATS else dtype)


# ---- our side of what is not a result ----


def _attribute(name: str, formula: Reference) -> Row:
    """A row for a property; formulas give it in a list."""
    return _fact(name, formula, _plain, lambda x: [getattr(x, name)])


def _fact(name: str, formula: Reference, draw: Reference, call: Reference | None = None) -> Row:
    """A row for something that has no gradient."""
    return Row(name, draw, formula, None, has_gradient=False, call=call)


def _replaced(x: Tensor, other: Tensor) -> Tensor:
    x.replace(other)
    return x


def _required(x: Tensor) -> tuple[object, ...]:
    return x.requires_grad_().requires_grad, (x * 2).requires_grad


def _backward(x: Tensor) -> object:
    x.requires_grad_()
    (x * x).sum().backward()
    (x * 3).sum().backward()
    return x.grad


def _moved(name: str) -> Reference:
    """A move to other devices, and the values there; the tensor has an axis of even size."""
    where = (("PYTHON:1", "PYTHON:2"), 0) if name.startswith("shard") else ("PYTHON:1",)

    def move(x: Tensor) -> tuple[object, ...]:
        found = getattr(x.to("PYTHON:0"), name)(*where)
        return found.device == where[0], found.numpy().tolist() == x.numpy().tolist()

    return move


def _training() -> tuple[object, ...]:
    with Tensor.train():
        inside = Tensor.training
        with Tensor.train(False):
            return inside, Tensor.training


def _known(draw: Draw) -> tuple[Operand]:
    """A tensor of a type that numpy has."""
    return (draw.plain(dtype=array_type(draw.dtype)),)


def _device(x: Tensor) -> tuple[int, int]:
    return x.realize().__dlpack_device__()


def _has_namespace(x: Tensor) -> bool:
    return bool(x.__array_namespace__().asarray(x).shape == x.shape)


def _shard_like(x: Tensor) -> tuple[object, ...]:
    where = ("PYTHON:1", "PYTHON:2")
    found = x.to("PYTHON:0").shard_like(Tensor.zeros(4, device="PYTHON:0").shard(where))
    return found.device == where, found.numpy().tolist() == x.numpy().tolist()


def _pairs(draw: Draw) -> tuple[Operand]:
    return (draw.plain(draw.pick((2,), (4, 3))),)


def _true(*_: Value) -> object:
    return True


ROWS = (
    _attribute("shape", lambda x: [x.shape]),
    _attribute("ndim", lambda x: [x.ndim]),
    _attribute("requires_grad", lambda x: [None]),
    _fact("dtype", _true, _typed, lambda x, dtype: x.dtype.name == dtype),
    _fact("device", _true, _plain, lambda x: x.device == x.to(None).device),
    _fact("lazydata", _true, _plain, lambda x: x.lazydata is x.uop),
    _fact("views_above", _true, _pairs, lambda x: x[:1].views_above()[0][0] is x),
    _fact("axis", lambda x, at: at % x.ndim, _one_axis),
    _fact("axes", lambda x, at: [range(x.ndim)[at]], _one_axis),
    _fact("size", lambda x, at: x.shape[at], _one_axis),
    _fact("dim", lambda x: x.ndim, _plain),
    _fact("numel", lambda x: x.size, _plain),
    _fact("element_size", lambda x, dtype: _width(dtype), _typed, lambda x, _: x.element_size()),
    _fact("nbytes", lambda x, dtype: x.size * _width(dtype), _typed, lambda x, _: x.nbytes()),
    _fact("is_floating_point", lambda x: x.dtype.kind == "f", _plain),
    _fact("__len__", len, _sized),
    _fact("__iter__", list, _sized, list),
    _fact("tolist", lambda x: [x.tolist()], _plain, lambda x: [x.tolist()]),
    _fact("numpy", _true, _plain, lambda x: x.numpy().tolist() == x.tolist()),
    _fact("data", _true, _plain, lambda x: len(x.data()) == x.numel() * x.element_size()),
    _fact("__array__", _true, _plain, lambda x: np.asarray(x).tolist() == x.tolist()),
    _fact("__repr__", _true, _plain, lambda x: f"{x.shape}" in repr(x + 1)),
    _fact("item", lambda x: x.item(), _single),
    _fact("__bool__", bool, _single),
    _fact("__int__", int, _single),
    _fact("__float__", float, _single),
    Row("__index__", _wholes, int, None, WHOLE, call=operator.index),
    _fact("realize", lambda x: x, _plain),
    _fact("kernelize", lambda x: x, _plain),
    *(Row(name, one, lambda x: x, lambda x: x) for name in ("contiguous", "clone")),
    _fact("detach", lambda x: x, one),
    Row("cast", _cast, _as_type, None),
    Row("bitcast", _bits, lambda x, dtype: x.view(dtype), None, tuple(_SAME_WIDTH), False),
    _fact("assign", lambda x, value: np.broadcast_to(value, x.shape), _two),
    _fact("replace", lambda x, value: value, _two, _replaced),
    *(_fact(n, lambda x: (True, True), _pairs, _moved(n)) for n in ("to", "to_")),
    *(_fact(n, lambda x: (True, True), _pairs, _moved(n)) for n in ("shard", "shard_")),
    Row("requires_grad_", _plain, lambda x: (True, True), None, FLOATS, False, call=_required),
    Row("gradient", _plain, lambda x: 2 * x, None, FLOATS, False, call=_slope),
    Row("backward", _plain, lambda x: 2 * x + 3, None, FLOATS, False, call=_backward),
    _fact("from_numpy", lambda x: x, _known, lambda x: Tensor.from_numpy(x.numpy())),
    _fact("from_dlpack", lambda x: x, _known, Tensor.from_dlpack),
    _fact("__dlpack__", _true, _known, lambda x: np.from_dlpack(x).tolist() == x.tolist()),
    _fact("__dlpack_device__", lambda x: (1, 0), _plain, lambda x: tuple(map(int, _device(x)))),
    _fact("__buffer__", _true, _known, lambda x: x.data() == x.realize().numpy().tobytes()),
    _fact("__array_namespace__", _true, _plain, _has_namespace),
    _fact("shard_like", lambda x: (True, True), _pairs, _shard_like),
    Row("keccak", _texts, _hashed, None, ("uint8",), False),
    Row("hash", lambda draw: (draw.plain((4,)),), _hash, None, INTEGERS, False),
    Row("pack_bits", _packable, _packed, None, INTEGERS, False),
    Row("unpack_bits", _packable, _unpacked, None, ("uint8",), False),
    _fact("train", lambda: (True, False), lambda _: (), _training),
)
