"""What numpy leaves to be done for DLPack: element types that it does not know.

In:  capsules, as `__dlpack__` methods make them.
Out: the type code and the bits of the elements in one, to read and to write.

The structures are those of https://dmlc.github.io/dlpack/latest/c_api.html.
"""

from __future__ import annotations

import ctypes
from typing import final

from kernelet.base.errors import ArgumentError, DeviceError

CPU = (1, 0)  # memory that this process reads, and the number of the device
_UNSIGNED = 1
# By name, the type codes and bits of elements that numpy lacks.
_TYPES = {"bfloat16": (4, 16), "fp8e4m3": (10, 8), "fp8e5m2": (12, 8)}

# By the name of a capsule, where the element type is in its structure: behind an address, two
# words for the device and one for the number of axes, after versions and callbacks if there are any.
_PLACES = {b"dltensor": 20, b"dltensor_versioned": 52}

_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def element_type(capsule: object) -> ctypes.Array[ctypes.c_uint8]:
    """The type code and the bits of the elements in a capsule."""
    for name, place in _PLACES.items():
        if _is_valid(capsule, name):
            return (ctypes.c_uint8 * 2).from_address(_pointer_in(capsule, name) + place)
    raise ArgumentError(
        f"from_dlpack: {type(capsule).__name__} is no DLPack capsule, or was used already. Give an "
        "array with __dlpack__, or a capsule that nobody took."
    )


def as_words(capsule: object) -> str | None:
    """Let elements of a type that numpy lacks be unsigned numbers; returns the type's name."""
    found = element_type(capsule)
    for name, kind in _TYPES.items():
        if tuple(found) == kind:
            found[0] = _UNSIGNED
            return name
    return None


def name_words(capsule: object, name: str) -> None:
    """Let unsigned numbers be elements of the type of that name, which numpy lacks."""
    element_type(capsule)[0] = _TYPES[name][0]


@final
class Peer:
    """An array of another library; of a type that numpy lacks, it is one of unsigned numbers."""

    def __init__(self, array: object) -> None:
        self._array = array
        self.name: str | None = None

    def __dlpack_device__(self) -> tuple[int, int]:
        ask = getattr(self._array, "__dlpack_device__", lambda: CPU)
        kind, number = ask()
        if kind != CPU[0]:
            raise DeviceError(
                f"from_dlpack: the array is on a device of DLPack's type {kind}. Bring it to the "
                "memory of the processor first."
            )
        return kind, number

    def __dlpack__(self, **arguments: object) -> object:
        give = getattr(self._array, "__dlpack__", None)
        capsule = self._array if give is None else give(**arguments)
        self.name = as_words(capsule)
        return capsule
