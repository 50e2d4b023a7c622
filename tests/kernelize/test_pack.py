"""An operand that no loop reads contiguously is stored once more, transposed."""

import pytest

from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.kernelize import pack
from kernelet.kernelize.pack import pack_operands
from tests.kernelize.graphs import ops
from tests.lower.pseudocode import expand, memory, permute, product, reduce, reshape


@pytest.fixture(autouse=True)
def everything_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small graphs are packed as big ones are."""
    monkeypatch.setattr(pack, "LEAST_WORK", 1)
    monkeypatch.setattr(pack, "LEAST_REUSE", 1)


def by_pixels(channels: int, pixels: int, outputs: int) -> UOp:
    """The gradient of weights: out[o, c] = sum_p dy[o, p] * x[c, p], few pixels."""
    return product(memory(0, outputs, pixels), memory(1, channels, pixels))


def packed(value: UOp) -> list[UOp]:
    return [n for n in pack_operands(UOp.sink(value)).toposort() if n.op is Op.CONTIGUOUS]


def test_the_longest_axis_becomes_contiguous() -> None:
    (copy,) = packed(by_pixels(32, 9, 64))
    assert copy.shape == (9, 64)
    assert copy.src[0].op is Op.PERMUTE


def test_a_packed_product_is_the_same_view_of_the_copy() -> None:
    found = pack_operands(UOp.sink(by_pixels(32, 9, 64))).src[0]
    assert found.shape == (64, 32, 1)
    assert ops(found).count(Op.MUL) == 1


def test_a_product_with_lanes_already_is_left_alone() -> None:
    right = permute(memory(1, 9, 64), 1, 0)
    value = product(memory(0, 32, 9), right)
    assert pack_operands(UOp.sink(value)) is UOp.sink(value)


def test_long_dot_products_are_left_alone() -> None:
    value = by_pixels(32, 100, 64)
    assert pack_operands(UOp.sink(value)) is UOp.sink(value)


def test_a_copy_must_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "LEAST_REUSE", 100)
    value = by_pixels(32, 9, 64)
    assert pack_operands(UOp.sink(value)) is UOp.sink(value)


@pytest.mark.parametrize(
    "value",
    [
        reduce(memory(0, 64, 9) + memory(1, 64, 9), Op.ADD, 1),
        reduce(memory(0, 64, 9) * memory(1, 64, 9), Op.MAX, 1),
        reduce(expand(reshape(memory(0, 64), 64, 1), 64, 9) * (memory(1, 64, 9) + 1.0), Op.ADD, 1),
    ],
    ids=["no product", "no sum", "computed operand"],
)
def test_other_reductions_are_left_alone(value: UOp) -> None:
    assert pack_operands(UOp.sink(value)) is UOp.sink(value)
