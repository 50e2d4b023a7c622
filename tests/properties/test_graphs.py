"""Whole graphs mean the same to the reference evaluator and after the whole compiler."""

from __future__ import annotations

import random
import time

import pytest

from kernelet import pipeline
from kernelet.base.config import Context
from kernelet.base.target import Target
from kernelet.graph.uop import UOp
from kernelet.lower import heuristics
from kernelet.lower.transforms import Plan
from kernelet.runtime import device
from tests.properties.graph_runs import VECTORS, check, on_device
from tests.properties.hard_graphs import HARD, hard_problem
from tests.properties.random_graphs import RandomGraph
from tests.properties.random_plans import random_plan
from tests.properties.symbolic_graphs import SYMBOLIC, symbolic_problem


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("steps", [4, 12, 30, 80])
def test_kernels_give_the_values_of_the_graph(steps: int, seed: int) -> None:
    for number in range(8):
        check(RandomGraph(1000 * seed + 10 * steps + number).ask(steps))


@pytest.mark.parametrize("seed", range(8))
def test_shared_loops_give_the_values_of_the_graph(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heuristics, "THREAD_WORK", 8)
    for number in range(8):
        check(RandomGraph(50000 + 100 * seed + number).ask(20))


@pytest.mark.parametrize("seed", range(20))
def test_every_legal_plan_gives_the_values_of_the_graph(seed: int) -> None:
    for number in range(8):
        choose = random.Random(seed)

        def plan(kernel: UOp, target: Target, choose: random.Random = choose) -> Plan:
            return random_plan(choose, kernel, target)

        check(RandomGraph(90000 + 100 * seed + number, most=400).ask(15), choose=plan)


@pytest.mark.parametrize("name", ["CPU", "LLVM"])
def test_machine_code_gives_the_values_of_the_graph(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = device.driver(name)
    if driver.problem():
        pytest.skip(driver.problem())
    monkeypatch.setattr(heuristics, "THREAD_WORK", 100)
    for seed in range(12):
        check(RandomGraph(70000 + seed).ask(25), on_device(name), driver.target)


@pytest.mark.parametrize("name", SYMBOLIC)
@pytest.mark.parametrize("value", [1, 2, 5, 16, 17, 20])
def test_variable_sizes_give_the_values_of_the_graph(name: str, value: int) -> None:
    check(symbolic_problem(name, value))


@pytest.mark.parametrize("name", HARD)
def test_hard_graphs_keep_their_values(name: str) -> None:
    check(hard_problem(name))


@pytest.mark.parametrize("name", HARD)
def test_hard_graphs_are_compiled_in_seconds(name: str) -> None:
    problem = hard_problem(name)
    start = time.process_time()
    with Context(VERIFY=0):
        for kernel in dict.fromkeys(problem.schedule().kernels):
            pipeline.lower(kernel, VECTORS)
    assert time.process_time() - start < 3
