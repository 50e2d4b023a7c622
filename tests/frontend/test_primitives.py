"""Broadcasting, promotion and axes follow the rules that numpy and PyTorch users know."""

import numpy as np
import pytest

from kernelet.base.dtype import dtypes
from kernelet.base.errors import ArgumentError, DTypeError, IndexingError, ShapeError
from kernelet.frontend.primitives import (
    Primitives,
    as_dtype,
    broadcast_shape,
    known,
    promote_scalar,
    show_shape,
)
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


@pytest.mark.parametrize(
    ("dtype", "number", "result"),
    [
        (dtypes.int64, 0.5, dtypes.float32),
        (dtypes.float16, 1.5, dtypes.float16),
        (dtypes.float16, 7, dtypes.float16),
        (dtypes.int8, 7, dtypes.int8),
        (dtypes.uint8, True, dtypes.uint8),
        (dtypes.bool, 1, dtypes.int32),
        (dtypes.bool, 1.0, dtypes.float32),
        (dtypes.bool, True, dtypes.bool),
    ],
)
def test_a_number_of_the_same_kind_does_not_promote(
    dtype: object, number: object, result: object
) -> None:
    assert promote_scalar(dtype, number) is result  # type: ignore[arg-type]
    assert (Tensor([1], dtype=dtype) + number).dtype is result  # type: ignore[arg-type, operator]


def test_numpy_numbers_count_as_python_numbers() -> None:
    assert (Tensor([1.0], dtype="half") * np.float64(2)).dtype is dtypes.float16
    assert (np.float32(2) * Tensor([1, 2])).tolist() == [2.0, 4.0]
    assert (Tensor([1.0, 2.0]) + np.array([1, 2], np.int32)).tolist() == [2.0, 4.0]


def test_dtypes_have_names() -> None:
    assert as_dtype("half") is dtypes.float16
    with pytest.raises(ArgumentError, match="float8"):
        as_dtype("float8")


@pytest.mark.parametrize("name", ["bool", "int8", "uint8", "int64", "float16", "float32"])
def test_types_of_numpy_are_types(name: str) -> None:
    wanted = as_dtype(name)
    for kind in (getattr(np, name + "_" * (name == "bool")), np.dtype(name)):
        assert as_dtype(kind) is wanted
        assert Tensor([1, 0]).cast(kind).dtype is wanted
        assert Tensor([1, 0], dtype=kind).dtype is wanted
        assert Tensor.zeros(2, dtype=kind).dtype is wanted
        assert Tensor([1, 0]).sum(dtype=kind).dtype is wanted


def test_types_of_python_are_those_of_its_numbers() -> None:
    for kind, number in ((float, 1.0), (int, 1), (bool, True)):
        assert Tensor([1, 0]).cast(kind).dtype is Tensor(number).dtype
        assert Tensor.zeros(2, dtype=kind).dtype is Tensor(number).dtype
    for kind in (str, list, np.str_, np.dtype("complex64"), object()):
        with pytest.raises(ArgumentError, match="there is no such element type"):
            Tensor([1]).cast(kind)


def test_bitcast_keeps_the_bits() -> None:
    assert Tensor([1.0]).bitcast(dtypes.uint32).tolist() == [0x3F800000]


@pytest.mark.parametrize("source", ["uint8", "int16", "float32", "float64", "uint64"])
@pytest.mark.parametrize("wanted", ["int8", "float16", "int32", "int64", "float64"])
def test_bitcast_to_another_width_changes_the_last_axis(source: str, wanted: str) -> None:
    x = np.arange(1, 49, dtype=np.float64).reshape(2, 3, 8).astype(source)
    found = Tensor(x).bitcast(wanted).numpy()
    want = x.view(wanted)
    assert (found.shape, found.dtype, found.tobytes()) == (want.shape, want.dtype, want.tobytes())


def test_bitcast_needs_whole_elements() -> None:
    with pytest.raises(DTypeError, match="divides 12 bytes of a last axis"):
        Tensor([1, 2, 3]).bitcast(dtypes.float64)
    with pytest.raises(DTypeError, match="last axis"):
        Tensor(1.0).bitcast(dtypes.uint8)


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
