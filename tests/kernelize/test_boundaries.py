"""Values are fused unless that repeats work, takes much scratch or leaves threads idle."""

import pytest

from kernelet.graph.ops import Op
from kernelet.graph.spec import TENSOR, verify
from kernelet.graph.uop import UOp
from kernelet.graph.walk import reachable
from kernelet.kernelize.boundaries import COSTS, MOST_WORK, choose_boundaries, cost_of, is_kernel
from tests.kernelize.graphs import after, contiguous, number, write
from tests.lower.pseudocode import (
    F32,
    expand,
    flip,
    memory,
    pad,
    product,
    reduce,
    reshape,
    shrink,
    softmax,
)

TABLE = memory(0, 400, 300)


def stored(*asked: UOp) -> list[UOp]:
    """The values that are stored beside the asked ones, without the marks."""
    graph = UOp.sink(*map(contiguous, asked))
    found = choose_boundaries(graph)
    verify(found, TENSOR, "choose boundaries")
    before = set(graph.toposort())
    marked = [n for n in found.toposort() if n.op is Op.CONTIGUOUS and n not in before]
    return [node.src[0] for node in marked if contiguous(node.src[0]) not in found.src]


def multiplied(rows: int, inner: int, columns: int) -> UOp:
    both = product(memory(0, rows, inner), memory(1, columns, inner))
    return reshape(both, rows, columns)


# ---- fused ----


@pytest.mark.parametrize(
    "value",
    [
        (TABLE + 1.0).alu(Op.EXP2).maximum(TABLE),
        softmax(TABLE),
        TABLE - expand(reduce(TABLE, Op.MAX, 0), 400, 300),
        reduce(reshape(pad(reduce(TABLE, Op.ADD, 1), (1, 1), (0, 0)), 402), Op.ADD, 0),
        (multiplied(40, 30, 50) + 1.0).maximum(number(0.0, 40, 50)),
        product(memory(0, 40, 30).maximum(number(0.0, 40, 30)), memory(1, 50, 30)),
    ],
    ids=["elementwise", "softmax", "columns", "sums", "epilogue", "cheap operand"],
)
def test_a_value_that_repeats_no_work_is_fused(value: UOp) -> None:
    assert stored(value) == []


def test_a_small_sum_over_everything_is_fused() -> None:
    x = memory(0, 4, 300)
    assert stored(x - expand(reduce(x, Op.ADD, 0, 1), 4, 300)) == []


def test_cheap_values_are_computed_in_each_kernel() -> None:
    cheap = memory(0, 50) + 1.0
    assert stored(cheap * 2.0, flip(cheap, 0) * 3.0) == []


# ---- stored ----


def test_a_big_sum_over_everything_is_stored() -> None:
    total = reduce(TABLE, Op.ADD, 0, 1)
    assert stored(TABLE - expand(total, 400, 300)) == [total]


def test_a_reduction_that_several_kernels_need_is_stored() -> None:
    rows = reduce(TABLE, Op.ADD, 1)
    assert rows in stored(expand(rows, 400, 300) * TABLE, rows * 2.0)


def test_a_dear_value_that_several_kernels_need_is_stored() -> None:
    dear = memory(0, 50).alu(Op.EXP2).alu(Op.SIN)
    assert stored(dear + 1.0, flip(dear, 0) * 2.0) == [dear]


def test_an_exponential_of_what_is_in_memory_is_computed_again() -> None:
    x, y = memory(0, 50), memory(1, 50)
    dear, from_two = x.alu(Op.EXP2), (x * y).alu(Op.EXP2)
    assert stored(dear + 1.0, flip(dear, 0) * 2.0) == []
    assert stored(from_two + 1.0, flip(from_two, 0) * 2.0) == [from_two]


def test_a_product_is_stored_for_a_product() -> None:
    first = multiplied(40, 30, 50)
    (found,) = stored(product(first, memory(2, 60, 50)))
    assert found.op is Op.REDUCE


def test_a_product_is_stored_for_a_reduction() -> None:
    (found,) = stored(reduce(multiplied(40, 30, 50), Op.MAX, 1))
    assert found.op is Op.REDUCE


def test_a_dear_operand_is_stored_when_many_columns_read_it() -> None:
    dear = memory(0, 40, 30).alu(Op.EXP2)
    assert stored(product(dear, memory(1, 5000, 30))) == [dear]
    assert stored(product(dear, memory(1, 2, 30))) == []


def test_a_value_read_in_ever_more_ways_is_stored_now_and_then() -> None:
    x = memory(0, 64)
    for _ in range(40):
        x = x + pad(shrink(x, (1, 64)), (0, 1))
    assert 2 <= len(stored(x)) <= 20


def chain_of_sines(length: int) -> tuple[UOp, UOp]:
    """sin(sin(... x)), and a product of all the steps as in its gradient."""
    value, both = TABLE, TABLE
    for _ in range(length):
        value = value.alu(Op.SIN)
        both = both * (value + 1.0).alu(Op.SIN)
    return value, both


