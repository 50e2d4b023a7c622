"""Code for any library's arrays computes the same on tensors as on the standard's own arrays."""

import inspect
import math

import array_api_strict
import numpy as np
import pytest

from kernelet import Context, Tensor
from kernelet.array_api import namespace

X = np.sin(np.arange(24.0)).astype(np.float32).reshape(4, 6)
Y = np.cos(np.arange(6.0)).astype(np.float32) + 1.5
N = (np.arange(12, dtype=np.int32) * 7 % 5).reshape(3, 4)
B = N > 2


@pytest.fixture(autouse=True)
def quick_device():
    with Context(DEV="PYTHON"):
        yield


def standardize(x):
    xp = x.__array_namespace__()
    return (x - xp.mean(x, axis=0)) / xp.std(x, axis=0)


def softmax(x):
    xp = x.__array_namespace__()
    powers = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return powers / xp.sum(powers, axis=-1, keepdims=True)


def distances(x):
    xp = x.__array_namespace__()
    return xp.sqrt(xp.sum((x[:, None, :] - x[None, :, :]) ** 2, axis=-1))


def kmeans_step(x):
    xp = x.__array_namespace__()
    centers = x[:3, :]
    near = xp.argmin(xp.sum((x[:, None, :] - centers[None, ...]) ** 2, axis=-1), axis=1)
    is_in = xp.astype(near[:, None] == xp.arange(3)[None, :], x.dtype)
    counts = xp.maximum(xp.sum(is_in, axis=0), xp.asarray(1.0, dtype=x.dtype))
    return xp.matmul(xp.matrix_transpose(is_in), x) / counts[:, None]


def normalized_histogram(x):
    xp = x.__array_namespace__()
    values, counts = xp.unique_counts(xp.astype(xp.round(x * 2), xp.int32))
    return xp.stack([xp.astype(values, xp.float32), xp.astype(counts, xp.float32)])


@pytest.mark.parametrize(
    "function", [standardize, softmax, distances, kmeans_step, normalized_histogram]
)
def test_one_function_serves_both_libraries(function):
    expected = function(array_api_strict.asarray(X))
    found = function(Tensor(X))
    assert isinstance(found, Tensor)
    np.testing.assert_allclose(found.numpy(), np.asarray(expected), rtol=1e-5, atol=1e-6)


