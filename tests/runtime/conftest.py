"""Devices registered for the tests of the drivers."""

import pytest

from kernelet.runtime import device
from kernelet.runtime.cpu import CpuDriver
from kernelet.runtime.llvm import LlvmDriver
from kernelet.runtime.null import NullDriver
from kernelet.runtime.python import PythonDriver

DRIVERS = {"CPU": CpuDriver, "LLVM": LlvmDriver, "PYTHON": PythonDriver, "NULL": NullDriver}


@pytest.fixture(autouse=True)
def registered():
    for kind, factory in DRIVERS.items():
        device.register(kind, factory)
