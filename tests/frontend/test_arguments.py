"""Every argument is of the kind that its signature names, or is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np
import pytest

from kernelet import Tensor, nn
from kernelet.base.errors import ArgumentError, UserError
from kernelet.frontend.arguments import Count, Share, check_arguments, checked

Call = Callable[[Tensor], Tensor]


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


@pytest.mark.parametrize("number", [np.int64(2), np.array(2), np.uint8(2), np.float32(2)])
def test_numbers_of_other_libraries_become_those_of_python(number: object) -> None:
    (items, by, flag) = Box(number).put(number, by=(number, np.float32(0.5)), flag=np.bool_(True))
    plain = type(number.item())  # type: ignore[attr-defined]
    assert [type(each) for each in (items[0], *by, flag)] == [int, plain, float, bool]
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


@pytest.mark.parametrize("number", [2.0, np.float32(2), np.float64(2), np.array(2.0)])
def test_whole_floats_are_whole_numbers(number: object) -> None:
    assert type(Box(number).size) is int
    assert Box(1).put(number) == ((2,), None, False)
    assert Box(1).fold(axis=number) == 2
    x = Tensor([1.0, 4.0, 2.0])
    assert x.std(correction=number).item() == x.std(correction=2).item()
    with pytest.raises(ArgumentError, match="size=.*Give int of at least 1"):
        Box(number / 4)  # type: ignore[operator]


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
        (lambda box: box.put(1, 2.5), "put: items=2.5"),
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
    with pytest.raises(TypeError, match=r"sum\(\) got \['axis', 'dim'\], two of which are one"):
        x.sum(axis=0, dim=1)
    with pytest.raises(TypeError, match=r"sum\(\) got multiple values for argument 'axis'"):
        x.sum(0, dim=1)


def matrix() -> Tensor:
    """Two rows of three numbers."""
    return Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (lambda x: x.flip(dims=(0, 1)), lambda x: x.flip(0, 1)),
        (lambda x: x.flip(dims=0), lambda x: x.flip(0)),
        (lambda x: x.permute(dims=(1, 0)), lambda x: x.permute(1, 0)),
        (lambda x: x.tile(dims=(2, 1)), lambda x: x.repeat(2, 1)),
        (lambda x: x.view(size=(3, 2)), lambda x: x.reshape(3, 2)),
        (lambda x: x.reshape(shape=(3, 2)), lambda x: x.reshape(3, 2)),
        (lambda x: x[:1].expand(size=(2, 3)), lambda x: x[:1].expand(2, 3)),
        (lambda x: x.split(split_size=1)[1], lambda x: x.split(1)[1]),
        (lambda x: x.split(split_size_or_sections=[1, 1])[1], lambda x: x.split(1)[1]),
        (lambda x: x.std(0, unbiased=False), lambda x: x.std(0, correction=0)),
        (lambda x: x.var(0, ddof=0), lambda x: x.var(0, correction=0)),
        (
            lambda x: x.scatter(0, Tensor([[1]]), value=7),
            lambda x: x.scatter(0, Tensor([[1]]), 7.0),
        ),
        (lambda x: x.pad(pad=(1, 1)), lambda x: x.pad((1, 1))),
        (lambda x: Tensor.zeros(size=(2, 3)), lambda x: Tensor.zeros(2, 3)),
        (lambda x: Tensor.full(size=(2,), fill_value=3), lambda x: Tensor.full((2,), 3)),
        (lambda x: Tensor.arange(end=3), lambda x: Tensor.arange(3)),
        (lambda x: Tensor.arange(start=1, end=7, step=2), lambda x: Tensor.arange(1, 7, 2)),
        (lambda x: Tensor.eye(n=2, m=3), lambda x: Tensor.eye(2, 3)),
        (lambda x: Tensor.randint(low=5, high=6, size=(2,)), lambda x: Tensor.full((2,), 5)),
        (lambda x: Tensor.randint(5, 6, size=(2,)), lambda x: Tensor.full((2,), 5)),
        (lambda x: Tensor.einsum("ij->j", x), lambda x: x.sum(0)),
    ],
)
def test_arguments_have_the_names_of_other_libraries_too(theirs: Call, ours: Call) -> None:
    for _ in range(2):  # the second time is by plan
        found, wanted = theirs(matrix()), ours(matrix())
        assert (found.tolist(), found.dtype) == (wanted.tolist(), wanted.dtype)


def test_layers_have_the_names_of_pytorch() -> None:
    assert nn.Embedding(num_embeddings=3, embedding_dim=4).weight.shape == (3, 4)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: matrix().sum(foo=1), r"^sum\(\) got .* 'foo'. It takes axis, keepdim, dtype.$"),
        (lambda: matrix().reshape(foo=1), r"^reshape\(\) got .* 'foo'. It takes shape.$"),
        (lambda: matrix().add(1, alpha=2), r"^add\(\) got .* 'alpha'. It takes other, reverse.$"),
        (lambda: matrix().matmul(), r"^matmul\(\) missing .* 'other'$"),
        (lambda: nn.Linear(3), r"^Linear\(\) missing .* 'out_features'$"),
        (lambda: nn.Linear(3, 4, foo=2), r"^Linear\(\) got .* 'foo'. It takes in_features, "),
        (lambda: Tensor.zeros(2, foo=1), "'foo'. It takes shape, dtype, device, requires_grad.$"),
    ],
)
def test_names_that_are_not_known_are_told_those_that_are(call: Callable, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        call()


@pytest.mark.parametrize("kind", [tuple, np.array, iter, set])
def test_sizes_and_axes_may_be_whatever_holds_several(kind: Callable) -> None:
    assert matrix().reshape(kind([2, 3])).shape == (2, 3)
    assert Tensor.zeros(kind([2, 3])).shape == Tensor.rand(kind([2, 3])).shape == (2, 3)
    assert Tensor.full(kind([2, 3]), 1.0).shape == (2, 3)
    assert matrix().expand(kind([2, 3])).shape == (2, 3)
    assert matrix().sum(kind([0, 1])).item() == 21.0
    assert matrix().permute(kind([0, 1])).tolist() == matrix().tolist()
    assert matrix().flip(kind([0, 1])).tolist() == matrix().flip(0, 1).tolist()


def test_a_tensor_is_no_axis_and_no_several() -> None:
    x = matrix()
    for call in (x.max, x.sum, x.reshape):
        with pytest.raises(UserError, match="Use an axis from -2 to 1|Give"):
            call(x)
    assert matrix().sum(Tensor(1)).tolist() == [6.0, 15.0]


def test_messages_call_a_method_as_the_user_does() -> None:
    x = matrix()
    for call in (x.clip, x.clamp):
        with pytest.raises(
            ArgumentError, match=f"^{call.__func__.__code__.co_name}: an operand of type"
        ):
            call("a")
    with pytest.raises(ArgumentError, match="^divide: rounding_mode='up'.*Give one of 'trunc', "):
        matrix().divide(2, rounding_mode="up")
    with pytest.raises(
        ArgumentError, match=r"Give int of at least 1 \| Sequence\[int of at least 1\]"
    ):
        matrix().avg_pool2d(kernel_size="a")
    with pytest.raises(
        ArgumentError, match=r"others='a'.*Give Tensor \| Sequence\[Tensor\] \| int"
    ):
        matrix().cat("a")


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


@pytest.mark.parametrize(
    "name", ["add", "sub", "mul", "div", "mod", "pow", "maximum", "minimum", "eq", "ne", "fmod"]
)
def test_the_second_operand_is_also_called_x(name: str) -> None:
    value = Tensor([-3.0, 0.5, 2.0])
    found = getattr(value, name)(x=2.0)
    np.testing.assert_array_equal(found.numpy(), getattr(value, name)(2.0).numpy())
