"""Calls that may be one kernel are one, and nothing is read or written too early or too late."""

import random

import numpy as np
import pytest

from kernelet import GlobalCounters, Tensor, TinyJit, Variable, pipeline
from kernelet.base.target import Target
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.kernelize import join
from tests.kernelize.graphs import after, calls, contiguous, copy, schedule, write
from tests.lower.pseudocode import expand, flip, memory, product, reduce, reshape, shrink, written

X, Y, Z = memory(0, 8), memory(1, 8), memory(2, 8)
G, SMALL = memory(3, 8), memory(4, 3)


def update(target: UOp, value: UOp) -> UOp:
    return after(target, write(target, value))


# ---- one nest ----


def test_calls_that_read_the_same_elements_are_one_kernel() -> None:
    assert calls(schedule(X + 1.0, X * 2.0, X + Y)) == ["e_8 2 3 4 <- 0 1"]


def test_a_parameter_and_its_moments_are_written_by_one_kernel() -> None:
    first, second = Y * 0.9 + G, Z * 0.99 + G * G
    found = schedule(update(X, X - first * second), update(Y, first), update(Z, second))
    assert calls(found) == ["e_8 0 1 2 <- 3"]
    assert found.written == {0, 1, 2}


def test_a_nest_reads_all_values_before_it_writes_any() -> None:
    found = schedule(update(X, X + Y), update(Y, Y * 2.0))
    assert calls(found) == ["e_8 0 1 <-"]
    block = pipeline.write_nest(found.kernels[0], pipeline.Plan())
    assert written(block) == (
        "for r0 in 8:\n  at once:\n    p0[r0] = (p0[r0] + p1[r0])\n    p1[r0] = (p1[r0] * 2.0)"
    )


def test_what_is_read_elsewhere_is_not_written_in_the_same_nest() -> None:
    found = schedule(X + flip(Y, 0), update(Y, Y + X))
    assert calls(found) == ["e_8 2 <- 0 1", "e_8 1 <- 0"]


def test_a_call_that_needs_the_other_is_not_in_its_nest() -> None:
    stored = contiguous(X * 2.0)
    assert calls(schedule(stored, flip(stored, 0) + X)) == ["e_8 1 <- 0", "e_8 2 <- 1 0"]


def test_a_call_that_needs_another_through_a_third_is_not_in_its_nest() -> None:
    total = expand(contiguous(reduce(contiguous(X * 2.0), Op.ADD, 0)), 8)
    assert [line.split()[0] for line in calls(schedule(X + total, X * 2.0))] == [
        "e_8",
        "r_8",
        "e_8",
    ]


def test_calls_that_read_nothing_in_common_stay_apart() -> None:
    assert calls(schedule(X + 1.0, Y + 1.0)) == ["e_8 2 <- 0", "e_8 3 <- 1"]
    one = expand(shrink(Z, (0, 1)), 8)
    assert len(calls(schedule(X + one, Y + one))) == 2


def test_reductions_are_not_joined_to_elementwise_calls() -> None:
    assert len(calls(schedule(X + 1.0, reduce(X, Op.ADD, 0)))) == 2


def test_sums_of_the_same_elements_are_one_kernel() -> None:
    x, y = memory(0, 4, 6), memory(1, 4, 6)
    found = schedule(reduce(x, Op.ADD, 1), reduce(x * y, Op.ADD, 1))
    assert calls(found) == ["r_4_6_6 2 3 <- 0 1"]


def test_sums_along_other_axes_or_of_other_elements_stay_apart() -> None:
    x, y = memory(0, 4, 4), memory(1, 4, 4)
    assert len(calls(schedule(reduce(x, Op.ADD, 1), reduce(x, Op.ADD, 0)))) == 2
    assert len(calls(schedule(reduce(x, Op.ADD, 1), reduce(y, Op.ADD, 1)))) == 2


def test_products_of_matrices_stay_apart() -> None:
    x = memory(0, 4, 6)
    asked = [reshape(product(x, memory(n, 5, 6)), 4, 5) for n in (1, 2)]
    assert len(calls(schedule(*asked))) == 2


def test_a_large_value_is_not_computed_long_before_it_is_read() -> None:
    def late(size: int) -> list[str]:
        big = memory(0, size)
        value = contiguous(big * 3.0)
        for _ in range(6):
            value = contiguous(flip(value, 0) + 1.0)
        return calls(schedule(value * contiguous(big + 1.0)))

    assert any(len(line.split("<-")[0].split()) == 3 for line in late(8))
    assert all(len(line.split("<-")[0].split()) == 2 for line in late(join.LARGE * 2))


