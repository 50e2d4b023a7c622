"""One call compared: our values and derivatives beside those of torch, or of a numpy formula.

In:  a row, a seed, an element type.
Out: `Sample`: `start` builds our side without computing it, so that many samples are realized
     together; `difference` says in words what differs from the reference, if anything does.

A value is right if it is the exact one (the reference in float64, rounded to our result's type) or
the one that the reference gives in the sample's own type, up to the row's tolerance.
"""

from __future__ import annotations

import numpy as np

from kernelet import Tensor
from kernelet.base.errors import UserError
from tools.comparisons.draws import (
    EPSILON,
    FLOATS,
    NARROW,
    Array,
    Draw,
    Operand,
    array_type,
    rounded,
)
from tools.comparisons.references import Call, Results, from_numpy, from_torch, listed
from tools.comparisons.row import Reference, Row

# A derivative passes through more roundings than a value.
_GRADIENT_FACTOR = 4
_FINITE_DIFFERENCE = 2e-5
# In the floats of 8 bits more would be no comparison.
_NARROW_ROUNDINGS = 2
_LARGE = 1e3
_KINDS = {"f": "floats", "i": "integers", "u": "integers", "b": "bools"}


class Sample:
    """A call with its arguments; `seed` and the type are all that they depend on."""

    def __init__(
        self, row: Row, seed: tuple[int, ...], dtype: str, edges: bool, derive: bool
    ) -> None:
        self.row, self.dtype, self.edges = row, dtype, edges
        self.found = Results()
        self._types: list[str | None] = []

        def weights(shape: tuple[int, ...]) -> Array:
            # Exact in every type.
            choices = np.array([-1.0, -0.5, 0.25, 0.75, 1.5], np.float32)
            return np.random.default_rng((*seed, 1)).choice(choices, shape)

        # Derivatives at NaN and infinity, and where great numbers overflow, are not compared.
        derive = derive and row.has_gradient and dtype in FLOATS
        drawn = row.draw(Draw(seed, dtype, edges, special=not derive))
        named = drawn[-1] if drawn and isinstance(drawn[-1], dict) else {}
        self.call = Call(drawn[: len(drawn) - bool(named)], named, weights)
        self.derive = derive and bool(self.call.targets())

    def __str__(self) -> str:
        call = self.call
        shown = [_shown(value) for value in call.positional]
        shown += [f"{name}={_shown(value)}" for name, value in call.named.items()]
        return f"{self.row.method}({', '.join(shown)})"

    # ---- our side ----

    def start(self) -> list[Tensor]:
        """Build our results; the lazy tensors among them."""
        made: dict[int, Tensor] = {}

        def tensor(operand: Operand) -> Tensor:
            return made.setdefault(id(operand), Tensor(operand.values, dtype=operand.dtype))

        function: Reference = self.row.call or getattr(Tensor, self.row.method)
        try:
            positional, named = self.call.converted(tensor)
            values = listed(function(*positional, **named))
            self.found = Results(values)
            if self.derive:
                self._start_gradients([made[id(target)] for target in self.call.targets()])
        except Exception as error:
            self.found = Results(error=error)
        results = [*self.found.values, *self.found.gradients]
        return [each for each in results if isinstance(each, Tensor)]

    def _start_gradients(self, targets: list[Tensor]) -> None:
        parts = []
        for value in self.found.values:
            if isinstance(value, Tensor) and value.dtype.is_float and 0 not in value.shape:
                shape = tuple(int(dim) for dim in value.shape if isinstance(dim, int))
                seed = Tensor(self.call.weights(shape), dtype=value.dtype)
                parts.append((value * seed).sum())
        if parts:
            self.found.gradients = sum(parts[1:], parts[0]).gradient(*targets)

    def finish(self) -> None:
        """Read our results."""
        values, gradients = self.found.values, self.found.gradients
        if self.found.error is not None:
            return
        try:
            self._types = [_type_of(value) for value in values]
            self.found = Results(list(map(_read, values)), list(map(_read, gradients)))
        except Exception as error:
            self.found = Results(error=error)

    # ---- the verdict ----

    def references(self) -> list[Results]:
        """What the results may be, the exact ones first."""
        function = self.row.torch_function()
        if function is not None:
            own = from_torch(function, self.call, False, self.derive)
            if own.error is None:
                return self._with_exact(own, from_torch(function, self.call, True, self.derive))
        own = from_numpy(self.row.numpy, self.call, False, False)
        exact = from_numpy(self.row.numpy, self.call, True, self.derive)
        # Of these numpy has no arithmetic of its own.
        found = self._with_exact(own, exact)
        return found[:1] if array_type(self.dtype) != self.dtype else found

    def _with_exact(self, own: Results, exact: Results) -> list[Results]:
        floats = [np.asarray(value).dtype.kind == "f" for value in own.values]
        if own.error is not None:
            return [exact]
        return [exact, own] if self.dtype in FLOATS or any(floats) else [own]

    def difference(self) -> str | None:
        """What our results differ in, in words; None if in nothing."""
        references = [each for each in self.references() if each.error is None]
        found = self.found
        if found.error is not None or not references:
            wrong = None
            if found.error is not None and (references or not isinstance(found.error, UserError)):
                wrong = f"{type(found.error).__name__}: {str(found.error)[:200]}"
            return wrong and f"{self}: {wrong}"
        wrong = self._values_differ(references)
        if wrong is None and found.gradients:
            wrong = self._gradients_differ(references)
        return None if wrong is None else f"{self}: {wrong}"

    def _values_differ(self, references: list[Results]) -> str | None:
        wanted = [each.values for each in references]
        if any(len(each) != len(self.found.values) for each in wanted):
            return f"{len(self.found.values)} results, not {len(wanted[0])}"
        for number, (found, dtype) in enumerate(zip(self.found.values, self._types, strict=True)):
            choices = [each[number] for each in wanted]
            if dtype is None:
                if all(found != choice for choice in choices):
                    return f"{found!r}, not {choices[0]!r}"
                continue
            wrong = _differs(found, dtype, choices, self._tolerance(dtype))
            if wrong is not None:
                return wrong if len(self.found.values) == 1 else f"result {number}: {wrong}"
        return None

    def _tolerance(self, dtype: str) -> float:
        """How far a result may be away, in parts of what is right."""
        most = _NARROW_ROUNDINGS if dtype in NARROW else self.row.tolerance
        return min(self.row.tolerance, most) * EPSILON.get(dtype, 0)

    def _gradients_differ(self, references: list[Results]) -> str | None:
        usable = [each for each in references if not (each.by_differences and self.edges)]
        wanted = [each.gradients for each in usable if each.gradients]
        for number, target in enumerate(self.call.targets()):
            allowed = self._tolerance(target.dtype) * _GRADIENT_FACTOR
            if references[0].by_differences:
                allowed = max(allowed, _FINITE_DIFFERENCE)
            choices = [np.asarray(each[number]) for each in wanted]
            found = self.found.gradients[number]
            # Where a derivative of torch is NaN ours may have a limit.
            unknown = np.isnan(choices[0]) if choices else True
            found = np.where(unknown, np.nan, found)
            wrong = _differs(found, target.dtype, choices, allowed) if choices else None
            if wrong is not None:
                return f"gradient {number}: {wrong}"
        return None


