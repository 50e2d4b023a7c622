"""The names of tinygrad's modules, and where each name is found here.

In:  `import tinygrad...` in a program, once `install` has been called.
Out: modules that hold kernelet's classes and functions; `MissingName` says what is not there.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import final

from kernelet.base.counters import GlobalCounters
from kernelet.base.dtype import DType, dtypes
from kernelet.base.errors import KerneletError
from kernelet.compat import device, dtype, graph, settings, tensor
from kernelet.frontend.device import Devices
from kernelet.frontend.jit import TinyJit
from kernelet.frontend.tensor import Tensor
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.nn import optim
from kernelet.runtime.device import Driver

ROOT = "tinygrad"
_COMPAT = "kernelet.compat"

_HELPERS = {
    "itertools": "count",
    "kernelet.base.counters": "GlobalCounters",
    "kernelet.base.helpers": "ceildiv=ceiling_divide round_up",
    f"{_COMPAT}.helpers": "*",
    f"{_COMPAT}.progress": "*",
    f"{_COMPAT}.settings": "*",
    f"{_COMPAT}.storage": "*",
}
_DTYPE = {
    "kernelet.base.dtype": "ConstType=Scalar DType dtypes",
    "kernelet.frontend.promotion": "DTypeLike to_dtype=as_dtype",
    f"{_COMPAT}.dtype": "DTYPES_DICT truncate *",
}
# Programs also take these from the modules that use them.
_COMMON = {"kernelet": "Device Tensor", **_HELPERS, **_DTYPE}
_GRAPH = {
    **_COMMON,
    "kernelet.graph.infer": "sint=Dim",
    "kernelet.graph.ops": "Ops=Op",
    f"{_COMPAT}.graph": "* Variable=UOp",
}
_JIT = {**_COMMON, "kernelet.base.errors": "JitError", f"{_COMPAT}.tensor": "TinyJit"}
_STATE = {
    **_COMMON,
    "kernelet.nn.state": "*",
    f"{_COMPAT}.state": "safe_dtypes inverse_safe_dtypes *",
}

# For each module the modules that have its names, some under another name; "*": all functions and
# classes that are written there.
MODULES: dict[str, Mapping[str, str]] = {
    "": {
        "kernelet": "Device GlobalCounters Tensor Variable dtypes",
        f"{_COMPAT}.graph": "UOp",
        f"{_COMPAT}.settings": "Context getenv",
        f"{_COMPAT}.storage": "fetch",
        f"{_COMPAT}.tensor": "TinyJit function",
    },
    "tensor": {**_GRAPH, f"{_COMPAT}.tensor": "function"},
    "dtype": _DTYPE,
    "helpers": _HELPERS,
    "device": {
        **_COMMON,
        "kernelet.frontend.host": "canonicalize_device=device_name",
        "kernelet.runtime.device": "Compiled=Driver",
        f"{_COMPAT}.device": "is_dtype_supported",
    },
    "function": {f"{_COMPAT}.tensor": "function"},
    "nn": {**_COMMON, "kernelet.nn": "*"},
    "nn.optim": {**_COMMON, "kernelet.nn.optim": "*"},
    "nn.state": _STATE,
    "nn.datasets": {**_COMMON, "kernelet.nn.datasets": "cifar mnist"},
    "engine": {},
    "engine.jit": _JIT,
    "engine.realize": {**_COMMON, f"{_COMPAT}.tensor": "run_schedule ScheduleItem"},
    "uop": {"kernelet.graph.ops": "Ops=Op", f"{_COMPAT}.graph": "GroupOp"},
    "uop.ops": _GRAPH,
    "llm": {},
    "llm.gguf": {"kernelet.nn.state": "gguf_load"},
    # Where former versions had them.
    "features": {},
    "features.jit": _JIT,
    "jit": _JIT,
    "ops": _GRAPH,
}
# Parts of tinygrad that have a counterpart of another form here.
COUNTERPARTS = {
    "codegen": "kernelet.lower",
    "engine": "kernelet.engine",
    "llm": "kernelet.nn.gguf",
    "renderer": "kernelet.render",
    "runtime": "kernelet.runtime",
    "schedule": "kernelet.kernelize",
    "shape": "kernelet.graph.view",
    "viz": "DEBUG=3 to 7",
}
# What kernelet's classes lack of tinygrad's members.
MEMBERS: tuple[tuple[type, Mapping[str, object]], ...] = (
    (Tensor, tensor.TENSOR_MEMBERS),
    (TinyJit, tensor.JIT_MEMBERS),
    (UOp, graph.NODE_MEMBERS),
    (Op, graph.OPS_MEMBERS),
    (DType, dtype.DTYPE_MEMBERS),
    (dtypes, dtype.DTYPES_MEMBERS),
    (Driver, device.DRIVER_MEMBERS),
    (Devices, device.DEVICES_MEMBERS),
    (GlobalCounters, {"mem_used_per_device": {}}),
)


class MissingName(KerneletError, ImportError):
    """A name of tinygrad that has no counterpart here."""


@final
class Finder(MetaPathFinder, Loader):
    """Makes the modules when they are first imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The plan of a module of ours; MissingName for any other one below tinygrad."""
        if fullname.partition(".")[0] != ROOT:
            return None
        if _below_root(fullname) not in MODULES:
            # `from module import name` asks for a module when the name is not there.
            raise missing(fullname)
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> None:
        """Python's own."""

    def exec_module(self, module: ModuleType) -> None:
        """Fill the module with its names; modules below it are imported when they are named."""
        if module.__name__ == ROOT:
            settings.read_environment()
        for path, names in MODULES[_below_root(module.__name__)].items():
            source = importlib.import_module(path)
            for name in _spelled_out(names, source):
                theirs, _, ours = name.partition("=")
                vars(module)[theirs] = getattr(source, ours or theirs)

        def inner(name: str) -> object:
            if _below_root(f"{module.__name__}.{name}") in MODULES:
                return importlib.import_module(f"{module.__name__}.{name}")
            raise AttributeError(str(missing(f"{module.__name__}.{name}")))

        vars(module)["__getattr__"] = inner


