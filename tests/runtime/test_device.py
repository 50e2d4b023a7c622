"""Devices by name."""

import pytest

from kernelet.base.errors import DeviceError
from kernelet.runtime import device


@pytest.mark.parametrize(
    ("asked", "name"),
    [("python", "PYTHON"), ("PYTHON:0", "PYTHON"), ("null:02", "NULL:2"), (" Null:1", "NULL:1")],
)
def test_a_device_has_one_spelling(asked, name):
    assert device.canonical(asked) == name
    assert device.driver(asked).name == name


def test_numbers_name_distinct_devices_of_one_kind():
    first, second = device.driver("PYTHON"), device.driver("PYTHON:1")
    assert first is not second
    assert type(first) is type(second)
    assert device.driver("python:0") is first


@pytest.mark.parametrize("asked", ["TPU", "", "PYTHON:x", "PYTHON:-1"])
def test_an_unknown_device_names_the_known_ones(asked):
    with pytest.raises(DeviceError, match="Known: .*PYTHON"):
        device.canonical(asked)
    with pytest.raises(DeviceError, match="Known: .*PYTHON"):
        device.driver(asked)


def test_devices_that_work_here_are_available():
    assert {"PYTHON", "NULL"} <= set(device.available())