UNARY = (
    "abs acos asin atan ceil cos cosh exp expm1 floor isfinite isinf isnan negative "
    "positive round sign signbit sin sinh square tan tanh trunc"
)
SAFE = ("acosh", "asinh", "atanh", "log", "log10", "log1p", "log2", "reciprocal", "sqrt")
BINARY = (
    "add atan2 copysign divide equal floor_divide greater greater_equal hypot less less_equal "
    "logaddexp maximum minimum multiply not_equal pow remainder subtract"
)
WHOLE = "bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor"
CALLS = {
    **{name: lambda xp, x, n, b, name=name: getattr(xp, name)(x) for name in UNARY.split()},
    **{
        name: lambda xp, x, n, b, name=name: getattr(xp, name)(
            abs(x) / 2 + (1.0 if name == "acosh" else 0.25)
        )
        for name in SAFE
    },
    **{
        name: lambda xp, x, n, b, name=name: getattr(xp, name)(abs(x), xp.asarray(Y))
        for name in BINARY.split()
    },
    **{
        name: lambda xp, x, n, b, name=name: getattr(xp, name)(n, n[:1, :])
        for name in WHOLE.split()
    },
    **{
        f"{name} {axis} {keep}": lambda xp, x, n, b, name=name, axis=axis, keep=keep: getattr(
            xp, name
        )(x, axis=axis, keepdims=keep)
        for name in ("sum", "prod", "mean", "max", "min", "std", "var", "any", "all")
        for axis, keep in ((None, False), (0, True), ((0, 1), False))
    },
    "logical_not": lambda xp, x, n, b: xp.logical_not(b),
    "logical_and": lambda xp, x, n, b: xp.logical_and(b, xp.logical_or(b, xp.logical_xor(b, ~b))),
    "invert": lambda xp, x, n, b: xp.bitwise_invert(n),
    "argmax": lambda xp, x, n, b: xp.argmax(x, axis=1, keepdims=True),
    "argmin": lambda xp, x, n, b: xp.argmin(x),
    "count_nonzero": lambda xp, x, n, b: xp.count_nonzero(n, axis=0),
    "correction": lambda xp, x, n, b: xp.var(x, axis=0, correction=1),
    "cumulative_sum": lambda xp, x, n, b: xp.cumulative_sum(x, axis=1, include_initial=True),
    "cumulative_prod": lambda xp, x, n, b: xp.cumulative_prod(x, axis=0),
    "diff": lambda xp, x, n, b: xp.diff(x, n=2, axis=0, append=x[:1, :]),
    "clip": lambda xp, x, n, b: xp.clip(x, -0.5, 0.5),
    "where": lambda xp, x, n, b: xp.where(x > 0, x, -x),
    "concat": lambda xp, x, n, b: xp.concat([x, x[:1, :]], axis=0),
    "concat flat": lambda xp, x, n, b: xp.concat([n, n], axis=None),
    "stack": lambda xp, x, n, b: xp.stack([x, x], axis=1),
    "unstack": lambda xp, x, n, b: xp.unstack(x, axis=1)[2],
    "expand_dims": lambda xp, x, n, b: xp.expand_dims(x, axis=1),
    "squeeze": lambda xp, x, n, b: xp.squeeze(x[:1, :], axis=0),
    "flip": lambda xp, x, n, b: xp.flip(x),
    "roll": lambda xp, x, n, b: xp.roll(x, 2, axis=1),
    "tile": lambda xp, x, n, b: xp.tile(x, (2, 1)),
    "repeat": lambda xp, x, n, b: xp.repeat(x, 2, axis=0),
    "reshape": lambda xp, x, n, b: xp.reshape(x, (-1, 3), copy=True),
    "permute_dims": lambda xp, x, n, b: xp.permute_dims(x, (1, 0)),
    "moveaxis": lambda xp, x, n, b: xp.moveaxis(x, 0, 1),
    "matrix_transpose": lambda xp, x, n, b: xp.matrix_transpose(x),
    "broadcast_to": lambda xp, x, n, b: xp.broadcast_to(x, (2, 4, 6)),
    "broadcast_arrays": lambda xp, x, n, b: xp.broadcast_arrays(x, x[:1, :])[1],
    "meshgrid": lambda xp, x, n, b: xp.meshgrid(x[0, :], x[:, 0])[1],
    "tril": lambda xp, x, n, b: xp.tril(x, k=1) - xp.triu(x, k=-1),
    "matmul": lambda xp, x, n, b: xp.matmul(x, x.T),
    "tensordot": lambda xp, x, n, b: xp.tensordot(x, x, axes=((0, 1), (0, 1))),
    "vecdot": lambda xp, x, n, b: xp.vecdot(x, x),
    "sort": lambda xp, x, n, b: xp.sort(x, axis=0, descending=True),
    "argsort": lambda xp, x, n, b: xp.argsort(n, axis=1),
    "take": lambda xp, x, n, b: xp.take(x, n[0, :] % 4, axis=0),
    "take_along_axis": lambda xp, x, n, b: xp.take_along_axis(x, xp.argsort(x, axis=1), axis=1),
    "nonzero": lambda xp, x, n, b: xp.nonzero(n)[1],
    "searchsorted": lambda xp, x, n, b: xp.searchsorted(xp.sort(n[0, :]), n[1, :], side="right"),
    "isin": lambda xp, x, n, b: xp.isin(n, n[0, :2]),
    "unique_values": lambda xp, x, n, b: xp.unique_values(n),
    "unique_inverse": lambda xp, x, n, b: xp.unique_inverse(n).inverse_indices,
    "unique_all": lambda xp, x, n, b: xp.unique_all(n)[3] + xp.unique_all(n).indices,
    "arange": lambda xp, x, n, b: xp.arange(1, 7, 2),
    "linspace": lambda xp, x, n, b: xp.linspace(0, 1, 5, endpoint=False),
    "eye": lambda xp, x, n, b: xp.eye(3, 4, k=1),
    "full": lambda xp, x, n, b: xp.full((2, 3), 7) + xp.full_like(n[:2, :3], 2),
    "ones": lambda xp, x, n, b: xp.ones((2,)) + xp.zeros(2) + xp.ones_like(x[0, :2]),
    "empty": lambda xp, x, n, b: xp.isfinite(xp.empty((2, 2)) * 0 + xp.empty_like(x)[:2, :2] * 0),
    "astype": lambda xp, x, n, b: xp.astype(x * 3, xp.int32),
    "number first": lambda xp, x, n, b: xp.subtract(1.5, x) + xp.maximum(x[:1, :1], 2.0),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_are_those_of_the_standard(name):
    call = CALLS[name]
    expected = np.asarray(call(array_api_strict, *map(array_api_strict.asarray, (X, N, B))))
    found = call(namespace, Tensor(X), Tensor(N), Tensor(B))
    assert found.shape == expected.shape
    assert found.dtype.kind[0] == {"b": "b", "i": "i", "f": "f", "u": "u"}[expected.dtype.kind]
    np.testing.assert_allclose(found.numpy(), expected, rtol=2e-5, atol=1e-6)


def test_every_name_of_the_standard_is_there():
    ours = set(vars(namespace))
    internal = {"ArrayAPIStrictFlags", "Device", "ModuleType", "nextafter"}
    missing = {
        name
        for name in dir(array_api_strict)
        if not name.startswith("_") and "flags" not in name and "complex" not in name
    } - ours
    assert missing - internal <= {"conj", "imag", "real"}
    assert all(inspect.getdoc(getattr(namespace, name)) for name in CALLS if name in ours)


def test_types_are_asked_about():
    xp = namespace
    assert xp.isdtype(xp.int16, "integral")
    assert not xp.isdtype(xp.float32, ("bool", "unsigned integer", xp.int8))
    assert xp.result_type(xp.int8, xp.int16, 3) is xp.int16
    assert xp.result_type(Tensor([1]), 2.5) is xp.float32
    assert xp.can_cast(xp.int8, xp.int32)
    assert not xp.can_cast(xp.float64, xp.float32)
    for name in ("float32", "float64"):
        ours, theirs = xp.finfo(getattr(xp, name)), np.finfo(name)
        for field in ("bits", "eps", "max", "min", "smallest_normal"):
            assert getattr(ours, field) == getattr(theirs, field)
    assert (xp.iinfo(xp.uint8).max, xp.iinfo(Tensor([1])).min) == (255, -(2**31))
    assert (xp.e, xp.inf, xp.newaxis) == (math.e, math.inf, None)


def test_the_namespace_tells_of_itself():
    found = Tensor([1]).__array_namespace__().__array_namespace_info__()
    assert found.default_device() in found.devices()
    assert found.default_dtypes()["real floating"] is namespace.float32
    assert set(found.dtypes(kind="signed integer")) == {"int8", "int16", "int32", "int64"}
    assert found.capabilities()["boolean indexing"] is True


def test_arrays_come_from_anywhere():
    xp = namespace
    assert xp.asarray(np.arange(3)).tolist() == [0, 1, 2]
    x = Tensor([1.0])
    assert xp.asarray(x) is x
    assert xp.asarray(x, copy=True) is not x
    assert xp.from_dlpack(np.arange(3.0)).tolist() == [0, 1, 2]
    assert x.to_device("PYTHON:1").device == "PYTHON:1"
    assert xp.broadcast_shapes((2, 1), (3,)) == (2, 3)
