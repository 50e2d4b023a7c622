"""All rows, gathered from the topics."""

from __future__ import annotations

from tools.comparisons import (
    activations,
    creation,
    elementwise,
    factorization,
    functions,
    handle,
    indexing,
    linalg,
    losses,
    movement,
    reductions,
    spatial,
)

TOPICS = {
    "handle": handle.ROWS,
    "creation": creation.ROWS,
    "elementwise": elementwise.ROWS,
    "functions": functions.ROWS,
    "activations": activations.ROWS,
    "movement": movement.ROWS,
    "indexing": indexing.ROWS,
    "linalg": linalg.ROWS,
    "spatial": spatial.ROWS,
    "factorization": factorization.ROWS,
    "reductions": reductions.ROWS,
    "losses": losses.ROWS,
}
ROWS = tuple(row for rows in TOPICS.values() for row in rows)
