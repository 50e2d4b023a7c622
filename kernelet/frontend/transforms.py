"""Functions from functions: gradients, derivatives along a direction, and batches.

In:  a Python function of tensors, alone or inside of lists, tuples, dicts and dataclasses.
Out: a function that builds the graph of its derivative, or of all elements of a batch at once.

They nest, as in `vmap(grad(f))` and `grad(grad(f))`, and work inside of `TinyJit`. The definitions
are those of JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce, wraps
from operator import add
from typing import Any

from kernelet import backends, holdings
from kernelet.base.errors import ArgumentError, GradientError, ShapeError
from kernelet.frontend import history
from kernelet.frontend.arguments import checked
from kernelet.frontend.primitives import show_dim, show_shape
from kernelet.frontend.results import exchanged, for_each_tensor, mapped, tensors_in
from kernelet.frontend.tensor import Tensor
from kernelet.graph.batch import with_batch_axis
from kernelet.graph.infer import Dim
from kernelet.graph.movement import product_of
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.graph.walk import base_of, substitute

Function = Callable[..., Any]
Axis = int | None
BatchAxes = Axis | Sequence[Axis]


def _as_tensors(value: object) -> object:
    """A nested value with tensors in place of the floats and arrays in it."""
    is_plain = isinstance(value, float) or hasattr(value, "__array__")
    if is_plain and not isinstance(value, Tensor):
        return Tensor(value)
    return mapped(value, _as_tensors)


class _Opened:
    """A call of a function on leaves of its own, each equal to the tensor that was given."""

    def __init__(self, function: Function, primals: Sequence[object]) -> None:
        self._given: dict[UOp, UOp] = {}
        self._leaves = [for_each_tensor(_as_tensors(each), self._leaf) for each in primals]
        self.value: object = function(*self._leaves)

    def _leaf(self, tensor: Tensor) -> Tensor:
        if not tensor.dtype.is_float:
            return tensor
        leaf = tensor._create(tensor.uop, None, True)
        self._given[leaf.uop] = tensor.uop
        return leaf

    def closed(self, value: object) -> object:
        """A nested value as an expression of the tensors that were given."""
        return for_each_tensor(value, lambda part: part._wrap(substitute(part.uop, self._given)))

    def pulled(self, gradient: object, value: object) -> tuple[object, ...]:
        """The gradients of the arguments, nested as they are, from that of `value`."""
        results, seeds = tensors_in(value), tensors_in(_as_tensors(gradient))
        if [part.shape for part in results] != [part.shape for part in seeds]:
            wanted, found = (", ".join(show_shape(p.shape) for p in ps) for ps in (results, seeds))
            raise GradientError(
                f"vjp: the function returned shapes {wanted or 'of no tensor'}, the gradient has "
                f"{found or 'no tensor'}. Give a gradient for each result, of its shape."
            )
        pairs = [pair for pair in zip(results, seeds, strict=True) if pair[0].dtype.is_float]
        leaves = list(self._given)
        total = reduce(add, [(result * seed.cast(result.dtype)).sum() for result, seed in pairs])
        parts = history.derivatives(total.uop, total._constant(1).uop, [[each] for each in leaves])
        known = dict(zip(leaves, parts, strict=True))

        def gradient_of(leaf: Tensor) -> Tensor:
            node = known.get(leaf.uop)
            return leaf.zeros_like() if node is None else leaf._wrap(node)

        return tuple([self.closed(for_each_tensor(leaf, gradient_of)) for leaf in self._leaves])


def vjp(function: Function, *primals: object) -> tuple[Any, Function]:
    """The value of `function`, and the function that pulls a gradient of it back to `primals`.

    That one returns a gradient for each of `primals`, nested as it is.

    >>> value, pull = vjp(lambda x: x * x, Tensor([1.0, 3.0]))
    >>> pull(Tensor([1.0, 10.0]))[0].tolist()
    [2.0, 60.0]
    """
    call = _Opened(function, primals)
    return call.closed(call.value), lambda gradient: call.pulled(gradient, call.value)


def jvp(
    function: Function, primals: Sequence[object], tangents: Sequence[object]
) -> tuple[Any, Any]:
    """The value of `function` at `primals`, and its derivative along `tangents`.

    >>> value, slope = jvp(lambda x: x * x, (Tensor([1.0, 3.0]),), (Tensor([1.0, 10.0]),))
    >>> slope.tolist()
    [2.0, 60.0]
    """
    value, pull = vjp(function, *primals)
    # Pulling back is linear, and what pulls back through it pushes forward.
    _, push = vjp(pull, for_each_tensor(value, lambda part: part.ones_like()))
    return value, push(tuple(tangents))[0]


@checked
def value_and_grad(
    function: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Function:
    """A function that returns the value of `function` and its gradient.

    `function` returns one float scalar; with `has_aux` that and anything else, which is handed
    through. The gradient is one for the argument number `argnums`, or a tuple for several.

    >>> value_and_grad(lambda x: (x * x).sum())(Tensor([1.0, 3.0]))[1].tolist()
    [2.0, 6.0]
    """

    @wraps(function)
    def value_and_grad_(*arguments: object, **options: object) -> tuple[object, object]:
        call = _opened_at(argnums, partial(function, **options), arguments)
        loss = call.value[0] if has_aux and isinstance(call.value, tuple) else call.value
        if not isinstance(loss, Tensor) or not loss.dtype.is_float or product_of(loss.shape) != 1:
            kind = type(loss).__name__
            if isinstance(loss, Tensor):
                kind = f"a tensor of shape {show_shape(loss.shape)} and type {loss.dtype.name}"
            raise GradientError(
                f"grad: the function returned {kind}. Only a float scalar has a gradient: reduce "
                "the result with sum() or mean(), or use jacobian()."
            )
        found = call.pulled(loss.ones_like(), loss)
        return call.closed(call.value), found[0] if isinstance(argnums, int) else found

    return value_and_grad_


def _opened_at(
    argnums: int | Sequence[int], function: Function, arguments: Sequence[object]
) -> _Opened:
    """A call on leaves in place of the arguments with these numbers."""
    count = len(arguments)
    chosen = [argnums] if isinstance(argnums, int) else list(argnums)
    if any(not -count <= place < count for place in chosen):
        raise ArgumentError(
            f"grad: argnums={argnums} of {count} positional arguments. Number those that are "
            "given, from 0."
        )

    def of_chosen(*parts: object) -> object:
        given = dict(zip([place % count for place in chosen], parts, strict=True))
        return function(*[given.get(at, each) for at, each in enumerate(arguments)])

    return _Opened(of_chosen, [arguments[place] for place in chosen])


@checked
def grad(function: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """A function that returns the gradient of `function`; with `has_aux` also what else it returns.

    >>> grad(grad(lambda x: x**3))(Tensor(2.0)).item()
    12.0
    """
    both = value_and_grad(function, argnums, has_aux)

    @wraps(function)
    def grad_(*arguments: object, **options: object) -> object:
        value, found = both(*arguments, **options)
        return (found, value[1]) if has_aux else found

    return grad_


@checked
def jacobian(function: Function, argnums: int = 0) -> Function:
    """A function that returns the derivative of each result by each element of an argument.

    For a result of shape S and an argument of shape T it has shape S + T. All rows are computed at
    once: the number of kernels does not depend on their number.

    >>> jacobian(lambda x: x * x)(Tensor([1.0, 3.0])).tolist()
    [[2.0, 0.0], [0.0, 6.0]]
    """

    @wraps(function)
    def jacobian_(*arguments: object, **options: object) -> object:
        call = _opened_at(argnums, partial(function, **options), arguments)

        def rows_of(result: Tensor) -> object:
            size = int(product_of(result.shape))  # type: ignore[arg-type]
            basis = Tensor.eye(size, dtype=result.dtype).reshape(size, *result.shape)
            rows = vmap(lambda seed: call.pulled(seed, result)[0])(basis)
            return for_each_tensor(rows, lambda part: part.reshape(*result.shape, *part.shape[1:]))

        return call.closed(for_each_tensor(call.value, rows_of))

    return jacobian_


def hessian(function: Function, argnums: int = 0) -> Function:
    """A function that returns the second derivatives of a scalar `function`: shape T + T.

    >>> hessian(lambda x: (x**3).sum())(Tensor([1.0, 2.0])).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    """
    return jacobian(grad(function, argnums), argnums)


@checked
def vmap(function: Function, in_axes: BatchAxes = 0, out_axes: int = 0) -> Function:
    """A function that computes `function` for every element of a batch at once.

    `in_axes` says for each argument along which axis the batch is, None that it is the same for
    all; `out_axes` where each result has it. Inside `function` tensors have the shape of one
    element, and random numbers that it draws are the same for all. The graph gets one more axis:
    the number of kernels does not depend on the batch.

    >>> vmap(lambda x, y: (x * y).sum())(Tensor([[1, 2], [3, 4]]), Tensor([[5, 6], [7, 8]])).tolist()
    [17, 53]
    """

    @wraps(function)
    def vmap_(*arguments: object, **options: object) -> object:
        given: dict[UOp, UOp] = {}
        sizes: list[Dim] = []

        def element(tensor: Tensor, axis: Axis) -> Tensor:
            if axis is None:
                return tensor
            tensor._need_ndim(1)
            rows = tensor.movedim(axis, 0)
            sizes.append(rows.shape[0])
            leaf = _unknown(rows)
            given[base_of(leaf.uop)] = rows._reshape((rows.shape[0], *base_of(leaf.uop).shape)).uop
            return leaf

        inner = [
            for_each_tensor(argument, partial(element, axis=axis))
            for argument, axis in zip(arguments, _axes_for(in_axes, arguments), strict=True)
        ]
        if not sizes or any(size != sizes[0] for size in sizes):
            found = ", ".join(map(show_dim, sizes)) or "none"
            raise ShapeError(
                f"vmap: the sizes of the batch are {found}. Give tensors with one size along "
                "in_axes, at least one."
            )
        value = function(*inner, **options)
        results = {id(part): part for part in tensors_in(value)}
        made = with_batch_axis([part.uop for part in results.values()], given, sizes[0])
        whole = dict(zip(results, made, strict=True))

        return for_each_tensor(value, lambda part: part._wrap(whole[id(part)]).movedim(0, out_axes))

    return vmap_


def _unknown(rows: Tensor) -> Tensor:
    """A tensor like one of `rows`, of which nothing but shape, type and device is known."""
    shape = rows.shape[1:]
    size = product_of(shape)
    device = rows.uop.device or backends.default_device()
    if not isinstance(size, int) or not isinstance(device, str):
        raise ArgumentError(
            f"vmap: a tensor of shape {show_shape(rows.shape)} on {rows.device}. Its other axes "
            "must have sizes that are numbers, and it must be on one device."
        )
    return rows._wrap(UOp.buffer(size, rows.dtype, device))._reshape(shape)


def _axes_for(axes: BatchAxes, arguments: Sequence[object]) -> Sequence[Axis]:
    if axes is None or isinstance(axes, int):
        return [axes] * len(arguments)
    if len(axes) != len(arguments):
        raise ArgumentError(
            f"vmap: in_axes has {len(axes)} axes for {len(arguments)} arguments. Give one for each."
        )
    return axes


def checkpoint(function: Function) -> Function:
    """A function with the value of `function` that computes it again when gradients need it.

    What is computed on the way is not kept in memory until then: it trades time for memory.
    """

    @wraps(function)
    def recomputed(*arguments: object, **options: object) -> object:
        tensors = [part for part in tensors_in(arguments) if part.dtype.is_float]
        computed = [part for part in tensors if holdings.realized(part.uop) is None]
        stored = {id(part): part.contiguous() for part in computed}
        # Of what is in memory anyway one copy is enough to tell the second graph from the first.
        other = {id(part): part.clone() for part in tensors[:1]}
        if computed:
            other = {name: _same_memory(part) for name, part in stored.items()}
        value = function(*[exchanged(each, stored) for each in arguments], **options)
        again = [exchanged(each, other) for each in arguments]
        later = iter(tensors_in(function(*again, **options)))

        def linked(part: Tensor) -> Tensor:
            sources = (part.uop, next(later).uop)
            return part._wrap(UOp(Op.FUNCTION, part.dtype, sources, "identity"))

        return for_each_tensor(value, linked)

    return recomputed


def _same_memory(tensor: Tensor) -> Tensor:
    """The same memory under another name: what it holds after no write."""
    return tensor._wrap(UOp(Op.AFTER, tensor.dtype, (tensor.uop,)))
