"""Takes its own name away and gives it to kernelet.

In:  `import tinygrad` in a process where nobody has called `install`.
Out: `sys.modules["tinygrad"]` as `install` has it.
"""

import importlib

from kernelet.compat.modules import install

if __name__ == "tinygrad":  # not where the file is only looked at
    install()
    importlib.import_module("tinygrad")
