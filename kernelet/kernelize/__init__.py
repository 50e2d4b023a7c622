"""Stage 3: cut a graph into kernels.

In:  a SINK over a tensor-level graph whose memory is PARAM nodes.
Out: a Schedule: kernel calls in order, and the memory they need.
"""
