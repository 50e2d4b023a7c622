"""What holds in every test: the same random examples each time, and specs checked after passes."""

from hypothesis import settings

from kernelet.base import config

settings.register_profile("deterministic", derandomize=True, deadline=None, database=None)
settings.register_profile("nightly", max_examples=2000, deadline=None)
settings.load_profile("deterministic")

config.update(VERIFY=1)
