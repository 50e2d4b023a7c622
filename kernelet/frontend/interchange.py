"""Tensors in the hands of Python and of other libraries: numpy, DLPack, the Array API, memoryviews.

In:  arrays and capsules; tensors.
Out: sizes, numbers and lists; tensors over the memory of others, and views of ours, without a copy
     where the layout allows. Asking for values computes them.

numpy makes and takes the capsules of DLPack; it knows how long they live.
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

from kernelet import backends, engine, holdings
from kernelet.base.dtype import FORMATS, DType, Scalar, dtypes
from kernelet.base.errors import ArgumentError, SharingError
from kernelet.base.helpers import argsort
from kernelet.frontend import host
from kernelet.frontend.host import device_name, known_shape
from kernelet.frontend.indexing import Indexing
from kernelet.frontend.primitives import DeviceLike, product, show_shape
from kernelet.graph.infer import Dim, Shape
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.graph.walk import split_view, with_bound_values
from kernelet.runtime import dlpack
from kernelet.runtime.buffer import Buffer
from kernelet.runtime.device import driver

if TYPE_CHECKING:
    import numpy as np

# How numpy moves what is in memory.
_MOVES: dict[Op, Callable[[Any, Any, Any], Any]] = {
    Op.RESHAPE: lambda module, array, shape: array.reshape(shape),
    Op.PERMUTE: lambda module, array, order: array.transpose(order),
    Op.EXPAND: lambda module, array, shape: module.broadcast_to(array, shape),
    Op.SHRINK: lambda module, array, arg: array[tuple([slice(*bounds) for bounds in arg])],
    Op.FLIP: lambda module, array, axes: module.flip(array, axes),
}


class Interchange(Indexing):
    """shape questions, tolist, item, numpy, DLPack, data and the protocols that others call."""

    __slots__ = ()

    @abstractmethod
    def _realized(self) -> UOp:
        """The node of the values, which are computed."""

    # ---- sizes ----

    def size(self, dim: int | None = None) -> Shape | Dim:
        """The shape, or the size of one axis."""
        return self.shape if dim is None else self.shape[self.axis(dim)]

    def dim(self) -> int:
        """The number of axes."""
        return self.ndim

    def numel(self) -> Dim:
        """The number of elements."""
        return product(self.shape)

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def nbytes(self) -> Dim:
        """Bytes of all elements."""
        return self.numel() * self.dtype.itemsize

    def is_floating_point(self) -> bool:
        """Whether the elements are floats."""
        return self.dtype.is_float

    def __len__(self) -> int:
        self._need(self.ndim, "a tensor that has axes, or use item()")
        return known_shape(self.shape)[0]

    def __iter__(self) -> Iterator[Self]:
        self._need(self.ndim, "a tensor that has axes, or use item()")
        return iter([self[at] for at in range(len(self))])

    # ---- values ----

    def tolist(self) -> host.Nested:
        """The values as nested Python lists; a number for shape ()."""
        return host.nest(host.unpack(self.data(), self.dtype), known_shape(self.shape))

    def item(self) -> Scalar:
        """The one value as a Python number."""
        self._need(product(known_shape(self.shape)) == 1, "one element; tolist() takes many")
        return host.unpack(self.data(), self.dtype)[0]

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        value = self.item()
        if isinstance(value, float):
            raise ArgumentError(f"index: {self.dtype.name} is no index. Cast to an integer type.")
        return int(value)

    # ---- what others made ----

    @classmethod
    def from_numpy(cls, array: np.ndarray) -> Self:
        """A tensor over the memory of a numpy array: what is written to one shows in the other.

        What cannot be shared is copied: read-only arrays, another byte order, rows that overlap.
        """
        if not hasattr(array, "__array_interface__"):
            raise ArgumentError(
                f"from_numpy: {type(array).__name__} is no numpy array. Use Tensor(...) for lists "
                "and numbers, from_dlpack for arrays of other libraries."
            )
        shared = cls._over_memory(array, host.dtype_of_array(array))
        return cls._from_data(array) if shared is None else shared

    @classmethod
    def from_dlpack(
        cls, array: object, *, device: DeviceLike = None, copy: bool | None = None
    ) -> Self:
        """A tensor over the memory of another library's array, or of a DLPack capsule.

        Read-only memory is copied, and any is if `copy` is True; SharingError if it is False and
        the memory cannot be shared.
        """
        peer = dlpack.Peer(array)
        found: np.ndarray = host.numpy_module().from_dlpack(peer)
        dtype = host.dtype_of_array(found) if peer.name is None else dtypes.from_name(peer.name)
        tensor = None if copy else cls._over_memory(found, dtype)
        if tensor is None and copy is False:
            raise SharingError(
                "from_dlpack: this memory cannot be shared: it is read-only, its rows overlap, or "
                f"{device_name(None)} has memory of its own. Allow the copy."
            )
        if tensor is None:
            data = replace(host.from_array(found, None), dtype=dtype)
            tensor = cls._from_data(host.stored_node(data, device_name(None)))
        return tensor if device is None else cls._from_data(tensor.uop, device)

    @classmethod
    def _over_memory(cls, array: np.ndarray, dtype: DType) -> Self | None:
        """A tensor over the memory of an array; None where that cannot be."""
        name = backends.default_device()
        steps = [step // dtype.itemsize for step in array.strides]
        address, is_read_only = array.__array_interface__["data"]
        is_even = not any(step % dtype.itemsize for step in (address, *array.strides))
        can_share = is_even and driver(name).is_host and not driver(name).checks_accesses
        if is_read_only or not can_share or not array.dtype.isnative or not array.size:
            return None
        ways = [(size - 1) * step for size, step in zip(array.shape, steps, strict=True)]
        start = address + sum(min(way, 0) for way in ways) * dtype.itemsize
        size = 1 + sum(map(abs, ways))
        memory = Buffer.over(name, start, size * dtype.itemsize, array)
        flat = cls._from_data(holdings.adopt(memory, size, dtype))
        view = flat._with_strides(array.shape, steps)
        return None if view is None else cls._from_data(view.uop)

    def _with_strides(self, shape: tuple[int, ...], strides: Sequence[int]) -> Self | None:
        """Elements in a row, seen with strides: axes, the widest first, as rows of their stride.

        None where rows overlap.
        """
        view: Self = self
        lead: list[int] = []
        order = argsort([-abs(stride) for stride in strides])
        for axis in order:
            size, stride, count = shape[axis], abs(strides[axis]), known_shape(view.shape)[-1]
            if size == 1 or stride == 0:
                size, stride = 1, count
            inside = count - (size - 1) * stride
            if inside > stride:
                return None
            view = view._beside_zeros(len(lead), 0, size * stride - count)
            view = view._reshape((*lead, size, stride))
            lead.append(size)
            view = view._slice(len(lead), 0, inside)
        view = view._reshape(tuple(lead))._permute(argsort(order))
        return view._flip(tuple([n for n in order if strides[n] < 0]))._expand(shape)

    # ---- what others are given ----

    def _array(self, copy: bool | None = None, is_writable: bool = False) -> np.ndarray:
        """The values as numpy sees them, types that it lacks as unsigned numbers.

        SharingError where that takes a copy and none may be made.
        """
        module, name, shape = host.numpy_module(), self.dtype.name, known_shape(self.shape)
        if self._is_strange():
            name = f"uint{8 * self.dtype.itemsize}"
        node = with_bound_values(self._realized())
        chain, base = split_view(node)
        found: np.ndarray
        is_own = False
        if base.op is Op.BUFFER and all(step.op in _MOVES for step in chain):
            memory = engine.memory_to_read(base)
            is_own = memory.driver.is_host
            data = memory.memory() if is_writable and is_own else memory.contents()
            found = flat = module.frombuffer(data, name)
            for step in reversed(chain):
                found = _MOVES[step.op](module, found, step.arg)
            is_own = is_own and (not found.size or module.shares_memory(flat, found))
        else:
            found = module.frombuffer(engine.contents(node), name).reshape(shape)
        if copy is False and not is_own:
            raise SharingError(
                f"copy=False: a tensor of shape {show_shape(self.shape)} on {self.uop.device} has "
                "no memory that shows its values in order. Allow the copy."
            )
        return found.copy() if copy or (is_writable and not found.flags.writeable) else found

    def _is_strange(self) -> bool:
        """Whether numpy lacks the type."""
        return self.dtype.name in FORMATS

    def numpy(self) -> np.ndarray:
        """The values as a numpy array of its own memory; floats it lacks become float32.

        `numpy.asarray(x)` copies nothing, and cannot be written.
        """
        if self._is_strange():
            return self.cast(dtypes.float32).numpy()
        return self._array(copy=True)

    def data(self) -> memoryview:
        """The bytes of the values in row-major order, read-only.

        On a device of the processor this is the memory itself, in which later writes in place show.
        `memoryview(x)` is the same from Python 3.12 on.
        """
        return engine.contents(self._realized())

    def __buffer__(self, flags: int) -> memoryview:
        return self.data()

    def __array__(self, dtype: str | None = None, copy: bool | None = None) -> np.ndarray:
        found = self.numpy() if self._is_strange() else self._array(copy)
        is_other = dtype not in (None, found.dtype) or self._is_strange()
        if copy is False and is_other:
            raise SharingError(
                f"copy=False: {self.dtype.name} becomes {dtype or found.dtype}. Allow the copy."
            )
        return found.astype(dtype or found.dtype, copy=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU

    def __dlpack__(
        self,
        *,
        max_version: tuple[int, int] | None = None,
        copy: bool | None = None,
        **arguments: Any,  # noqa: ANN401 - numpy checks the rest of the protocol
    ) -> object:
        array = self._array(copy, is_writable=max_version is None)
        if min(array.strides, default=0) < 0:  # PyTorch cannot read backwards
            array = array.copy()
        if max_version is not None:
            arguments["max_version"] = max_version
        capsule = array.__dlpack__(**arguments)
        if self._is_strange():
            dlpack.name_words(capsule, self.dtype.name)
        return capsule

    def __array_namespace__(self, api_version: str | None = None) -> ModuleType:
        # A client of ours, which is loaded when somebody asks for it.
        return importlib.import_module("kernelet.array_api.namespace")
