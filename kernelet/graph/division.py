"""Index arithmetic: sums of coefficient * atom, simplified when built.

In:  loop variables, integers, launch variables.
Out: `UOp`s of `dtypes.index` in one normal form, so that equal indices are the same node.

An atom is a RANGE, a VARIABLE, `x // n`, `x % n`, a maximum, or a product of such. Floor division
and modulo are Python's, so every rule holds for negative numbers too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from math import gcd
from typing import NamedTuple

from kernelet.base.dtype import dtypes
from kernelet.graph.bounds import Bounds
from kernelet.graph.infer import Dim, as_dim, kept, order_key
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp


class Terms(NamedTuple):
    """`constant` plus the sum of `coefficients[atom] * atom`."""

    constant: int
    coefficients: dict[UOp, int]


TRUE = UOp.const(True, dtypes.bool)
FALSE = UOp.const(False, dtypes.bool)
ZERO = UOp.const(0, dtypes.index)


# Nodes are immutable and equal ones are the same, so results may be kept; not all of them, for they
# keep their nodes alive.
_kept = lru_cache(1 << 12)


@_kept
def index_const(value: int) -> UOp:
    """An integer as an index."""
    return UOp(Op.CONST, dtypes.index, (), value)


def index_of(dim: Dim) -> UOp:
    """A size as an index, in normal form."""
    return index_const(dim) if isinstance(dim, int) else normalize_index(dim)


# ---- the normal form ----


def terms_of(index: UOp) -> Terms:
    """Read a node in normal form as a sum."""
    cached = index.cache.get("terms")
    if cached is not None:
        return cached  # type: ignore[no-any-return]
    constant = 0
    coefficients: dict[UOp, int] = {}
    node = index
    while True:
        last = node
        if node.op is Op.ADD:
            node, last = node.src
        if last.op is Op.CONST:
            constant = last.arg
        elif last.op is Op.MUL and last.src[1].op is Op.CONST:
            coefficients[last.src[0]] = last.src[1].arg
        else:
            coefficients[last] = 1
        if node is last:
            break
    terms = Terms(constant, dict(reversed(coefficients.items())))
    # An atom is its own only term: kept on itself it would be freed late.
    if index not in coefficients:
        index.cache["terms"] = terms
    return terms


def sum_of(constant: int, coefficients: Mapping[UOp, int]) -> UOp:
    """Build the normal form of a sum.

    9 * (k // 9) + k % 9 -> k
    """
    found = {atom: factor for atom, factor in coefficients.items() if factor}
    if any(atom.op is Op.MOD for atom in found):
        joined = _joined_digits(constant, found)
        if joined is not None:
            return joined
    if len(found) > 1:
        found = {atom: found[atom] for atom in sorted(found, key=order_key)}
    return _ordered_sum(constant, found)


def combination(parts: Iterable[tuple[UOp, int]], constant: int = 0) -> UOp:
    """constant + the sum of index * factor."""
    coefficients: dict[UOp, int] = {}
    for index, factor in parts:
        terms = terms_of(index)
        constant += terms.constant * factor
        for atom, amount in terms.coefficients.items():
            coefficients[atom] = coefficients.get(atom, 0) + amount * factor
    return sum_of(constant, coefficients)


def _ordered_sum(constant: int, ordered: dict[UOp, int]) -> UOp:
    """The normal form of a sum whose terms have their order and that no digits leave shorter."""
    node: UOp | None = None
    for atom, factor in ordered.items():
        term = atom if factor == 1 else UOp(Op.MUL, dtypes.index, (atom, index_const(factor)))
        node = term if node is None else UOp(Op.ADD, dtypes.index, (node, term))
    if node is None:
        return index_const(constant)
    if constant:
        node = UOp(Op.ADD, dtypes.index, (node, index_const(constant)))
    if node not in ordered:
        node.cache.setdefault("terms", Terms(constant, ordered))
    return node


def _joined_digits(constant: int, found: dict[UOp, int]) -> UOp | None:
    """c * (x % m) + c * m * (x // m) -> c * x, and the same with x // m % p beside it."""
    for atom, factor in found.items():
        if atom.op is not Op.MOD or atom.src[1].op is not Op.CONST:
            continue
        value, size = atom.src[0], atom.src[1].arg
        quotient, scale = divide_index(value, size), factor * size
        moved, digits = terms_of(quotient)
        used = {atom, *digits}
        if not digits or any(found.get(part) != scale * digits[part] for part in digits):
            others = (
                other
                for other, amount in found.items()
                if (other.op, amount, other.src[:1]) == (Op.MOD, scale, (quotient,))
                and other.src[1].op is Op.CONST
            )
            other = next(others, None)
            if other is None:
                continue
            value, moved = modulo_index(value, size * other.src[1].arg), 0
            used = {atom, other}
        rest = ((a, f) for a, f in found.items() if a not in used)
        return combination([(value, factor), *rest], constant - scale * moved)
    return None


# ---- arithmetic ----


def add_index(left: UOp, right: UOp) -> UOp:
    """left + right."""
    if left is ZERO:
        return right
    if right is ZERO:
        return left
    first, second = terms_of(left), terms_of(right)
    if not second.coefficients or not first.coefficients:
        present = first.coefficients or second.coefficients
        return _ordered_sum(first.constant + second.constant, present)
    return combination(((left, 1), (right, 1)))


def scale_index(index: UOp, factor: Dim) -> UOp:
    """index * factor."""
    factor = as_dim(index_of(factor))
    constant, coefficients = terms_of(index)
    if isinstance(factor, int):
        if factor in (0, 1):
            return index if factor else ZERO
        return _ordered_sum(constant * factor, {a: f * factor for a, f in coefficients.items()})
    parts = [(factor, constant)]
    once, others = terms_of(factor)
    for part, amount in coefficients.items():
        parts.append((part, amount * once))
        parts += [
            (_product(_factors(part) + _factors(each)), amount * f) for each, f in others.items()
        ]
    return combination(parts)


def _factors(atom: UOp) -> list[UOp]:
    if atom.op is Op.MUL:
        return _factors(atom.src[0]) + _factors(atom.src[1])
    return [atom]


def _product(factors: Iterable[UOp]) -> UOp:
    """The product of atoms in their order; of none it is 1."""
    ordered = sorted(factors, key=order_key) or [index_const(1)]
    return reduce(lambda x, y: UOp(Op.MUL, dtypes.index, (x, y)), ordered)


def subtract_index(left: UOp, right: UOp) -> UOp:
    """left - right."""
    return add_index(left, scale_index(right, -1))


@_kept
def divide_index(index: UOp, divisor: Dim) -> UOp:
    """index // divisor, rounded down; the divisor is at least 1, or 0 where nothing is indexed."""
    divisor = as_dim(index_of(divisor))
    if not isinstance(divisor, int):
        return _divide_symbolic(index, divisor)
    if divisor in (0, 1):
        return index if divisor else ZERO
    constant, coefficients = terms_of(index)
    rest, turns, below = _rest(constant, coefficients, divisor)
    quotients = {atom: (factor + below) // divisor for atom, factor in coefficients.items()}
    last = _quotient_atom(rest, divisor) if turns is None else index_const(turns)
    return add_index(sum_of(constant // divisor, quotients), last)


def _rest(
    constant: int, coefficients: Mapping[UOp, int], divisor: int
) -> tuple[UOp, int | None, int]:
    """A sum without multiples of the divisor, how often it is in there yet, if that is known.

    The coefficients that are left are from `-below` on: the last number.
    """
    for below in (0, (divisor - 1) // 2):  # the least remainders, then those nearest to 0
        left = {atom: (f + below) % divisor - below for atom, f in coefficients.items()}
        rest = sum_of(constant % divisor, left)
        low, high = rest.bounds
        if low // divisor == high // divisor:
            return rest, int(low // divisor), below
    return rest, None, below


def _quotient_atom(index: UOp, divisor: int) -> UOp:
    """(x // a) // b -> x // (a * b); (x % (a * b)) // a -> x // a % b; common factors cancel."""
    constant, coefficients = terms_of(index)
    common = gcd(divisor, *coefficients.values())
    if common > 1:
        reduced = {atom: factor // common for atom, factor in coefficients.items()}
        return divide_index(sum_of(constant // common, reduced), divisor // common)
    if len(coefficients) == 1 and constant == 0:
        ((atom, factor),) = coefficients.items()
        if factor == 1 and atom.op in (Op.IDIV, Op.MOD) and atom.src[1].op is Op.CONST:
            value, size = atom.src[0], atom.src[1].arg
            if atom.op is Op.IDIV:
                return divide_index(value, size * divisor)
            if size % divisor == 0:
                return modulo_index(divide_index(value, divisor), size // divisor)
    return UOp(Op.IDIV, dtypes.index, (index, index_const(divisor)))


@_kept
def modulo_index(index: UOp, divisor: Dim) -> UOp:
    """index % divisor, with the sign of the divisor, which is at least 1; of 0 it is 0."""
    divisor = as_dim(index_of(divisor))
    if not isinstance(divisor, int):
        return subtract_index(index, scale_index(_divide_symbolic(index, divisor), divisor))
    if divisor in (0, 1):
        return ZERO
    constant, coefficients = terms_of(index)
    reduced: dict[UOp, int] = {}
    for atom, factor in coefficients.items():
        # Inside % n, x % (n * k) is x.
        size = atom.src[1].arg if atom.op is Op.MOD and atom.src[1].op is Op.CONST else 1
        inner = terms_of(atom if size % divisor else atom.src[0])
        for part, amount in inner.coefficients.items():
            reduced[part] = (reduced.get(part, 0) + factor * amount) % divisor
        constant += factor * inner.constant
    rest, turns, _ = _rest(constant, reduced, divisor)
    if turns is None:
        return _remainder_atom(rest, divisor)
    return add_index(rest, index_const(-turns * divisor))


def _remainder_atom(index: UOp, divisor: int) -> UOp:
    """(c * x) % (c * n) -> c * (x % n)"""
    constant, coefficients = terms_of(index)
    common = gcd(divisor, constant, *coefficients.values())
    if common > 1:
        reduced = sum_of(constant // common, {a: f // common for a, f in coefficients.items()})
        return scale_index(modulo_index(reduced, divisor // common), common)
    return UOp(Op.MOD, dtypes.index, (index, index_const(divisor)))


def _divide_symbolic(index: UOp, divisor: UOp) -> UOp:
    """(a * n + r) // n -> a where 0 <= r < n is proved."""
    constant, coefficients = terms_of(index)
    whole: list[tuple[UOp, int]] = []
    rest: dict[UOp, int] = {}
    for atom, factor in coefficients.items():
        factors = _factors(atom)
        if divisor in factors:
            factors.remove(divisor)
            whole.append((_product(factors), factor))
        else:
            rest[atom] = factor
    remainder = sum_of(constant, rest)
    if not (remainder.bounds.min >= 0 and less_index(remainder, divisor) is TRUE):
        whole.append((UOp(Op.IDIV, dtypes.index, (remainder, divisor)), 1))
    return combination(whole)


def maximum_index(left: UOp, right: UOp) -> UOp:
    """The greater of two indices."""
    low, high = subtract_index(left, right).bounds
    if low >= 0:
        return left
    if high <= 0:
        return right
    return UOp(Op.MAX, dtypes.index, tuple(sorted((left, right), key=order_key)))


def with_factored_maxima(index: UOp) -> UOp:
    """max(8 * x, 4) -> 4 * max(2 * x, 1), which 2 and 4 divide without a rest."""
    changed = {}
    for node in index.toposort():
        if node.op is Op.MAX and node.dtype is dtypes.index:
            sums = [terms_of(source) for source in node.src]
            common = gcd(
                *(n for each in sums for n in (each.constant, *each.coefficients.values()))
            )
            if common > 1:
                left, right = (divide_index(source, common) for source in node.src)
                changed[node] = scale_index(maximum_index(left, right), common)
    return substitute_index(index, changed) if changed else index


def minimum_index(left: UOp, right: UOp) -> UOp:
    """The smaller of two indices."""
    return scale_index(maximum_index(scale_index(left, -1), scale_index(right, -1)), -1)


# ---- conditions ----


def less_index(left: UOp, right: UOp) -> UOp:
    """left < right, as a constant when the bounds prove it."""
    difference = subtract_index(left, right)
    low, high = _symbolic_bounds(difference)
    if high < 0:
        return TRUE
    if low >= 0:
        return FALSE
    constant, coefficients = terms_of(difference)
    common = gcd(*coefficients.values())
    total = sum_of(0, {atom: factor // common for atom, factor in coefficients.items()})
    # total * common < -constant, and total is whole
    return UOp(Op.CMPLT, dtypes.bool, (total, index_const(-(constant // common))))


def _symbolic_bounds(index: UOp) -> Bounds:
    """Bounds that use r <= n - 1 for a loop whose size n is a variable."""
    found = index.bounds
    if found.max < 0 or found.min >= 0:
        return found
    if all(loop.src[0].op is Op.CONST for loop in _loops_in(index)):
        return found

    least, greatest = (extreme(index, frozenset(), greatest=which) for which in (False, True))
    return Bounds(least.bounds.min, greatest.bounds.max)


def extreme(index: UOp, outer: frozenset[UOp], *, greatest: bool = True) -> UOp:
    """The greatest value, or the least, while outer loops stand still.

    8 * i + j for j in 8  ->  8 * i + 7; a loop whose size depends on outer loops ends where that
    tells, and what else depends on these loops may cancel that.
    """
    constant, coefficients = terms_of(index)
    for atom, factor in coefficients.items():
        if atom.op is Op.RANGE and atom.src[0].op is not Op.CONST and atom not in outer:
            last = add_index(atom.src[0], index_const(-1)) if greatest is (factor > 0) else ZERO
            moved = add_index(index, scale_index(subtract_index(last, atom), factor))
            return extreme(moved, outer, greatest=greatest)
    ends = (
        (_extreme_atom(atom, outer, greatest is (factor > 0)), factor)
        for atom, factor in coefficients.items()
    )
    return combination(ends, constant)


def _extreme_atom(atom: UOp, outer: frozenset[UOp], greatest: bool) -> UOp:
    if _loops_in(atom) <= outer:
        return atom
    if atom.op is Op.MAX:
        return maximum_index(*[extreme(part, outer, greatest=greatest) for part in atom.src])
    if atom.op is Op.IDIV and atom.src[1].op is Op.CONST:
        return divide_index(extreme(atom.src[0], outer, greatest=greatest), atom.src[1].arg)
    low, high = atom.bounds
    return index_const(int(high if greatest else low))


def and_gates(*gates: UOp) -> UOp:
    """All of the gates; constants fold, repeated ones count once."""
    parts: dict[UOp, None] = {}
    for gate in gates:
        for part in gate_parts(gate):
            if part is FALSE:
                return FALSE
            if part is not TRUE:
                parts[part] = None
    node = TRUE
    for part in parts:
        node = part if node is TRUE else UOp(Op.AND, dtypes.bool, (node, part))
    return node


def gate_parts(gate: UOp) -> list[UOp]:
    """The conditions that a gate joins."""
    if gate.op is Op.AND:
        return gate_parts(gate.src[0]) + gate_parts(gate.src[1])
    return [gate]


@_kept
def bounds_gate(index: UOp, size: Dim) -> UOp:
    """0 <= index < size, as far as it is not proved."""
    return and_gates(less_index(index_const(-1), index), less_index(index, index_of(size)))


# ---- rebuilding ----


def normalize_index(node: UOp) -> UOp:
    """Any integer expression in normal form."""
    return substitute_index(node, {})


def substitute_index(node: UOp, mapping: Mapping[UOp, UOp]) -> UOp:
    """The index, or gate, with some atoms replaced, in normal form again."""
    # What has a loop variable is in normal form already: only what uses those changes.
    loops = frozenset(mapping) if all(key.op is Op.RANGE for key in mapping) else frozenset()
    return _rebuild(node, dict(mapping), loops)


@kept
def _loops_in(node: UOp) -> frozenset[UOp]:
    """The loop variables below a node, those in the sizes of loops too."""
    own = (node,) if node.op is Op.RANGE else ()
    return frozenset(own).union(*[_loops_in(source) for source in node.src])


def _rebuild(node: UOp, memo: dict[UOp, UOp], loops: frozenset[UOp] = frozenset()) -> UOp:
    """The node in normal form with `memo` replaced; `loops`: nothing else in it changes."""
    found = memo.get(node)
    if found is not None:
        return found
    if loops and loops.isdisjoint(_loops_in(node)):
        return node
    op = node.op
    if not node.src or op is Op.BIND:
        result = node if node.dtype in (dtypes.index, dtypes.bool) else index_const(node.arg)
    elif op is Op.RANGE:
        size = _rebuild(node.src[0], memo, loops)
        result = node if size is node.src[0] else node.replace(src=(size,))
    elif op is Op.CAST and node.src[0].dtype is not dtypes.index:
        inner = {loop: memo[loop] for loop in loops} if loops else memo
        result = replace_ranges(node.src[0], inner).cast(dtypes.index)
    elif loops and node.dtype is dtypes.index and node not in terms_of(node).coefficients:
        result = _replace_terms(node, memo, loops)
    else:
        parts = tuple([_rebuild(source, memo, loops) for source in node.src])
        result = rebuild(node, parts)
    memo[node] = result
    return result


def _replace_terms(node: UOp, memo: dict[UOp, UOp], loops: frozenset[UOp]) -> UOp:
    constant, coefficients = terms_of(node)
    made = {atom: _rebuild(atom, memo, loops) for atom in coefficients}
    if any(new is not atom and new.op is not Op.CONST for atom, new in made.items()):
        return combination(
            ((made[atom], factor) for atom, factor in coefficients.items()), constant
        )
    kept = {atom: factor for atom, factor in coefficients.items() if made[atom] is atom}
    known = sum(new.arg * coefficients[atom] for atom, new in made.items() if new is not atom)
    return _ordered_sum(constant + known, kept)


_OPERATIONS: dict[Op, Callable[..., UOp]] = {
    Op.NEG: lambda index: scale_index(index, -1),
    Op.MUL: scale_index,
    Op.ADD: add_index,
    Op.SUB: subtract_index,
    Op.IDIV: divide_index,
    Op.MOD: modulo_index,
    Op.MAX: maximum_index,
}


# ---- scalar expressions ----


def replace_ranges(statement: UOp, mapping: Mapping[UOp, UOp]) -> UOp:
    """The statement with loop variables replaced and its indices simplified again."""
    return copies_of(statement, [mapping])[0]


def copies_of(statement: UOp, mappings: Sequence[Mapping[UOp, UOp]]) -> list[UOp]:
    """The statement once for each mapping, all of which replace the same loop variables."""
    loops = frozenset(mappings[0])
    moving: dict[UOp, None] = {}
    for node in statement.toposort():
        if not _is_index(node) and any(
            not loops.isdisjoint(_loops_in(source)) if _is_index(source) else source in moving
            for source in node.src
        ):
            moving[node] = None
    copies = []
    for mapping in mappings:
        memo = dict(mapping)
        for node in moving:
            sources = [
                _rebuild(source, memo, loops) if _is_index(source) else memo.get(source, source)
                for source in node.src
            ]
            memo[node] = rebuild(node, tuple(sources))
        copies.append(memo.get(statement, statement))
    return copies


def _is_index(node: UOp) -> bool:
    return node.dtype is dtypes.index and node.op is not Op.INDEX


def rebuild(node: UOp, sources: tuple[UOp, ...]) -> UOp:
    """The node over other sources: an index in normal form, gates without what is known."""
    op = node.op
    if node.dtype is dtypes.index and op in _OPERATIONS:
        return _OPERATIONS[op](*sources)
    if op is Op.CAST:
        return sources[0].cast(node.dtype)
    if op is Op.CMPLT and sources[0].dtype is dtypes.index:
        return less_index(*sources)
    if op is Op.AND and node.dtype is dtypes.bool:
        return and_gates(*sources)
    if op is Op.WHERE and sources[0] in (TRUE, FALSE):
        return sources[1] if sources[0] is TRUE else sources[2]
    if op is Op.LOAD and len(sources) == 2:
        if sources[1] is TRUE:
            return node.replace(src=sources[:1])
        if sources[1] is FALSE:
            return UOp.const(0, node.dtype)
    return node.replace(src=sources)
