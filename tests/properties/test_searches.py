"""Every plan that a search may find means the same as the graph."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest

from kernelet import tuning
from kernelet.base.target import Target
from kernelet.graph.uop import UOp
from kernelet.kernelize import boundaries
from kernelet.lower import contraction, heuristics
from kernelet.lower.search import neighbours
from kernelet.lower.transforms import Plan
from tests.properties.chained_graphs import RandomChain
from tests.properties.graph_runs import Problem, check
from tests.properties.random_contractions import Contraction
from tests.properties.random_graphs import RandomGraph


def searched_plan(kernel: UOp, target: Target, choose: random.Random) -> Plan:
    """A plan some changes away from what the heuristics give."""
    found = heuristics.plan_kernel(kernel, target)
    for _ in range(choose.randrange(1, 6)):
        others = neighbours(found, kernel, target)
        other = choose.choice(others) if others else found
        if not isinstance(tuning.lower_candidate(kernel, target, other), str):
            found = other
    return found


PROBLEMS: dict[str, Callable[[int], Problem]] = {
    "graphs": lambda seed: RandomGraph(120000 + seed, most=400).ask(15),
    "contractions": lambda seed: Contraction(140000 + seed).ask(),
    "chains": lambda seed: RandomChain(160000 + seed).ask(),
}


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("seed", range(10))
def test_searched_plans_give_the_values_of_the_graph(
    kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contraction, "LEAST_WORK", 1)
    monkeypatch.setattr(boundaries, "CHAINED_BYTES", 1)
    monkeypatch.setattr(boundaries, "CHAINED_GROWTH", 0)
    for number in range(8):
        plan = partial(searched_plan, choose=random.Random(seed))
        check(PROBLEMS[kind](100 * seed + number), choose=plan)
