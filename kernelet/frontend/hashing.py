"""Hashes of bytes by the Keccak sponge (FIPS 202): SHA-3, SHAKE and the first Keccak.

In:  tensors.
Out: `Hashing`: keccak of rows of bytes, and one hash of a whole tensor.
"""

from __future__ import annotations

import functools
from typing import Self

from kernelet.base.dtype import dtypes
from kernelet.base.errors import ArgumentError, DTypeError
from kernelet.base.helpers import ceiling_divide
from kernelet.frontend.indexing import Indexing
from kernelet.frontend.primitives import known, product
from kernelet.graph.ops import Op

# Bytes that a block takes up, and the bits after the message.
_SPONGES = {
    **{f"sha3_{bits}": (200 - bits // 4, 0x06) for bits in (224, 256, 384, 512)},
    "shake_128": (168, 0x1F),
    "shake_256": (136, 0x1F),
    "keccak_256": (136, 0x01),
}
_STATE, _LANES, _ROUNDS = 200, 25, 24
_CHUNK = 160


@functools.cache
def _rotations() -> tuple[int, ...]:
    """How far each lane turns: the triangular numbers, along a path through all lanes."""
    turns, x, y = [0] * _LANES, 1, 0
    for step in range(1, _LANES):
        turns[x + 5 * y] = step * (step + 1) // 2 % 64
        x, y = y, (2 * x + 3 * y) % 5
    return tuple(turns)


@functools.cache
def _round_constants() -> tuple[int, ...]:
    """The number that each round adds to the first lane, from a shift register of 8 bits."""
    constants, register = [0] * _ROUNDS, 1
    for turn in range(_ROUNDS):
        for power in range(7):
            constants[turn] |= (register & 1) << ((1 << power) - 1)
            register = (register << 1) ^ (0x171 if register & 0x80 else 0)
    return tuple(constants)


class Hashing(Indexing):
    """keccak and hash."""

    __slots__ = ()

    def keccak(self, cfg: str | tuple[int, int] = "sha3_256") -> Self:
        """The hash of each row of bytes along the last axis; ``hashlib.sha3_256(x).digest()``.

        `cfg` names a function, or gives the bytes of a block and the padding byte. The result has
        (200 - block) / 2 bytes.
        """
        if cfg not in _SPONGES and isinstance(cfg, str):
            raise ArgumentError(f"keccak: {cfg!r} is not known. Use one of {list(_SPONGES)}.")
        is_bytes = self.dtype is dtypes.uint8 and self.ndim
        self._need(is_bytes, "rows of bytes, as x.bitcast('uint8')", DTypeError)
        rate, suffix = _SPONGES[cfg] if isinstance(cfg, str) else cfg
        *batch, length = self.shape
        rows, size = product(batch), known(length)
        count = size // rate + 1
        place = self._arange(count * rate)
        end = place.eq(size).where(suffix, 0) ^ place.eq(count * rate - 1).where(0x80, 0)
        padded = self._reshape((rows, size))._pad(((0, 0), (0, count * rate - size)))
        blocks = (padded ^ end.cast(dtypes.uint8))._reshape((rows, count, rate))
        lanes = blocks._pad(((0, 0), (0, 0), (0, _STATE - rate))).bitcast(dtypes.uint64)
        state = self._full(0, (rows, 5, 5), dtypes.uint64)
        turns = self._from_data(list(_rotations()), self.uop.device, dtypes.uint64)
        for block in range(count):
            state = state ^ lanes._slice(1, block, block + 1)._reshape((rows, 5, 5))
            for constant in _round_constants():
                state = state._keccak_round(turns, constant).contiguous()
        digest = state._reshape((rows, _LANES)).bitcast(dtypes.uint8)
        return digest._slice(1, 0, (_STATE - rate) // 2)._reshape((*batch, (_STATE - rate) // 2))

    def _keccak_round(self, turns: Self, constant: int) -> Self:
        """One round of the permutation; the lanes are (rows, y, x)."""
        rows = self.shape[0]
        columns = [self._slice(1, row, row + 1) for row in range(5)]
        parity = functools.reduce(lambda left, right: left ^ right, columns)
        mixed = self ^ parity.roll(1, -1) ^ parity.roll(-1, -1)._turned(parity._constant(1))
        lanes = mixed._reshape((rows, _LANES))._turned(turns._broadcast_to((rows, _LANES)))
        # Lane (x, y) moves to (y, 2 x + 3 y): of each column, one lane a row.
        order = [(x + 3 * y) % 5 + 5 * x for y in range(5) for x in range(5)]
        moved = lanes[:, order]._reshape(self.shape)
        result = moved ^ (~moved.roll(-1, -1) & moved.roll(-2, -1))
        first = self._arange(_LANES)._reshape((5, 5)).eq(0)
        return result ^ first.where(self._full(constant, (), dtypes.uint64), 0)

    def _turned(self, amounts: Self) -> Self:
        """The bits of each lane turned to the left, by amounts below 64."""
        back = amounts._alu(Op.NEG)._alu(Op.AND, amounts._constant(63))
        return self._alu(Op.SHL, amounts)._alu(Op.OR, self._alu(Op.SHR, back))

    def hash(self) -> Self:
        """16 bytes that differ for tensors of different bytes: a tree of shake_128, ten to one."""
        bytes_ = self.flatten().bitcast(dtypes.uint8)
        size = self._full(known(bytes_.shape[0]), (1,), dtypes.uint64).bitcast(dtypes.uint8)
        level = bytes_.cat(size)
        while True:
            length = known(level.shape[0])
            rows = ceiling_divide(length, _CHUNK)
            padded = level._pad(((0, rows * _CHUNK - length),))._reshape((rows, _CHUNK))
            level = padded.keccak("shake_128").flatten()
            if rows == 1:
                return level