def work_of(kernel: UOp) -> int:
    inside = reachable(kernel.src, lambda node: () if is_kernel(node) else node.src)
    return sum(map(cost_of, inside))


@pytest.mark.parametrize("which", [0, 1], ids=["a chain", "its gradient"])
def test_no_kernel_is_longer_than_compilers_like(which: int) -> None:
    length = 4 * MOST_WORK // COSTS[Op.SIN]
    found = choose_boundaries(UOp.sink(contiguous(chain_of_sines(length)[which])))
    work = [work_of(node) for node in found.toposort() if is_kernel(node)]
    assert len(work) > 4
    assert max(work) <= MOST_WORK
    assert stored(chain_of_sines(8)[which]) == []


def test_a_number_of_many_operations_is_stored_now_and_then() -> None:
    value = memory(0, 1)
    for _ in range(2 * MOST_WORK // COSTS[Op.SIN]):
        value = value.alu(Op.SIN)
    assert len(stored(expand(value, 50))) == 1


def test_the_written_memory_of_a_write_is_never_a_stored_value() -> None:
    x = memory(0, 40, 30).src[0]
    view = shrink(x, (0, 600))
    graph = UOp.sink(after(x, write(view, view.alu(Op.SIN).alu(Op.EXP2) * 2.0)))
    assert choose_boundaries(graph) is graph


# ---- chains of products ----


def attention(keys: int, width: int, inner: int = 64) -> UOp:
    scores = reshape(product(memory(0, 512, inner), memory(1, keys, inner)), 512, keys)
    return product(softmax(scores), memory(2, width, keys))


def test_scores_are_kept_row_by_row_between_two_products() -> None:
    assert stored(attention(512, 64)) == []


def test_scores_of_wide_heads_are_stored() -> None:
    found = stored(attention(512, 64, inner=256))
    assert [node.op for node in found] == [Op.REDUCE, Op.MUL]


def test_scores_that_fit_a_cache_are_stored() -> None:
    assert stored(attention(256, 64, inner=8)) == []
    assert len(stored(attention(64, 64, inner=8))) == 2


def test_scores_that_take_less_time_than_a_launch_are_kept() -> None:
    assert stored(attention(32, 64, inner=8)) == []
    assert stored(attention(1, 4, inner=4)) == []


def test_rows_too_long_for_scratch_are_stored() -> None:
    assert stored(attention(1 << 15, 64)) == []
    assert len(stored(attention(1 << 16, 64))) == 2


def test_the_softmax_of_a_product_is_one_kernel() -> None:
    assert stored(softmax(multiplied(512, 64, 512))) == []


def test_rows_that_are_read_again_are_kept_where_operands_are_as_large() -> None:
    assert stored(attention(128, 64)) == []
    scores = multiplied(512, 64, 128).maximum(number(0.0, 512, 128))
    assert scores in stored(product(scores, memory(2, 64, 128)))


def test_layers_of_a_network_stay_apart() -> None:
    hidden = multiplied(4096, 64, 128).maximum(number(0.0, 4096, 128))
    assert hidden in stored(product(hidden, memory(2, 10, 128)))


def test_weights_that_are_needed_again_are_stored() -> None:
    weights = softmax(multiplied(512, 64, 512))
    found = stored(product(weights, memory(2, 64, 512)), flip(weights, 0))
    assert [node.op for node in found] == [Op.MUL]


# ---- words ----


def test_stored_values_and_writes_are_kernels() -> None:
    x = memory(0, 8)
    assert is_kernel(contiguous(x))
    assert is_kernel(write(x, x))
    assert not is_kernel(x + 1.0)


def test_what_limits_a_product_is_stored_in_place_of_it() -> None:
    value = multiplied(128, 64, 64)
    limited = (value < 0.0).where(0.0, value)
    assert stored(product_of(limited), reduce(limited, Op.ADD, 0)) == [limited]
    both = stored(product_of(limited), reduce(limited, Op.ADD, 0), flip(value, 0))
    assert value.src[0] in both


def product_of(value: UOp) -> UOp:
    return reshape(product(value, memory(5, 32, 64)), 128, 32)


def test_a_number_that_many_kernels_need_is_not_stored() -> None:
    number = UOp(Op.RECIPROCAL, F32, (UOp(Op.SQRT, F32, (memory(9, 1),)),))
    rows = [memory(n, n + 20) * expand(number, n + 20) for n in range(3, 30) if n != 9]
    assert stored(*rows) == []


def test_what_is_made_of_a_stored_product_is_not_stored_beside_it() -> None:
    value = multiplied(128, 64, 64)
    away = value - 1.0
    found = stored(reduce(away * away, Op.ADD, 0), flip(away * away, 0), flip(value, 1))
    assert found == [value.src[0]]
