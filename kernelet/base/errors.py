"""Every exception that kernelet raises on purpose.

KerneletError
├── UserError             what was asked cannot be done; the message says what to do
│   ├── ShapeError        (ValueError)    sizes do not fit
│   ├── DTypeError        (TypeError)     element types do not fit
│   ├── IndexingError     (IndexError)    an index is out of range or of the wrong kind
│   ├── ArgumentError     (ValueError)    any other argument
│   ├── SharingError      (BufferError)   memory that others cannot see without a copy
│   ├── GradientError     (RuntimeError)  a derivative that does not exist
│   ├── JitError          (RuntimeError)  a call that a captured function cannot replay
│   ├── DeviceError       (RuntimeError)  a device that is absent or cannot do this
│   ├── DataError         (ValueError)    a file that is not what it should be
│   └── DownloadError     (OSError)       a file that cannot be fetched
└── InternalError         (RuntimeError)  a bug of ours: carries the node and the pass

A message has three parts: what was asked, what was found, what to do. A traceback ends with the line
of the user's that asked.
"""

from __future__ import annotations

import linecache
import sys
from types import FrameType

_OURS = frozenset({"kernelet", "contextlib"})


class KerneletError(Exception):
    """The root of the tree."""


class UserError(KerneletError):
    """What was asked cannot be done: the message names the call, a note shows the line of it."""

    def __init__(self, message: str, *_others: object) -> None:
        call, frame = "", sys._getframe(1)
        while _module_of(frame) in _OURS and frame.f_back is not None:
            call, frame = _name_of(frame) or call, frame.f_back
        is_named = call.lower() in message.partition(": ")[0].lower()
        self.args = (message if is_named else f"{call}: {message}",)
        code, number = frame.f_code, frame.f_lineno
        line = linecache.getline(code.co_filename, number, frame.f_globals).strip()
        self.add_note(
            f'  File "{code.co_filename}", line {number}, in {code.co_name}\n    {line}'.rstrip()
        )


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def _name_of(frame: FrameType) -> str:
    """What the user calls the function of a frame: `Tensor` for its constructor, `add` for +."""
    name = frame.f_code.co_name
    if name in ("__init__", "__call__", "__enter__"):
        known = frame.f_locals  # to look keeps all of them alive as long as the frame
        return type(known["_given"][0] if "_given" in known else known.get("self")).__name__
    return name.replace("<lambda>", "").strip("_<>")


class ShapeError(UserError, ValueError):
    """Sizes do not fit."""


class DTypeError(UserError, TypeError):
    """Element types do not fit."""


class IndexingError(UserError, IndexError):
    """An index is out of range or of the wrong kind."""


class ArgumentError(UserError, ValueError):
    """An argument is not one of those allowed."""


class SharingError(UserError, BufferError):
    """Memory cannot be shared as it is; a copy would do."""


class GradientError(UserError, RuntimeError):
    """A derivative that does not exist was asked for."""


class JitError(UserError, RuntimeError):
    """A captured function cannot replay this call."""


class DeviceError(UserError, RuntimeError):
    """A device is absent or cannot do this."""


class DataError(UserError, ValueError):
    """A file is not what it should be."""


class DownloadError(UserError, OSError):
    """A file cannot be fetched."""


class InternalError(KerneletError, RuntimeError):
    """A bug of ours."""
