"""Other libraries see our memory, and we see theirs."""

import copy
import gc
import importlib
import pickle

import numpy as np
import pytest

from kernelet.base.config import Context
from kernelet.base.dtype import dtypes
from kernelet.base.errors import ArgumentError, DTypeError, ShapeError
from kernelet.frontend.tensor import Tensor

A = np.arange(24, dtype=np.float32).reshape(4, 6)
LAYOUTS = {
    "rows": lambda a: a,
    "columns": lambda a: a.T,
    "every other row": lambda a: a[::2],
    "every other column": lambda a: a[1:, ::2],
    "one column": lambda a: a[:, 2],
    "backwards": lambda a: a[::-1, 4:1:-1],
    "repeated": lambda a: np.broadcast_to(a[0], (3, 6)),
    "axes of size 1": lambda a: a[:, None, 2:],
    "nothing": lambda a: a[:0],
    "one number": lambda a: a[1, 2:3].reshape(()),
    "three axes": lambda a: a.reshape(2, 3, 4).transpose(1, 2, 0),
    "windows": lambda a: np.lib.stride_tricks.sliding_window_view(a[0], 3),
    "other bytes": lambda a: a.astype(">f4"),
    "truths": lambda a: a > 3,
}
PEERS = [name for name in ("torch", "jax.numpy") if importlib.util.find_spec(name.split(".")[0])]


@pytest.fixture(params=["PYTHON", "LLVM", "NULL"])
def device(request):
    """The devices that differ: memory that is checked, memory to share, none at all."""
    with Context(DEV=request.param):
        yield request.param


@pytest.fixture
def shared():
    """A device whose memory is that of the processor."""
    with Context(DEV="LLVM"):
        yield


@pytest.mark.parametrize("name", LAYOUTS)
def test_arrays_of_every_layout_come_and_go(name, device):
    array = LAYOUTS[name](A.copy())
    tensor = Tensor.from_numpy(array)
    assert tensor.shape == array.shape
    expected = np.zeros_like(array) if device == "NULL" else array
    for found in (tensor.numpy(), np.asarray(tensor), np.array(tensor), (tensor * 1).numpy()):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.from_dlpack(tensor), expected)


def test_from_numpy_shares_memory_both_ways(shared):
    array = A.copy()
    tensor = Tensor.from_numpy(array)
    array[0, 0] = 100
    assert (tensor + 1)[0, 0].item() == 101
    tensor.assign(tensor * 2).realize()
    assert array[0, 0] == 200
    tensor[1:3, ::2] = -1.0
    tensor.realize()
    assert array[1, :3].tolist() == [-1, 14, -1]


def test_shared_memory_outlives_its_makers(shared):
    tensor = Tensor.from_numpy(np.full(1000, 3.0))
    seen, data = np.asarray(tensor * 2), (tensor * 3).data()
    del tensor
    gc.collect()
    assert Tensor.zeros(1000, dtype="float64").contiguous().realize().sum().item() == 0
    assert seen.sum() == 6000
    assert np.frombuffer(data).sum() == 9000


def test_views_are_seen_where_they_lie(shared):
    tensor = Tensor(A).realize()
    whole = np.asarray(tensor)
    for view in (tensor.T, tensor[1:, 2:5], tensor.flip(0), tensor[0].expand(3, 6)):
        found = np.asarray(view)
        assert np.shares_memory(found, whole)
        assert not found.flags.writeable
        np.testing.assert_array_equal(found, view.numpy())
    tensor[0] = 7.0
    tensor.realize()
    assert whole[0].tolist() == [7.0] * 6


def test_copies_are_made_when_they_are_asked_for(shared):
    tensor = Tensor(A).realize()
    for found in (np.array(tensor, copy=True), tensor.__array__(copy=True), tensor.numpy()):
        assert found.flags.writeable
        assert not np.shares_memory(found, np.asarray(tensor))
    assert not np.shares_memory(np.from_dlpack(Tensor.from_dlpack(A, copy=True)), A)
    assert np.asarray(tensor, dtype="float64").dtype == np.float64


def test_copies_that_are_ruled_out_are_errors(shared):
    fixed = A.copy()
    fixed.flags.writeable = False
    assert Tensor.from_numpy(fixed).tolist() == fixed.tolist()
    with pytest.raises(BufferError, match="read-only"):
        Tensor.from_dlpack(fixed, copy=False)
    with pytest.raises(BufferError, match="overlap"):
        Tensor.from_dlpack(LAYOUTS["windows"](A.copy()), copy=False)
    with pytest.raises(BufferError, match="no memory that shows"):
        Tensor(A).realize().pad((1, 1)).__dlpack__(copy=False)
    with pytest.raises(BufferError, match="on NULL"):
        Tensor([1.0], device="NULL").__dlpack__(copy=False)
    for wrong in (Tensor([1.0], dtype="bfloat16"), Tensor(A).shard(("LLVM", "LLVM:1"), 0)):
        with pytest.raises(BufferError, match="copy=False"):
            np.asarray(wrong, copy=False)


