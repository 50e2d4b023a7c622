"""Broadcasting and axes follow the rules that numpy and PyTorch users know."""

import pytest

from kernelet.base.errors import ArgumentError, IndexingError, ShapeError
from kernelet.frontend.primitives import Primitives, broadcast_shape, known, show_shape
from kernelet.frontend.tensor import Tensor
from kernelet.graph.uop import UOp


def test_shapes_broadcast_from_the_right() -> None:
    assert broadcast_shape((2, 1, 4), (3, 1), ()) == (2, 3, 4)
    assert broadcast_shape((0, 1), (1, 5)) == (0, 5)


def test_shapes_that_do_not_fit_are_named_with_the_axis() -> None:
    with pytest.raises(ShapeError, match=r"add: cannot broadcast \(3, 4\) with \(2, 4\): axis 0"):
        Tensor.ones(3, 4) + Tensor.ones(2, 4)


def test_bound_variables_broadcast_with_themselves_and_with_one() -> None:
    n = UOp.variable("n", 1, 9).bind(4)
    assert broadcast_shape((n, 1), (n, 3)) == (n, 3)
    assert show_shape((n, 3)) == "(n=4, 3)"
    with pytest.raises(ShapeError, match="n=4"):
        broadcast_shape((n,), (5,))


def test_axes_count_from_both_ends() -> None:
    x = Tensor.ones(2, 3, 4)
    assert (x.axis(-1), x.axes((2, -3)), x.axes(None)) == (2, (0, 2), (0, 1, 2))
    with pytest.raises(IndexingError, match="axis 3"):
        x.axis(3)
    with pytest.raises(IndexingError, match="twice"):
        x.axes((1, -2))


def test_operands_must_be_numbers_or_tensors() -> None:
    with pytest.raises(ArgumentError, match="str"):
        Tensor([1]) + "1"  # type: ignore[operator]


def test_a_bound_variable_is_an_operand() -> None:
    n = UOp.variable("n", 1, 9).bind(4)
    assert (Tensor([1, 2]) + n).tolist() == [5, 6]  # type: ignore[operator]


def test_no_two_topic_classes_define_the_same_method() -> None:
    owners: dict[str, list[str]] = {}
    for topic in Tensor.__mro__[:-1]:
        for name, method in vars(topic).items():
            declared = topic is Primitives or getattr(method, "__isabstractmethod__", False)
            if not declared and not name.startswith(("__", "_abc")):
                owners.setdefault(name, []).append(topic.__name__)
    assert {name: found for name, found in owners.items() if len(found) > 1} == {}


def test_unknown_sizes_are_named() -> None:
    with pytest.raises(ShapeError, match="n=3"):
        known(UOp.variable("n", 1, 4).bind(3))
