"""The devices as users see them: the default one, and the driver of each by name."""

from __future__ import annotations

from typing import final

from kernelet import backends
from kernelet.base import config
from kernelet.runtime import device as drivers
from kernelet.runtime.device import Driver


@final
class Devices:
    """``Device.DEFAULT`` and ``Device["CPU"]``.

    >>> Device["PYTHON"].name
    'PYTHON'
    """

    @property
    def DEFAULT(self) -> str:
        """The device of tensors for which none is named; assign to change it."""
        return backends.default_device()

    @DEFAULT.setter
    def DEFAULT(self, name: str) -> None:
        config.update(device=drivers.canonical(name))

    def __getitem__(self, name: str) -> Driver:
        return drivers.driver(drivers.canonical(name))

    def canonicalize(self, name: str | None) -> str:
        """The one spelling of a device's name; None is the default device."""
        return self.DEFAULT if name is None else drivers.canonical(name)

    def get_available_devices(self) -> tuple[str, ...]:
        """The kinds of devices that work here."""
        return drivers.available()


Device = Devices()
