"""Stage 4: one kernel becomes loops, then an ordered list of instructions.

In:  the graph of a kernel and the Target that it is for.
Out: a linear program.
"""
