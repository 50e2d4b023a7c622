"""Chains of products mean the same in one kernel as in many, however their loops are planned."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kernelet.base.target import Target
from kernelet.graph.uop import UOp
from kernelet.kernelize import boundaries
from kernelet.lower import chains
from kernelet.lower.chains import chain_plan
from kernelet.lower.transforms import Plan
from kernelet.runtime import device
from tests.properties.chained_graphs import RandomChain
from tests.properties.graph_runs import VECTORS, check, on_device
from tests.properties.random_plans import random_plan


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundaries, "CHAINED_BYTES", 1)
    monkeypatch.setattr(boundaries, "CHAINED_GROWTH", 0)


def test_most_problems_are_one_chain() -> None:
    found = [RandomChain(seed).ask().schedule().kernels for seed in range(40)]
    planned = [len(kernels) == 1 and chain_plan(kernels[0], VECTORS) for kernels in found]
    assert sum(map(bool, planned)) >= 20


@pytest.mark.parametrize("seed", range(12))
def test_chains_give_the_values_of_the_graph(seed: int) -> None:
    for number in range(6):
        check(RandomChain(100 * seed + number).ask())


@pytest.mark.parametrize("seed", range(12))
def test_chains_give_their_values_under_any_plan(seed: int) -> None:
    for number in range(6):
        choose = random.Random(seed)

        def plan(kernel: UOp, target: Target, choose: random.Random = choose) -> Plan:
            found = random_plan(choose, kernel, target)
            return replace(found, trimmed=choose.random() < 0.8)

        check(RandomChain(5000 + 100 * seed + number).ask(), choose=plan)


@pytest.mark.parametrize("block", [1, 2, 5])
def test_blocks_of_any_size_give_the_values_of_the_graph(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chains, "BLOCK_ROWS", block)
    for number in range(20):
        check(RandomChain(9000 + number).ask())


@pytest.mark.parametrize("name", ["CPU", "LLVM"])
def test_chains_give_their_values_as_machine_code(name: str) -> None:
    driver = device.driver(name)
    if driver.problem():
        pytest.skip(driver.problem())
    for seed in range(12):
        check(RandomChain(20000 + seed).ask(), on_device(name), driver.target)
