"""Words that every layer shares: element types, settings, errors, events, the disk cache.

In:  nothing of ours.
Out: plain values and small functions.
"""
