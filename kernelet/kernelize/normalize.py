"""Bring a graph into the form that the cut works on.

In:  a SINK as the frontend built it.
Out: the same values: no DETACH, big reductions to few results in two steps, every asked node and
     every write stored.
"""

from __future__ import annotations

from kernelet.graph.algebra import simplify
from kernelet.graph.infer import Shape
from kernelet.graph.ops import ELEMENTWISE, MOVEMENT, Op
from kernelet.graph.reuse import is_contraction
from kernelet.graph.uop import UOp
from kernelet.graph.walk import VIEWS, base_of, rebuild
from kernelet.kernelize.parts import in_parts, reshaped
from kernelet.kernelize.picks import search_is_gather

_NUMBERS = frozenset({Op.CONST, Op.ARANGE, Op.VARIABLE})
_COMPUTED = ELEMENTWISE | {Op.REDUCE, Op.PAD}
# What a view shows is under the nodes that normalize takes away.
_SHOWN = VIEWS | {Op.FUNCTION}
_INSIDE = ELEMENTWISE | MOVEMENT
KEPT_VIEWS = frozenset({Op.RESHAPE, Op.PERMUTE, Op.EXPAND, Op.FLIP})


def simplify_values(sink: UOp) -> UOp:
    """The graph after the algebra; what was asked as a computation stays one, where it was.

    x * 1  ->  CONTIGUOUS(x), for a later write to x must not change it
    x * 0  ->  CONTIGUOUS(0, device of x), for a number is nowhere
    """
    sink = rebuild(sink, _placed)
    sources = []
    for old, new in zip(sink.src, simplify(sink).src, strict=True):
        shares = is_memory(base_of(new, _SHOWN)) and not is_memory(base_of(old, _SHOWN))
        lost = old.device if new.device is None else None
        sources.append(UOp(Op.CONTIGUOUS, new.dtype, (new,), lost) if shares or lost else new)
    return sink.replace(src=tuple(sources))


def _placed(node: UOp, made: UOp) -> UOp:
    return made.replace(arg=node.device) if node.op is Op.CONTIGUOUS else made


def normalize(sink: UOp) -> UOp:
    """The graph in normal form, every source of the SINK a view of a stored node."""
    # A view is kept as a view of what is below it: permute(a + b)  ->  permute(CONTIGUOUS(a + b))
    asked = {base_of(source, KEPT_VIEWS | {Op.DETACH}) for source in sink.src}
    order = list(sink.toposort())
    written = {storage_of(node.src[0]) for node in order if node.op in (Op.ASSIGN, Op.AFTER)}
    ended: set[UOp] = set()
    rows: set[UOp] = set()  # what has a reduction inside that is no contraction

    def change(node: UOp, made: UOp) -> UOp:
        made = _normal(made, _is_own_memory(node, written))
        if made.op in ELEMENTWISE:
            made = _reshaped_last(made, rows)
        value = base_of(made, {Op.RESHAPE})
        is_row = value.op is Op.REDUCE and not is_contraction(value)
        if is_row or (made.op in _INSIDE and not rows.isdisjoint(made.src)):
            rows.add(made)
        if made.op is Op.AFTER:
            ended.add(made.src[0])
        # Other readers of a number need no memory for it.
        if node in asked and node.op not in _NUMBERS and not is_memory(base_of(made)):
            made = reshaped(UOp(Op.CONTIGUOUS, made.dtype, (value,)), made.shape)
        return made

    roots = rebuild(sink, change).src
    return sink.replace(src=tuple(_kept(root, ended) for root in roots))


def _is_own_memory(node: UOp, written: set[UOp]) -> bool:
    """Whether a copy must stay one, for it or what it is a copy of is written."""
    copies = node.op in (Op.CONTIGUOUS, Op.COPY)
    return copies and (node in written or storage_of(node.src[0]) in written)


def storage_of(node: UOp) -> UOp:
    """The memory that a chain of movement ops and finished writes refers to."""
    return base_of(node, MOVEMENT | {Op.AFTER})


def _kept(root: UOp, ended: set[UOp]) -> UOp:
    """A view of a number, or of memory that is written afterwards, is over memory of its own."""
    if root.op in MOVEMENT:
        return root.replace(src=(_kept(root.src[0], ended),))
    while root.op in _NUMBERS or root in ended:
        root = UOp(Op.CONTIGUOUS, root.dtype, (root,))
    return root


def _normal(node: UOp, is_own_memory: bool) -> UOp:
    op = node.op
    if op in (Op.DETACH, Op.FUNCTION):
        return node.src[0]
    if op is Op.CONTIGUOUS and node.src[0].op in (Op.CONTIGUOUS, Op.COPY) and not is_own_memory:
        return node.src[0]
    if op is Op.COPY and node.src[0].device == node.arg:
        return UOp(Op.CONTIGUOUS, node.dtype, node.src) if is_own_memory else node.src[0]
    if op is Op.COPY:
        return node.replace(src=(_stored(node.src[0]),))
    if 0 in node.shape and op in _COMPUTED:
        # No loop runs for it, so no read of memory without elements is left outside of one.
        return UOp.const(0, node.dtype).broadcast_to(node.shape)
    if op is Op.REDUCE:
        gathered = search_is_gather(node)
        if gathered is not None:
            return gathered
        return in_parts(node)
    return node


def _reshaped_last(node: UOp, rows: set[UOp]) -> UOp:
    """relu(reshape(v) + b)  ->  reshape(relu(v + reshape(b))), where v has more axes

    if there are sums in v: its loops are right for them, where those of the reshaped would repeat.
    """
    inner = [part.src[0] for part in node.src if part.op is Op.RESHAPE and part.src[0] in rows]
    shape = max((value.shape for value in inner), key=_long_axes, default=node.shape)
    if _long_axes(shape) <= _long_axes(node.shape):
        return node
    parts = [reshaped(base_of(part, {Op.RESHAPE}), shape) for part in node.src]
    return reshaped(node.replace(src=tuple(parts)), node.shape)


def _long_axes(shape: Shape) -> int:
    return sum(dim != 1 for dim in shape)


def is_memory(node: UOp) -> bool:
    """Whether a node names memory rather than a computation."""
    return node.op in (Op.PARAM, Op.CONTIGUOUS, Op.COPY, Op.AFTER, Op.ASSIGN)


def _stored(node: UOp) -> UOp:
    """A node whose elements lie in order in memory of their own.

    reshape(PARAM) stays; anything else gets CONTIGUOUS.
    """
    if is_memory(base_of(node, (Op.RESHAPE,))):
        return node
    return UOp(Op.CONTIGUOUS, node.dtype, (node,))
