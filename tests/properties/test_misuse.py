"""Every public call, each of its arguments wrong in turn: our error, or a call that could be meant.

The calls are found by their signatures, so that those to come are tried too. A value of a kind that
the signature does not name is never accepted.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from kernelet import Context, Tensor, nn
from kernelet.base.errors import UserError
from kernelet.nn.optim import lr_scheduler


def made(data: object, dtype: str = "float32") -> Tensor:
    """A tensor on the device that runs no compiler."""
    return Tensor(data, device="PYTHON", dtype=dtype)


MATRIX = made([[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]])
CUBE = made([[[1.0, 2.0], [3.0, 4.0]], [[0.5, 0.0], [1.0, -1.0]]])
IMAGE, VOLUME = made(np.arange(16.0).reshape(1, 1, 4, 4)), made(np.ones((1, 1, 2, 2, 2)))
PLACES, ROW = made([[0, 1, 2], [2, 1, 0], [1, 1, 1]], "int32"), made([0, 1, 2], "int32")
VECTOR, NUMBER = made([1.0, 2.0, 3.0]), made(2.0)
BYTES, WORDS = made([[1, 2]], "uint8"), made([1, 2], "uint32")
HUGE = 1 << 40
# Nothing may be one of these, unless it may be anything.
STRANGE = ({}, object(), 1j, b"x", [object()], ("x",))
WRONG = (
    *STRANGE,
    *("x", None, 0, -1, -7, 9, HUGE, 2.5, math.nan, math.inf, True),
    *((), [1, [2]], [[1, 2], [3]], (None,), (1, 2, 1, 1, 1), (-1, -1), (0.5, 0.5)),
    *(MATRIX, PLACES, MATRIX > 1, NUMBER, CUBE, made([])),
)
# What an argument is when it is right: by its call and name, by its name, by its annotation.
RIGHT: dict[str, object] = {
    "mask": MATRIX > 1,
    "index": PLACES,
    "indices": PLACES,
    "dim": 0,
    "axis": 0,
    "stop": 5,
    "shape": (3, 3),
    "order": (1, 0),
    "sizes": (1, 2),
    "formula": "i j -> j i",
    "params": [VECTOR],
    "kernel_size": 2,
    "output_size": (2, 2),
    "device": "CPU",
    "devices": ("CPU", "CPU:1"),
    "layers": [Tensor.relu],
    "lr_lambda": Tensor.exp,
    "milestones": [2],
    "DTypeLike": "int32",
    "Scalar | UOp": 0,
    "random_bits.key": WORDS,
    "random_bits.counter": WORDS,
    "array": np.ones((2, 3), np.float32),
    "upper": True,
    "q": 0.5,
    "shifts": 1,
    "einsum.formula": "ij,jk->ik",
    "einsum.operands": (MATRIX, MATRIX),
    "unflatten.sizes": (3, 1),
    "bmm.other": CUBE,
    "mv.vector": VECTOR,
    "weight": IMAGE,
    "conv1d.weight": CUBE,
    "conv3d.weight": VOLUME,
    "index_select.index": ROW,
    "nll_loss.target": ROW,
    "cross_entropy.target": ROW,
    "index_put.indices": (ROW,),
    "sparse_categorical_crossentropy.target": ROW,
    "scatter_reduce.reduce": "sum",
    "interpolate.size": (8, 8),
    "fold.output_size": (3, 3),
    "max_unpool2d.indices": IMAGE.int(),
    "pad.padding": ((1, 0), (0, 1)),
    "shrink.bounds": ((0, 2), (1, 3)),
    "meshgrid.others": VECTOR,
    "repeat.repeats": (1, 2),
    "tile.repeats": (1, 2),
    "lerp.weight": 2,
    "place": 0,
    "places": 0,
    "newton_schulz.params": (1.5, -0.5),
    "tensordot.dims": 1,
    "baddbmm.left": CUBE,
    "baddbmm.right": CUBE,
    "linear.weight": MATRIX,
    "schedulers": (),
    "int | Sequence[int]": 0,
    "int": 1,
    "float": 0.5,
    "bool": True,
    "Self | Scalar": 2,
    "Scalar": 2,
    "PerAxis": 2,
    "Dim": 1,
    "Size": 2,
    "Count": 2,
    "Share": 0.5,
    "Positive": 0.5,
    "Size | Sequence[Size]": 3,
}
OWN = {
    **dict.fromkeys(("one_hot", "bitwise_and", "bitwise_or", "bitwise_xor", "lshift"), PLACES),
    **dict.fromkeys(("rshift", "bitwise_not"), PLACES),
    **dict.fromkeys(("keccak", "unpack_bits", "pack_bits"), BYTES),
    **dict.fromkeys(("bmm", "baddbmm", "conv1d"), CUBE),
    "where": MATRIX > 1,
    "item": NUMBER,
    "backward": NUMBER,
    "conv3d": VOLUME,
    "meshgrid": VECTOR,
    "fold": made(np.ones((1, 4, 4))),
    "pixel_shuffle": made(np.ones((1, 4, 2, 2))),
}
IMAGES = ("conv", "pool", "interpolate", "pixel")
# They may be as large as one likes; it only takes long.
# These need more than arguments without a default, or a tensor computed from another.
NEED_MORE = {"clamp", "clip", "interpolate", "gradient", "backward"}
ENDLESS = {("newton_schulz", "steps"), ("randperm", "n"), ("multinomial", "num_samples")}
OPTIONS = {"dtype": "DTypeLike", "device": "DeviceLike", "requires_grad": "bool | None"}


def own(name: str) -> Tensor:
    """The tensor of which a method is called, a new one, as some write to it."""
    return Tensor(OWN.get(name, IMAGE if any(part in name for part in IMAGES) else MATRIX))


def parameters_of(function: Callable[..., object]) -> list[inspect.Parameter]:
    """The parameters but for `self` and `cls`, and the options of creation functions."""
    found = list(inspect.signature(function).parameters.values())
    if any(each.annotation == "Unpack[Options]" for each in found):
        only = inspect.Parameter.KEYWORD_ONLY
        rows = OPTIONS.items()
        found += [inspect.Parameter(n, only, annotation=k, default=None) for n, k in rows]
    return [
        p for p in found if p.name not in ("self", "cls", "tensor") and p.kind is not p.VAR_KEYWORD
    ]


def arguments(
    name: str, parameters: list[inspect.Parameter], wrong: dict[str, object]
) -> tuple[list[object], dict[str, object]]:
    """What a call needs, all of it right but for what is `wrong`."""
    given: list[object] = []
    named: dict[str, object] = {}
    for each in parameters:
        keys = (f"{name}.{each.name}", each.name, str(each.annotation))
        right = next((RIGHT[key] for key in keys if key in RIGHT), MATRIX)
        right = nn.optim.SGD([Tensor([1.0])]) if each.name == "optimizer" else right
        value = wrong.get(each.name, right)
        if each.kind is each.VAR_POSITIONAL:
            given += list(value) if value is right and isinstance(right, tuple) else [value]
        elif each.kind is each.POSITIONAL_ONLY or (each.default is each.empty and not each.kind):
            given.append(value)
        elif each.name in wrong or each.default is each.empty:
            only = each.kind is each.KEYWORD_ONLY or all(p.kind < 2 for p in parameters)
            named |= {each.name: value} if only else {}
            given += [] if only else [value]
    return given, named


def outcome(call: Callable[[], object], names: tuple[str, ...]) -> str:
    """What a call came to: "accepted", "refused", or what is wrong with how it was refused."""
    try:
        call()
    except UserError as error:
        first, _, rest = str(error).partition(": ")
        if not any(each.lower() in first.lower() for each in names):
            return f"the message does not begin with the name: {error}"
        return "refused" if re.search(r"[.;:] .+", rest, re.DOTALL) else f"no next step: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"


def could_be(value: object, kind: str) -> bool:
    """Whether the signature says that an argument may be such a value."""
    if any(value is each for each in STRANGE):
        return kind == "object"
    is_float = isinstance(value, float)
    return not is_float or bool(re.search("float|Scalar|Share|Positive|object|Like", kind))


def complaints(
    name: str, call: Callable[..., object], function: Callable[..., object]
) -> Iterator[str]:
    """All that is wrong when each argument is wrong in turn."""
    parameters = parameters_of(function)
    names = (name.strip("_"), function.__name__)
    for each in parameters:
        for value in WRONG:
            if value is HUGE and ((name, each.name) in ENDLESS or name[0].isupper()):
                continue
            given, named = arguments(name, parameters, {each.name: value})
            found = outcome(lambda g=given, n=named: call(*g, **n), names)  # type: ignore[misc]
            fine = found == "accepted" and could_be(value, str(each.annotation))
            if found != "refused" and not fine:
                yield f"{name}({each.name}={value!r}): {found}"


def methods() -> Iterator[tuple[str, Callable[..., object], Callable[..., object]]]:
    """The public methods of tensors, and the functions behind them."""
    for name in sorted({name for base in Tensor.__mro__ for name in vars(base)}):
        member = inspect.getattr_static(Tensor, name)
        function = getattr(member, "__func__", member)
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        found = getattr(Tensor, name)
        if isinstance(member, classmethod | staticmethod):
            yield name, found, function
        else:
            yield name, lambda *g, n=name, f=found, **k: f(own(n), *g, **k), function


def classes() -> Iterator[tuple[str, Callable[..., object], Callable[..., object]]]:
    """The layers, optimizers and schedulers, and their constructors."""
    given = [getattr(module, name) for module in (nn, nn.optim) for name in module.__all__]
    found = [each for each in (*given, *vars(lr_scheduler).values()) if isinstance(each, type)]
    for each in sorted(set(found), key=lambda each: each.__name__):
        if each.__module__.startswith("kernelet.nn") and not inspect.isabstract(each):
            yield each.__name__, each, each.__init__


METHODS, CLASSES = list(methods()), list(classes())


def test_right_arguments_are_accepted() -> None:
    with Context(DEV="PYTHON"):
        for name, call, function in METHODS:
            given, named = arguments(name, parameters_of(function), {})
            if name not in NEED_MORE:
                found = outcome(lambda c=call, g=given, n=named: c(*g, **n), (name,))
                assert found == "accepted", name


@pytest.mark.parametrize("part", range(4))
def test_no_method_takes_or_breaks_on_a_wrong_argument(part: int) -> None:
    with Context(DEV="PYTHON"):
        assert not [text for each in METHODS[part::4] for text in complaints(*each)]


def test_no_constructor_takes_or_breaks_on_a_wrong_argument() -> None:
    with Context(DEV="PYTHON"):
        assert not [text for each in CLASSES for text in complaints(*each)]
