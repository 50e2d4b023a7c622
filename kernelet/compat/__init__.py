"""Run programs that were written for tinygrad, unchanged.

In:  `python -m kernelet.compat SCRIPT [ARGS]`, or `kernelet.compat.install()` before
     `import tinygrad`.
Out: tinygrad's module names hold kernelet's classes and functions.
"""

from kernelet.compat.modules import MissingName, install

__all__ = ["MissingName", "install"]
