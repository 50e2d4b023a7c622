"""Tensors and training work with little installed, and imports stay quick."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kernelet

ROOT = Path(__file__).parents[2]

TRAIN = """
from kernelet import Tensor, TinyJit, nn
Tensor.manual_seed(0)
layers = [nn.Linear(8, 16), Tensor.relu, nn.Linear(16, 4)]
optimizer = nn.optim.Adam(nn.state.get_parameters(layers), lr=0.02)
x, y = Tensor.randn(32, 8).realize(), Tensor([row % 4 for row in range(32)]).realize()

@TinyJit
def step():
    optimizer.zero_grad()
    loss = x.sequential(layers).sparse_categorical_crossentropy(y).backward()
    return loss.realize(*optimizer.schedule_step())

with Tensor.train():
    losses = [step().item() for _ in range(60)]
assert losses[-1] < losses[0] / 2, losses
print("trained")
"""

# None in sys.modules makes the import fail, as if the package were not there.
WITHOUT_PACKAGES = "import sys; sys.modules.update(numpy=None, llvmlite=None)\n"


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_training_needs_no_c_compiler(tmp_path):
    pytest.importorskip("llvmlite", reason="llvmlite is not installed")
    status, shown = run(TRAIN, PATH=str(tmp_path), CC="", DEV="", KERNELET_CACHE=str(tmp_path))
    assert status == 0, shown
    assert shown.startswith("trained\n")


def test_training_needs_neither_numpy_nor_llvmlite(tmp_path):
    if not (shutil.which("clang") or shutil.which("gcc")):
        pytest.skip("neither clang nor gcc is installed")
    status, shown = run(WITHOUT_PACKAGES + TRAIN, DEV="", KERNELET_CACHE=str(tmp_path))
    assert status == 0, shown
    assert shown.startswith("trained\n")


def test_the_cpu_device_without_a_compiler_says_what_to_do(tmp_path):
    code = "from kernelet import Tensor; (Tensor([1]) + 1).tolist()"
    status, shown = run(code, PATH=str(tmp_path), CC="", DEV="CPU", KERNELET_CACHE=str(tmp_path))
    assert status != 0
    assert "DeviceError" in shown
    assert "clang" in shown
    assert "gcc" in shown


def test_the_import_loads_neither_numpy_nor_what_downloads():
    code = "import sys, kernelet; print([n for n in ('numpy', 'llvmlite', 'urllib.request', "
    code += "'http.client', 'tarfile', 'asyncio') if n in sys.modules])"
    assert run(code) == (0, "[]\n")


def test_a_part_that_fails_to_load_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_part.py").write_text("import math\nmath.no_such_name\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(kernelet._LATER, "Broken", "broken_part")
    with pytest.raises(ImportError, match=r"kernelet\.Broken: .*no_such_name") as caught:
        exec("from kernelet import Broken")
    assert isinstance(caught.value.__cause__, AttributeError)
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        exec("from kernelet import Nothing")
