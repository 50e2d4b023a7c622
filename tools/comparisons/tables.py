"""All rows, gathered from the topics."""

from __future__ import annotations

from tools.comparisons import elementwise, reductions

ROWS = (*elementwise.ROWS, *reductions.ROWS)
