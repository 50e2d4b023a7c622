"""What a kernel does, read off its untransformed loops."""

from __future__ import annotations

import pytest

from kernelet.base.dtype import DType, dtypes
from kernelet.graph.division import add_index, divide_index, index_const, modulo_index, scale_index
from kernelet.graph.ops import Op
from kernelet.graph.uop import RangeArg, UOp
from kernelet.lower.analysis import Analysis, Site, run_as_one, sites_of, size_of
from kernelet.lower.loops import stride_of
from kernelet.lower.transforms import Plan
from tests.lower.pseudocode import (
    VOID,
    around,
    at,
    block,
    expand,
    kernel,
    load,
    loop,
    memory,
    product,
    reduce,
    softmax,
    store,
)
from tests.lower.pseudocode import reshape as shaped

I, J = loop(0, 6), loop(1, 4)


def test_a_stride_is_how_far_an_index_moves() -> None:
    index = add_index(add_index(scale_index(I, 12), scale_index(J, -3)), index_const(7))
    assert stride_of(index, I) == 12
    assert stride_of(index, J) == -3
    assert stride_of(index, loop(2, 9)) == 0


def test_a_divided_loop_has_no_stride() -> None:
    place = add_index(scale_index(I, 4), J)
    for index in (divide_index(place, 5), modulo_index(place, 5)):
        assert stride_of(index, I) is None
        assert stride_of(add_index(index, scale_index(loop(2, 9), 2)), loop(2, 9)) == 2


def test_the_size_of_a_loop_is_its_most_iterations() -> None:
    n = UOp.variable("n", 1, 9)
    assert size_of(I) == 6
    assert size_of(UOp(Op.RANGE, dtypes.index, (n,), RangeArg(3, "loop"))) == 9


def test_each_statement_is_a_site() -> None:
    place = add_index(scale_index(I, 4), J)
    first = store(memory(0, 24), place, load(memory(1, 24), place) * load(memory(2, 4), J))
    (site,) = sites_of(block(around(I, around(J, first))))
    assert site.stage == 0
    assert site.loops == (I, J)
    assert site.weight == 24
    assert [part.src[0].src[0].arg.slot for part in site.loads] == [1, 2]
    assert site.target is first.src[0]


def test_the_stages_of_a_kernel_have_sites_of_their_own() -> None:
    found = Analysis(kernel(softmax(memory(1, 4, 5))), Plan())
    assert sorted({site.stage for site in found.sites}) == [0, 1, 2]
    assert found.work == sum(site.weight for site in found.sites)
    assert [size_of(variable) for variable in found.ranges] == [4, 5]
    assert len(found.nest) == 2


def test_loads_from_scratch_are_no_loads_of_a_site() -> None:
    found = Analysis(kernel(product(memory(1, 6, 7), memory(2, 8, 7))), Plan())
    output = next(site for site in found.sites if site.stage == 0)
    assert output.loads == ()
    main = max(found.sites, key=lambda site: site.weight)
    assert main.weight == 6 * 8 * 7
    assert len(main.loads) == 2


def test_a_kernel_that_reads_what_it_writes_is_in_place() -> None:
    x = memory(0, 6, 8)
    other = product(memory(1, 6, 7), memory(2, 8, 7))
    value = shaped(other, 6, 8) + x
    assert Analysis(UOp.sink(UOp(Op.STORE, VOID, (x, value))), Plan()).in_place
    assert not Analysis(kernel(other), Plan()).in_place


@pytest.mark.parametrize(
    ("dtype", "size"),
    [(dtypes.int8, 4), (dtypes.float16, 4), (dtypes.float32, 4), (dtypes.float64, 8)],
)
def test_lanes_are_as_wide_as_the_widest_number_but_no_byte(dtype: DType, size: int) -> None:
    found = Analysis(kernel(memory(1, 8, dtype=dtype) + memory(2, 8, dtype=dtype)), Plan())
    assert found.itemsize == size


def test_a_stage_depends_on_the_loops_of_its_index() -> None:
    x = memory(1, 4, 5)
    found = Analysis(kernel(x * expand(reduce(x, Op.ADD, 0), 4, 5)), Plan())
    rows, columns = found.ranges
    assert not found.stage_depends(rows)
    assert found.stage_depends(columns)


def test_output_loops_have_axes() -> None:
    found = Analysis(kernel(memory(1, 4, 1, 5) + memory(2, 4, 1, 5)), Plan())
    assert [found.axis_of(variable) for variable in found.ranges] == [0, 2]
    assert found.groups == ((0,), (1,), (2,))
    assert found.joined(0, 1) == ((0, 1), (2,))


def test_axes_become_one_in_another_analysis() -> None:
    found = Analysis(kernel(memory(1, 4, 5) + memory(2, 4, 5)), Plan())
    assert found.merged(((0,), (1,))) is found
    assert [size_of(variable) for variable in found.merged(((0, 1),)).ranges] == [20]


def test_the_main_statement_of_a_stage_runs_most_often() -> None:
    found = Analysis(kernel(product(memory(1, 6, 7), memory(2, 8, 7))), Plan())
    assert found.main_site().weight == 6 * 8 * 7
    assert found.main_site(1) is found.main_site()


def test_the_loops_of_a_reduction_run_along_axes_of_its_source() -> None:
    found = Analysis(kernel(reduce(memory(1, 4, 5, 6), Op.ADD, 0, 2)), Plan())
    assert {axis: size_of(v) for axis, v in found.reduced_axes(1).items()} == {0: 4, 2: 6}
    assert all(map(found.can_have_lanes, found.reduced_axes(1).values()))


# ---- loops that run as one ----


def site(index: UOp, target: UOp, *gates: UOp) -> Site:
    part = load(memory(1, 999), index, gates=gates)
    return Site(0, (I, J), (part,), at(memory(0, 24), target))


def test_loops_run_as_one_where_each_address_moves_by_whole_rows() -> None:
    place = add_index(scale_index(I, 4), J)
    assert run_as_one(site(add_index(scale_index(place, 3), index_const(5)), place), I, J)
    assert not run_as_one(site(add_index(scale_index(I, 5), J), place), I, J)
    assert not run_as_one(site(place, add_index(scale_index(J, 6), I)), I, J)
    assert not run_as_one(site(divide_index(place, 3), place), I, J)


def test_a_condition_on_a_loop_keeps_it_apart() -> None:
    place = add_index(scale_index(I, 4), J)
    inside = UOp(Op.CMPLT, dtypes.bool, (J, index_const(3)))
    assert not run_as_one(site(place, place, inside), I, J)
    elsewhere = UOp(Op.CMPLT, dtypes.bool, (loop(2, 9), index_const(3)))
    assert run_as_one(site(place, place, elsewhere), I, J)
