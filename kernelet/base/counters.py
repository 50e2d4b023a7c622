"""What the process has launched and holds: the numbers that tests and DEBUG lines read."""

from __future__ import annotations


class GlobalCounters:
    """Totals since the start or the last `reset()`; `mem_used` is what is held now."""

    kernel_count = 0
    global_ops = 0
    global_mem = 0
    time_sum_s = 0.0
    mem_used = 0
    peak_mem = 0

    @classmethod
    def reset(cls) -> None:
        """Start counting from zero; memory that is held stays counted."""
        cls.kernel_count = cls.global_ops = cls.global_mem = 0
        cls.time_sum_s = 0.0
        cls.peak_mem = cls.mem_used

    @classmethod
    def add_memory(cls, nbytes: int) -> None:
        """Count `nbytes` more that are held; negative when they are given back."""
        cls.mem_used += nbytes
        cls.peak_mem = max(cls.peak_mem, cls.mem_used)
