"""`tinygrad.nn.state` where its arguments or results have another form than ours.

In:  models, files.
Out: what `kernelet.nn.state` makes of them.
"""

from __future__ import annotations

from typing import Any

from kernelet.base.dtype import DType, dtypes
from kernelet.frontend.tensor import Tensor
from kernelet.nn import state
from kernelet.nn.files import Source, open_source

__all__ = [
    *("get_state_dict", "inverse_safe_dtypes", "load_state_dict", "safe_dtypes"),
    "safe_load_metadata",
]

_SPECIAL = {"bool": "BOOL", "bfloat16": "BF16", "fp8e4m3": "F8_E4M3", "fp8e5m2": "F8_E5M2"}


def _safe_name(dtype: DType) -> str:
    letter = "F" if dtype.is_float else "U" if dtype.is_unsigned else "I"
    return _SPECIAL.get(dtype.name, f"{letter}{dtype.itemsize * 8}")


# The names that safetensors files have for element types.
inverse_safe_dtypes = {dtype: _safe_name(dtype) for dtype in dtypes.all}
safe_dtypes = {name: dtype for dtype, name in inverse_safe_dtypes.items()}


def safe_load_metadata(source: Source) -> tuple[Tensor, int, dict[str, Any]]:
    """The bytes of a safetensors file, where its elements start, and what its header says."""
    start, entries, notes = state.safe_load_metadata(source)
    header: dict[str, Any] = {"__metadata__": notes} if notes else {}
    for name, entry in entries.items():
        header[name] = {
            "dtype": inverse_safe_dtypes[entry.dtype],
            "shape": list(entry.shape),
            "data_offsets": [entry.begin, entry.end],
        }
    with open_source(source) as file:
        return Tensor(file.read()), start, header


def get_state_dict(obj: object, prefix: str = "", tensor_type: type = Tensor) -> dict[str, Tensor]:
    """`nn.state.get_state_dict`; tensors have one type here."""
    return state.get_state_dict(obj, prefix)


def load_state_dict(
    model: object,
    state_dict: dict[str, Tensor],
    strict: bool = True,
    verbose: bool = True,
    consume: bool = False,
    realize: bool = True,
) -> list[Tensor]:
    """`nn.state.load_state_dict`, which tells of unused names unless `verbose` is off."""
    return state.load_state_dict(model, state_dict, strict, verbose, consume, realize)
