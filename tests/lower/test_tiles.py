"""The costs by which the tile of a contraction is chosen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelet.base.target import Target
from kernelet.graph.uop import UOp
from kernelet.lower.analysis import Analysis
from kernelet.lower.tiles import Tile, TileCosts
from kernelet.lower.transforms import Plan
from tests.lower.pseudocode import kernel, memory, permute, product

FEW = Target("CPU", vector_bytes=64, vector_registers=16, cache_bytes=(32 << 10, 1 << 20))
MANY = replace(FEW, vector_registers=32)


def costs(rows: UOp, columns: UOp, target: Target = MANY) -> tuple[TileCosts, Analysis]:
    """Of the products of all rows of both."""
    analysis = Analysis(kernel(product(rows, columns)), Plan())
    return TileCosts(analysis.main_site(), 4, target), analysis


def best(found: TileCosts, analysis: Analysis, width: int = 16) -> Tile:
    row, lane = analysis.ranges
    lengths = [lane.src[0].arg]
    return min(found.tiles(lengths, lane, row, width), key=lambda tile: tile.cost)


@pytest.mark.parametrize("target", [MANY, FEW], ids=["32 registers", "16 registers"])
@pytest.mark.parametrize("rows", [2, 5, 64, 1021])
def test_the_sums_and_operands_of_a_tile_fit_the_registers(target: Target, rows: int) -> None:
    found, analysis = costs(memory(1, rows, 256), memory(2, 512, 256), target)
    row, lane = analysis.ranges
    tiles = list(found.tiles([512], lane, row, 16))
    assert [tile.vectors for tile in tiles] == [1, 2, 3, 4]
    for tile in tiles:
        assert tile.vectors * tile.rows + tile.vectors + 1 < target.vector_registers
        assert 1 <= tile.rows <= rows


def test_more_registers_give_a_cheaper_tile() -> None:
    operands = memory(1, 512, 256), memory(2, 512, 256)
    assert best(*costs(*operands)).cost < best(*costs(*operands, FEW)).cost


def test_idle_lanes_cost_what_they_compute() -> None:
    whole, rest = (best(*costs(memory(1, 512, 64), memory(2, n, 64))) for n in (64, 65))
    assert rest.cost > 1.1 * whole.cost
    # One vector and four of them: no tile of 64 lanes, which would be half idle.
    assert rest.vectors < whole.vectors


def test_numbers_that_a_sum_reads_one_after_the_other_cost_nothing_more() -> None:
    found, analysis = costs(memory(1, 512, 256), memory(2, 512, 256))
    tile, row = best(found, analysis), analysis.ranges[0]
    (numbers,) = (load for load in found.main.loads if load.src[0].src[0].arg.slot == 1)
    assert found.run(numbers) == 16
    assert found.numbers(numbers, row, tile)[0] == 0


def test_numbers_in_long_steps_are_cheaper_to_copy_where_many_tiles_read_them() -> None:
    def direct_and_copied(columns: int, size: int = 2048) -> tuple[float, float]:
        turned = permute(memory(1, size, 256), 1, 0)
        found, analysis = costs(turned, memory(2, columns, size))
        (numbers,) = (load for load in found.main.loads if load.src[0].src[0].arg.slot == 1)
        return found.numbers(numbers, analysis.ranges[0], best(found, analysis))

    direct, copied = direct_and_copied(1 << 15)
    assert copied < direct
    direct, copied = direct_and_copied(16)
    assert copied > direct
    assert direct_and_copied(1 << 15, 16)[0] == 0  # they stay in the nearest cache


def test_a_panel_of_neighbours_is_cheaper_than_one_that_is_gathered() -> None:
    near, analysis = costs(memory(1, 64, 256), permute(memory(2, 256, 512), 1, 0))
    far, _ = costs(memory(1, 64, 256), memory(2, 512, 256))
    lane = analysis.ranges[1]
    loads = [
        next(load for load in found.main.loads if load.src[0].src[0].arg.slot == 2)
        for found in (near, far)
    ]
    assert near.copy(loads[0], lane, 16) < far.copy(loads[1], lane, 16)


@pytest.mark.parametrize(("rows", "is_crowded"), [(1024, True), (1000, False)])
def test_far_results_cost_more_where_their_lines_drive_each_other_out(
    rows: int, is_crowded: bool
) -> None:
    found, analysis = costs(memory(1, 512, 256), memory(2, rows, 256))
    store = next(site for site in analysis.sites if site.stage == 0).target
    row, lane = analysis.ranges
    tile = best(found, analysis)
    assert found.store(store, lane, tile) == 1 / 16
    assert (found.store(store, row, tile) > 10) == is_crowded


def test_dot_products_are_for_long_sums_of_what_lies_along_them() -> None:
    both, _ = costs(memory(1, 64, 512), memory(2, 64, 512))
    turned, _ = costs(memory(1, 64, 512), permute(memory(2, 512, 64), 1, 0))
    short, _ = costs(memory(1, 64, 32), memory(2, 64, 32))
    assert both.dots(64 * 64) < float("inf")
    assert turned.dots(64 * 64) == short.dots(64 * 64) == float("inf")
