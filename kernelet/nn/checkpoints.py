"""All that a training run needs to go on as if it had not stopped.

In:  the model, optimizers, schedulers, scalers and averages, and plain values as the step's number.
Out: one safetensors file, and the same objects filled from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from kernelet.base.errors import ArgumentError, DataError
from kernelet.frontend.tensor import Tensor
from kernelet.nn.files import Path, name_of
from kernelet.nn.safetensors import safe_load, safe_load_metadata, safe_save
from kernelet.nn.state import get_state_dict, load_state_dict

_FACTS = "kernelet"


def save_checkpoint(path: Path, **objects: object) -> None:
    """Write every tensor below the objects, the plain values and the state of random numbers.

    ``save_checkpoint("run.safetensors", model=model, optimizer=optimizer, step=step)``
    """
    tensors, values = _sorted_out(objects)
    try:
        facts = json.dumps({"values": values, "random": Tensor.random_state()})
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"save_checkpoint: {error}. Give objects that hold tensors, or numbers, texts, lists "
            "and dicts of them."
        ) from None
    safe_save(tensors, path, {_FACTS: facts})


def load_checkpoint(path: Path, **objects: object) -> dict[str, object]:
    """Fill the objects from a checkpoint and go on with its random numbers; its plain values.

    Give objects of the same names and sizes as to `save_checkpoint`; what is captured stays valid.
    """
    try:
        facts = json.loads(safe_load_metadata(path)[2][_FACTS])
        values, (seed, drawn) = dict(facts["values"]), facts["random"]
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{name_of(path)}: a safetensors file that `save_checkpoint` did not write. Read it "
            "with safe_load and load_state_dict."
        ) from None
    load_state_dict(_sorted_out(objects)[0], safe_load(path))
    Tensor.manual_seed(seed, drawn)
    return values


def _sorted_out(objects: Mapping[str, object]) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Each tensor under the first of its names, and what holds no tensors."""
    tensors: dict[int, tuple[str, Tensor]] = {}
    values = {}
    for name in sorted(objects):
        found = get_state_dict(objects[name], name)
        for key, tensor in found.items():
            tensors.setdefault(id(tensor), (key, tensor))
        if not found:
            values[name] = objects[name]
    return dict(tensors.values()), values
