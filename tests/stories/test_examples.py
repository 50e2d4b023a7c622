"""The examples run, are short, and do what they say."""

import gzip
import os
import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run_example(name, *options, **environment):
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), *options],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def write_blobs(folder):
    """MNIST's files with a bright square for each digit, at a place that tells the digit."""
    folder.mkdir(parents=True)
    draw = random.Random(0)
    for name, count in (("train", 1024), ("t10k", 500)):
        labels = bytes(draw.randrange(10) for _ in range(count))
        images = bytearray(count * 784)
        for at, digit in enumerate(labels):
            row, column = digit // 5 * 12 + draw.randrange(4), digit % 5 * 5 + draw.randrange(3)
            for line in range(row, row + 8):
                start = at * 784 + line * 28 + column
                images[start : start + 5] = bytes([draw.randrange(150, 255)]) * 5
        parts = {
            "images-idx3": struct.pack(">4I", 0x803, count, 28, 28) + bytes(images),
            "labels-idx1": struct.pack(">2I", 0x801, count) + labels,
        }
        for kind, data in parts.items():
            (folder / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(data))


@pytest.mark.slow
def test_the_network_of_the_mnist_example_learns(tmp_path):
    write_blobs(tmp_path / "mnist")
    options = ("--epochs", "3", "--batch", "64")
    shown = run_example("mnist.py", *options, KERNELET_DATA=str(tmp_path))
    assert "steps/s" in shown
    assert float(shown.split("test accuracy ")[-1].split(" ")[0]) > 95


def write_colors(folder):
    """CIFAR-10's files with a color for each class."""
    folder.mkdir(parents=True)
    draw = random.Random(0)
    for name, count in (("data_batch_1", 400), ("test_batch", 100)):
        rows = []
        for at in range(count):
            label = at % 10
            color = (25 * label, 255 - 25 * label, 120 * (label % 3))
            planes = b"".join(
                bytes(max(0, each - draw.randrange(9)) for _ in range(1024)) for each in color
            )
            rows.append(bytes([label]) + planes)
        (folder / f"{name}.bin").write_bytes(b"".join(rows))


def losses(shown):
    return [
        float(line.split("loss ")[1].split(" ")[0]) for line in shown.splitlines() if "loss" in line
    ]


@pytest.mark.slow
def test_the_network_of_the_cifar_example_learns(tmp_path):
    write_colors(tmp_path / "cifar-10-batches-bin")
    options = ("--epochs", "6", "--batch", "50", "--width", "4", "--rate", "0.05")
    shown = run_example("cifar10.py", *options, KERNELET_DATA=str(tmp_path))
    assert "steps/s" in shown
    assert losses(shown)[-1] < losses(shown)[0]
    assert float(shown.split("test accuracy ")[-1].split(" ")[0]) > 70


@pytest.mark.slow
def test_the_network_of_the_gpt_example_learns_and_writes(tmp_path):
    draw = random.Random(0)
    sentences = [f"the {each} sat.\n" for each in ("cat", "dog", "bird", "old man")]
    text = "".join(draw.choice(sentences) for _ in range(800))
    (tmp_path / "tinyshakespeare.txt.gz").write_bytes(gzip.compress(text.encode()))
    options = ["--steps", "80", "--batch", "16", "--context", "16", "--width", "32"]
    options += ["--layers", "1", "--heads", "2", "--letters", "40", "--rate", "0.01"]
    shown = run_example("gpt.py", *options, KERNELET_DATA=str(tmp_path))
    first, *_, last = losses(shown)
    assert last < first / 3
    written = shown.split("of training\n\n")[1]
    assert len(written) >= 40
    assert "sat." in written


def test_the_rule_example_shortens_the_graph():
    shown = run_example("custom_rule.py")
    assert "before: 15 nodes" in shown
    assert "after: 5 nodes" in shown
    assert "[2.0, 3.0, 4.0]" in shown


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_short(path):
    assert len(path.read_text().splitlines()) < 150
