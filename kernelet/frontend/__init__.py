"""Stage 1: what users write.

In:  Python values and calls of tensor methods.
Out: graphs, and calls of the engine where values are asked for.
"""
