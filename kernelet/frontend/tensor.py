"""The tensor that users hold: a handle on a graph node, lazy until its values are asked for.

In:  Python numbers, lists, numpy arrays, other tensors.
Out: `Tensor`, all of whose operations are inherited from the topic classes.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Sequence
from typing import Self, final

from kernelet import backends, engine, holdings
from kernelet.base import trace
from kernelet.base.config import Context
from kernelet.base.dtype import Scalar
from kernelet.base.errors import DTypeError, GradientError
from kernelet.frontend import history, host, live, sharding
from kernelet.frontend.attention import Attention
from kernelet.frontend.casts import Casts
from kernelet.frontend.convolution import Convolution
from kernelet.frontend.factorization import Factorization
from kernelet.frontend.hashing import Hashing
from kernelet.frontend.host import device_name, known_shape, node_of, stored_node
from kernelet.frontend.interchange import Interchange
from kernelet.frontend.interpolation import Interpolation
from kernelet.frontend.losses import Losses
from kernelet.frontend.modes import TensorType, gradients_on, no_grad
from kernelet.frontend.primitives import DeviceLike, product, show_shape
from kernelet.frontend.promotion import DTypeLike, as_dtype
from kernelet.graph.infer import max_dim
from kernelet.graph.ops import Op
from kernelet.graph.show import show
from kernelet.graph.uop import UOp
from kernelet.graph.walk import apply_view, split_view
from kernelet.programs import kernel_name

_PENDING_LIMIT = 8
_SHOWN = 1000

_leaf_numbers = itertools.count()


@final
class Tensor(
    Attention,
    Factorization,
    Convolution,
    Interpolation,
    Losses,
    Hashing,
    Interchange,
    Casts,
    metaclass=TensorType,
):
    """An array of numbers on a device.

    >>> (Tensor([1, 2, 3]) + 1).tolist()
    [2, 3, 4]
    """

    __slots__ = (
        "__weakref__",
        "_above",
        "_pending",
        "_steps",
        "born",
        "changed",
        "former",
        "grad",
        "is_leaf",
        "is_lost",
        "owner",
        "required",
        "uop",
    )
    __array_ufunc__ = None  # numpy leaves mixed arithmetic to us

    no_grad = no_grad

    def __init__(
        self,
        data: object = None,
        device: DeviceLike = None,
        dtype: DTypeLike = None,
        requires_grad: bool | None = None,
    ) -> None:
        self._start(node_of(data, device, None if dtype is None else as_dtype(dtype)))
        self.is_leaf = True
        self.requires_grad = requires_grad

    def _start(self, uop: UOp, required: bool | None = None) -> None:
        self.uop = uop
        self.required = required
        self.former: weakref.ref[UOp] | None = None
        self.is_leaf = self.is_lost = False
        self.owner: weakref.ref[live.Handle] | None = None
        self._above: tuple[tuple[weakref.ref[Tensor], int], ...] = ()
        self._steps: tuple[UOp, ...] = ()
        # The sum of the gradients that `backward` found.
        self.grad: Tensor | None = None
        self._pending = self.born = 0
        self.changed: live.Change = (0, 0)
        live.register(self)

    # ---- what the topic classes need ----

    @classmethod
    def _wrap(cls, uop: UOp) -> Self:
        if len(uop.src) > 1 and isinstance(uop.device, tuple):
            sharding.check_devices(uop.src)
        tensor = cls.__new__(cls)
        if not gradients_on.get() and uop.dtype.is_float and uop.op is not Op.DETACH:
            uop = UOp(Op.DETACH, uop.dtype, (uop,))
        tensor._start(uop)
        return tensor

    @classmethod
    def _create(cls, uop: UOp, device: DeviceLike, requires_grad: bool | None) -> Self:
        if device is not None and uop.device is None and device != backends.default_device():
            uop = UOp(Op.COPY, uop.dtype, (uop,), device_name(device))
        if uop.dtype.is_float:
            # Equal constants are one node: a number keeps the gradients of two leaves apart.
            uop = UOp(Op.DETACH, uop.dtype, (uop,), next(_leaf_numbers))
        tensor = cls.__new__(cls)
        tensor._start(uop, requires_grad)
        tensor.is_leaf = True
        return tensor

    @classmethod
    def _from_data(cls, data: object, device: DeviceLike = None, dtype: DTypeLike = None) -> Self:
        return cls(data, device, dtype)

    def _wrap_view(self, uop: UOp) -> Self:
        tensor = self._wrap(uop)
        if uop is not self.uop and uop.op in (Op.PAD, Op.EXPAND):
            return tensor
        steps: list[UOp] = []
        while uop is not self.uop:
            steps.insert(0, uop)
            uop = uop.src[0]
        moves = [step for step in steps if step.op is not Op.DETACH]
        above = [(weakref.ref(view), depth) for view, depth in self.views_above()]
        known = self._steps if above else ()
        tensor._above = (*above, (weakref.ref(self), len(known)))
        tensor._steps = (*known, *moves)
        return tensor

    # ---- facts ----

    @property
    def lazydata(self) -> UOp:
        """The node, under tinygrad's former name."""
        return self.uop

    @property
    def device(self) -> str | tuple[str, ...]:
        """The device that holds the values; all of them if the tensor is spread over several."""
        return self.uop.device or backends.default_device()

    __hash__ = object.__hash__

    # ---- values ----

    def realize(self, *others: Tensor) -> Self:
        """Compute this tensor (and the others) now; returns it."""
        live.realize([self, *others])
        return self

    def kernelize(self, *others: Tensor) -> Self:
        """Schedule the kernels of this tensor (and the others) without running them.

        DEBUG=2 lists them, DEBUG=6 shows their graphs too.
        """
        for kernel in engine.schedule([self.uop, *(each.uop for each in others)]).kernels:
            name = kernel_name(kernel)
            trace.emit("kernel", name, "is scheduled")
            if trace.wants("graph"):
                trace.emit("graph", name, show(kernel))
        return self

    def _realized(self) -> UOp:
        self.realize()
        node = holdings.realized(live.without_detach(self.uop))
        assert node is not None
        return node

    def __repr__(self) -> str:
        shape = show_shape(self.shape)
        if holdings.realized(live.without_detach(self.uop)) is None:
            return f"<Tensor {shape} {self.dtype.name} on {self.device}, lazy>"
        if max_dim(product(self.shape)) > _SHOWN:
            return f"<Tensor {shape} {self.dtype.name} on {self.device}, realized>"
        return f"Tensor({self.tolist()}, dtype={self.dtype!r}, device={self.device!r})"

    def __reduce__(self) -> tuple[object, ...]:
        data = host.HostData(bytes(self.data()), known_shape(self.shape), self.dtype)
        return _rebuild, (data, self.required, self.device, sharding.axis_of(self.uop))

    # ---- devices and types ----

    def to(self, device: DeviceLike) -> Self:
        """The same values on another device; whole on each of several."""
        return self if device_name(device) == self.device else self.shard(device)

    def to_device(self, device: DeviceLike, /, *, stream: None = None) -> Self:
        """The same as `to`, under the name of the array API."""
        return self.to(device)

    def to_(self, device: DeviceLike) -> Self:
        """Move this tensor to another device, or to several."""
        return self._stand_for(self.to(device))

    def _stand_for(self, other: Tensor) -> Self:
        """Have the value of `other` from now on; returns this tensor."""
        self.uop = other.uop
        live.note_change(self)
        return self

    def shard(self, devices: DeviceLike, axis: int | None = None) -> Self:
        """The same values on several devices: cut along `axis`, or whole on each."""
        return self._wrap(sharding.sharded(self, devices, axis))

    def shard_like(self, other: Tensor) -> Self:
        """The same values on the devices of `other`, cut as it is."""
        return self.shard(other.device, sharding.axis_of(other.uop))

    def shard_(self, devices: DeviceLike, axis: int | None = None) -> Self:
        """Move this tensor to several devices, as `shard`."""
        return self._stand_for(self.shard(devices, axis))

    def clone(self) -> Self:
        """A copy in memory of its own, through which gradients pass."""
        return self._wrap(UOp(Op.CONTIGUOUS, self.dtype, (self.uop,)))

    # ---- writing ----

    def assign(self, value: Tensor | Scalar | Sequence[object]) -> Self:
        """Give this tensor other values; in its memory where it has some; returns it.

        A view writes through to the tensor that it is a view of. No gradient passes.
        """
        self._write(self._as_value(value).detach())
        self.is_leaf = True
        return self

    def replace(self, other: Tensor) -> Self:
        """Let this tensor stand for the value of `other`."""
        self.former, self.is_leaf = None, other.is_leaf
        self._above = self._steps = ()
        return self._stand_for(other)

    def _cast_value(self, value: Tensor | Scalar | Sequence[object]) -> Tensor:
        """`value` in this tensor's type; what is no tensor yet on its device."""
        if isinstance(value, list | tuple | range):
            value = self._from_data(value, self.uop.device)
        return self._operand(value, self.dtype).cast(self.dtype)

    def _as_value(self, value: Tensor | Scalar | Sequence[object]) -> Tensor:
        """`value` in this tensor's shape and type."""
        return self._cast_value(value)._fitted(self.shape)

    def views_above(self) -> list[tuple[Tensor, int]]:
        """The tensors that this one is a view of, the widest first.

        With each, how many of this one's movements lead to it.
        """
        found = [(ref(), depth) for ref, depth in self._above]
        # A view that was replaced is none any more.
        return [(v, depth) for v, depth in found if v is not None and (v._above or not depth)]

    def _write(self, value: Tensor) -> None:
        if 0 in value.shape:
            return
        sharding.check_devices((self.uop, value.uop))
        above = self.views_above()
        base, start = above[0] if above else (self, 0)
        base._overwrite(self._steps[start:] if above else (), value)
        base.former = None
        live.note_change(base)
        for view, depth in [*above, (self, len(self._steps))][1:]:
            view.uop = apply_view(self._steps[start:depth][::-1], base.uop)
            view.former = None
            live.note_change(view)

    def _overwrite(self, steps: tuple[UOp, ...], value: Tensor) -> None:
        """Write `value` to the part of this tensor that the movements `steps` lead to."""
        live.settle(self)
        chain, storage = split_view(self.uop)
        if isinstance(self.device, tuple):
            changed = self._with_part(steps, value)
            self.uop, self.former = sharding.overwritten(self.uop, changed.uop), None
            return
        writable = storage.op in (Op.BUFFER, Op.AFTER) and not live.repeats(chain)
        if not writable and not steps:
            self.uop = value.uop
            return
        if any(step.op is Op.PAD for step in steps):
            # A slice whose last step reaches past the end is no plain view of the memory.
            self._overwrite((), self._with_part(steps, value))
            return
        if not writable:
            storage, chain = self._stored()
        whole = apply_view(chain, storage)
        target = apply_view(steps[::-1], whole)
        if value.uop is target:
            return
        write = UOp(Op.ASSIGN, self.dtype, (target, value.uop))
        written = apply_view(chain, UOp(Op.AFTER, self.dtype, (storage, write)))
        if history.computed_from(self.uop) is not None:
            history.remember(written, self._with_part(steps, value).uop)
        self.uop, self.former = written, None

    def _with_part(self, steps: tuple[UOp, ...], value: Tensor) -> Tensor:
        """This tensor with `value` in place of the part that the movements `steps` lead to."""
        if not steps:
            return value
        return self._replaced(self._wrap(apply_view(steps[::-1], self.uop)), value)

    def _stored(self) -> tuple[UOp, list[UOp]]:
        """This lazy value in memory that nothing else names, and the movements above it."""
        shape = known_shape(self.shape)
        size = math.prod(shape)
        assert isinstance(self.device, str)
        buffer = holdings.new_buffer(None, size, self.dtype, self.device)
        flat = UOp(Op.RESHAPE, self.dtype, (self.uop,), (size,))
        fill = UOp(Op.ASSIGN, self.dtype, (buffer, flat))
        after = UOp(Op.AFTER, self.dtype, (buffer, fill))
        return after, [UOp(Op.RESHAPE, self.dtype, (after,), self.shape)]

    def __setitem__(self, index: object, value: Tensor | Scalar | Sequence[object]) -> None:
        given = self._cast_value(value)
        if isinstance(index, Tensor) and index.dtype.is_bool and given.ndim == 0:
            # Without a look at the mask: its shape fits the first axes.
            self._check_mask(index)
            missing = (1,) * (self.ndim - index.ndim)
            self._write(index._reshape((*index.shape, *missing)).where(given, self))
            return
        part, picks = self._part(index)
        filled = part._with_picks(picks, given) if picks else part._as_value(given)
        part._write(filled)

    def _in_place(self, result: Tensor) -> Tensor:
        fits = self.dtype.is_float or not result.dtype.is_float
        wanted = f"a tensor that holds {result.dtype.name}, or write x = x + y"
        self._need(fits, wanted, DTypeError)
        self._write(self._as_value(result))
        return self

    # ---- gradients ----

    @property
    def requires_grad(self) -> bool | None:
        """What the user said; for a result, whether it was computed from such a tensor."""
        if self.required is not None or self.is_leaf or not self.dtype.is_float:
            return self.required
        return live.requires_history(self.uop) or None

    @requires_grad.setter
    def requires_grad(self, value: bool | None) -> None:
        fits = not value or self.dtype.is_float
        self._need(fits, "floats, which have gradients: cast the tensor", GradientError)
        self.required = value

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Say whether `backward` gives this tensor a gradient; returns it."""
        self.requires_grad = requires_grad
        return self

    def gradient(self, *targets: Tensor, gradient: Tensor | None = None) -> list[Tensor]:
        """The derivatives of this scalar with respect to `targets`; they can be derived again.

        >>> x = Tensor([3.0])
        >>> (x * x).sum().gradient(x)[0].tolist()
        [6.0]
        """
        for target in targets:
            target._need(target.dtype.is_float, "float targets: cast them before", GradientError)
        found = self._gradients(list(targets), gradient)
        for target, each in zip(targets, found, strict=True):
            is_lost = each is None and 0 not in target.shape
            if is_lost and not history.depends_on(self.uop, live.nodes_of(target)):
                raise GradientError(
                    f"gradient: the tensor was not computed from the target of shape "
                    f"{show_shape(target.shape)}, or its history is gone. Use the target in the "
                    "formula, and requires_grad=True if values are realized between."
                )
        rows = zip(targets, found, strict=True)
        return [target._constant(0) if each is None else each for target, each in rows]

    def backward(self, gradient: Tensor | None = None, retain_graph: bool = False) -> Self:
        """Add the derivatives of this scalar to `grad` of every leaf below it; returns it."""
        targets = [
            tensor
            for tensor in live.live_tensors()
            if isinstance(tensor, Tensor)
            and tensor.dtype.is_float
            and tensor.required is not False
            and (tensor.is_leaf or tensor.required)
        ]
        gradients = self._gradients(targets, gradient)
        if all(found is None for found in gradients):  # none but slopes of 0, as those of floor
            targets = [t for t in targets if history.reaches(self.uop, live.nodes_of(t))]
            gradients = [target._constant(0) for target in targets]
        wanted = "one made of float leaves; after values are realized, with requires_grad=True"
        self._need(gradients, wanted, GradientError)
        for target, found in zip(targets, gradients, strict=True):
            if found is not None:
                target._add_gradient(found)
        overdue = [target for target in targets if target._pending >= _PENDING_LIMIT]
        live.realize([target.grad for target in overdue if target.grad is not None])
        for target in overdue:
            target._pending = 0
        return self

    def _gradients(self, targets: list[Tensor], gradient: Tensor | None) -> list[Tensor | None]:
        self._need(self.dtype.is_float, "a float tensor to start from", GradientError)
        is_one = gradient is not None or product(self.shape) == 1
        self._need(is_one, "one number, by sum() or mean(), or gradient=", GradientError)
        seed = self._constant(1) if gradient is None else self._as_value(gradient)
        names = [live.nodes_of(target) for target in targets]
        found = history.derivatives(self.uop, seed.uop, names)
        return [None if node is None else self._wrap(node) for node in found]

    def _add_gradient(self, found: Tensor) -> None:
        if self.grad is not None and self.grad.is_lost:
            return  # it tells so when it is used
        total = found if self.grad is None else self.grad + found
        total.required = False
        if self.required is None:
            total.owner = weakref.ref(self)
        self._pending = 0 if self.grad is None else self._pending + 1
        self.grad = total

    # ---- modes ----

    @staticmethod
    def train(mode: bool = True) -> Context:
        """Inside this context dropout and batch statistics are on."""
        return Context(TRAINING=int(mode))


def _rebuild(
    data: host.HostData, required: bool | None, device: str | tuple[str, ...], axis: int | None
) -> Tensor:
    near = device if axis is None else device[0]
    found = Tensor(stored_node(data, device_name(near)))
    found = found if axis is None else found.shard(device, axis).realize()
    return Tensor(found.uop, requires_grad=required)
