"""What a call should give: by torch, where it is installed and has the function, or by a formula.

In:  a row, the arguments of a call.
Out: `Results`: values and derivatives as numpy arrays, or an error.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tools.comparisons.draws import FLOATS, NARROW, Array, Operand
from tools.comparisons.row import Reference, torch

_STEP = 1e-6

Weights = Callable[[tuple[int, ...]], Array]


@dataclass(slots=True)
class Results:
    """What one side gives: values, derivatives of the float operands, or an error."""

    values: list[Any] = field(default_factory=list)
    gradients: list[Any] = field(default_factory=list)
    error: Exception | None = None
    by_differences: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of a call; `weights` are the derivatives that its results are given."""

    positional: tuple[Any, ...]
    named: dict[str, Any]
    weights: Weights

    def operands(self) -> list[Operand]:
        """The tensors among the arguments, in order."""
        found: list[Operand] = []
        self.converted(found.append)
        return found

    def targets(self) -> list[Operand]:
        """The operands that derivatives are taken of."""
        return [each for each in self.operands() if each.dtype in FLOATS and each.has_gradient]

    def is_widened(self, operand: Operand) -> bool:
        """Whether the exact result is computed from this operand in float64: indices stay."""
        floats = any(each.dtype in FLOATS for each in self.operands())
        return operand.dtype in FLOATS if floats else operand.dtype != "bool"

    def converted(self, change: Callable[[Operand], object]) -> tuple[Any, dict[str, Any]]:
        """The arguments with something else in place of each operand."""

        def convert(value: object) -> object:
            if isinstance(value, Operand):
                return change(value)
            if isinstance(value, list | tuple):
                return type(value)(map(convert, value))
            return value

        positional = [convert(value) for value in self.positional]
        return positional, {name: convert(value) for name, value in self.named.items()}


def listed(value: object) -> list[Any]:
    """One or several results as a list."""
    return list(value) if isinstance(value, list | tuple) else [value]


# ---- a formula on arrays ----


def from_numpy(formula: Reference, call: Call, exact: bool, derive: bool) -> Results:
    """The results of a formula, in float64 if `exact`; derivatives are central differences."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = _evaluated(formula, call, exact, {})
            slopes = [_slopes(formula, call, target) for target in call.targets() if derive]
    except Exception as error:
        return Results(error=error)
    return Results(
        [value if _is_plain(value) else np.asarray(value) for value in values], slopes, None, True
    )


def _evaluated(formula: Reference, call: Call, exact: bool, instead: dict[int, Array]) -> list[Any]:
    def array(operand: Operand) -> Array:
        values = instead.get(id(operand), operand.values)
        return values.astype(np.float64) if exact and call.is_widened(operand) else values

    positional, named = call.converted(array)
    return listed(formula(*positional, **named))


def _slopes(formula: Reference, call: Call, target: Operand) -> Array:
    centre = target.values.astype(np.float64)
    slopes = np.zeros(centre.shape)

    def total(place: tuple[int, ...], step: float) -> float:
        moved = centre.copy()
        moved[place] += step
        values = _evaluated(formula, call, True, {id(target): moved})
        floats = [np.asarray(value) for value in values if np.asarray(value).dtype.kind == "f"]
        return sum(float((call.weights(each.shape) * each).sum()) for each in floats)

    for place in np.ndindex(centre.shape):
        below, at, above = (total(place, step) for step in (-_STEP, 0, _STEP))
        slopes[place] = (above - below) / (2 * _STEP)
        # At a kink or a jump there is no slope to compare; numbers of few digits meet them.
        bend = abs(above - 2 * at + below) / _STEP
        if target.dtype in NARROW and bend > 0.1 * (1 + abs(slopes[place])):
            slopes[place] = np.nan
    return slopes


# ---- torch ----


def from_torch(function: Reference, call: Call, exact: bool, derive: bool) -> Results:
    """The results of torch's function, in float64 if `exact`."""
    made: dict[int, Any] = {}

    def tensor(operand: Operand) -> object:
        given = torch.tensor(operand.values)
        # Of floats of 8 bits torch has no arithmetic.
        given = given if operand.dtype in NARROW else given.to(getattr(torch, operand.dtype))
        given = given.to(torch.float64) if exact and call.is_widened(operand) else given
        differs = derive and operand.has_gradient and given.is_floating_point()
        made[id(operand)] = given.requires_grad_(differs)
        return given

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            positional, named = call.converted(tensor)
            values = listed(function(*positional, **named))
            targets = [made[id(target)] for target in call.targets()]
            gradients = _derivatives(values, targets, call.weights) if derive else []
    except Exception as error:
        return Results(error=error)
    return Results([_as_array(value) for value in values], gradients)


def _derivatives(values: Sequence[Any], targets: list[Any], weights: Weights) -> list[Any]:
    outputs = [v for v in values if getattr(v, "requires_grad", False) and v.numel()]
    if not outputs:
        return []
    seeds = [torch.tensor(weights(tuple(value.shape))).to(value.dtype) for value in outputs]
    found = torch.autograd.grad(outputs, targets, seeds, allow_unused=True)
    return [
        np.zeros(tuple(target.shape)) if part is None else _as_array(part)
        for part, target in zip(found, targets, strict=True)
    ]


def _as_array(value: object) -> object:
    if torch is None or not isinstance(value, torch.Tensor):
        return value
    plain = value.detach().resolve_neg()
    return (plain.float() if plain.dtype is torch.bfloat16 else plain).numpy()


def _is_plain(value: object) -> bool:
    return not isinstance(value, np.ndarray | np.generic | int | float | bool)
