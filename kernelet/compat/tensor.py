"""What tinygrad's tensors, captured functions and optimizers have under other names than ours.

In:  kernelet's classes.
Out: members to attach to them, and functions that take tinygrad's arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from kernelet import engine
from kernelet.base.errors import ArgumentError
from kernelet.compat.storage import fetch
from kernelet.frontend import jit
from kernelet.frontend.capture import Capture
from kernelet.frontend.primitives import product
from kernelet.frontend.tensor import Tensor
from kernelet.graph.infer import max_dim
from kernelet.graph.uop import UOp

Value = Any  # as the function, the optimizer or the method has it
Function = Callable[..., Any]


def TinyJit(fxn: Function | None = None, prune: bool = False) -> Value:
    """`jit.TinyJit` with tinygrad's options; a capture never keeps launches that nobody needs."""
    return jit.TinyJit if fxn is None else jit.TinyJit(fxn)


def function(
    fxn: Function | None = None,
    *,
    precompile: bool = False,
    precompile_backward: bool = False,
    allow_implicit: bool = False,
    grad_fxn: Function | None = None,
) -> Value:
    """The function itself: equal graphs are scheduled and compiled once without being marked."""
    if grad_fxn is not None:
        raise ArgumentError(
            "function(grad_fxn=...): a gradient of your own cannot be given here. Write the value "
            "so that its formula has that gradient, with detach() for what gradients skip."
        )
    return (lambda given: given) if fxn is None else fxn


# ---- tensors ----


class ScheduleItem:
    """One kernel of a schedule, which `run_schedule` runs with the others of its schedule."""

    def __init__(self, ast: UOp, tensors: Sequence[Tensor]) -> None:
        self.ast, self.tensors = ast, tensors


def schedule(tensor: Tensor, *others: Tensor) -> list[ScheduleItem]:
    """The kernels that compute these tensors, none of which has run."""
    tensors = (tensor, *others)
    kernels = engine.schedule([each.uop for each in tensors]).kernels
    return [ScheduleItem(kernel, tensors) for kernel in kernels]


def run_schedule(items: Sequence[ScheduleItem]) -> None:
    """Run a schedule."""
    for tensors in {item.tensors for item in items}:
        tensors[0].realize(*tensors[1:])


def from_url(url: str, gunzip: bool = False, **options: Value) -> Tensor:
    """The bytes of a file at an address, downloaded once."""
    return Tensor(fetch(url, gunzip=gunzip).read_bytes(), **options)


def _fitted(tensor: Tensor, shape: Sequence[Value], value: float = 0) -> Tensor:
    """The tensor padded or cut at the end of each axis whose new size is not None."""
    sizes = shape[0] if shape and isinstance(shape[0], tuple | list) else shape
    wanted = [old if new is None else new for old, new in zip(tensor.shape, sizes, strict=True)]
    return tensor.pad(
        tuple((0, new - old) for old, new in zip(tensor.shape, wanted, strict=True)), value=value
    )


def _named_as(method: Function, wrapper: Function) -> Function:
    """The wrapper under the method's name, in tracebacks and messages too."""
    code = wrapper.__code__
    name, path = method.__name__, method.__qualname__
    wrapper.__code__ = code.replace(co_name=name, co_qualname=path)
    return functools.update_wrapper(wrapper, method)


# Tinygrad's names of arguments that have others here; "*": a list that may be spread out.
_SPREAD = {"reshape": "shape", "view": "shape", "expand": "shape", "permute": "order"}
_LOSSES = ("cross_entropy", "nll_loss", "binary_crossentropy", "binary_crossentropy_logits")
RENAMED: dict[str, dict[str, str]] = {
    **{name: {given: "*"} for name, given in (_SPREAD | {"repeat": "repeats"}).items()},
    **dict.fromkeys((*_LOSSES, "sparse_categorical_crossentropy"), {"Y": "target"}),
    "dot": {"w": "other"},
    "flip": {"axis": "*"},
    "matmul": {"x": "other"},
    "sequential": {"ll": "layers"},
    "shrink": {"arg": "bounds"},
    "where": {"x": "first", "y": "second"},
}


def renaming(method: Function, names: dict[str, str]) -> Function:
    """The method, which also takes arguments under other names."""

    def call(self: object, *args: Value, **kwargs: Value) -> Value:
        known = {names.get(name, name): value for name, value in kwargs.items()}
        spread = (known.pop("*"),) if "*" in known else ()
        return method(self, *args, *spread, **known)

    return _named_as(method, call)


TENSOR_MEMBERS: dict[str, object] = {
    "contiguous_backward": lambda tensor: tensor,
    "from_url": staticmethod(from_url),
    "image_conv2d": Tensor.conv2d,
    "image_dot": Tensor.dot,
    "inference_mode": staticmethod(lambda mode=True: Tensor.train(not mode)),
    "max_numel": lambda tensor: max_dim(product(tensor.shape)),
    "max_shape": property(lambda tensor: tuple(map(max_dim, tensor.shape))),
    "pad_to": lambda tensor, *shape, value=0: _fitted(tensor, shape, value),
    "schedule": schedule,
    "shard_like": lambda tensor, other: (
        tensor.shard(other.device, other.axis)
        if isinstance(other.device, tuple)
        else tensor.to(other.device)
    ),
    "shrink_to": lambda tensor, *shape: _fitted(tensor, shape),
    "test": staticmethod(lambda mode=True: Tensor.train(not mode)),
    "uprod": lambda tensor, *others: functools.reduce(Tensor.mul, others, tensor),
    "usum": lambda tensor, *others: functools.reduce(Tensor.add, others, tensor),
}
JIT_MEMBERS: dict[str, object] = {
    "fxn": property(lambda captured: captured.function),
    "captured": property(
        lambda captured: next(
            (each for each in captured.captures.values() if isinstance(each, Capture)), None
        )
    ),
}


# ---- optimizers ----


def without_placement(made: Callable[..., None]) -> Callable[..., None]:
    """An optimizer's `__init__` that takes `device` and `fused`: state lies with its parameter."""

    def start(
        optimizer: object,
        *args: Value,
        device: object = None,
        fused: object = False,
        **kwargs: Value,
    ) -> None:
        made(optimizer, *args, **kwargs)

    return _named_as(made, start)
