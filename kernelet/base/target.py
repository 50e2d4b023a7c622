"""What a device can do, as plain data that the lowering, the renderers and the search read."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Target:
    """The abilities of one device.

    `vector_bytes` is the width of a vector register (0: scalar code only), `vector_registers` how
    many there are, `cache_bytes` the private caches from the nearest, `threads` how many launches
    may run at once. `operations` names the optional ops that the renderer writes directly;
    everything else is decomposed. `storage_only` names the dtypes that are loaded and stored but
    computed in float32. `features` is what the compiler is told about the processor.
    """

    name: str
    vector_bytes: int = 0
    vector_registers: int = 16
    cache_bytes: tuple[int, ...] = (32 << 10, 1 << 20)
    threads: int = 1
    operations: frozenset[str] = frozenset()
    storage_only: frozenset[str] = frozenset()
    features: str = ""

    def key(self) -> str:
        """The abilities as text: equal for equal targets, in every process."""
        values = (getattr(self, item.name) for item in fields(self))
        return str([sorted(value) if isinstance(value, frozenset) else value for value in values])

    def lanes(self, itemsize: int) -> int:
        """Elements of `itemsize` bytes in one vector register; at least 1."""
        return max(1, self.vector_bytes // max(itemsize, 1))

    def tile_rows(self, vectors: int, is_window: bool = False) -> int:
        """Rows of so many vectors whose sums leave registers for the operands, and one or two over.

        The numbers of a window stay in registers, as the next step uses them again.
        """
        free = self.vector_registers - self.vector_registers // 16
        return (free - 1 - vectors) // (vectors + is_window)