def test_a_kernel_has_few_memories() -> None:
    found = schedule(*[X + float(n) for n in range(3 * join.MOST_MEMORIES)])
    assert max(len(call.slots) for call in found.calls) == join.MOST_MEMORIES
    assert len(found.calls) == 4


def test_a_nest_is_no_longer_than_compilers_like(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(calls(schedule(X + 1.0, X * 2.0, X + 3.0))) == 1
    monkeypatch.setattr(join, "MOST_WORK", 2)
    assert calls(schedule(X + 1.0, X * 2.0, X + 3.0)) == ["e_8 1 2 <- 0", "e_8 3 <- 0"]


def test_what_only_the_same_nest_reads_is_not_stored() -> None:
    def both(*asked: UOp) -> list[str]:
        return calls(schedule(contiguous(X * 2.0) + Y, *asked))

    assert both(contiguous(X * 2.0)) == ["e_8 2 3 <- 0 1"]
    old = X + update(X, X * 2.0)
    assert calls(schedule(old)) == ["e_8 0 2 <-"]


def test_what_a_third_call_reads_too_is_computed_where_it_is_stored() -> None:
    stored = contiguous(X * 2.0)
    found = schedule(stored + Y, reduce(stored, Op.ADD, 0))
    assert calls(found) == ["e_8 2 3 <- 0 1", "r_8 4 <- 2"]
    assert written(pipeline.write_nest(found.kernels[0], pipeline.Plan())) == (
        "for r0 in 8:\n"
        "  at once:\n"
        "    p0[r0] = (p2[r0] * 2.0)\n"
        "    p1[r0] = ((p2[r0] * 2.0) + p3[r0])"
    )


def test_what_only_one_call_reads_stays_stored() -> None:
    assert len(calls(schedule(contiguous(X * 2.0) + Y))) == 2


# ---- one after the other ----


def test_small_updates_of_different_shapes_follow_each_other_in_one_kernel() -> None:
    found = schedule(update(X, X + 1.0), update(SMALL, SMALL * 2.0))
    assert calls(found) == ["e_8_and_1_more 0 4 <-"]
    lowered = pipeline.lower(found.kernels[0], Target("ANY"))
    assert lowered.thread_size == 0


def test_parts_run_in_the_order_of_the_program() -> None:
    scale = expand(shrink(SMALL, (0, 1)), 8)
    found = schedule(update(SMALL, SMALL * 2.0), update(X, X * scale))
    assert calls(found) == ["e_8_and_1_more 0 4 <-"]
    assert [part.src[0].src[1].shape for part in found.kernels[0].src] == [(8,), (3,)]


def test_a_part_may_read_what_an_earlier_part_has_written() -> None:
    new = update(SMALL, SMALL * 2.0)
    found = schedule(new, update(X, X * expand(shrink(new, (0, 1)), 8)))
    assert [part.src[0].src[1].shape for part in found.kernels[0].src] == [(3,), (8,)]


def test_values_that_are_not_updates_have_kernels_of_their_own() -> None:
    assert len(calls(schedule(X + 1.0, SMALL + 1.0))) == 2
    assert len(calls(schedule(update(X, Y + 1.0), update(SMALL, SMALL + 1.0)))) == 2


def test_updates_with_work_for_several_threads_have_kernels_of_their_own() -> None:
    big = memory(0, join.PART_ELEMENTS * 2)
    assert len(calls(schedule(update(big, big + 1.0), update(SMALL, SMALL + 1.0)))) == 2


def test_one_kernel_has_no_more_parts_than_one_thread_does_quickly() -> None:
    row = [memory(n, join.PART_ELEMENTS) for n in range(6)]
    found = schedule(*[update(each, each + 1.0) for each in row])
    assert [len(call.slots) for call in found.calls] == [2, 2, 2]


def test_devices_have_kernels_of_their_own() -> None:
    far = contiguous(copy(X, "LLVM"))
    found = schedule(update(X, X + 1.0), update(far, far + 1.0), update(SMALL, SMALL + 1.0))
    assert "e_8_and_1_more 0 4 <-" in calls(found)


def test_the_same_work_on_other_memory_is_the_same_joined_kernel() -> None:
    one = schedule(update(X, X + G), update(Y, Y * G), update(SMALL, SMALL + 1.0)).kernels
    other = schedule(update(Y, Y + Z), update(X, X * Z), update(SMALL, SMALL + 1.0)).kernels
    assert one[0] is other[0]


def test_the_same_statement_is_not_twice_in_a_kernel() -> None:
    once = update(X, X * 2.0)
    assert calls(schedule(update(once, once * 2.0))) == ["e_8 0 <-", "e_8 0 <-"]


# ---- against programs run one statement at a time ----


def statements(seed: int) -> list[tuple[int, str, int, int, float]]:
    choose = random.Random(seed)
    kinds = ["add", "mul", "set", "flip", "part", "sum", "scalar", "turned"]
    return [
        (
            choose.randrange(6),
            choose.choice(kinds),
            choose.randrange(6),
            choose.randrange(6),
            choose.choice([0.5, -1.0, 2.0]),
        )
        for _ in range(choose.randrange(2, 12))
    ]


SHAPES = [(4, 6), (4, 6), (24,), (6, 4), (4, 6), (3,)]


def fitted(value, shape):
    """A value of any shape as one of `shape`: the same elements, or the first of them."""
    size = int(np.prod(shape))
    flat = value.reshape(-1)
    if flat.shape[0] >= size:
        return flat[:size].reshape(shape)
    return (
        (flat[0:1].reshape((1,) * len(shape)) + Tensor.zeros(1)).expand(*shape)
        if isinstance(value, Tensor)
        else np.broadcast_to(flat[0], shape)
    )


def run(program, values, flip_of):
    for at, kind, first, second, number in program:
        target, shape = values[at], SHAPES[at]
        left, right = fitted(values[first], shape), fitted(values[second], shape)
        if kind == "add":
            yield at, None, target + left * number
        elif kind == "mul":
            yield at, None, target * number + left * right
        elif kind == "set":
            yield at, None, left + right
        elif kind == "flip":
            yield at, None, flip_of(left) * number + target
        elif kind == "part":
            yield at, 2, (target[0:2] + right[0:2] * number)
        elif kind == "sum":
            yield at, None, target + left.sum() * number
        elif kind == "scalar":
            yield at, None, target * values[5][0] + number
        else:
            yield at, None, flip_of(target) + left


@pytest.mark.parametrize("seed", range(60))
def test_writes_to_shared_memory_do_what_they_do_one_by_one(seed):
    start = [
        np.random.default_rng(seed + n).integers(-3, 4, shape).astype(np.float32)
        for n, shape in enumerate(SHAPES)
    ]
    want = [each.copy() for each in start]
    for at, rows, value in run(statements(seed), want, lambda x: x[::-1]):
        value = np.clip(value, -8, 8).copy()
        if rows is None:
            want[at][...] = value
        else:
            want[at][:rows] = value
    got = [Tensor(each).contiguous().realize() for each in start]
    for at, rows, value in run(statements(seed), got, lambda x: x.flip(0)):
        value = value.clip(-8, 8)
        (got[at] if rows is None else got[at][:rows]).assign(value)
    Tensor.realize(*got)
    for mine, yours in zip(got, want, strict=True):
        np.testing.assert_allclose(mine.numpy(), yours, rtol=1e-5, atol=1e-5)


# ---- results that results need ----


def test_a_mean_and_a_variance_are_one_kernel() -> None:
    x = np.random.default_rng(0).standard_normal((6, 3, 300), np.float32)
    node = Tensor(x).realize()
    mean = node.mean((0, 2), keepdim=True).contiguous()
    variance = ((node - mean) ** 2).mean((0, 2)).contiguous()
    scaled = (node - mean) * (variance.reshape(1, 3, 1) + 1e-5).rsqrt()
    before = GlobalCounters.kernel_count
    Tensor.realize(mean, variance, scaled)
    assert GlobalCounters.kernel_count == before + 2
    np.testing.assert_allclose(variance.numpy(), x.var((0, 2)), rtol=1e-5)
    want = (x - x.mean((0, 2), keepdims=True)) / np.sqrt(x.var((0, 2), keepdims=True) + 1e-5)
    np.testing.assert_allclose(scaled.numpy(), want, rtol=1e-3, atol=1e-5)


def test_parts_may_have_bound_sizes():
    first, second = Tensor([0.0] * 6).realize(), Tensor([[0.0, 0.0]] * 6).realize()
    size = Variable("n", 1, 6)

    @TinyJit
    def step(n):
        top, rows = first[:n], second[:n]
        top.assign(top + 1)
        rows.assign(rows * 2 + 1)
        Tensor.realize(first, second)

    want, wanted = np.zeros(6), np.zeros((6, 2))
    for n in (3, 5, 2, 6, 1):
        before = GlobalCounters.kernel_count
        step(size.bind(n))
        assert GlobalCounters.kernel_count == before + 1
        want[:n] += 1
        wanted[:n] = wanted[:n] * 2 + 1
    assert first.tolist() == want.tolist()
    assert second.tolist() == wanted.tolist()
