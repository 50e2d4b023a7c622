"""kernelet: a small deep-learning framework whose every stage can be read.

>>> from kernelet import Tensor
>>> (Tensor([1, 2, 3]) + 1).tolist()
[2, 3, 4]
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from kernelet.base.config import Context
from kernelet.base.counters import GlobalCounters
from kernelet.base.dtype import dtypes
from kernelet.graph.ops import Op as Ops
from kernelet.graph.uop import UOp

if TYPE_CHECKING:
    from kernelet import nn
    from kernelet.frontend.device import Device
    from kernelet.frontend.jit import TinyJit
    from kernelet.frontend.tensor import Tensor
    from kernelet.frontend.transforms import (
        checkpoint,
        grad,
        hessian,
        jacobian,
        jvp,
        value_and_grad,
        vjp,
        vmap,
    )
    from kernelet.graph.pattern import UPat
    from kernelet.graph.rewrite import PatternMatcher, graph_rewrite

Variable = UOp.variable

_TRANSFORMS = ("checkpoint", "grad", "hessian", "jacobian", "jvp", "value_and_grad", "vjp", "vmap")
# Loaded when they are first named, so that importing the package stays quick.
_LATER = {
    "Device": "kernelet.frontend.device",
    "PatternMatcher": "kernelet.graph.rewrite",
    "Tensor": "kernelet.frontend.tensor",
    "TinyJit": "kernelet.frontend.jit",
    "UPat": "kernelet.graph.pattern",
    "graph_rewrite": "kernelet.graph.rewrite",
    "nn": "kernelet.nn",
    **dict.fromkeys(_TRANSFORMS, "kernelet.frontend.transforms"),
}


def __getattr__(name: str) -> object:
    """The parts that are loaded when they are first named."""
    path = _LATER.get(name)
    if path is None:
        raise AttributeError(f"kernelet has no {name!r}")
    try:
        module = importlib.import_module(path)
    except AttributeError as error:  # Python would take it to say that there is no such name
        raise ImportError(f"kernelet.{name}: importing {path} failed: {error}") from error
    value: object = module if path == f"kernelet.{name}" else getattr(module, name)
    globals()[name] = value
    return value


__all__ = [
    "Context",
    "Device",
    "GlobalCounters",
    "Ops",
    "PatternMatcher",
    "Tensor",
    "TinyJit",
    "UOp",
    "UPat",
    "Variable",
    "dtypes",
    "checkpoint",
    "grad",
    "graph_rewrite",
    "hessian",
    "jacobian",
    "jvp",
    "nn",
    "value_and_grad",
    "vjp",
    "vmap",
]
