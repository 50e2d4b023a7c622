import pytest

from kernelet import Tensor, engine
from kernelet.base.target import Target
from kernelet.graph.uop import UOp
from kernelet.lower.heuristics import plan_kernel
from kernelet.lower.transforms import GroupLanes, Parallel, Plan, Split

WIDE = Target("X", vector_bytes=64, vector_registers=32, threads=2)
NARROW = Target("X", vector_bytes=16, threads=1)


def kernel_of(tensor: Tensor) -> UOp:
    (kernel,) = engine.schedule([tensor.uop]).kernels
    return kernel


def filled(*shape: int) -> Tensor:
    return Tensor.rand(*shape).realize()


def splits(plan: Plan) -> list[Split]:
    return [step for step in plan.root if isinstance(step, Split)]


def test_a_matrix_product_gets_rows_times_two_vectors() -> None:
    plan = plan_kernel(kernel_of(filled(256, 256) @ filled(256, 256)), WIDE)
    assert splits(plan) == [Split(0, 8, "unroll"), Split(1, 32, "unroll"), Split(1, 16, "vector")]
    assert isinstance(plan.root[-1], Parallel)
    assert plan.grouped == ()


def test_lanes_are_as_wide_as_the_registers() -> None:
    plan = plan_kernel(kernel_of(filled(64, 64) @ filled(64, 64)), NARROW)
    assert splits(plan)[-1] == Split(1, 4, "vector")
    assert not any(isinstance(step, Parallel) for step in plan.root)


def test_products_with_a_transposed_matrix_are_dot_products() -> None:
    plan = plan_kernel(kernel_of(filled(64, 512) @ filled(64, 512).T), WIDE)
    assert all(split.kind == "unroll" for split in splits(plan))
    ((_, group),) = plan.grouped
    assert isinstance(group, GroupLanes)
    assert group.lanes == 16


def test_a_row_reduction_has_lanes_of_its_own_in_four_sums() -> None:
    plan = plan_kernel(kernel_of(filled(64, 1024).sum(1)), WIDE)
    ((_, group),) = plan.grouped
    assert (group.unroll, group.lanes) == (4, 16)


def test_a_column_reduction_has_lanes_along_the_columns() -> None:
    plan = plan_kernel(kernel_of(filled(64, 1024).sum(0)), WIDE)
    assert Split(0, 16, "vector") in splits(plan) or Split(1, 16, "vector") in splits(plan)
    assert plan.grouped == ()


def test_elementwise_axes_that_lie_in_order_are_one_loop() -> None:
    plan = plan_kernel(kernel_of(filled(6, 5, 7) + filled(6, 5, 7)), WIDE)
    assert plan.merged == ((0, 1, 2),)


def test_axes_that_are_read_in_another_order_stay_apart() -> None:
    plan = plan_kernel(kernel_of(filled(6, 5, 7) + filled(7, 5, 6).permute(2, 1, 0)), WIDE)
    assert all(len(axes) == 1 for axes in plan.merged)


def test_a_dear_row_is_kept_where_it_is_read_twice() -> None:
    plan = plan_kernel(kernel_of(filled(64, 256).softmax(1)), WIDE)
    assert len(plan.stored) == 1
    assert plan_kernel(kernel_of(filled(64, 256).exp()), WIDE).stored == ()


@pytest.mark.parametrize(("size", "shared"), [(1 << 10, False), (1 << 20, True)])
def test_small_kernels_run_on_one_thread(size: int, shared: bool) -> None:
    plan = plan_kernel(kernel_of(filled(size) * 2 + 1), WIDE)
    assert any(isinstance(step, Parallel) for step in plan.root) is shared


def test_what_is_updated_in_place_is_never_written_twice() -> None:
    x = filled(1003)
    x.assign(x + 1)
    (kernel,) = engine.schedule([x.uop]).kernels
    for split in splits(plan_kernel(kernel, WIDE)):
        assert 1003 % split.factor == 0
    x.realize()


def test_a_plan_is_a_function_of_the_kernel() -> None:
    kernel = kernel_of(filled(32, 48) @ filled(48, 40))
    assert plan_kernel(kernel, WIDE) == plan_kernel(kernel, WIDE)
