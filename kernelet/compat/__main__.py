"""`python -m kernelet.compat SCRIPT [ARGS]`, `-m MODULE [ARGS]` or `-c CODE [ARGS]`."""

from __future__ import annotations

import os
import runpy
import sys

from kernelet.compat import inherited
from kernelet.compat.modules import install

USAGE = """usage: python -m kernelet.compat SCRIPT [ARGS]
       python -m kernelet.compat -m MODULE [ARGS]
       python -m kernelet.compat -c CODE [ARGS]

Runs a program that was written for tinygrad: `import tinygrad` finds kernelet.
"""


def main(arguments: list[str]) -> int:
    """Run what the arguments name, as Python itself would."""
    if not arguments or arguments[0] in ("-h", "--help"):
        (sys.stdout if arguments else sys.stderr).write(USAGE)
        return 0 if arguments else 2
    install()
    # Processes that the program spawns start without the finder, but with this path.
    sys.path.insert(1, os.path.dirname(inherited.__file__))
    kind, rest = arguments[0], arguments[1:]
    if kind not in ("-m", "-c"):
        sys.argv = arguments
        sys.path[0] = os.path.dirname(os.path.abspath(kind))
        runpy.run_path(kind, run_name="__main__")
    elif not rest:
        sys.stderr.write(USAGE)
        return 2
    elif kind == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [kind, *rest[1:]]
        exec(compile(rest[0], "<string>", "exec", dont_inherit=True), {"__name__": "__main__"})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