def _differs(found: Array, dtype: str, choices: list[Array], allowed: float) -> str | None:
    """What an array differs in from all that it may be."""
    right = np.zeros(found.shape, bool)
    form = found.shape, _KINDS.get(found.dtype.kind)
    forms = [(np.shape(each), _KINDS.get(np.asarray(each).dtype.kind)) for each in choices]
    if form not in forms:
        return f"{form[1]} of shape {form[0]}, not {forms[0][1]} of shape {forms[0][0]}"
    for choice in (
        np.asarray(each) for each, its in zip(choices, forms, strict=True) if its == form
    ):
        if form[1] != "floats":
            right |= found == choice.astype(found.dtype)
            continue
        exact = rounded(choice, dtype).astype(np.float64)
        finite = np.abs(exact[np.isfinite(exact)])
        largest = min(max(float(finite.max(initial=0.0)), 1.0), _LARGE)
        with np.errstate(all="ignore"):
            near = np.abs(found - exact) <= allowed * (np.abs(exact) + largest)
        right |= near | (found == exact) | (np.isnan(found) & np.isnan(exact))
    if right.all():
        return None
    place = tuple(int(at) for at in np.argwhere(~right)[0])
    where = f" at {place}" if place else ""
    return f"{found[place]!r}{where}, not {np.asarray(choices[0])[place]!r}"


def _read(value: object) -> object:
    if not isinstance(value, Tensor):
        return value
    found = value.numpy()
    return found.astype(np.float64) if found.dtype.kind == "f" else found


def _type_of(value: object) -> str | None:
    return value.dtype.name if isinstance(value, Tensor) else None


def _shown(value: object) -> str:
    if isinstance(value, Operand):
        values = " ".join(np.array2string(value.values, separator=",", threshold=12).split())
        return f"{value.dtype} {value.shape} {values[:160]}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_shown, value))}]"
    return repr(value)
