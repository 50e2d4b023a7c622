"""How often a reduction reads its operands again.

In:  a reduction of a tensor-level graph.
Out: whether it is a contraction: a matrix product, a convolution.
"""

from __future__ import annotations

import math

from kernelet.graph.infer import Shape, max_dim
from kernelet.graph.ops import MOVEMENT, Op
from kernelet.graph.scan import scan_of
from kernelet.graph.uop import UOp
from kernelet.graph.walk import consumers_of, only_below, split_view

LEAST_REUSE = 4  # products for each element read, from which on a sum of them is a contraction


def numel(shape: Shape) -> int:
    """The number of elements, at most."""
    return math.prod(max_dim(dim) for dim in shape)


def is_contraction(node: UOp) -> bool:
    """Whether each element read takes part in many results: matrix products, convolutions."""
    value = _product_below(node)
    is_product = _is_sum(node) and value.op is Op.MUL
    return is_product and numel(value.shape) >= LEAST_REUSE * elements_read(node)


def is_search(node: UOp) -> bool:
    """Whether a sum takes, of many elements, those that name its result.

    sum_t where(pick[t] != v, 0, x[t]), the gradient of indexing by a tensor
    """
    value = node.src[0]
    if not _is_sum(node) or value.op is not Op.WHERE:
        return False
    condition = split_view(value.src[0])[1]
    most = max(map(_elements_below, (*condition.src, *value.src[1:])), default=0)
    return condition.op is Op.CMPNE and numel(value.shape) >= LEAST_REUSE * most


def absorbed_sums(root: UOp) -> dict[UOp, UOp]:
    """Sums right below a sum, with movement ops between, each with the sum above: they are one.

    sum_r pad(sum_k x[r, k])  ->  sum_{r, k} pad(x[r, k])
    """
    consumers = consumers_of(root)
    found = {}
    for node in filter(_is_sum, consumers):
        below = only_below(node, consumers)
        if below is not None and _is_sum(below) and scan_of(below) is None:
            found[below] = node
    return found


def elements_read(node: UOp) -> int:
    """The elements of both operands of a contraction."""
    return sum(_elements_below(source) for source in _product_below(node).src)


def _product_below(node: UOp) -> UOp:
    value = node.src[0]
    # A sum of windows of products, as in the gradient of a convolution, is one too.
    while value.op in MOVEMENT or value.op is Op.CAST or _is_sum(value):
        value = value.src[0]
    return value


def _is_sum(node: UOp) -> bool:
    return node.op is Op.REDUCE and node.arg.op is Op.ADD


def _elements_below(node: UOp) -> int:
    """The elements that an operand reads: of a part of a tensor no more than it has."""
    least = numel(node.shape)
    while node.op in MOVEMENT or node.op is Op.CAST:
        node = node.src[0]
        least = min(least, numel(node.shape))
    return least
