"""Whatever is asked wrongly, the message names the call, and the traceback ends with the user's line."""

from __future__ import annotations

import subprocess
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest

from kernelet import Context, Device, Tensor, TinyJit, Variable, nn
from kernelet.base.errors import UserError

MISUSES = """
add: A + B | add: A + None | matmul: A @ B | matmul: A.matmul(3) | sub: A - "x" | pow: A ** "x"
reshape: A.reshape(5, 5) | reshape: A.reshape("a") | reshape: A.reshape(None) | view: A.view(7)
permute: A.permute(0, 0) | transpose: A.transpose(0, 5) | expand: A.expand(3, 5) | flip: A.flip(7)
expand: A.expand("x") | shrink: A.shrink(((0, 9), (0, 1))) | pad: A.pad(((1, 1),)) | pad: A.pad((1,))
squeeze: A.squeeze(9) | unsqueeze: A.unsqueeze("a") | repeat: A.repeat(-1) | repeat: A.repeat("x")
sum: A.sum(5) | sum: A.sum((0, 0)) | mean: A.mean("x") | max: Tensor([]).max() | std: A.std(9)
softmax: A.softmax(7) | cumsum: A.cumsum(7) | sort: A.sort(9) | topk: A.topk(10)
getitem: A[5] | getitem: A[0, 0, 0] | getitem: A["x"] | getitem: A[1.5] | getitem: A[::0]
getitem: A[Tensor([True, False])] | setitem: A.__setitem__(9, 1) | setitem: A.__setitem__(0, B)
gather: A.gather(5, I) | scatter: A.scatter(0, I, A) | one_hot: A.one_hot(3) | take: A.take(V)
cast: A.cast("foo") | bitcast: A.bitcast("int8x") | to: A.to("abacus") | to: A.to(3)
shard: A.shard(("CPU", "CPU"), 0) | shard: A.shard(("CPU", "CPU:1"), 5) | shard: A.shard(3)
add: A.shard(("CPU", "CPU:1"), 0) + A | shard_like: A[0, 0].shard_like(A.shard(("CPU", "CPU:1"), 1))
Tensor: Tensor("abc") | Tensor: Tensor([1, [2]]) | Tensor: Tensor([[1, 2], [3]]) | Tensor: Tensor({})
Tensor: Tensor([2**70]) | Tensor: Tensor([1], dtype="foo") | Tensor: Tensor([1], device="foo")
Tensor: Tensor([None]) | Tensor: Tensor(1j) | Tensor: Tensor(np.array(["a"])) | Tensor: Tensor([[], [1]])
Tensor: Tensor([1], requires_grad=True) | zeros: Tensor.zeros(-1) | zeros: Tensor.zeros("a")
full: Tensor.full((2,), None) | arange: Tensor.arange(0, 5, 0) | eye: Tensor.eye(-1)
randperm: Tensor.randperm(-1) | rand: Tensor.rand(-2) | randint: Tensor.randint(3, low=5, high=2)
from_numpy: Tensor.from_numpy(3) | from_dlpack: Tensor.from_dlpack("a")
conv2d: Tensor.ones(1, 3, 4, 4).conv2d(Tensor.ones(2, 4, 3, 3)) | linear: A.linear(B)
einsum: Tensor.einsum("ij,jk", A) | cat: A.cat(B, dim=1) | stack: Tensor.stack(A, B)
backward: A.backward() | backward: I.sum().backward() | gradient: A.sum().gradient(V)
gradient: A.sum().gradient(3) | realize: A.realize(3) | replace: A.replace(3) | kernelize: A.kernelize(3)
assign: A.assign(B) | assign: A.assign("x") | item: A.item() | int: int(A) | bool: bool(A)
len: len(Tensor(1)) | iter: list(Tensor(1)) | where: (A > 0).where(A, B) | bitwise_not: ~A
numpy: Tensor.zeros(Variable("a", 1, 5)).numpy() | bind: Variable("a", 1, 5).bind(9)
cross_entropy: A.cross_entropy(V) | mse_loss: A.mse_loss(B) | quantile: A.quantile(2)
Linear: nn.Linear(4, 2)(B.T) | BatchNorm: nn.BatchNorm(3)(A)
Device: Device["abacus"] | Context: Context(FOO=1) | TinyJit: TinyJit(3)
load_state_dict: nn.state.load_state_dict(nn.Linear(2, 2), {})
"""
KNOWN = {"Device": Device, "TinyJit": TinyJit, "Variable": Variable, "nn": nn, "np": np}
KNOWN |= {"Tensor": Tensor, "Context": Context}
ROWS = [
    tuple(row.strip().split(": ", 1))
    for row in MISUSES.replace("\n", "|").split("|")
    if row.strip()
]


@pytest.mark.parametrize(("call", "code"), ROWS, ids=[code for _, code in ROWS])
def test_misuse_names_the_call_and_the_line(call: str, code: str) -> None:
    with Context(DEV="PYTHON"):
        names = {"A": Tensor(np.ones((3, 4))), "B": Tensor.ones(2, 4), "V": Tensor([1.0, 2, 3])}
        names["I"] = Tensor([1, 2, 3])
        with pytest.raises(UserError) as caught:
            eval(compile(code, "user.py", "eval"), {**KNOWN, **names})
    message = str(caught.value)
    if call not in ("getitem", "Device"):
        assert call in message.partition(": ")[0]
    assert message.count(". ") + message.endswith(".") >= 2 or "; " in message or ": " in message
    lines = traceback.format_exception(caught.value)
    assert [line for line in "".join(lines).splitlines() if "File" in line][-1].split(",")[0] == (
        '  File "user.py"'
    )


def test_a_script_that_fails_ends_with_its_own_line(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from kernelet import Tensor\n\n\ndef step(x):\n    return x.sum(5)  # wrong\n\n\n"
        "step(Tensor([1.0]))\n"
    )
    found = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert found.stderr.splitlines()[-3:] == [
        "kernelet.base.errors.IndexingError: sum: axis 5: the tensor has shape (1,). "
        "Use an axis from -1 to 0.",
        f'  File "{script}", line 5, in step',
        "    return x.sum(5)  # wrong",
    ]
