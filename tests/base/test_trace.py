import re

from kernelet.base import trace
from kernelet.base.config import Context


def test_nobody_listening_means_nothing_is_wanted():
    with Context(DEBUG=0):
        assert not trace.wants("kernel")


def test_a_reader_gets_the_kinds_it_asked_for_and_no_more():
    seen = []
    with Context(DEBUG=0), trace.reading(seen.append, "kernel"):
        trace.emit("kernel", "add", "fast", operations=4)
        trace.emit("source", "add", "void add() {}")
    trace.emit("kernel", "later")
    assert [(event.name, event.text, event.numbers) for event in seen] == [
        ("add", "fast", {"operations": 4})
    ]


def test_two_readers_of_a_kind_both_hear_and_leave_alone():
    first, second = [], []
    with trace.reading(first.append, "device"):
        with trace.reading(second.append, "device"):
            trace.emit("device", "one")
        trace.emit("device", "two")
    assert ([event.name for event in first], [event.name for event in second]) == (
        ["one", "two"],
        ["one"],
    )


def test_each_debug_level_shows_its_kinds_and_those_below(capsys):
    with Context(DEBUG=2):
        trace.emit("kernel", "add_4", "1 us")
        trace.emit("source", "add_4", "void add_4()")
    with Context(DEBUG=4):
        trace.emit("source", "add_4", "for (;;)")
    shown = capsys.readouterr().out
    assert re.search(r"\*\*\* add_4 +1 us", shown)
    assert "void add_4()" not in shown
    assert "for (;;)" in shown


def test_warnings_are_shown_on_standard_error_at_every_level(capsys):
    with Context(DEBUG=0):
        trace.emit("warning", "slow", "the search was stopped")
    assert capsys.readouterr().err == "kernelet: the search was stopped\n"


def test_a_short_task_shows_no_progress(capsys):
    with trace.Progress("download", 10) as progress:
        progress.advance(10)
    assert capsys.readouterr().err == ""


def test_a_long_task_shows_how_far_it_is(capsys):
    progress = trace.Progress("download", 10, "MB")
    progress._next = 0
    with progress:
        progress.advance(5)
        progress.advance(5)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("kernelet: download: 5/10 MB (50%)")
    assert lines[-1].startswith("kernelet: download: 10/10 MB (100%)")


def test_a_launch_shows_what_it_reached(capsys):
    numbers = {"operations": 4e6, "bytes": 2e6, "memory": 3e6}
    with Context(DEBUG=2):
        trace.send(trace.Event("kernel", "add_4", seconds=1e-3, numbers=numbers))
    shown = capsys.readouterr().out.split()
    assert " ".join(shown) == "*** add_4 1000.0 us 4.0 GFLOP/s 2.0 GB/s 3.00 MB held"


def test_totals_tell_what_every_part_has_cost(monkeypatch, capsys):
    monkeypatch.setattr(trace, "_totals", {})
    monkeypatch.setattr(trace.atexit, "register", lambda function: None)
    with Context(DEBUG=2):
        for _ in range(3):
            with trace.cost("python", "simplify"):
                pass
        with trace.cost("python", "expand"):
            pass
        trace.send(trace.Event("kernel", "add_4", seconds=0.25))
        trace.send(trace.Event("kernel", "add_8", seconds=0.5))
        trace.show_totals()
    lines = capsys.readouterr().out.splitlines()
    assert not any(line.startswith("*** simplify") for line in lines)
    python, launches = (line for line in lines if line.startswith("*** total"))
    assert re.search(r"total python +\d+ ms, 3 kernels \(.*simplify \d+", python)
    assert "expand" in python
    assert re.search(r"total launches +750 ms, 2 kernels$", launches)


def test_costs_are_not_counted_when_nobody_asks(monkeypatch):
    monkeypatch.setattr(trace, "_totals", {})
    with Context(DEBUG=1), trace.cost("python", "simplify"):
        pass
    assert trace._totals == {}
