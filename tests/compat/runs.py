"""Run a program under `python -m kernelet.compat`, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"


def output_of(*arguments: str, folder: Path | None = None, **environment: str) -> str:
    """What the program prints; its error output where it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "kernelet.compat", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **environment},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def printed(code: str, **environment: str) -> list[str]:
    """The lines that some code prints."""
    return output_of("-c", code, **environment).splitlines()
