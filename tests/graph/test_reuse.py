"""A contraction reads each element for many results."""

from kernelet.base.dtype import dtypes
from kernelet.graph.ops import Op
from kernelet.graph.reuse import absorbed_sums, elements_read, is_contraction, is_search, numel
from kernelet.graph.uop import UOp
from tests.lower.pseudocode import expand, kernel, memory, product, reduce, reshape, shrink
from tests.lower.test_scatter import search


def test_sizes_are_counted_at_their_greatest() -> None:
    assert numel((3, UOp.variable("n", 1, 7), 2)) == 42
    assert numel(()) == 1


def test_a_matrix_product_is_a_contraction_and_a_row_sum_is_none() -> None:
    both = product(memory(1, 20, 30), memory(2, 40, 30))
    assert is_contraction(both)
    assert elements_read(both) == 20 * 30 + 40 * 30
    assert not is_contraction(reduce(memory(1, 20, 30) * memory(2, 20, 30), Op.ADD, 1))
    assert not is_contraction(reduce(memory(1, 20, 30), Op.MAX, 1))


def test_a_product_with_few_results_is_no_contraction() -> None:
    assert not is_contraction(product(memory(1, 1, 30), memory(2, 400, 30)))


def test_a_sum_of_sums_of_products_is_a_contraction() -> None:
    both = product(memory(1, 20, 30), memory(2, 40, 30))
    assert is_contraction(reduce(reshape(both, 20, 40), Op.ADD, 0))
    assert is_contraction(reduce(expand(both, 20, 40, 9), Op.ADD, 2))


def test_of_a_tensor_a_part_is_read() -> None:
    rows = shrink(memory(1, 60, 30), (20, 40), (0, 30))
    assert elements_read(product(rows, memory(2, 40, 30))) == 20 * 30 + 40 * 30


def test_a_sum_of_elements_that_name_their_result_is_a_search() -> None:
    assert is_search(search(64, 50, 16).src[0])
    assert not is_search(reduce(memory(1, 20, 30), Op.ADD, 1))
    assert not is_search(product(memory(1, 20, 30), memory(2, 40, 30)))


def test_a_count_of_what_a_mask_leaves_is_no_search() -> None:
    counted = memory(1, 512).not_equal(3.0)
    one, none = (UOp.const(n, dtypes.float32).broadcast_to((512,)) for n in (1.0, 0.0))
    assert not is_search(reduce(counted.where(one, none), Op.ADD, 0))


def test_a_sum_that_is_needed_twice_is_not_absorbed() -> None:
    inner = reduce(memory(1, 4, 6), Op.ADD, 1)
    outer = reduce(inner, Op.ADD, 0)
    graph = kernel(expand(outer, 4, 1) + inner)
    assert absorbed_sums(graph) == {}


def test_a_repeated_sum_is_not_absorbed() -> None:
    inner = reduce(memory(1, 4, 6), Op.ADD, 1)
    outer = reduce(expand(inner, 4, 3), Op.ADD, 1)
    assert absorbed_sums(kernel(outer)) == {}
