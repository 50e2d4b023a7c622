"""Masks of products that are zero already.

In:  a statement, a load that gives 0 where its conditions fail, and these conditions.
Out: the statement without the masks that make no difference then.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelet.graph.division import TRUE, and_gates, gate_parts
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.graph.walk import rebuild


def without_masks(statement: UOp, load: UOp, known: Sequence[UOp]) -> UOp:
    """where(gate, total + load * w, total)  ->  total + load * w where the load is 0 already."""

    def change(_: UOp, made: UOp) -> UOp:
        if made.op is not Op.STORE:
            return made
        return made.replace(src=(made.src[0], _unmasked(made.src[1], load, known)))

    return rebuild(statement, change)


def _unmasked(value: UOp, load: UOp, known: Sequence[UOp]) -> UOp:
    if value.op is Op.WHERE and value.src[1].op is Op.ADD and value.src[1].src[0] is value.src[2]:
        # where(gate, total + product, total) is total + where(gate, product, 0) in one step.
        gate, (total, product) = value.src[0], value.src[1].src
        product = _ungated(product, load, known)
        if not is_factor(product, load):
            return value
        left, kept = _left_of(gate, known), total.alu(Op.ADD, product)
        return kept if left is TRUE else left.where(kept, total)
    if value.op is Op.ADD:
        return value.replace(src=(value.src[0], _ungated(value.src[1], load, known)))
    return _ungated(value, load, known)


def _ungated(value: UOp, load: UOp, known: Sequence[UOp]) -> UOp:
    """where(gate, load * w, 0)  ->  load * w where the load is 0 already."""
    if value.op is not Op.WHERE or value.src[2].op is not Op.CONST or value.src[2].arg != 0:
        return value
    product = _ungated(value.src[1], load, known)
    left = _left_of(value.src[0], known) if is_factor(product, load) else value.src[0]
    return product if left is TRUE else left.where(product, value.src[2])


def _left_of(gate: UOp, known: Sequence[UOp]) -> UOp:
    return and_gates(*[part for part in gate_parts(gate) if part not in known])


def is_factor(product: UOp, load: UOp) -> bool:
    """Whether a product is 0 where the load is: no other factor turns zeros into infinities."""
    if product is load:
        return True
    if product.op not in (Op.MUL, Op.CAST) or _is_steep(product):
        return False
    return any(is_factor(source, load) for source in product.src)


def _is_steep(value: UOp) -> bool:
    return any(node.op in (Op.RECIPROCAL, Op.FDIV, Op.LOG2) for node in value.toposort())
