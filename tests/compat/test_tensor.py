"""Tensors, captured functions and optimizers take tinygrad's arguments too."""

import pytest

from kernelet import Tensor, nn
from kernelet.base.errors import ArgumentError
from kernelet.compat import tensor as compat
from tests.compat.runs import printed

START = "from tinygrad import Context, Tensor, TinyJit, nn\n"


def test_a_schedule_lists_kernels_and_runs_them():
    x = (Tensor([1.0, 2.0]) + 1).contiguous()
    items = compat.schedule(x)
    assert len(items) == 1
    compat.run_schedule(items)
    assert x.uop.op.name in ("BUFFER", "CONTIGUOUS", "RESHAPE")
    assert x.tolist() == [2.0, 3.0]
    assert compat.schedule(Tensor([1]).realize()) == []


def test_functions_are_captured_with_options():
    assert compat.TinyJit(prune=True)(lambda x: x + 1)(Tensor([1])).tolist() == [2]
    assert compat.function(precompile=True)(max) is max
    with pytest.raises(ArgumentError, match="gradient of your own"):
        compat.function(grad_fxn=max)


def test_arguments_have_tinygrads_names():
    code = "x = Tensor.arange(6).reshape(shape=(2, 3)).permute(order=(1, 0)).flip(axis=0)\n"
    code += "print(x.tolist(), x.expand(3, 2).shape, x.repeat(repeats=(1, 2)).shape)\n"
    code += "print(x.float().cross_entropy(Y=Tensor([0, 1, 0])).shape)\n"
    code += "print((x > 2).where(x=x, y=0).sum().item(), x.shrink(arg=((0, 1), None)).tolist())\n"
    assert printed(START + code) == [
        "[[2, 5], [1, 4], [0, 3]] (3, 2) (3, 4)",
        "()",
        "12 [[2, 5]]",
    ]


def test_members_that_kernelet_lacks_are_there():
    code = "x = Tensor([[1, 2], [3, 4]])\n"
    code += "print(x.pad_to(3, None).tolist(), x.shrink_to(1, 2).tolist(), x.max_numel())\n"
    code += "print(x.usum(x, x).tolist(), x.contiguous_backward().shape, x.max_shape)\n"
    code += "print(x.image_dot(x).tolist(), len((x + 1).schedule()))\n"
    code += "with Tensor.train():\n  with Tensor.test(): print(Tensor.training)\n"
    assert printed(START + code) == [
        "[[1, 2], [3, 4], [0, 0]] [[1, 2]] 4",
        "[[3, 6], [9, 12]] (2, 2) (2, 2)",
        "[[7, 10], [15, 22]] 1",
        "False",
    ]


def test_optimizers_take_a_device_and_fusion():
    code = "w = Tensor([1.0]).contiguous()\n"
    code += "opt = nn.optim.SGD([w], lr=0.5, device='CPU', fused=True)\n"
    code += "with Context(TRAINING=1):\n  (w * 2).sum().backward(); opt.step()\nprint(w.tolist())"
    assert printed(START + code) == ["[0.0]"]


def test_what_is_attached_starts_an_optimizer_as_before():
    made = compat.without_placement(nn.optim.SGD.__init__)
    optimizer = nn.optim.SGD.__new__(nn.optim.SGD)
    made(optimizer, [Tensor([1.0])], lr=0.25, device=None, fused=False)
    assert optimizer.lr.item() == 0.25
