"""Every exception that kernelet raises on purpose.

KerneletError
├── UserError             what was asked cannot be done; the message says what to do
│   ├── ShapeError        (ValueError)    sizes do not fit
│   ├── DTypeError        (TypeError)     element types do not fit
│   ├── IndexingError     (IndexError)    an index is out of range or of the wrong kind
│   ├── ArgumentError     (ValueError)    any other argument
│   ├── SharingError      (BufferError, ValueError)  memory that needs a copy first
│   ├── GradientError     (RuntimeError)  a derivative that does not exist
│   ├── JitError          (RuntimeError)  a call that a captured function cannot replay
│   ├── DeviceError       (RuntimeError)  a device that is absent or cannot do this
│   ├── DataError         (ValueError)    a file that is not what it should be
│   └── DownloadError     (OSError)       a file that cannot be fetched
└── InternalError         (RuntimeError)  a bug of ours: carries the node and the pass

A message has three parts: what was asked, what was found, what to do.
"""

from __future__ import annotations


class KerneletError(Exception):
    """The root of the tree."""


class UserError(KerneletError):
    """What was asked cannot be done."""


class ShapeError(UserError, ValueError):
    """Sizes do not fit."""


class DTypeError(UserError, TypeError):
    """Element types do not fit."""


class IndexingError(UserError, IndexError):
    """An index is out of range or of the wrong kind."""


class ArgumentError(UserError, ValueError):
    """An argument is not one of those allowed."""


class SharingError(UserError, BufferError, ValueError):
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
