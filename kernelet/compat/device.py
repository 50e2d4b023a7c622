"""Devices as tinygrad programs name them, and which element types they have.

In:  names such as "GPU:0" or "CLANG".
Out: kernelet's devices.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from kernelet.base.dtype import DType, dtypes
from kernelet.frontend.device import Device
from kernelet.runtime import device as drivers

# Tinygrad's names of devices that are called otherwise here.
FORMER_KINDS = {"AMD": "HIP", "CL": "OPENCL", "CLANG": "CPU", "NV": "CUDA"}


@dataclass(frozen=True, slots=True)
class Renderer:
    """What a program may ask the language of a device."""

    device: str
    has_local: bool = False
    has_shared: bool = False

    def supported_dtypes(self) -> set[DType]:
        """The element types that tensors on the device may have."""
        return set(dtypes.all)


def is_dtype_supported(dtype: DType, device: str | None = None) -> bool:
    """Whether tensors on the device, or on the default one, may be of that type."""
    return dtype in Renderer(Device.canonicalize(device)).supported_dtypes()


def name_devices() -> None:
    """Let devices have tinygrad's names too."""
    for former, kind in FORMER_KINDS.items():
        drivers.register_alias(former, functools.partial(str, kind))


DRIVER_MEMBERS: dict[str, object] = {
    "device": property(lambda driver: driver.name),
    "renderer": property(lambda driver: Renderer(driver.name)),
}
DEVICES_MEMBERS: dict[str, object] = {
    "default": property(lambda devices: devices[devices.DEFAULT]),
}
