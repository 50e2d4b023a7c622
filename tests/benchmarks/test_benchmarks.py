"""The benchmark program does what it says; how fast anything is, no test asserts."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.frameworks import make
from benchmarks.operations import Workload, of_tensors
from benchmarks.run import Plan, run
from benchmarks.table import Results, table
from benchmarks.workloads import GROUPS, WORKLOADS, select
from tools.documents import section

NAME = "conv_dw_128_28"
QUICK = ["--frameworks", "kernelet", "--rounds", "1", "--seconds", "0.01"]


def record(framework, ms, sample=(1.0, 2.0), number=0, workload=NAME, **more):
    place = {"kind": "run", "framework": framework, "workload": workload, "round": number}
    return {**place, "ms": ms, "sample": list(sample), "version": "1", "kernels": 3, **more}


@pytest.fixture
def results(tmp_path):
    header = {"kind": "machine", "machine": "a machine", "threads": 2, "date": "a day"}
    header |= {"commit": "a commit", "python": "3", "seconds": 1.0}
    return Results(tmp_path / "results.jsonl", [header])


def row(results, workload=NAME):
    text = table(results, [WORKLOADS[workload]])
    (found,) = [line for line in text.splitlines() if line.startswith(f"| {workload} ")]
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_a_workload_is_measured_from_end_to_end_and_not_again(tmp_path, capsys):
    path, document = tmp_path / "results.jsonl", tmp_path / "page.md"
    document.write_text("before\n<!-- benchmarks -->\n<!-- end of benchmarks -->\nafter\n")
    arguments = [NAME, *QUICK, "--results", str(path), "--write", str(document)]
    assert main(arguments) == 0
    shown = capsys.readouterr()
    assert f"| {NAME} |" in shown.out and "[1/1" in shown.err
    assert section(document.read_text(), "benchmarks") == shown.out.strip()
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert records[0]["kind"] == "machine"
    (found,) = [one for one in records if one["kind"] == "run"]
    assert found["ms"] > 0 and found["kernels"] == 1 and len(found["sample"]) > 100
    assert main(arguments) == 0
    assert capsys.readouterr().err == ""
    assert len(path.read_text().splitlines()) == len(records)


def test_names_and_groups_choose_workloads():
    assert [one.name for one in select(["norm", NAME])] == [NAME, "layernorm", "softmax", "rmsnorm"]
    assert len(select([])) == len(WORKLOADS) > 30
    with pytest.raises(SystemExit, match="no such workload or group"):
        select(["nothing"])
    assert {"matmul", "conv", "norm", "train", "resnet", "transformer", "start"} <= {*GROUPS}


def test_a_cell_says_time_ratio_and_share_of_the_limit(results):
    limits = {"kind": "limits", "workload": NAME, "round": 0, "gflops": 1e3, "gbytes": 1.0}
    results.records.extend([limits, record("kernelet", 10.0), record("torch", 20.0)])
    limit = WORKLOADS[NAME].nbytes / 1e6  # at 1 GB/s
    share = f"{100 * limit / 10:.2g} %"
    assert row(results)[1:] == [f"{limit:.3g}", f"10 · 0.50x · {share}", row(results)[3], "3"]


def test_the_least_process_counts_and_a_wide_spread_is_marked(results):
    results.records.extend([record("kernelet", 10.0), record("kernelet", 7.0, number=1)])
    assert row(results)[2] == "7*"


def test_results_that_differ_are_marked(results):
    results.records.extend([record("kernelet", 10.0, (1.0, 2.1)), record("torch", 10.0)])
    assert "differs by 0.03" in row(results)[2]
    assert "differs" not in row(results)[3]


def test_without_torch_results_are_compared_with_who_is_there(results):
    results.records.extend([record("kernelet", 10.0, (1.0, float("nan"))), record("jax", 10.0)])
    assert "differs by inf" in row(results)[2]


def test_a_failure_is_shown_and_does_not_stop_the_run(tmp_path):
    results = Results(tmp_path / "results.jsonl", [])
    failing = Workload("failing", "none", of_tensors(lambda framework: None))
    lines = []
    run(Plan([failing], ["kernelet"], rounds=1), results, lines.append)
    assert "KeyError: 'failing'" in lines[-1]


def test_a_file_of_another_machine_is_not_gone_on_with(results):
    plan = Plan([WORKLOADS[NAME]], ["kernelet"], rounds=1, threads=2)
    with pytest.raises(SystemExit, match="was begun with machine a machine"):
        run(plan, results, print)


def test_frameworks_that_are_not_installed_are_left_out(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    lines = []
    run(Plan([WORKLOADS[NAME]], ["torch"]), Results(tmp_path / "results.jsonl", []), lines.append)
    assert lines == ["Not installed, left out: torch."]


@pytest.mark.parametrize("name", ["layernorm", "rmsnorm"])
def test_norms_are_what_their_formulas_say(name):
    framework = make("kernelet", 1)
    found = framework.numbers(WORKLOADS[name].build(framework)(0))
    values = np.random.default_rng(0).standard_normal((4096, 1024), dtype=np.float32)
    centred = values - values.mean(-1, keepdims=True) * (name == "layernorm")
    wanted = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_training_steps_lower_the_loss():
    framework = make("kernelet", 1)
    step = WORKLOADS["mlp_train"].build(framework)
    losses = [float(framework.numbers(step(number))) for number in range(10)]
    assert losses[-1] < losses[0]
