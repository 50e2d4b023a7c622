"""A contraction that reads another: both have register tiles, a block of rows is between them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from kernelet.base.dtype import dtypes
from kernelet.base.target import Target
from kernelet.graph.division import index_of
from kernelet.graph.ops import Op
from kernelet.graph.show import show_expression
from kernelet.graph.uop import UOp
from kernelet.lower.chains import chain_plan, worth_storing
from kernelet.lower.nest import NestWriter, write_nest
from kernelet.lower.stage import Stage, root_nest
from kernelet.lower.transforms import GroupLanes, Parallel, Plan, Split, StageLoad
from tests.lower.pseudocode import (
    expand,
    kernel,
    memory,
    permute,
    product,
    reshape,
    softmax,
    written,
)

WIDE = Target("CPU", vector_bytes=32, vector_registers=32, threads=2)


def scores(rows: int, keys: int) -> UOp:
    return reshape(product(memory(1, rows, 16), memory(2, keys, 16)), rows, keys)


def attention(rows: int = 128, keys: int = 96, width: int = 32) -> UOp:
    values = permute(memory(3, keys, width), 1, 0)
    return kernel(product(softmax(scores(rows, keys) * 0.25), values))


def planned(graph: UOp, target: Target = WIDE) -> Plan:
    plan = chain_plan(graph, target)
    assert plan is not None
    return plan


def held(graph: UOp, plan: Plan) -> list[Stage]:
    """The stages of held values, producers first."""
    writer = NestWriter(graph, plan)
    writer.build()
    found = [stage for node, stage in writer.stages.items() if node in writer.held]
    return sorted(found, key=lambda stage: stage.number)


@pytest.mark.parametrize(
    "graph",
    [kernel(scores(64, 64)), kernel(softmax(memory(1, 64, 64))), kernel(memory(1, 64) + 1.0)],
    ids=["product", "softmax", "sum"],
)
def test_a_kernel_without_two_products_is_no_chain(graph: UOp) -> None:
    assert chain_plan(graph, WIDE) is None


def test_a_block_of_scores_and_a_tile_of_weights_are_held() -> None:
    graph = attention()
    plan = planned(graph)
    block, weights = held(graph, plan)
    assert (block.sizes, len(block.place)) == ((32, 96), 1)
    assert [(part.size, part.kind) for part in block.nest if part.kind != "loop"] == [
        (8, "unroll"),
        (2, "unroll"),
        (8, "vector"),
    ]
    assert (weights.sizes, len(weights.place)) == ((8, 96), 2)


def test_rows_are_held_with_their_lanes() -> None:
    plan = planned(attention())
    assert len(plan.stored) == 1
    assert [group for _, group in plan.grouped] == [GroupLanes(1, 4, 8)] * 2


def test_the_result_has_a_tile_and_threads_share_blocks() -> None:
    graph = attention()
    plan = planned(graph)
    nest = root_nest(graph, plan)
    assert [(part.size, part.kind) for part in nest] == [
        (4, "thread"),
        (4, "loop"),
        (2, "loop"),
        (8, "unroll"),
        (2, "unroll"),
        (8, "vector"),
    ]
    assert Parallel() in plan.root
    assert Parallel() not in planned(graph, replace(WIDE, threads=1)).root


@pytest.mark.parametrize(("registers", "rows"), [(32, 8), (16, 4)])
def test_the_sums_of_a_tile_leave_registers_for_the_operands(registers: int, rows: int) -> None:
    graph = attention()
    plan = planned(graph, replace(WIDE, vector_registers=registers))
    nests = [root_nest(graph, plan), *[stage.nest for stage in held(graph, plan)[:1]]]
    for nest in nests:
        tile = math.prod(part.steps for part in nest if part.kind == "unroll")
        assert tile == 2 * rows
        assert tile + 2 < registers


def test_long_rows_come_in_smaller_blocks() -> None:
    graph = attention(64, 1 << 13)
    assert held(graph, planned(graph))[0].sizes == (16, 1 << 13)
    graph = attention(64, 1 << 15)
    assert held(graph, planned(graph))[0].sizes == (8, 1 << 15)


def test_a_few_rows_are_one_block() -> None:
    graph = attention(20, 96)
    block, weights = held(graph, planned(graph))
    assert (block.place, block.sizes) == ((), (20, 96))
    assert weights.sizes == (8, 96)


def test_a_softmax_of_scores_has_a_block_of_them() -> None:
    graph = kernel(softmax(scores(128, 96)))
    plan = planned(graph)
    (block,) = held(graph, plan)
    assert block.sizes == (32, 96, 1)
    assert Split(1, 8, "vector") in plan.root


def stored(graph: UOp, most: int = 1 << 15) -> tuple[int, ...]:
    writer = NestWriter(graph, Plan())
    writer.build()
    return worth_storing(graph, Plan(), writer, most)


def test_a_dear_value_that_is_read_twice_is_worth_storing() -> None:
    assert stored(kernel(softmax(memory(1, 64, 64)))) == (0,)
    assert stored(kernel(softmax(memory(1, 64, 64))), 64) == ()
    assert stored(kernel(memory(1, 64, 64).alu(Op.EXP2))) == ()


def test_keys_are_copied_in_the_order_of_lanes() -> None:
    assert planned(attention()).staged == (StageLoad(2, 0),)


def test_one_of_two_readings_of_a_memory_is_copied() -> None:
    keys = memory(1, 96, 16)
    weights = softmax(reshape(product(keys, keys), 96, 96))
    graph = kernel(product(weights, permute(memory(3, 96, 32), 1, 0)))
    plan = planned(graph)
    assert plan.staged == (StageLoad(1, 0, 1),)
    text = written(write_nest(graph, plan))
    (line,) = [line for line in text.splitlines() if "s1[" in line and "p1[" in line]
    assert line.count("p1[") == 1


def test_masked_scores_end_loops_early() -> None:
    line = UOp(Op.ARANGE, dtypes.int32, (), (96,))
    rows, columns = expand(reshape(line, 96, 1), 96, 96), expand(reshape(line, 1, 96), 96, 96)
    found = scores(96, 96)
    masked = rows.alu(Op.CMPLT, columns).where(found.const_like(-math.inf), found)
    graph = kernel(product(softmax(masked), permute(memory(3, 96, 32), 1, 0)))
    assert planned(graph).trimmed
    assert not planned(attention()).trimmed
    block, weights = held(graph, planned(graph))
    assert [show_expression(index_of(part.size)) for part in block.nest if part.kind == "loop"] == [
        "(r0 * 2) + 2",
        "4",
    ]
    assert show_expression(index_of(weights.nest[1].size)) == "((r0 * 4) + r1) + 1"
