"""Capsules tell and change the type of their elements."""

import numpy as np
import pytest

from kernelet.base.errors import ArgumentError
from kernelet.runtime import dlpack


class Given:
    """An array whose capsule was made before."""

    def __init__(self, capsule: object) -> None:
        self.capsule = capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU

    def __dlpack__(self, **_: object) -> object:
        return self.capsule


@pytest.mark.parametrize("arguments", [{}, {"max_version": (1, 0)}])
@pytest.mark.parametrize(("name", "words"), [("bfloat16", "uint16"), ("fp8e5m2", "uint8")])
def test_types_that_numpy_lacks_are_words(
    name: str, words: str, arguments: dict[str, object]
) -> None:
    capsule = np.array([1, 2, 200], words).__dlpack__(**arguments)
    assert dlpack.as_words(capsule) is None
    dlpack.name_words(capsule, name)
    assert dlpack.as_words(capsule) == name
    found = np.from_dlpack(Given(capsule))
    assert (found.dtype.name, found.tolist()) == (words, [1, 2, 200])


def test_what_is_no_capsule_is_named() -> None:
    capsule = np.zeros(2).__dlpack__()
    np.from_dlpack(Given(capsule))
    for wrong, name in ((3, "int"), (capsule, "used already")):
        with pytest.raises(ArgumentError, match=name):
            dlpack.element_type(wrong)
