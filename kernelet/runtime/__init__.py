"""Drivers: memory, compilers and launches, one file a device.

In:  source text of a kernel, bytes, addresses.
Out: running machine code and the bytes that it leaves.
"""
