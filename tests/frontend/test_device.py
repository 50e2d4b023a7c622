"""Devices are found by any spelling of their name."""

import pytest

from kernelet.base.config import Context
from kernelet.base.errors import DeviceError
from kernelet.frontend.device import Device
from kernelet.frontend.tensor import Tensor


def test_the_default_is_the_one_that_is_set() -> None:
    assert Device.DEFAULT == "PYTHON"
    with Context(DEV="python:1"):
        assert Device.DEFAULT == "PYTHON:1"


def test_drivers_synchronize() -> None:
    Device["python:0"].synchronize()
    assert Device["PYTHON"] is Device["python:0"]


def test_names_have_one_spelling() -> None:
    assert Device.canonicalize("python:1") == "PYTHON:1"
    assert Device.canonicalize(None) == "PYTHON"
    assert "PYTHON" in Device.get_available_devices()
    with pytest.raises(DeviceError, match="TPU"):
        Device["TPU"]


def test_gpu_is_the_accelerator_or_else_the_default_device() -> None:
    kind = Device.canonicalize("GPU")
    assert kind in Device.get_available_devices()
    assert Tensor([1, 2], device="GPU:0").device == kind
    assert (Tensor([1, 2], device="gpu:1") * 2).device == f"{kind}:1"
    assert Device["GPU:0"] is Device[kind]
    with Context(DEV=""):
        usual = Device.canonicalize("GPU")
    with Context(DEV="GPU"):
        assert usual == Device.DEFAULT == Device.canonicalize("GPU")


def test_without_an_accelerator_gpu_is_the_device_that_the_settings_name() -> None:
    usual = Device.canonicalize("GPU")
    beside = usual if not Device[usual].is_host else None
    for kind in ("PYTHON", "LLVM"):
        with Context(DEV=kind):
            assert Device.canonicalize("GPU:1") == f"{beside or kind}:1"
