"""The frontend is tested on the reference device: quick to compile, and its own oracle."""

from collections.abc import Iterator

import pytest

from kernelet.base.config import Context


@pytest.fixture(autouse=True)
def reference_device() -> Iterator[None]:
    with Context(DEV="PYTHON"):
        yield
