"""All rows, gathered from the topics."""

from __future__ import annotations

from tools.comparisons import (
    activations,
    creation,
    elementwise,
    functions,
    handle,
    losses,
    reductions,
)

TOPICS = {
    "handle": handle.ROWS,
    "creation": creation.ROWS,
    "elementwise": elementwise.ROWS,
    "functions": functions.ROWS,
    "activations": activations.ROWS,
    "reductions": reductions.ROWS,
    "losses": losses.ROWS,
}
ROWS = tuple(row for rows in TOPICS.values() for row in rows)
