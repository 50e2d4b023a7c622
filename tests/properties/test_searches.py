"""Every plan that a search may find means the same as the graph."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from functools import partial

import pytest

from kernelet import tuning
from kernelet.base.target import Target
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.kernelize import boundaries
from kernelet.lower import contraction, heuristics
from kernelet.lower.search import neighbours
from kernelet.lower.transforms import Plan
from tests.lower.test_scan import scan
from tests.properties.chained_graphs import RandomChain
from tests.properties.graph_runs import VECTORS, Problem, check, in_python
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


SCANS = {
    "rows": lambda: scan(16, rows=8),
    "backwards": lambda: scan(24, rows=4, backwards=True),
    "strict": lambda: scan(15, rows=4, strict=True),
}


def results(kernel: UOp, plan: Plan) -> bytes | None:
    """What a plan leaves in the memory of the results; None if it is no plan."""
    lowered = tuning.lower_candidate(kernel, VECTORS, plan)
    if isinstance(lowered, str):
        return None
    sizes = {n.arg.slot: n.arg.size for n in kernel.toposort() if n.op is Op.PARAM}
    given = struct.pack(f"<{sizes[1]}f", *[n % 11 - 5 for n in range(sizes[1])])
    memories = [bytearray(b"\xb7" * 4 * sizes[0]), bytearray(given)]
    in_python(lowered, memories, ())
    return bytes(memories[0])


@pytest.mark.parametrize("name", SCANS)
def test_searched_scans_keep_their_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heuristics, "THREAD_WORK", 8)
    kernel, choose = SCANS[name](), random.Random(1)
    start = heuristics.plan_kernel(kernel, VECTORS)
    expected = results(kernel, start)
    near = neighbours(start, kernel, VECTORS)
    far = [other for plan in near for other in neighbours(plan, kernel, VECTORS)]
    found = [results(kernel, plan) for plan in (*near, *choose.sample(far, min(60, len(far))))]
    assert len(near) > 5
    assert {*found, expected} <= {expected, None}
    assert found.count(expected) > 10
