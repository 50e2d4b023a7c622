"""Gradients as a rewrite of graphs: one rule for each op.

In:  a node, its own gradient, and the nodes whose gradients are wanted.
Out: the gradient of each of them, again a graph, so that it can be derived again.

A value that is not used has gradient 0 even where its formula gives NaN or infinity: a factor that
may be either meets a gradient of 0 through `_times`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from kernelet.base.dtype import dtypes, round_to
from kernelet.base.errors import GradientError
from kernelet.base.helpers import argsort
from kernelet.frontend.promotion import accumulator_dtype
from kernelet.graph.movement import product_of, subtract_dims
from kernelet.graph.ops import ELEMENTWISE, MOVEMENT, Op
from kernelet.graph.uop import ReduceArg, UOp
from kernelet.graph.walk import reachable, split_view

Gradients = Sequence[UOp | None]
Rule = Callable[[UOp, UOp], Gradients]

_MAKES_SPECIAL = frozenset({Op.RECIPROCAL, Op.LOG2, Op.SQRT, Op.EXP2, Op.FUNCTION})
_CARRIES_SPECIAL = (ELEMENTWISE | MOVEMENT | {Op.CONTIGUOUS, Op.DETACH}) - {Op.EXPAND}


def gradients(root: UOp, seed: UOp, targets: Iterable[UOp]) -> dict[UOp, UOp]:
    """The gradient of `root` with respect to each of `targets` that it depends on.

    `seed` is the gradient of `root` itself.
    """
    order = list(root.toposort())
    on_path = _on_path(order, set(targets))
    found: dict[UOp, UOp] = {}
    if root not in on_path:
        return found
    found[root] = seed
    for node in reversed(order):
        if node not in found or node not in on_path:
            continue
        if not node.src or node.op is Op.DETACH:
            continue
        for source, part in zip(node.src, _derive(node, found[node]), strict=True):
            if part is not None and source in on_path:
                found[source] = part if source not in found else found[source] + part
    return {node: found[node] for node in on_path if node in found}


def _on_path(order: Sequence[UOp], targets: set[UOp]) -> set[UOp]:
    """The nodes through which a gradient flows from the last node to a target."""
    found: set[UOp] = set()
    for node in order:
        if not node.dtype.is_float:
            continue
        passes = node.op is not Op.DETACH and not found.isdisjoint(node.src)
        if passes or node in targets:
            found.add(node)
    return found


def _derive(node: UOp, gradient: UOp) -> Gradients:
    rule = RULES.get(node.op)
    if rule is None:
        raise GradientError(
            f"gradient: {node.op.name} has no derivative. Cut the graph there with detach()."
        )
    return rule(node, gradient)


# ---- factors that may be NaN or infinite ----


def _is_special(root: UOp) -> bool:
    """Whether an elementwise value may be NaN or infinite though memory holds neither."""
    stack = [root]
    while stack:
        node = stack[-1]
        if "special" in node.cache:
            stack.pop()
            continue
        sources = node.src if node.op in _CARRIES_SPECIAL and node.dtype.is_float else ()
        missing = [source for source in sources if "special" not in source.cache]
        if missing:
            stack.extend(missing)
            continue
        made = node.op in _MAKES_SPECIAL and node.arg != "identity"
        made = made or (node.op is Op.CONST and not math.isfinite(node.arg))
        node.cache["special"] = made or any(source.cache["special"] for source in sources)
        stack.pop()
    return bool(root.cache["special"])


def _times(gradient: UOp, factor: UOp) -> UOp:
    """gradient * factor, but 0 * NaN and 0 * infinity are 0."""
    result = gradient * factor
    # What a whole row shares is looked at only where the gradient was just chosen: (s > 0).where(x / s, 0).
    if not _is_special(split_view(factor)[1] if gradient.op is Op.WHERE else factor):
        return result
    unused = gradient.not_equal(0).logical_not() & result.not_equal(result)
    return unused.where(0, result)


# ---- elementwise ----


def _multiply(node: UOp, gradient: UOp) -> Gradients:
    left, right = node.src[:2]
    return _times(gradient, right), _times(gradient, left)


def _unary(node: UOp, gradient: UOp) -> Gradients:
    return (_times(gradient, SLOPES[node.op](node, node.src[0])),)


def _named(node: UOp, gradient: UOp) -> Gradients:
    """A function whose derivative is known, whatever its formula is."""
    if node.arg == "identity":
        return None, gradient
    return None, _times(gradient, SLOPES[node.arg](node, node.src[1]))


def _cast(node: UOp, gradient: UOp) -> Gradients:
    source = node.src[0]
    return (gradient.cast(source.dtype) if source.dtype.is_float else None,)


def _maximum(node: UOp, gradient: UOp) -> Gradients:
    """The greater one takes the gradient; equal ones share it."""
    left, right = node.src
    shared = left.not_equal(right).where(0, gradient * 0.5)
    return (right < left).where(gradient, shared), (left < right).where(gradient, shared)


def _where(node: UOp, gradient: UOp) -> Gradients:
    condition, limit, value = node.src
    if _is_limit(condition, limit, value):
        # The result tells as well whether the limit was reached: relu's operand is not kept.
        passes = node.alu(Op.CMPNE, limit)
        return None, passes.where(0, gradient), passes.where(gradient, 0)
    return None, condition.where(gradient, 0), condition.where(0, gradient)


def _is_limit(condition: UOp, limit: UOp, value: UOp) -> bool:
    """Whether a condition is value <= limit or value >= limit."""
    if condition.op is not Op.OR:
        return False
    order, equal = condition.src
    differs = equal.src[0] if equal.op is Op.CMPNE else equal
    pair = {limit, value}
    is_order = order.op is Op.CMPLT and set(order.src) == pair
    return is_order and differs.op is Op.CMPNE and set(differs.src) == pair


# ---- movement ----


def inverse_movement(node: UOp, value: UOp) -> UOp:
    """The elements of a movement node back at their places in its source; 0 elsewhere."""
    source = node.src[0]
    if node.op is Op.RESHAPE:
        return _moved(Op.RESHAPE, value, source.shape)
    if node.op is Op.PERMUTE:
        return _moved(Op.PERMUTE, value, argsort(node.arg))
    if node.op is Op.FLIP:
        return _moved(Op.FLIP, value, node.arg)
    if node.op in (Op.SHRINK, Op.PAD):
        # The begin stays, the end is counted from the other side.
        inverse, whole = (Op.PAD, source) if node.op is Op.SHRINK else (Op.SHRINK, node)
        sides = zip(node.arg, whole.shape, strict=True)
        arg = tuple((begin, subtract_dims(size, end)) for (begin, end), size in sides)
        # Equal sizes are written in the same way.
        return _moved(Op.RESHAPE, _moved(inverse, value, arg), source.shape)
    axes = [
        axis
        for axis, (old, grown) in enumerate(zip(source.shape, node.shape, strict=True))
        if old is not grown and old != grown
    ]
    return _sum(value, axes) if axes else value


def inverse_view(view: UOp, base: UOp, value: UOp) -> UOp:
    """`value`, which lies as the view `view` of `base` does, back at its places in `base`."""
    while view is not base:
        value, view = inverse_movement(view, value), view.src[0]
    return value


def _moved(op: Op, node: UOp, arg: object) -> UOp:
    """A movement of `node`, unless it would change nothing."""
    unchanged = op in (Op.RESHAPE, Op.EXPAND) and node.shape == arg
    return node if unchanged else UOp(op, node.dtype, (node,), arg)


def _sum(node: UOp, axes: Sequence[int]) -> UOp:
    """A sum that keeps its axes; floats of 8 and 16 bits add up in float32."""
    wide = accumulator_dtype(node.dtype)
    arg = ReduceArg(Op.ADD, tuple(axes))
    return UOp(Op.REDUCE, wide, (node.cast(wide),), arg).cast(node.dtype)


def _move(node: UOp, gradient: UOp) -> Gradients:
    return (inverse_movement(node, gradient),)


# ---- reductions ----


def _reduce(node: UOp, gradient: UOp) -> Gradients:
    if node.arg.op is Op.ADD:
        return (_moved(Op.EXPAND, gradient, node.src[0].shape),)
    return (_of_maximum if node.arg.op is Op.MAX else _of_product)(node, gradient)


def _of_maximum(node: UOp, gradient: UOp) -> Gradients:
    """All elements that equal the maximum share the gradient evenly."""
    # Elements that are computed again may be rounded otherwise than the maximum that was stored, and
    # none would equal it: both are read from one memory, or computed again in one schedule.
    keep = Op.CONTIGUOUS if _sums_again(node.src[0]) else Op.DETACH
    source = UOp(keep, node.dtype, node.src, None if keep is Op.CONTIGUOUS else "again")
    again = node.replace(src=(source,))
    differs = source.not_equal(_moved(Op.EXPAND, again, source.shape))
    count = _sum(differs.where(source.const_like(0), source.const_like(1)), node.arg.axes)
    share = _moved(Op.EXPAND, gradient * count.alu(Op.RECIPROCAL), source.shape)
    return (differs.where(0, share),)


def _sums_again(root: UOp) -> bool:
    """Whether computing a value again adds up rows again, in an order that may be another one.

    The sums of matrix products and convolutions are too dear for that: they are stored.
    """
    below = ELEMENTWISE | MOVEMENT | {Op.DETACH, Op.FUNCTION, Op.REDUCE}
    for node in reachable([root], lambda node: node.src if node.op in below else ()):
        if node.op is Op.REDUCE and node.arg.op is not Op.MAX:
            factors = node.src[0].src if node.src[0].op is Op.MUL else ()
            if not factors or not all(_is_repeated(factor) for factor in factors):
                return True
    return False


def _is_repeated(factor: UOp) -> bool:
    """Whether a factor is found in many rows, as those of a matrix product are."""
    return any(step.op is Op.EXPAND for step in split_view(factor)[0])


def _of_product(node: UOp, gradient: UOp) -> Gradients:
    """The product of all other elements, by multiplying them: right also where some are 0."""
    source, axes = node.src[0], node.arg.axes
    order = (*(axis for axis in range(len(source.shape)) if axis not in axes), *axes)
    moved = _moved(Op.PERMUTE, source, order)
    lead, size = moved.shape[: -len(axes)], product_of(moved.shape[-len(axes) :])
    table = _moved(Op.EXPAND, _moved(Op.RESHAPE, moved, (*lead, 1, size)), (*lead, size, size))
    index, ones = UOp(Op.ARANGE, dtypes.default_int, (), (size,)), (1,) * len(lead)
    rows = _moved(Op.EXPAND, _moved(Op.RESHAPE, index, (*ones, size, 1)), table.shape)
    columns = _moved(Op.EXPAND, _moved(Op.RESHAPE, index, (*ones, 1, size)), table.shape)
    arg = ReduceArg(Op.MUL, (len(lead) + 1,))
    others = UOp(Op.REDUCE, node.dtype, (rows.not_equal(columns).where(table, 1),), arg)
    back = _moved(Op.RESHAPE, others, moved.shape)
    restored = _moved(Op.PERMUTE, back, argsort(order))
    return (_times(_moved(Op.EXPAND, gradient, source.shape), restored),)


# ---- memory ----


def _copy(node: UOp, gradient: UOp) -> Gradients:
    device = node.src[0].device
    if device is None:
        return (None,)
    return (UOp(Op.COPY, gradient.dtype, (gradient,), device),)


def _after(node: UOp, gradient: UOp) -> Gradients:
    """What was written takes the gradient of its places, the old contents that of the rest."""
    parts: list[UOp | None] = []
    for write in reversed(node.src[1:]):
        chain, _ = split_view(write.src[0])
        part, written = gradient, UOp.const(True, dtypes.bool)
        for step in reversed(chain):
            part = _moved(step.op, part, step.arg)
        written = written.broadcast_to(write.shape) if write.shape else written
        for step in chain:
            written = inverse_movement(step, written)
        parts.append(part)
        gradient = written.where(0, gradient)
    return gradient, *reversed(parts)


def cosine(x: UOp) -> UOp:
    """cos(x) from one sine: sin(pi / 2 - |x|) near 0, and 1 - 2 sin(x / 2)**2 further out."""
    size = x.maximum(-x)
    near = size < x.const_like(4.0)
    # The difference is exact about the zero of the cosine, and then the rest of pi / 2 counts.
    quarter = float(round_to(x.dtype, math.pi / 2))
    rest = 6.123233995736766e-17 if x.dtype is dtypes.float64 else math.pi / 2 - quarter
    sine = near.where((-size + quarter) + rest, x * 0.5).alu(Op.SIN)
    return near.where(sine, 1 - sine * sine * 2)


def _exp(x: UOp) -> UOp:
    return (x * (1 / math.log(2.0))).alu(Op.EXP2)


def _inverse(x: UOp) -> UOp:
    return x.alu(Op.RECIPROCAL)


def _inverse_root(x: UOp) -> UOp:
    return x.alu(Op.SQRT).alu(Op.RECIPROCAL)


# The derivatives of functions of one argument, from their value and that argument.
SLOPES: dict[Op | str, Callable[[UOp, UOp], UOp]] = {
    Op.RECIPROCAL: lambda value, x: -(value * value),
    Op.SQRT: lambda value, x: _inverse(value) * 0.5,
    Op.EXP2: lambda value, x: value * math.log(2.0),
    Op.LOG2: lambda value, x: _inverse(x) * (1 / math.log(2.0)),
    Op.SIN: lambda value, x: cosine(x),
    "cos": lambda value, x: -x.alu(Op.SIN),
    # A maximum keeps the square from being fused with the difference: near 1 that would give
    # other digits than those of numpy and PyTorch, which round the square.
    "tanh": lambda value, x: 1 - (value * value).maximum(0),
    "sigmoid": lambda value, x: value * (1 - value),
    "softplus": lambda value, x: _inverse(_exp(-x) + 1),
    "log1p": lambda value, x: _inverse(x + 1),
    "expm1": lambda value, x: value + 1,
    "erf": lambda value, x: _exp(-(x * x)) * (2 / math.sqrt(math.pi)),
    "sinh": lambda value, x: (_exp(x) + _exp(-x)) * 0.5,
    "atan": lambda value, x: _inverse(x * x + 1),
    "asin": lambda value, x: _inverse_root((1 - x) * (1 + x)),
    "acos": lambda value, x: -_inverse_root((1 - x) * (1 + x)),
    "asinh": lambda value, x: _inverse_root(x * x + 1),
    "acosh": lambda value, x: _inverse_root((x - 1) * (x + 1)),
    "atanh": lambda value, x: _inverse((1 - x) * (1 + x)),
}

RULES: dict[Op, Rule] = {
    Op.ADD: lambda node, gradient: (gradient, gradient),
    Op.NEG: lambda node, gradient: (-gradient,),
    Op.MUL: _multiply,
    Op.MULACC: lambda node, gradient: (*_multiply(node, gradient), gradient),
    **dict.fromkeys((Op.RECIPROCAL, Op.SQRT, Op.EXP2, Op.LOG2, Op.SIN), _unary),
    Op.FUNCTION: _named,
    Op.TRUNC: lambda node, gradient: (None,),
    Op.CAST: _cast,
    Op.BITCAST: lambda node, gradient: (None,),
    Op.MAX: _maximum,
    Op.WHERE: _where,
    **dict.fromkeys(MOVEMENT, _move),
    Op.REDUCE: _reduce,
    Op.CONTIGUOUS: lambda node, gradient: (gradient,),
    Op.COPY: _copy,
    Op.MULTI: lambda node, gradient: (None,) * len(node.src),
    Op.ASSIGN: lambda node, gradient: (None, gradient),
    Op.AFTER: _after,
}