def _spelled_out(names: str, source: ModuleType) -> list[str]:
    """The names, and in place of "*" all that the module has written itself or says it offers."""
    here = [
        name
        for name, value in vars(source).items()
        if name[0] != "_" and getattr(value, "__module__", "") == source.__name__
    ]
    everything = getattr(source, "__all__", here)
    return [each for name in names.split() for each in (everything if name == "*" else (name,))]


def _below_root(fullname: str) -> str:
    """tinygrad.nn.optim -> nn.optim"""
    return fullname[len(ROOT) + 1 :]


def missing(fullname: str) -> MissingName:
    """The error for a module, or a name of a module, that is not there."""
    holder, _, name = fullname.rpartition(".")
    part = fullname.split(".")[1]
    text = f"{fullname}: kernelet.compat has no such module"
    if holder in sys.modules:
        text = f"{holder} has no {name!r} in kernelet.compat"
        close = difflib.get_close_matches(name, dir(sys.modules[holder]), 3)
        text += f"; it has {', '.join(close)}" if close else ""
    do = "Leave the import out, or put it in try/except ImportError."
    if part in COUNTERPARTS:
        do = f"Its counterpart is {COUNTERPARTS[part]}, which works otherwise: use that, or l{do[1:]}"
    return MissingName(f"{text}. {do}", name=fullname)


def install() -> None:
    """Let `tinygrad` and the modules below it be kernelet's, even where tinygrad is installed."""
    if any(isinstance(finder, Finder) for finder in sys.meta_path):
        return
    for owner, members in MEMBERS:
        for name, member in members.items():
            if not hasattr(owner, name):
                setattr(owner, name, member)
    device.name_devices()
    type.__setattr__(Op, "__str__", graph.show_op)
    for name, names in tensor.RENAMED.items():
        setattr(Tensor, name, tensor.renaming(getattr(Tensor, name), names))
    for made in vars(optim).values():
        if isinstance(made, type) and issubclass(made, optim.Optimizer):
            type.__setattr__(made, "__init__", tensor.without_placement(made.__init__))
    for name in [name for name in sys.modules if name.partition(".")[0] == ROOT]:
        del sys.modules[name]
    sys.meta_path.insert(0, Finder())
