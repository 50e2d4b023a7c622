"""kernelet: a small deep-learning framework whose every stage can be read."""

from kernelet.base.config import Context
from kernelet.base.counters import GlobalCounters
from kernelet.base.dtype import dtypes
from kernelet.frontend.tensor import Tensor

__all__ = ["Context", "GlobalCounters", "Tensor", "dtypes"]
