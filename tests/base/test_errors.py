import inspect

import pytest

from kernelet.base import errors
from kernelet.base.errors import InternalError, KerneletError, UserError

ALL = [
    item
    for _, item in inspect.getmembers(errors, inspect.isclass)
    if issubclass(item, KerneletError)
]
OF_USERS = [item for item in ALL if issubclass(item, UserError) and item is not UserError]


@pytest.mark.parametrize("error", ALL, ids=lambda error: error.__name__)
def test_every_error_is_in_the_drawing_at_the_top(error: type[Exception]) -> None:
    drawing = (errors.__doc__ or "").split("\n\n")[1]
    assert error.__name__ in drawing
    assert (error.__doc__ or "").endswith(".")


@pytest.mark.parametrize("error", OF_USERS, ids=lambda error: error.__name__)
def test_a_mistake_of_a_user_is_also_the_builtin_error_that_fits(error: type[Exception]) -> None:
    builtin = [base for base in error.__bases__ if base.__module__ == "builtins"]
    assert len(builtin) == 1
    (line,) = [
        line for line in (errors.__doc__ or "").splitlines() if f" {error.__name__} " in line
    ]
    assert f"({builtin[0].__name__})" in line


def test_a_bug_of_ours_is_no_mistake_of_a_user() -> None:
    assert not issubclass(InternalError, UserError)
    assert issubclass(InternalError, RuntimeError)
