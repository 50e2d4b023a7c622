"""The devices: one row each says how its code is written and which driver runs it.

In:  a device's name.
Out: its renderer and its driver.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from functools import cache

from kernelet.base import config
from kernelet.base.errors import DeviceError
from kernelet.render.renderer import Render
from kernelet.runtime import device
from kernelet.runtime.device import Driver


@dataclass(frozen=True, slots=True)
class Backend:
    """A language and a driver, loaded when first used."""

    kind: str
    language: str
    driver_module: str
    driver_class: str
    is_timed: bool = True  # whether it matters how fast its kernels are

    def make_driver(self, name: str) -> Driver:
        """A driver for one device of this kind."""
        module = importlib.import_module(f"kernelet.runtime.{self.driver_module}")
        made: Driver = getattr(module, self.driver_class)(name)
        return made


BACKENDS = {
    row.kind: row
    for row in (
        Backend("CPU", "c", "cpu", "CpuDriver"),
        Backend("LLVM", "llvm", "llvm", "LlvmDriver"),
        Backend("PYTHON", "python", "python", "PythonDriver", False),
        Backend("NULL", "c", "null", "NullDriver", False),
    )
}
for _row in BACKENDS.values():
    device.register(_row.kind, _row.make_driver)


def _accelerator() -> str:
    """What "GPU" means: the first kind of device beside the processor, else the default one."""
    wanted = kind_of(config.current().device)
    return _beside_the_processor() or (wanted if wanted in BACKENDS else _best_device())


@cache
def _beside_the_processor() -> str | None:
    timed = [row.kind for row in BACKENDS.values() if row.is_timed]
    working = [kind for kind in device.available() if kind in timed]
    return next((kind for kind in working if not device.driver(kind).is_host), None)


device.register_alias("GPU", _accelerator)


def kind_of(name: str) -> str:
    """The kind of a device: "CPU" for "CPU:1"."""
    return name.partition(":")[0]


@cache
def renderer(kind: str) -> Render:
    """The function that writes the source of a linear program for a kind of device."""
    module = importlib.import_module(f"kernelet.render.{BACKENDS[kind].language}")
    found: Render = module.render
    return found


def default_device() -> str:
    """The device that the settings name, else LLVM where llvmlite is installed, else CPU."""
    wanted = config.current().device
    if wanted:
        return device.canonical(wanted)
    return _best_device()


@cache
def _best_device() -> str:
    if importlib.util.find_spec("llvmlite") is not None:
        return "LLVM"
    problem = device.driver("CPU").problem()
    if not problem:
        return "CPU"
    raise DeviceError(
        f"the default device: llvmlite is not installed, and {problem} "
        "Install llvmlite (pip install llvmlite), or clang or gcc; DEV=PYTHON works without."
    )
