"""BEAM: kernels are timed once, and their winners are used by everybody from then on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelet import Context, Tensor, TinyJit, engine, programs, tuning
from kernelet.base import trace
from kernelet.base.dtype import dtypes
from kernelet.base.program import Estimates
from kernelet.base.target import Target
from kernelet.graph.division import index_const
from kernelet.graph.ops import Op
from kernelet.graph.uop import ScratchArg, UOp
from kernelet.lower.transforms import Plan, Reorder, Split
from kernelet.pipeline import Lowered
from kernelet.runtime.device import driver

ROOT = Path(__file__).parents[1]


@pytest.fixture(params=["CPU", "LLVM"])
def device(request):
    found = driver(request.param)
    if found.problem():
        pytest.skip(found.problem())
    return request.param


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """A cache and a process that know no program."""
    monkeypatch.setattr(programs, "_runners", {})
    with Context(CACHE_FOLDER=str(tmp_path), CACHE=1):
        yield


def values(device, *shape):
    return Tensor([float(n % 13 - 6) for n in range(shape[0] * shape[1])], device=device).reshape(
        *shape
    )


def half_a_register(device):
    """Lanes that the heuristics do not choose for rows of 16 floats, one change away from theirs."""
    return (Split(0, driver(device).target.lanes(4) // 2, "vector"),)


def timed(events):
    return [event for event in events if event.kind == "candidate"]


def fast(*root):
    """A stopwatch for which plans with these transforms are fast."""
    return lambda self, plans: [1.0 if p.root == root else 9.0 + len(repr(p)) for p in plans]


def test_searched_kernels_give_the_same_values(device, fresh):
    left, right = values(device, 24, 36), values(device, 36, 20)
    events = []
    with trace.reading(events.append, "candidate", "search"):
        expected = (left @ right).numpy()
        with Context(BEAM=1):
            found = ((left + 0) @ (right + 0)).numpy()
    assert abs(found - expected).max() < 1e-3
    assert len(timed(events)) > 5
    assert any("->" in event.text for event in events if event.kind == "search")


def test_a_kernel_is_searched_once(device, fresh):
    left, right = values(device, 12, 16).realize(), values(device, 12, 16).realize()
    events = []
    with trace.reading(events.append, "candidate"), Context(BEAM=1):
        (left * right).realize()
        first = len(events)
        (left * right).realize()
        programs._runners.clear()  # as in a second process
        (left * right).realize()
    assert first > 0
    assert len(events) == first


def test_a_wider_search_goes_on_from_the_winner(device, fresh, monkeypatch):
    starts = []
    real = tuning.search
    monkeypatch.setattr(tuning, "search", lambda *given: starts.append(given[2:4]) or real(*given))
    best = half_a_register(device)
    monkeypatch.setattr(tuning._Stopwatch, "__call__", fast(*best))
    data = values(device, 12, 16).realize()
    for width in (1, 3, 2):
        with Context(BEAM=width):
            (data * 3).realize()
    assert [width for _, width in starts] == [1, 3]
    assert starts[1][0].root == best


def test_winners_are_used_without_beam(device, fresh, monkeypatch):
    best = half_a_register(device)
    monkeypatch.setattr(tuning._Stopwatch, "__call__", fast(*best))
    data = values(device, 12, 16).realize()
    with Context(BEAM=1):
        (data * 3).realize()
    monkeypatch.setattr(tuning._Stopwatch, "__call__", None)
    shown = []
    programs._runners.clear()
    with trace.reading(shown.append, "transform"):
        (data * 3).realize()
    assert [event.text for event in shown] == ["; ".join(map(repr, best))]
    with Context(CACHE_FOLDER=str(Path(os.devnull) / "none")):
        programs._runners.clear()
        with trace.reading(shown.append, "transform"):
            (data * 3).realize()
    assert shown[1].text != shown[0].text


def test_a_search_replaces_the_program_that_is_loaded(device, fresh, monkeypatch):
    best = half_a_register(device)
    monkeypatch.setattr(tuning._Stopwatch, "__call__", fast(*best))
    data = values(device, 12, 16).realize()
    kernel = engine.schedule([(data * 5).uop]).kernels[-1]
    before = programs.runners([kernel], device)[kernel]
    with Context(BEAM=1):
        found = programs.runners([kernel], device)[kernel]
    assert found is not before
    assert programs.runners([kernel], device)[kernel] is found


@pytest.mark.parametrize("name", ["PYTHON", "NULL"])
def test_devices_without_speed_are_not_searched(name, fresh, monkeypatch):
    monkeypatch.setattr(tuning, "Searcher", None)
    with Context(BEAM=4):
        (Tensor([1.0, 2.0], device=name) + 1).realize()


def test_memory_of_the_user_is_not_touched(device, fresh):
    target = values(device, 16, 16).realize()
    before = target.numpy()
    with Context(BEAM=1):
        target.assign(target * 2 + 1).realize()
    assert (target.numpy() == before * 2 + 1).all()


def test_captured_steps_are_searched_too(device, fresh):
    @TinyJit
    def step(x):
        return (x * 2).relu().realize()

    events = []
    inputs = [(values(device, 8, 8) + scale).realize() for scale in range(4)]
    with trace.reading(events.append, "search"), Context(BEAM=1):
        for x in inputs:
            found = step(x).numpy()
            array = x.numpy()
            assert (found == (array * 2).clip(0)).all()
    assert events


def test_plans_that_cannot_be_lowered_are_dropped(device, fresh, monkeypatch):
    seen = []
    wrong = Plan(root=(Reorder((0, 5)),))
    monkeypatch.setattr(tuning, "search", lambda *given: seen.append(given[4]([wrong])) or [])
    with Context(BEAM=1):
        assert (values(device, 4, 4) + 1).tolist()
    assert seen[0] == [float("inf")]


def test_a_plan_that_loses_a_part_of_the_kernel_is_none(monkeypatch):
    scratch = UOp(Op.SCRATCH, dtypes.float32, (), ScratchArg(3, 4))
    address = UOp(Op.INDEX, dtypes.index, (scratch, index_const(0)))
    load = UOp(Op.LOAD, dtypes.float32, (address,))
    store = UOp(Op.STORE, dtypes.void, (address, load))
    program = [*store.toposort()]
    lower = lambda *_: Lowered(tuple(program), Plan(), Estimates())  # noqa: E731
    monkeypatch.setattr(tuning.pipeline, "lower", lower)
    assert isinstance(tuning.lower_candidate(load, Target("CPU"), Plan()), Lowered)
    program.remove(store)
    assert "nothing writes" in tuning.lower_candidate(load, Target("CPU"), Plan())


def test_a_second_process_times_nothing(device, tmp_path):
    code = (
        "from kernelet import Tensor\n"
        "from kernelet.base import trace\n"
        "seen = []\n"
        "trace.subscribe(seen.append, 'candidate')\n"
        "x = Tensor([[1.0, 2.0, 3.0, 4.0]] * 8).realize()\n"
        "print((x * 2 + x.sum()).sum().item(), len(seen))"
    )
    counts = []
    for beam in ("1", "1", "0"):
        environment = {
            **os.environ,
            "KERNELET_CACHE": str(tmp_path),
            "CACHE": "1",
            "DEV": device,
            "BEAM": beam,
            "PYTHONPATH": str(ROOT),
        }
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        total, seen = done.stdout.split()
        assert float(total) == 2720.0
        counts.append(int(seen))
    assert counts[0] > 0
    assert counts[1:] == [0, 0]
