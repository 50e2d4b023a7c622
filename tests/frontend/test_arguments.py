"""Every argument is of the kind that its signature names, or is refused by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import pytest

from kernelet import Tensor
from kernelet.base.errors import ArgumentError
from kernelet.frontend.arguments import Count, Share, check_arguments, checked


@check_arguments
class Box:
    """Gives back what it is given."""

    def __init__(self, size: Count, share: Share = 0.5) -> None:
        self.size, self.share = size, share

    def put(self, *items: int, by: Sequence[float] | None = None, flag: bool = False) -> object:
        """All that was given."""
        return items, by, flag

    def pick(self, mode: Literal["first", "last"], **sizes: int) -> object:
        """All that was given."""
        return mode, sizes

    def fold(self, axis: int = 0) -> int:
        """The axis."""
        return axis


def test_what_fits_is_handed_on_as_it_is() -> None:
    by = [1, 2.5]
    box = Box(3, share=1)
    found = box.put(1, 2, by=by, flag=True)
    assert found == ((1, 2), by, True)
    assert found[1] is by
    assert box.pick("last", a=3) == ("last", {"a": 3})


@pytest.mark.parametrize("number", [np.int64(2), np.array(2), np.uint8(2)])
def test_numbers_of_other_libraries_become_those_of_python(number: object) -> None:
    (items, by, flag) = Box(number).put(number, by=(number, np.float32(0.5)), flag=np.bool_(True))
    assert [type(each) for each in (items[0], *by, flag)] == [int, int, float, bool]
    assert type(Box(number).size) is int


@pytest.mark.parametrize("number", [0, 1, True, 1.0, np.int64(0), np.float32(1), np.bool_(False)])
def test_numbers_of_any_kind_stay_of_theirs(number: object) -> None:
    """0 and 1 are equal to False and True, and fit a bool where nothing else is asked for."""

    @checked
    def same(value: bool | int | float, size: Count = 1) -> object:
        return value

    plain = number.item() if isinstance(number, np.generic) else number
    for _ in range(2):
        assert same(number, 1) == plain
        assert type(same(number, 1)) is type(plain)
    assert Tensor.full((2,), number).dtype is Tensor(plain).dtype


def test_several_may_come_one_after_the_other() -> None:
    def numbers() -> Iterator[float]:
        yield from (0.5, 2)

    assert Box(1).put(by=numbers()) == ((), (0.5, 2), False)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda box: Box("a"), "Box: size='a', which is of type str, .* Give int of at least 1"),
        (lambda box: Box(0), "Box: size=0"),
        (lambda box: Box(1, 1.5), "share=1.5.*Give float from 0 to 1"),
        (lambda box: Box(1, float("nan")), "share=nan"),
        (lambda box: box.put(1, 2.0), "put: items=2.0"),
        (lambda box: box.put(by="ab"), "put: by='ab'"),
        (lambda box: box.put(by=[1, "a"]), r"put: by=\[1, 'a'\]"),
        (lambda box: box.put(by={1: 2}), "by={1: 2}"),
        (lambda box: box.put(flag=2), "flag=2.*Give bool"),
        (lambda box: box.pick("middle"), "mode='middle'.*Give one of 'first', 'last'"),
        (lambda box: box.pick("last", a="b"), "a='b'.*Give int"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(call, text: str) -> None:
    for _ in range(2):  # what was accepted before teaches nothing wrong
        with pytest.raises(ArgumentError, match=text):
            call(Box(1, 0.5))


def test_other_libraries_names_are_known() -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    assert Box(1).fold(dim=2) == 2
    assert x.sum(dim=1, keepdims=True).tolist() == x.sum(axis=1, keepdim=True).tolist()
    assert x.gather(axis=0, index=Tensor([[1, 0]])).tolist() == [[3.0, 2.0]]
    assert x.clip(min_=1.5, max_=3).tolist() == [[1.5, 2.0], [3.0, 3.0]]
    with pytest.raises(TypeError, match="dim"):
        x.sum(axis=0, dim=1)


def test_annotations_of_users_subclasses_are_their_own() -> None:
    class Mine(Tensor):
        def scaled(self, by: dict[str, int], size: np.float32) -> Tensor:
            return self * by["x"] * float(size)

    assert Mine([1.0]).scaled({"x": 3}, 2).tolist() == [6.0]


def test_a_number_from_a_range_may_be_a_tensor_that_is_not_computed() -> None:
    @checked
    def share(p: Share) -> object:
        return p

    lazy = Tensor([0.25]).sum()
    assert share(lazy) is lazy


def test_missing_and_unknown_arguments_are_pythons_errors() -> None:
    for call in (Box, lambda: Box(1).fold(1, 2), lambda: Box(1).fold(foo=1)):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(TypeError, match="foo"):
        Tensor.zeros(3, foo=1)


def test_functions_keep_their_names_and_need_no_check_twice() -> None:
    assert Box.put.__name__ == Box.put.__code__.co_name == "put"
    assert checked(test_several_may_come_one_after_the_other).__name__.startswith("test_several")
