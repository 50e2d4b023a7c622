"""What holds in every test: the same random examples each time, specs checked after passes.

Where whole folders are asked for, the tests are shared out among processes, one for each
processor; single files and tests run in the process that was started, which is sooner ready.
"""

import os

import pytest
from hypothesis import settings

from kernelet.base.config import update

MOST_WORKERS = 8  # each of them imports all tests first

settings.register_profile("deterministic", derandomize=True, deadline=None, database=None)
settings.register_profile("nightly", max_examples=2000, deadline=None)
settings.load_profile("deterministic")

update(VERIFY=1)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """How many processes `-n auto` means; 0 is this one."""
    asked = [argument.split("::")[0] for argument in config.args]
    if not all(os.path.isdir(config.invocation_params.dir / path) for path in asked):
        return 0
    return min(len(os.sched_getaffinity(0)), MOST_WORKERS)
