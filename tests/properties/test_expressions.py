"""Random expressions keep their value, bit by bit, when they are simplified."""

import math
import random

import pytest

from kernelet.base.dtype import DType, Scalar, dtypes, round_to
from kernelet.graph.algebra import ALGEBRA
from kernelet.graph.checks import elementwise_forms
from kernelet.graph.ops import ELEMENTWISE, Op
from kernelet.graph.pattern import EVERY
from kernelet.graph.rewrite import graph_rewrite
from kernelet.graph.uop import UOp, VariableArg
from tests.reference.evaluate import evaluate

CONSTANTS = {
    "bool": [False, True],
    "int": [0, 1, -1, 2, 3, 7, -128, 127, 1 << 20],
    "float": [0.0, -0.0, 1.0, -1.0, 0.5, math.inf, -math.inf, math.nan, 3e38],
}
FORMS = elementwise_forms(ELEMENTWISE, over_tensors=True)
INTEGER_OPS = [Op.ADD, Op.MUL, Op.MAX, Op.IDIV, Op.MOD, Op.AND, Op.OR, Op.XOR]
FLOAT_OPS = [Op.ADD, Op.MUL, Op.MAX]
BOOL_OPS = [Op.ADD, Op.MUL, Op.MAX, Op.AND, Op.OR, Op.XOR]


class Expressions:
    """Random typed expressions, with the leaves that they read."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.nodes: dict[DType, list[UOp]] = {}
        self.leaves: list[UOp] = []

    def leaf(self, dtype: DType) -> UOp:
        if self.random.random() < 0.3:
            return UOp.const(self.random.choice(CONSTANTS[_kind(dtype)]), dtype)
        low, high = dtype.min, dtype.max
        if dtype.is_integer and self.random.random() < 0.5:
            low, high = 0, self.random.choice([1, 7, 100])
        arg = VariableArg(f"v{len(self.leaves)}", low, high)  # type: ignore[arg-type]
        node = UOp(Op.VARIABLE, dtype, (), arg)
        self.leaves.append(node)
        return node

    def pick(self, dtype: DType) -> UOp:
        known = self.nodes.get(dtype, [])
        if not known or self.random.random() < 0.25:
            return self.leaf(dtype)
        # Recent nodes often, so that the expression becomes deep.
        return known[-1] if self.random.random() < 0.5 else self.random.choice(known)

    def grow(self, dtype: DType) -> UOp:
        node = self._made(dtype)
        self.nodes.setdefault(dtype, []).append(node)
        return node

    def _made(self, dtype: DType) -> UOp:
        choice = self.random.random()
        if choice < 0.15:
            return self.pick(dtypes.bool).where(self.pick(dtype), self.pick(dtype))
        if choice < 0.3:
            return self.pick(self.random.choice(EVERY)).cast(dtype)
        if dtype.is_bool and choice < 0.4:
            # Truth values look like numbers in Python, so rules may confuse them.
            other = self.pick(self.random.choice(EVERY))
            return other.not_equal(other.const_like(self.random.choice([0, 1])))
        if dtype.is_bool and choice < 0.6:
            other = self.random.choice(EVERY)
            op = self.random.choice([Op.CMPLT, Op.CMPNE])
            return self.pick(other).alu(op, self.pick(other))
        if choice < 0.4 and not dtype.is_bool:
            return -self.pick(dtype)
        ops = {"bool": BOOL_OPS, "int": INTEGER_OPS, "float": FLOAT_OPS}[_kind(dtype)]
        return self.pick(dtype).alu(self.random.choice(ops), self.pick(dtype))

    def values(self) -> dict[UOp, Scalar]:
        found: dict[UOp, Scalar] = {}
        for leaf in self.leaves:
            value = self.random.choice(CONSTANTS[_kind(leaf.dtype)])
            if not leaf.dtype.is_float:
                value = max(leaf.arg.min, min(leaf.arg.max, value))
            found[leaf] = round_to(leaf.dtype, value)
        return found


def _kind(dtype: DType) -> str:
    return "bool" if dtype.is_bool else "float" if dtype.is_float else "int"


def same(left: Scalar, right: Scalar) -> bool:
    if left != left or right != right:
        return left != left and right != right
    return left == right and math.copysign(1, left) == math.copysign(1, right)


@pytest.mark.parametrize("seed", range(150))
def test_simplifying_keeps_every_bit(seed: int) -> None:
    made = Expressions(seed)
    for step in range(25):
        node = made.grow(made.random.choice([dtypes.int32, dtypes.float32, dtypes.bool, *EVERY]))
        if step % 3:
            continue
        simple = graph_rewrite(node, ALGEBRA)
        assert simple.dtype is node.dtype
        assert not any(FORMS[n.op].broken(n) for n in simple.toposort() if n.op in FORMS)
        assert graph_rewrite(simple, ALGEBRA) is simple
        for _ in range(4):
            values = made.values()
            (expected,), (found,) = evaluate(node, values), evaluate(simple, values)
            assert same(expected, found), (values, expected, found, node, simple)
            if not node.dtype.is_float:
                assert node.bounds.min <= expected <= node.bounds.max


def test_simplifying_makes_graphs_smaller() -> None:
    before = after = 0
    for seed in range(40):
        made = Expressions(seed)
        root = [made.grow(made.random.choice([dtypes.int32, dtypes.bool])) for _ in range(25)][-1]
        before += len(root.toposort())
        after += len(graph_rewrite(root, ALGEBRA).toposort())
    assert after < before * 0.9