def test_what_is_no_array_is_named():
    with pytest.raises(ArgumentError, match="from_numpy: list is no numpy array"):
        Tensor.from_numpy([1, 2])
    with pytest.raises(ArgumentError, match="from_dlpack: list is no DLPack capsule"):
        Tensor.from_dlpack([1, 2])
    with pytest.raises(DTypeError, match="complex128"):
        Tensor.from_numpy(np.zeros(2, complex))


@pytest.mark.parametrize("name", PEERS)
def test_other_frameworks_read_ours_and_we_read_theirs(name, shared):
    peer = importlib.import_module(name)
    for dtype in dtypes.all:
        if name == "jax.numpy" and dtype.itemsize == 8:
            continue
        tensor = Tensor([[0, 1, 1], [1, 0, 1]], dtype=dtype)
        theirs = peer.from_dlpack(tensor)
        assert theirs.tolist() == tensor.tolist()
        again = Tensor.from_dlpack(theirs)
        assert (again.dtype, again.tolist()) == (dtype, tensor.tolist())
        assert peer.from_dlpack(tensor.T).tolist() == tensor.T.tolist()
        assert peer.from_dlpack(tensor.flip(1)).tolist() == tensor.flip(1).tolist()
    with pytest.raises(ArgumentError, match="capsule"):
        Tensor.from_dlpack(3)


@pytest.mark.skipif("torch" not in PEERS, reason="PyTorch is not installed")
def test_memory_of_torch_is_shared(shared):
    torch = importlib.import_module("torch")
    theirs = torch.arange(12.0).reshape(3, 4)[:, 1:3].T
    tensor = Tensor.from_dlpack(theirs)
    theirs.mul_(2)
    assert tensor.tolist() == theirs.tolist() == [[2, 10, 18], [4, 12, 20]]
    ours = Tensor(A).realize()
    assert torch.from_dlpack(ours).data_ptr() == np.asarray(ours).ctypes.data


@pytest.mark.parametrize("again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_tensors_are_copied_and_kept_with_all_they_say(again, device):
    for required in (None, False, True):
        tensor = Tensor(A, requires_grad=required)
        found = again(tensor)
        assert (found.device, found.requires_grad, found.is_leaf) == (device, required, True)
        assert found.tolist() == tensor.tolist()
        found.assign(found + 1).realize()
        np.testing.assert_array_equal(tensor.numpy(), np.zeros_like(A) if device == "NULL" else A)
    if device != "NULL":
        assert again(Tensor(A)[1:, ::2] * 2).tolist() == (2 * A[1:, ::2]).tolist()
        assert again(Tensor([1.5], dtype="bfloat16")).item() == 1.5
        assert again(Tensor.zeros(0, 3)).shape == (0, 3)


@pytest.mark.parametrize("axis", [0, 1, None])
def test_copies_of_sharded_tensors_are_sharded(axis):
    names = ("PYTHON", "PYTHON:1", "PYTHON:2")
    found = pickle.loads(pickle.dumps(Tensor(A).shard(names, axis)))
    assert found.device == names
    assert found.tolist() == A.tolist()
    assert [part.shape for part in found.uop.src] == [
        p.shape for p in Tensor(A).shard(names, axis).realize().uop.src
    ]


def test_models_are_copied_whole():
    first = Tensor([1.0, 2.0], requires_grad=True)
    both = copy.deepcopy({"weight": first, "tied": first})
    assert both["weight"] is both["tied"]
    assert both["weight"] is not first


def test_facts_have_the_names_of_pytorch() -> None:
    x = Tensor([[1, 2, 3]], dtype="int16")
    assert (x.shape, x.size(), x.size(-1), x.ndim, x.dim(), len(x)) == ((1, 3), (1, 3), 3, 2, 2, 1)
    assert (x.numel(), x.element_size(), x.nbytes(), x.dtype) == (3, 2, 6, dtypes.int16)
    assert x.device == "PYTHON"
    assert not x.is_floating_point()
    with pytest.raises(ShapeError, match="that has axes"):
        len(Tensor(1))


def test_values_become_python_and_numpy() -> None:
    x = Tensor([[1.5, 2.5], [3.5, 4.5]])
    assert x.tolist() == [[1.5, 2.5], [3.5, 4.5]]
    assert x.numpy().dtype == np.float32
    assert bytes(x.data()) == x.numpy().tobytes()
    assert np.asarray(x).shape == (2, 2)
    assert (Tensor([7]).item(), int(Tensor(7.9)), float(Tensor(2)), bool(Tensor([0]))) == (
        7,
        7,
        2.0,
        False,
    )
    assert [1, 2, 3][Tensor(1)] == 2
    assert [row.tolist() for row in x] == x.tolist()
    with pytest.raises(ShapeError, match="item"):
        x.item()
    with pytest.raises(ArgumentError, match="index"):
        [1, 2, 3][Tensor(1.0)]
    with pytest.raises(ShapeError, match="iter"):
        iter(Tensor(1))


def test_every_type_goes_in_and_out() -> None:
    for dtype in dtypes.all:
        assert Tensor([0, 1], dtype=dtype).tolist() == [0, 1]
    assert Tensor([1.5, -2.25], dtype="bfloat16").numpy().tolist() == [1.5, -2.25]
