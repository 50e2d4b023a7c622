import numpy as np
import pytest

from kernelet import Tensor, engine
from kernelet.base.dtype import dtypes
from kernelet.graph.ops import Op
from kernelet.graph.uop import ParamArg, ReduceArg, UOp
from kernelet.kernelize.pack import pack_operands

F32 = dtypes.float32


def memory(slot: int, *shape: int) -> UOp:
    size = int(np.prod(shape))
    node = UOp(Op.PARAM, F32, (), ParamArg(slot, size, "CPU"))
    return UOp(Op.RESHAPE, F32, (node,), shape)


def product(rows: int, inner: int, columns: int, order: tuple[int, int]) -> UOp:
    """a (rows, inner) times b, which lies as (inner, columns) in the given order."""
    shape = (rows, inner, columns)
    left = UOp(Op.RESHAPE, F32, (memory(1, rows, inner),), (rows, inner, 1))
    sizes = (inner, columns)
    right = memory(2, *(sizes[axis] for axis in order))
    if order != (0, 1):
        right = UOp(Op.PERMUTE, F32, (right,), (1, 0))
    right = UOp(Op.RESHAPE, F32, (right,), (1, inner, columns))
    spread = [UOp(Op.EXPAND, F32, (side,), shape) for side in (left, right)]
    total = UOp(Op.MUL, F32, tuple(spread))
    return UOp.sink(UOp(Op.REDUCE, F32, (total,), ReduceArg(Op.ADD, (1,))))


def copies(sink: UOp) -> list[UOp]:
    return [node for node in sink.toposort() if node.op is Op.CONTIGUOUS]


def test_an_operand_whose_columns_are_far_apart_is_stored_with_columns_last() -> None:
    packed = pack_operands(product(256, 20, 512, (1, 0)))
    (copy,) = copies(packed)
    assert copy.src[0].op is Op.PERMUTE
    assert copy.shape == (20, 512)


@pytest.mark.parametrize(
    ("rows", "inner", "columns", "order"),
    [
        (256, 20, 512, (0, 1)),  # lanes along the columns are contiguous already
        (256, 64, 512, (1, 0)),  # dot products of 64 are long enough
        (256, 20, 8, (1, 0)),  # no axis fills a vector but the rows, whose operand is small
        (8, 20, 16, (1, 0)),  # too little work
    ],
)
def test_other_products_are_left_alone(
    rows: int, inner: int, columns: int, order: tuple[int, int]
) -> None:
    sink = product(rows, inner, columns, order)
    if columns == 8:
        sink = product(8, inner, columns, order)
    assert pack_operands(sink) is sink


def test_the_gradient_of_weights_packs_and_is_right() -> None:
    random = np.random.default_rng(0)
    x = Tensor(random.standard_normal((16, 16, 10, 10)).astype(np.float32)).realize()
    weight = Tensor(random.standard_normal((32, 16, 3, 3)).astype(np.float32)).realize()
    scale = Tensor(random.standard_normal((16, 32, 8, 8)).astype(np.float32)).realize()
    (slope,) = (x.conv2d(weight) * scale).sum().gradient(weight)
    assert len(engine.schedule([slope.uop]).kernels) == 2
    windows = np.lib.stride_tricks.sliding_window_view(x.numpy(), (3, 3), (2, 3))
    exact = np.einsum("nchwij,nohw->ocij", windows, scale.numpy())
    np.testing.assert_allclose(slope.numpy(), exact, rtol=1e-3, atol=1e-3)
