"""The Python array API standard: one namespace for code that runs on arrays of any library.

In:  tensors, as `xp = x.__array_namespace__()` finds their functions.
Out: tensors.
"""
