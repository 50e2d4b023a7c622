"""The form of a row: a method, how its arguments are drawn, and what its results should be.

In:  tables of rows.
Out: `Row`, and the torch function that a row names, where torch is installed.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tools.comparisons.draws import EVERY, Draw

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None

# A tensor of ours or of torch, an array or a number: formulas are written for all of them.
Value = Any
# Positional arguments; a dict at the end has the named ones.
Arguments = Callable[[Draw], tuple[Any, ...]]
Reference = Callable[..., Any]

SAME_NAME = "the same name"


@dataclass(frozen=True, slots=True)
class Row:
    """How one method is compared.

    `numpy` is a formula on arrays, `torch` one on torch's tensors: a function, the name of one, or
    None where torch has none or has another rule than ours. `call` is our side, unless it is the
    method of that name. `tolerance` counts roundings of the result's type. `has_gradient` says
    that float operands have derivatives that are compared too; `edges` that NaN, infinities and
    the like are among the samples, `gradient_edges` that derivatives are compared there as well.
    """

    method: str
    draw: Arguments
    numpy: Reference
    torch: Reference | str | None = SAME_NAME
    dtypes: tuple[str, ...] = EVERY
    has_gradient: bool = True
    tolerance: float = 8
    edges: bool = True
    gradient_edges: bool = True
    call: Reference | None = None
    note: str = ""

    def torch_function(self) -> Reference | None:
        """What torch has for this row; None without torch too."""
        if torch is None or self.torch is None:
            return None
        if callable(self.torch):
            return self.torch
        name = self.method if self.torch == SAME_NAME else self.torch
        places = (torch, torch.nn.functional, torch.Tensor, torch.special)
        for place in places:
            found: Reference | None = getattr(place, name, None)
            if found is not None:
                return found
        raise LookupError(f"{self.method}: torch has no {name}. Give a formula, or torch=None.")


def named(names: dict[str, Reference], like: Row) -> list[Row]:
    """Rows that differ from `like` in their method and formula only."""
    return [replace(like, method=name, numpy=formula) for name, formula in names.items()]
