"""Verification names the pass, shows the node, and notices every corruption of a right graph."""

import itertools
import random
from collections.abc import Iterator

import pytest

from kernelet.base.dtype import dtypes
from kernelet.base.errors import InternalError
from kernelet.graph.ops import Op
from kernelet.graph.spec import KERNEL, TENSOR, verify
from kernelet.graph.uop import ParamArg, ReduceArg, UOp
from kernelet.graph.walk import substitute

F32 = dtypes.float32


def attention() -> UOp:
    """A kernel with every kind of node that tensor graphs are made of."""
    memory = [UOp(Op.PARAM, F32, (), ParamArg(slot, 12, "CPU")) for slot in range(3)]
    x = UOp(Op.RESHAPE, F32, (memory[1],), (3, 4))
    y = UOp(Op.PERMUTE, F32, (UOp(Op.RESHAPE, F32, (memory[2],), (4, 3)),), (1, 0))
    total = UOp(Op.REDUCE, F32, (x * y,), ReduceArg(Op.ADD, (1,)))
    spread = UOp(Op.EXPAND, F32, (total,), (3, 4))
    inside = UOp(Op.SHRINK, F32, (UOp(Op.PAD, F32, (spread,), ((0, 0), (1, 1))),), ((0, 3), (1, 5)))
    chosen = (inside < x).where(UOp(Op.FLIP, F32, (x,), (0,)), y)
    out = UOp(Op.RESHAPE, F32, (memory[0],), (3, 4))
    return UOp.sink(UOp(Op.STORE, dtypes.void, (out, chosen)))


def corruptions(node: UOp) -> Iterator[UOp]:
    """The node with one field spoiled."""
    yield node.replace(dtype=dtypes.int16 if node.dtype is not dtypes.int16 else F32)
    if node.src:
        yield node.replace(src=node.src[1:])
        yield node.replace(src=(*node.src, node.src[0]))
    yield node.replace(op=Op.BARRIER)
    if node.op in (Op.RESHAPE, Op.EXPAND):
        yield node.replace(arg=(999, *node.arg[1:]))
    elif node.op in (Op.PERMUTE, Op.FLIP):
        yield node.replace(arg=(7,))
    elif node.op in (Op.PAD, Op.SHRINK):
        yield node.replace(arg=((-9, 99), *node.arg[1:]))
    elif node.op is Op.REDUCE:
        yield node.replace(arg=ReduceArg(Op.ADD, (9,)))


def test_every_corruption_of_every_node_is_caught() -> None:
    kernel = attention()
    verify(kernel, KERNEL, "the pass")
    tried = 0
    for node in list(kernel.toposort()):
        for wrong in corruptions(node):
            with pytest.raises(InternalError, match="breaks the spec 'kernel'"):
                verify(substitute(kernel, {node: wrong}), KERNEL, "the pass")
            tried += 1
    assert tried > 60


def test_the_error_names_the_pass_and_shows_the_node() -> None:
    x = UOp.buffer(4, F32, "CPU")
    with pytest.raises(InternalError) as caught:
        verify(UOp.sink(UOp(Op.ADD, F32, (x,))), TENSOR, "choose boundaries")
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("choose boundaries: the result breaks the spec 'tensor graph'")
    assert lines[2] == "%1 = ADD float32 (4,) %0"


def test_verification_takes_linear_time() -> None:
    draw = random.Random(1)
    x = UOp(Op.RESHAPE, F32, (UOp.buffer(4, F32, "CPU"),), (2, 2))
    nodes = [x]
    for left, right in itertools.islice(itertools.cycle([(1, 2), (2, 3)]), 3000):
        nodes.append(nodes[-1] * nodes[-min(left, len(nodes))] + nodes[-min(right, len(nodes))])
        if draw.random() < 0.1:
            nodes.append(-nodes[-1])
    verify(nodes[-1], TENSOR, "the pass")
