"""The tensors of a model by name, and files that hold them.

In:  objects whose attributes, lists and dicts hold tensors; files.
Out: dicts from dotted names to tensors, and models filled from such dicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import FunctionType, MethodType, ModuleType

from kernelet.base import trace
from kernelet.base.errors import ArgumentError, ShapeError
from kernelet.frontend.jit import TinyJit
from kernelet.frontend.tensor import Tensor
from kernelet.nn.archives import tar_extract, zip_extract
from kernelet.nn.gguf import gguf_load
from kernelet.nn.safetensors import safe_load, safe_load_metadata, safe_save
from kernelet.nn.torch_files import torch_load

__all__ = [
    "get_parameters",
    "get_state_dict",
    "gguf_load",
    "load_state_dict",
    "safe_load",
    "safe_load_metadata",
    "safe_save",
    "tar_extract",
    "torch_load",
    "zip_extract",
]

# What may hang on a model without being a part of it.
NOT_WALKED = (type, ModuleType, FunctionType, MethodType, TinyJit)


def get_state_dict(obj: object, prefix: str = "") -> dict[str, Tensor]:
    """Every tensor below `obj` by its dotted name.

    >>> list(get_state_dict({"layers": [Tensor([1]), Tensor([2])]}))
    ['layers.0', 'layers.1']
    """
    found: dict[str, Tensor] = {}
    _collect(obj, prefix.strip("."), found, set())
    return found


def _collect(obj: object, name: str, found: dict[str, Tensor], above: set[int]) -> None:
    if isinstance(obj, Tensor):
        found[name] = obj
        return
    # An object may refer to one that holds it.
    if id(obj) in above:
        return
    above = above | {id(obj)}
    start = f"{name}." if name else ""
    for key, value in parts(obj):
        _collect(value, f"{start}{key}", found, above)


def parts(obj: object) -> list[tuple[object, object]]:
    """What an object holds, with the keys, positions or names of attributes."""
    if isinstance(obj, tuple) and hasattr(obj, "_asdict"):
        obj = obj._asdict()
    if isinstance(obj, Mapping):
        return list(obj.items())
    if isinstance(obj, list | tuple):
        return list(enumerate(obj))
    if isinstance(obj, NOT_WALKED):
        return []
    names = [each.name for each in fields(obj)] if is_dataclass(obj) else []
    found = {name: getattr(obj, name, None) for name in names}
    return list((found | getattr(obj, "__dict__", {})).items())


def get_parameters(obj: object) -> list[Tensor]:
    """Every tensor below `obj`, once."""
    return list({id(tensor): tensor for tensor in get_state_dict(obj).values()}.values())


def load_state_dict(
    model: object,
    state_dict: dict[str, Tensor],
    strict: bool = True,
    verbose: bool = False,
    consume: bool = False,
    realize: bool = True,
) -> list[Tensor]:
    """Give the tensors of `model` the values of the same name; returns those that were filled.

    Arrays and lists are values too. A tensor keeps its type, its device and, where it has some, its memory. `strict` refuses a name
    that is missing from `state_dict`; `consume` empties it on the way, to hold one copy at most.
    """
    model_state = get_state_dict(model)
    missing = [name for name in model_state if name not in state_dict]
    if strict and missing:
        raise ArgumentError(
            f"load_state_dict: {len(missing)} of the model's {len(model_state)} tensors are not in "
            f"the state dict: {_some(missing)}. It has {_some(list(state_dict))}. Check the names, "
            "or give strict=False."
        )
    unused = [name for name in state_dict if name not in model_state]
    if unused:
        kind = "warning" if verbose else "device"
        trace.emit(kind, "load_state_dict", f"the model has no {_some(unused)}")
    filled = []
    for name, tensor in model_state.items():
        if name not in state_dict:
            continue
        value = Tensor(state_dict.pop(name) if consume else state_dict[name])
        if value.shape != tensor.shape:
            raise ShapeError(
                f"load_state_dict: {name} has shape {tensor.shape} in the model and {value.shape} "
                "in the state dict. Build the model with the sizes that were saved."
            )
        filled.append(_fill(tensor, value))
        if realize and consume:
            tensor.realize()
    if realize and filled and not consume:
        Tensor.realize(*filled)
    return filled


def _fill(tensor: Tensor, value: Tensor) -> Tensor:
    required = tensor.requires_grad
    tensor.assign(value.detach().to(tensor.device).cast(tensor.dtype))
    tensor.requires_grad = required
    return tensor


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown or "nothing"
