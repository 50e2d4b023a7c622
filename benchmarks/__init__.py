"""How fast kernelet is, beside its peers and beside what the machine can do.

In:  workloads, each written once, and the frameworks that are installed.
Out: a JSON line for every measurement, and a Markdown table.

A client of the package: no part of the wheel. `python -m benchmarks --help` says how it is used.
"""
