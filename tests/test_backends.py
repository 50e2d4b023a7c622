"""A device's name leads to its renderer and driver."""

import pytest

from kernelet import Context, backends
from kernelet.base.errors import DeviceError
from kernelet.runtime import device


def test_every_row_loads_its_renderer():
    for kind in backends.BACKENDS:
        assert callable(backends.renderer(kind))
        assert backends.renderer(kind) is backends.renderer(kind)


def test_the_kind_is_the_name_without_its_number():
    assert backends.kind_of("CPU:1") == "CPU"
    assert backends.kind_of("PYTHON") == "PYTHON"


def test_settings_choose_the_default_device():
    with Context(DEV="python"):
        assert backends.default_device() == "PYTHON"
    with Context(DEV="CPU:0"):
        assert backends.default_device() == "CPU"


def test_without_a_setting_the_best_device_is_found():
    with Context(DEV=""):
        assert backends.default_device() in ("CPU", "LLVM")


def test_unknown_devices_are_named():
    with Context(DEV="ABACUS"), pytest.raises(DeviceError, match=r"abacus|ABACUS.*Known: CPU"):
        backends.default_device()


def test_drivers_are_made_once():
    assert device.driver("PYTHON") is device.driver("PYTHON")
    assert device.driver("PYTHON:1") is not device.driver("PYTHON")
    assert type(device.driver("PYTHON:1")) is type(device.driver("PYTHON"))
